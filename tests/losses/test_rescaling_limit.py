"""The largest beta: derived in closed form, found again by moving logits with the loss as it trains."""

import math

import pytest
import torch
from torch import nn

from hardsight.losses import GCELoss, GradientRescaling, MAELoss
from hardsight.losses.emphasis import critical_beta, largest_beta
from hardsight.losses.entropy import CrossEntropy


def growth(loss: nn.Module, classes: int) -> float:
    """How fast a small lead of the first class grows (> 0) or shrinks, over the loss's pull, with one label of each.

    The network is a vector of logits that all samples share: nothing is known of the images.
    """
    lead = 1e-5
    logits = torch.zeros(classes, dtype=torch.float64)
    logits[0] = lead
    logits.requires_grad_()
    loss(logits.expand(classes, classes), torch.arange(classes)).backward()
    assert logits.grad is not None
    step = -(logits.grad[0] - logits.grad[1:].mean()).item()
    return step / lead


@pytest.mark.parametrize("classes", [3, 10, 100])
@pytest.mark.parametrize("lam", [0.3, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("reduction", ["weight", "mean"])
def test_the_lead_of_a_class_grows_above_the_limit_and_shrinks_below(lam: float, classes: int, reduction: str) -> None:
    limit = critical_beta(lam, classes)
    if math.isinf(limit):
        assert growth(GradientRescaling(50.0, lam, reduction=reduction), classes) < 0
        return
    below, above = (
        growth(GradientRescaling(share * limit, lam, reduction=reduction), classes) for share in (0.99, 1.01)
    )
    assert below < 0 < above


def test_a_limit_that_forgets_the_direction_is_wrong() -> None:
    """Without the 1 / (1 - p) of the direction, w'/w = C would be the limit: GR there rules classes out already."""
    lam, classes = 1.0, 10
    forgetful = classes ** (lam + 1) / (lam * (classes - 1) - 1)
    assert growth(GradientRescaling(0.99 * forgetful, lam), classes) > 0


def test_other_losses_stand_where_theory_has_them() -> None:
    assert growth(CrossEntropy(), 10) < 0
    assert growth(GCELoss(q=0.7), 10) < 0
    # On a network that is blind, the mean absolute error is the same for all probabilities.
    assert growth(MAELoss(), 10) == pytest.approx(0, abs=1e-6)


def test_a_limit_of_fewer_candidates_is_found_with_the_other_classes_ruled_out() -> None:
    """Seven of ten classes left: what `growth` finds for seven holds when three more have no probability."""
    kept, limit = 7, critical_beta(0.5, 7)
    for share, grows in ((0.99, False), (1.01, True)):
        logits = torch.full((10,), -80.0, dtype=torch.float64)
        logits[:kept] = 0.0
        logits[0] = 1e-5
        logits.requires_grad_()
        GradientRescaling(share * limit, 0.5)(logits.expand(kept, 10), torch.arange(kept)).backward()
        assert logits.grad is not None
        assert (logits.grad[0] < logits.grad[1:kept].mean()).item() is grows


def test_the_papers_settings_for_a_hundred_classes_are_below_and_for_ten_above() -> None:
    assert all(beta < critical_beta(lam, 100) for beta, lam in ((6, 0.3), (6, 0.4), (8, 0.5), (4, 0.1), (8, 0.6)))
    assert all(beta > critical_beta(lam, 10) for beta, lam in ((12, 0.5), (16, 1)))
    assert 8 / critical_beta(0.5, 10) == pytest.approx(1, abs=0.005)
    assert all(largest_beta(lam, 10) <= critical_beta(lam, 10) for lam in (0.3, 0.5, 1, 2))


def test_two_classes_have_no_limit() -> None:
    assert largest_beta(0.5, 2) == math.inf
    assert largest_beta(1.0, 3) == critical_beta(1.0, 3) == 4.5


@pytest.mark.parametrize(("function", "name"), [(critical_beta, "candidates"), (largest_beta, "classes")])
def test_what_no_training_can_have_is_rejected(function, name) -> None:
    for lam in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="lam must be at least 0 and finite"):
            function(lam, 10)
    for count in (0, 1):
        with pytest.raises(ValueError, match=f"{name} must be at least 2"):
            function(0.5, count)
    # So far from the start no weight tells classes apart.
    assert function(1e9, 10) == math.inf


@pytest.mark.parametrize("candidates", [3, 1000, 10**6])
@pytest.mark.parametrize("log_power", [690, 701, 708, 712, 2000])
def test_a_limit_too_large_for_a_float_is_infinite(candidates: int, log_power: int) -> None:
    """e^709 is the last that a float holds; Python raises beyond it."""
    limit = critical_beta(log_power / math.log(candidates) - 1, candidates)
    assert limit > 1e250
    assert math.isinf(limit) or log_power < 709
