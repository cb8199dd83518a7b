"""The ramps of AMC-Loss: the paper's formulas, the script's, and where they meet."""

import math

import pytest

from hardsight.losses import AMC_PAPER, AMC_SCRIPT, gaussian_ramp_down, gaussian_ramp_up


@pytest.mark.parametrize("epoch", [0, 1, 40, 79, 80, 200, 250, 275, 299, 300])
def test_the_paper_s_formulas(epoch: int) -> None:
    up = math.exp(-5 * (1 - epoch / 80) ** 2) if epoch < 80 else 1.0
    down = math.exp(-12.5 * (1 - (300 - epoch) / 50) ** 2) if epoch > 250 else 1.0
    assert gaussian_ramp_up(epoch, 80.0) == pytest.approx(up)
    assert gaussian_ramp_down(epoch, 300.0, 50.0) == pytest.approx(down)
    assert AMC_PAPER.loss_weight(epoch) == pytest.approx(0.1 * up)


@pytest.mark.parametrize("epoch", [1, 25, 49, 50, 170, 185, 199])
def test_the_script_s_weight(epoch: int) -> None:
    up = math.exp(-5 * (1 - epoch / 50) ** 2) if epoch < 50 else 1.0
    assert AMC_SCRIPT.loss_weight(epoch) == pytest.approx(10 * up)


def test_ends() -> None:
    assert AMC_SCRIPT.loss_weight(0) == 0
    assert AMC_PAPER.loss_weight(0) == pytest.approx(0.1 * math.exp(-5))


@pytest.mark.parametrize("epoch", [0, 5, 10])
def test_a_ramp_of_no_length_is_none(epoch: int) -> None:
    assert gaussian_ramp_up(epoch, 0) == gaussian_ramp_down(epoch, 10, 0) == 1
