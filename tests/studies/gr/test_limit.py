"""The largest beta: derived in closed form, found again by moving logits with the loss as it trains."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from hardsight.losses import GCELoss, GradientRescaling, MAELoss
from hardsight.losses.entropy import CrossEntropy
from hardsight.studies.gr.limit import critical_beta, largest_beta, limits
from hardsight.studies.gr.trainings import gr


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


def results(last: dict[str, float]) -> dict[str, Any]:
    return {
        "accuracies": {
            key(method): {"last": {"mean": value, "sd": None, "values": [value]}} for method, value in last.items()
        },
        "classes_learnt": {key(gr(16, 1)): [4, 10]},
        "failed": {},
    }


def key(method: str) -> str:
    return f"change=printed,method={method}"


def test_the_table_is_in_order_and_says_what_is_not_measured() -> None:
    methods = {method: key(method) for method in (gr(16, 1), gr(8, 1), gr(20, 2), gr(8, 0.5), gr(12, 0.5))}
    said = limits(results({gr(8, 1): 0.7, gr(20, 2): 0.2, gr(16, 1): 0.3, gr(8, 0.5): 0.8}), methods)
    rows = [line.strip("| ").split(" | ") for line in said.splitlines()[2:7]]
    assert [row[1] for row in rows] == ["1.00", "1.49", "0.72", "1.44", "0.38"]
    assert [row[2] for row in rows] == ["1.04", "1.56", "1.78", "3.56", "4.44"]
    assert rows[3][3:] == ["30.0", "4 of 10"]
    assert "| GR (β = 12, λ = 0.5) | 1.49 | 1.56 | – |  |" in said
    assert said.endswith("over these 4 settings of β over its smallest limit with the last accuracy: -1.00.")
    assert "Rank correlation" not in limits(results({gr(8, 1): 0.7}), methods)
