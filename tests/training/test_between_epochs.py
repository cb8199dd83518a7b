"""Losses with a memory get their turn between epochs, at their papers' times."""

import pytest
import torch
from torch import nn

from hardsight import training
from hardsight.losses import AutomaticRescaling, local_intrinsic_dimensionality
from hardsight.losses.curriculum import D2L, MentorNetPD, SelfPaced
from hardsight.losses.joint import JointOptimisation
from hardsight.losses.robust import TruncatedGCELoss
from hardsight.training import evaluation
from hardsight.training.network import Network


def fit(problem, small, loss, epochs=6):
    model = small(dropout=0.0)
    training.fit(
        model,
        problem.loader(),
        loss,
        torch.optim.Adam(model.parameters(), lr=0.05),
        epochs=epochs,
        samples=problem.loader(shuffle=False),
        progress=False,
    )
    return model


def test_self_paced_threshold_grows_once_an_epoch(problem, small):
    loss = SelfPaced(threshold=2.0, growth=1.5)
    fit(problem, small, loss, epochs=3)
    assert float(loss.threshold) == pytest.approx(2.0 * 1.5**3)


def test_mentornet_is_told_the_progress(problem, small):
    loss = MentorNetPD()
    fit(problem, small, loss, epochs=4)
    assert float(loss.progress) == pytest.approx(3 / 4)


def test_truncated_gce_prunes_what_the_model_does_not_believe(problem, small):
    loss = TruncatedGCELoss(num_samples=90, k=0.5)
    assert loss.kept.all()
    fit(problem, small, loss, epochs=1)
    assert loss.kept.all(), "nothing is pruned before a third of the training"
    fit(problem, small, loss, epochs=6)
    wrong = problem.labels != problem.clean
    assert not loss.kept.all()
    # Wrong labels are the ones a young network does not believe.
    assert loss.kept[wrong].double().mean() < loss.kept[~wrong].double().mean()


def test_joint_optimisation_replaces_labels_after_a_third(problem, small):
    loss = JointOptimisation(90, 3)
    fit(problem, small, loss, epochs=2)
    assert bool(loss.replaced.all()), "epoch 1 of 2 lies behind 35 % of the training"
    loss = JointOptimisation(90, 3)
    fit(problem, small, loss, epochs=1)
    assert not loss.replaced.any()
    assert torch.allclose(loss.labels.sum(1), torch.zeros(90))


def test_d2l_takes_in_a_dimensionality_an_epoch(problem, small):
    loss = D2L(first_epochs=1, window=2)
    fit(problem, small, loss, epochs=4)
    assert int(loss.epochs_seen) == 3
    assert 0 < float(loss.smallest) < float("inf")


def end_epoch(loss, features, *, epoch=1, batch_size=100):
    """What happens after an epoch of a network that hands its inputs on as features."""
    model = nn.Sequential(nn.Identity(), nn.Linear(features.shape[1], 2))
    columns = (features, torch.zeros(len(features), dtype=torch.long), torch.arange(len(features)))
    batches = list(zip(*(column.split(batch_size) for column in columns), strict=True))
    row = {"epoch": epoch, "train_accuracy": 0.5}
    evaluation.end_epoch(Network(model, training.Objective(loss)), batches, torch.device("cpu"), row, 9)
    return loss


def dimensionality(features, **options):
    """What D2L is told."""
    return float(end_epoch(D2L(), features, **options).smallest)


def test_d2l_measures_samples_from_everywhere():
    """In a set sorted by class the first samples are of one class, whose dimensionality is not that of all."""
    generator = torch.Generator().manual_seed(0)
    flat, full = torch.zeros(3000, 12), torch.randn(3000, 12, generator=generator)
    flat[:, :2] = torch.randn(3000, 2, generator=generator)
    there, back = (dimensionality(torch.cat(halves)) for halves in ((flat, full), (full, flat)))
    first = local_intrinsic_dimensionality(flat[:128]).mean()
    assert there == pytest.approx(back, rel=0.05)
    assert there > 1.3 * first


def test_d2l_draws_anew_each_epoch_and_the_same_in_each_run():
    features = torch.randn(2000, 6, generator=torch.Generator().manual_seed(1))
    first = dimensionality(features, epoch=1)
    assert dimensionality(features, epoch=1) == first
    assert dimensionality(features, epoch=2) != first


def test_d2l_interrupted_and_resumed_is_the_same_bits(problem, small, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "_DIMENSION_SAMPLES", 40)

    def loop(folder):
        model = small()
        return training.Loop(
            model,
            problem.loader(),
            D2L(first_epochs=0, window=2),
            torch.optim.SGD(model.parameters(), lr=0.05),
            epochs=6,
            samples=problem.loader(shuffle=False),
            folder=folder,
            progress=False,
            steps=training.Steps(checkpoint_every=4),
        )

    whole = loop(tmp_path / "whole")
    whole.run()
    broken = loop(tmp_path / "broken").stepwise()
    for _ in range(20):
        next(broken)
    broken.close()
    resumed = loop(tmp_path / "broken")
    resumed.run()
    for ours, theirs in zip(*(one.step.network.state_dict().values() for one in (resumed, whole)), strict=True):
        assert torch.equal(ours, theirs)


def test_d2l_draws_every_sample_of_a_small_set():
    features = torch.randn(100, 6, generator=torch.Generator().manual_seed(1))
    assert dimensionality(features, batch_size=30) == pytest.approx(
        float(local_intrinsic_dimensionality(features).mean()), rel=1e-5
    )


def test_without_the_samples_such_a_loss_is_refused(problem, small):
    with pytest.raises(ValueError, match="samples must be given: D2L looks at the training set"):
        training.fit(small(), problem.loader(), D2L(), epochs=1, progress=False)
    training.fit(small(), problem.loader(), nn.CrossEntropyLoss(), epochs=1, progress=False)


def test_d2l_measures_features_whose_distances_overflow():
    features = torch.randn(100, 6, generator=torch.Generator().manual_seed(1))
    assert dimensionality(1e30 * features) == pytest.approx(dimensionality(features), rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "what"), [(D2L(), "features"), (AutomaticRescaling(2, warm_up=2), "outputs")], ids=["d2l", "automatic"]
)
def test_what_looks_at_the_samples_stops_where_they_have_no_numbers(loss, what):
    """As a loss that is no number stops: alone among trainings that run together, and with a sentence."""
    features = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    features[3] = float("nan")
    sentence = (
        f"the {what} are no finite numbers for 1 of 40 samples after epoch 2: the training has diverged, and a lower "
        "learning rate may help"
    )
    with pytest.raises(training.NonFiniteLossError, match=f"^{sentence}$"):
        end_epoch(loss, features, epoch=2)


def test_d2l_learns_nothing_of_too_few_samples():
    assert dimensionality(torch.eye(2)) == float("inf"), "no dimensionality was taken in"
