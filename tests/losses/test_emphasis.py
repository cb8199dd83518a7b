"""Emphasis focus and spread, and the weight curves of the paper's Figure 1."""

import pytest
import torch

from hardsight.losses import emphasis_focus, emphasis_spread, rescaling_weights, weight_curve


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("beta", [0.5, 8.0, 24.0])
def test_focus_is_where_the_curve_peaks(beta: float, lam: float) -> None:
    closed = emphasis_focus(beta, lam)
    assert closed == pytest.approx(lam / (1 + lam))
    p = torch.linspace(0, 1, 10001, dtype=torch.float64)
    assert p[weight_curve(p, beta, lam).argmax()].item() == pytest.approx(closed, abs=1e-4)
    for increasing in ("identity", lambda x: x**3 + x):
        assert p[weight_curve(p, beta, lam, increasing).argmax()].item() == pytest.approx(closed, abs=1e-4)


def test_curves_of_figure_1() -> None:
    p = torch.tensor([0.0, 0.25, 0.5, 1.0], dtype=torch.float64)
    torch.testing.assert_close(weight_curve(p, 2.0, 0.0, "identity"), 2 * (1 - p))
    torch.testing.assert_close(weight_curve(p, 4.0, 1.0, "identity"), 4 * p * (1 - p))
    torch.testing.assert_close(weight_curve(p, 2.0, 0.7, "identity"), 2 * p**0.7 * (1 - p))
    torch.testing.assert_close(weight_curve(p, 8.0, 0.5), torch.exp(8 * p**0.5 * (1 - p)))
    torch.testing.assert_close(weight_curve(p, 0.0, 0.5), torch.ones(4, dtype=torch.float64))


def test_the_curve_gives_the_weights_of_a_batch(generator: torch.Generator) -> None:
    logits = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    labels = torch.arange(7) % 4
    p = logits.softmax(-1).gather(-1, labels[:, None])[:, 0]
    torch.testing.assert_close(rescaling_weights(logits, labels, beta=12.0, lam=1.0), weight_curve(p, 12.0, 1.0))


def test_spread_is_the_variance_and_falls_with_lam() -> None:
    weights = torch.tensor([1.0, 2.0, 6.0])
    assert emphasis_spread(weights).item() == pytest.approx((4 + 1 + 9) / 3)
    p = torch.linspace(0, 1, 501, dtype=torch.float64)
    spreads = [emphasis_spread(weight_curve(p, 8.0, lam)).item() for lam in (0.0, 0.5, 1.0, 2.0)]
    assert spreads == sorted(spreads, reverse=True)  # Figure 1c
    assert emphasis_spread(weight_curve(p, 0.0, 0.5)) == 0


def test_rejects_a_curve_without_a_peak() -> None:
    with pytest.raises(ValueError, match="beta must be greater than 0"):
        emphasis_focus(0.0, 0.5)
