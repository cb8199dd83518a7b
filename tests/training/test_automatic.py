"""Gradient rescaling with `auto`: decided, raised, recorded, resumed to the same bits, also when captured."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from hardsight import training
from hardsight.losses.automatic import AutomaticRescaling, between_cross_entropy_and_mae, halfway
from hardsight.losses.rescaling import GradientRescaling
from hardsight.training import evaluation
from hardsight.training.config import TrainingConfig
from hardsight.training.from_config import clip_of, make_objective
from hardsight.training.network import Network

AUTO = {"name": "gr", "options": {"beta": "auto", "lam": "auto"}}


def config(**changes: Any) -> TrainingConfig:
    tree = {"data": {"name": "digits"}, "model": {"name": "digits_cnn"}, "epochs": 6, "loss": AUTO}
    return TrainingConfig(**(tree | changes))


def objective(sizes: Any = None, **changes: Any) -> Any:
    from hardsight.losses.registry import Sizes

    return make_objective(config(**changes), sizes or Sizes(64, 10, 100))


def loop(problem: Any, small: Any, folder: Path, epochs: int = 6, lr: float = 0.05, **options: Any) -> training.Loop:
    model = small(dropout=0.0)
    loss = AutomaticRescaling(3, warm_up=epochs // 3)
    return training.Loop(
        model,
        problem.loader(),
        loss,
        torch.optim.SGD(model.parameters(), lr=lr),
        epochs=epochs,
        samples=problem.loader(shuffle=False),
        folder=folder,
        progress=False,
        **options,
    )


def test_names_and_options() -> None:
    fixed = objective(loss={"name": "gr", "options": {"beta": 4.0, "lam": 1.0}}).loss
    assert isinstance(fixed, GradientRescaling)
    assert (fixed.beta, fixed.lam) == (4.0, 1.0)
    automatic = objective().loss
    assert isinstance(automatic, AutomaticRescaling)
    assert automatic.classes == 10
    assert objective(loss={"name": "gr", "options": {"lam": "auto", "warm_up": 3}}).loss.warm_up == 3


def test_the_gradient_is_held_unless_the_configuration_says_how() -> None:
    assert clip_of(config(), objective()) == 1.0
    assert clip_of(config(clip=5.0), objective()) == 5.0
    assert clip_of(config(loss={"name": "gr"}), objective(loss={"name": "gr"})) is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"loss": {"name": "gr", "options": {"beta": "auto", "lam": 0.5}}}, 'both beta and lam "auto" or neither'),
        ({"loss": {"name": "gr", "options": {"beta": "auto", "warmup": 3}}}, "did you mean 'warm_up'"),
        ({"loss": {"name": "gr", "options": {"beta": "auto", "lamb": 0.5}}}, "did you mean 'lam'"),
        ({"loss": {"name": "gr", "options": {"beta": "auto", "warm_up": 0}}}, "warm_up must be at least 1"),
        ({"loss": {"name": "ggr"}}, "did you mean 'gr'"),
        ({"accumulate": 2}, 'accumulate must be 1 with beta and lam "auto"; got 2'),
    ],
)
def test_bad_options_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        objective(**changes)


def test_decided_after_the_warm_up_and_recorded(problem: Any, small: Any, tmp_path: Path) -> None:
    made = loop(problem, small, tmp_path, lr=0.2)
    made.run()
    loss = made.step.network.objective.loss
    rows = pq.read_table(tmp_path / "epochs.parquet").to_pylist()
    assert [row["estimated_noise_rate"] is None for row in rows] == [True] + [False] * 5
    rate = rows[-1]["estimated_noise_rate"]
    assert rate == pytest.approx(float(loss.rate))
    assert rate > 0.1, "15 % of the labels are wrong"
    assert (rows[1]["beta"], rows[1]["lam"]) in [between_cross_entropy_and_mae(lam) for lam in (0.5, 1.0)]


def test_lambda_rises_from_a_half_to_one(problem: Any, small: Any, tmp_path: Path) -> None:
    loop(problem, small, tmp_path, epochs=12, lr=0.3).run()
    rows = pq.read_table(tmp_path / "epochs.parquet").to_pylist()
    assert 0.1 < rows[3]["estimated_noise_rate"] < 0.5, "15 % of the labels are wrong"
    known = [row["train_accuracy"] > halfway(rows[3]["estimated_noise_rate"], 3) for row in rows]
    assert any(known[3:])
    # An epoch's row says what is in force from the next epoch on; the fourth is the last of the warm-up.
    lams = [1.0 if at >= 3 and any(known[3 : at + 1]) else 0.5 for at in range(len(rows))]
    assert [row["lam"] for row in rows] == lams
    assert [row["beta"] for row in rows] == [2 + 2 * lam for lam in lams]


def test_lambda_waits_for_the_warm_up_and_for_most_images(problem: Any, small: Any) -> None:
    loss = AutomaticRescaling(3, warm_up=7)
    network, samples = Network(small(), training.Objective(loss)), problem.loader(shuffle=False)
    loss.decide(0.2, accuracy=0.4)
    lams = []
    for epoch, accuracy in ((5, 0.4), (6, 0.7), (7, 0.4), (8, 0.5), (9, 0.4)):
        row = {"epoch": epoch, "train_accuracy": accuracy}
        lams.append(evaluation.end_epoch(network, samples, torch.device("cpu"), row, 20)["lam"])
    assert lams == [0.5, 0.5, 0.5, 1.0, 1.0]


def test_without_noise_cross_entropy_stays(problem: Any, small: Any, tmp_path: Path) -> None:
    clean = problem._replace(labels=problem.clean)
    made = loop(clean, small, tmp_path, epochs=15, lr=0.3)
    made.run()
    rows = pq.read_table(tmp_path / "epochs.parquet").to_pylist()
    assert rows[-1]["estimated_noise_rate"] < 0.1
    assert rows[-1].get("beta") is None
    assert rows[0]["lam"] == 0.5


def test_interrupted_and_resumed_is_the_same_bits(problem: Any, small: Any, tmp_path: Path) -> None:
    def made(folder: str, **options: Any) -> training.Loop:
        return loop(problem, small, tmp_path / folder, lr=0.2, **options)

    whole = made("whole").run()
    broken = made("broken", steps=training.Steps(checkpoint_every=4)).stepwise()
    for _ in range(20):
        next(broken)
    broken.close()
    resumed = made("broken", steps=training.Steps(checkpoint_every=4)).run()
    for ours, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    tables = [pq.read_table(tmp_path / one / "epochs.parquet").drop_columns(["seconds"]) for one in ("whole", "broken")]
    assert tables[0].equals(tables[1])


def test_a_collapsed_epoch_is_answered_with_cross_entropy(problem: Any, small: Any) -> None:
    loss = AutomaticRescaling(3)
    network = Network(small(), training.Objective(loss))
    loss.decide(0.2, accuracy=0.6)
    device, samples = torch.device("cpu"), problem.loader(shuffle=False)
    row = {"epoch": 4, "train_accuracy": 0.6}
    assert evaluation.end_epoch(network, samples, device, row, 9).keys() == {"estimated_noise_rate", "beta", "lam"}
    said = evaluation.end_epoch(network, samples, device, row | {"train_accuracy": 0.2}, 9)
    assert said == {"estimated_noise_rate": pytest.approx(0.2)}


@pytest.mark.gpu
@pytest.mark.usefixtures("untyped")
# Advice that this project does not take.
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
def test_a_captured_step_follows_the_decision(problem: Any, small: Any) -> None:
    """The epochs after the decision must differ from those without one although the graph was recorded before it."""
    from hardsight.training.feed import CapturedStep

    epochs, warm_up, losses = 12, 4, {}
    # lam stays 1/2.
    undecided = AutomaticRescaling(3, warm_up=99)
    undecided.decide(0.15)
    for kind, loss in (("auto", AutomaticRescaling(3, warm_up=warm_up)), ("plain", undecided)):
        model = small(dropout=0.0).cuda()
        made = training.Loop(
            model,
            problem.loader(device="cuda", drop_last=True),
            loss,
            torch.optim.SGD(model.parameters(), lr=0.3),
            epochs=epochs,
            samples=problem.loader(device="cuda", shuffle=False),
            device="cuda",
            progress=False,
            steps=training.Steps(precision="float32"),
        )
        assert isinstance(made.take_step, CapturedStep)
        losses[kind] = [row["train_loss"] for row in made.run().epochs]
        assert made.take_step.graph is not None
    assert losses["auto"][:warm_up] == pytest.approx(losses["plain"][:warm_up], rel=1e-3)
    assert losses["auto"][-1] != pytest.approx(losses["plain"][-1], rel=1e-3)
