"""Losses with a memory get their turn between epochs, at their papers' times."""

import pytest
import torch
from torch import nn

from hardsight import training
from hardsight.losses.curriculum import MentorNetPD, SelfPaced
from hardsight.losses.dimensionality import D2L
from hardsight.losses.joint import JointOptimisation
from hardsight.losses.pruning import TruncatedGCELoss


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


def test_without_the_samples_such_a_loss_is_refused(problem, small):
    with pytest.raises(ValueError, match="samples must be given: D2L looks at the training set"):
        training.fit(small(), problem.loader(), D2L(), epochs=1, progress=False)
    training.fit(small(), problem.loader(), nn.CrossEntropyLoss(), epochs=1, progress=False)
