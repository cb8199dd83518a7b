"""A training that goes wrong says so in one line, with what to try; one that goes well says nothing."""

import json

import pytest
import torch
from torch import nn

from hardsight import training
from hardsight.losses import GCELoss, GradientRescaling
from hardsight.training.progress import PATIENCE, Watch


def sgd(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


def watched(
    pairs: list[list[list[int]]], watch: Watch | None = None, loss: nn.Module | None = None, lr: float = 0.1
) -> list[str]:
    """What is said over epochs, each given as counts [labels, predictions] by class and how many of them are right."""
    watch = watch or Watch()
    said = []
    for given, predicted, (right,) in pairs:
        row = {"train_accuracy": right / sum(given), "learning_rate": lr}
        said += watch.epoch(row, torch.tensor([given, predicted]), loss or nn.CrossEntropyLoss())
    return said


EVEN = [100, 100, 100]


def test_accuracy_that_stays_at_chance_is_said_once() -> None:
    at_chance = [EVEN, [300, 0, 0], [100]]
    assert watched([at_chance] * (PATIENCE - 1)) == []
    (said,) = watched([at_chance] * 3 * PATIENCE)
    assert "33.3 %" in said
    assert "0.1" in said, "the learning rate that is too high, or too low"


def test_a_network_that_learns_is_not_at_chance() -> None:
    assert watched([[EVEN, EVEN, [140]]] * 2 * PATIENCE) == []
    # Once it is above chance, the count starts again.
    slow = [[EVEN, EVEN, [100]]] * (PATIENCE - 1) + [[EVEN, EVEN, [200]]]
    assert watched(slow * 3) == []


def test_chance_is_that_of_the_predictions_made_not_of_equal_classes() -> None:
    """With 90 % of one class, 90 % right by naming it always is chance, and 80 % right of mixed predictions is not."""
    assert len(watched([[[900, 100], [1000, 0], [900]]] * PATIENCE)) == 1
    assert watched([[[900, 100], [720, 280], [800]]] * 2 * PATIENCE) == []


def test_classes_that_no_sample_is_predicted_as_are_named() -> None:
    missing = [EVEN, [160, 140, 0], [180]]
    (said,) = watched([missing] * 2 * PATIENCE, Watch(class_names=["ant", "bee", "cat"]))
    assert "cat" in said
    assert not {"ant", "bee"} & set(said.replace(",", " ").split())
    # Without names their numbers; and nothing where the labels hold no such class either.
    assert " 2" in watched([missing] * PATIENCE)[0]
    assert watched([[[150, 150, 0], [160, 140, 0], [180]]] * 2 * PATIENCE) == []


def test_more_classes_that_disappear_are_said_again_but_not_each_by_itself() -> None:
    even = [100] * 8
    fewer = [[even, [800 // count] * count + [0] * (8 - count), [300]] for count in (7, 6, 5, 4)]
    said = watched([one for epochs in fewer for one in [epochs] * PATIENCE])
    assert len(said) == 3, "when one, two and four of eight are gone"


def test_the_advice_names_a_beta_that_is_too_large() -> None:
    missing = [[EVEN, [160, 140, 0], [180]]] * PATIENCE
    (said,) = watched(missing, loss=GradientRescaling(beta=16.0, lam=1.0))
    assert "16" in said
    assert "4.5" in said
    for stable in (GradientRescaling(beta=4.0, lam=1.0), GCELoss()):
        assert "4.5" not in watched(missing, loss=stable)[0]


class Constant(nn.Module):
    """Gives every image the same logits, whatever it learns."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.ones(len(images), 1))


def test_a_training_tells_and_records_it(problem, tmp_path, capsys) -> None:
    model = Constant()
    fitted = training.fit(
        model,
        problem.loader(),
        optimizer=sgd(model, 0.3),
        epochs=6,
        folder=tmp_path,
        details=training.Details(class_names=list("abc")),
    )
    (note,) = fitted.notes
    assert note in capsys.readouterr().err
    assert json.loads((tmp_path / "run.json").read_text())["notes"] == [note]


def test_a_training_that_goes_well_has_no_notes(problem, small, tmp_path) -> None:
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    fitted = training.fit(model, problem.loader(), optimizer=optimizer, epochs=6, folder=tmp_path, progress=False)
    assert fitted.notes == []
    assert "notes" not in json.loads((tmp_path / "run.json").read_text())


def test_an_interrupted_training_says_what_it_would_have_said(problem, tmp_path) -> None:
    def run(epochs: int) -> training.Fitted:
        torch.manual_seed(0)
        model = Constant()
        return training.fit(
            model, problem.loader(), optimizer=sgd(model, 0.3), epochs=epochs, folder=tmp_path, progress=False
        )

    assert run(PATIENCE - 1).notes == []
    (note,) = run(PATIENCE).notes
    assert run(PATIENCE + 2).notes == [note]


def test_a_loss_that_is_no_number_says_what_to_try(problem, small) -> None:
    model = small()
    with pytest.raises(training.NonFiniteLossError, match=r"learning rate.*clip") as stopped:
        training.fit(model, problem.loader(batch_size=90), optimizer=sgd(model, 1e30), epochs=3, progress=False)
    assert len(str(stopped.value)) < 300, "one line, however large the batch"
