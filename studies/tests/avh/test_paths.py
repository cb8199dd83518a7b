"""Gradient attacks: closed forms for a linear classifier, laws of the ball, and steps that the laws reject."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hardsight_studies.avh.looking import Found
from hardsight_studies.avh.paths import fgsm, fgsm_path, half_time, judge_paths, mean_with_interval, pgd
from torch import Tensor, nn


@pytest.fixture
def images() -> Tensor:
    return torch.rand(6, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 3)).double()


LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def loss_of(network: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return nn.functional.cross_entropy(network(images), LABELS, reduction="none")


def test_fgsm_on_a_linear_classifier_of_two_classes_is_known(images: Tensor) -> None:
    torch.manual_seed(1)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(32, 2)).double()
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    # The loss falls with w_y - w_other: every pixel moves by the radius against the sign of that difference.
    apart = (linear[1].weight[labels] - linear[1].weight[1 - labels]).reshape(images.shape)
    expected = (images - 0.1 * apart.sign()).clamp(0, 1)
    torch.testing.assert_close(fgsm(linear, images, labels, 0.1), expected)


def test_a_network_that_is_too_sure_for_its_softmax_is_attacked_all_the_same(
    images: Tensor, network: nn.Module
) -> None:
    labels = network(images).argmax(1)
    two = torch.stack([network(images)[:, 0], network(images)[:, 1]], 1).argmax(1)

    def of_two(times: float) -> Callable[[Tensor], Tensor]:
        return lambda at: times * network(at)[:, :2]

    # Of two classes the gradient's direction does not depend on how sure the network is.
    assert torch.equal(fgsm(of_two(1e6), images, two, 0.1), fgsm(of_two(1.0), images, two, 0.1))
    sure = fgsm(lambda at: 1e6 * network(at), images, labels, 0.1)
    assert (sure != images).flatten(1).any(1).all()


def test_a_path_equals_a_slow_loop_over_images(images: Tensor, network: nn.Module) -> None:
    path = pgd(network, images, LABELS, radius=0.08, step=0.03, steps=4)
    for at in range(len(images)):
        own = images[at : at + 1].clone()
        for step in range(1, 5):
            leaf = own.clone().requires_grad_()
            (-network(leaf).log_softmax(1)[0, LABELS[at]]).backward()
            moved = own + 0.03 * leaf.grad.sign()
            own = torch.stack([
                new.clamp(max(0.0, float(old) - 0.08), min(1.0, float(old) + 0.08))
                for new, old in zip(moved.flatten(), images[at].flatten(), strict=True)
            ]).reshape(own.shape)  # fmt: skip
            torch.testing.assert_close(path[step][at : at + 1], own)


def without_ball(classify: Any, images: Tensor, labels: Tensor, **options: Any) -> list[Tensor]:
    """Wrong: steps are never put back."""
    path = [images]
    for _ in range(options["steps"]):
        path.append(fgsm(classify, path[-1], labels, options["step"]))
    return path


@pytest.mark.parametrize(("attack", "keeps_the_law"), [(pgd, True), (without_ball, False)])
def test_the_path_stays_in_the_ball(
    images: Tensor, network: nn.Module, attack: Callable[..., list[Tensor]], keeps_the_law: bool
) -> None:
    path = attack(network, images, LABELS, radius=0.05, step=0.02, steps=5)
    largest = max(float((one - images).abs().max()) for one in path)
    assert (largest <= 0.05 + 1e-12) is keeps_the_law
    assert all(float(one.min()) >= 0 and float(one.max()) <= 1 for one in path)


def test_attacks_raise_the_loss_and_leave_the_network_alone(images: Tensor, network: nn.Module) -> None:
    before = loss_of(network, images)
    weights = [parameter.clone() for parameter in network.parameters()]
    path = pgd(network, images, LABELS, radius=0.1, step=0.02, steps=10)
    assert torch.equal(path[0], images)
    assert bool((loss_of(network, path[-1]) > before).all())
    assert bool((loss_of(network, fgsm(network, images, LABELS, 0.05)) > before).all())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(torch.equal(one, parameter) for one, parameter in zip(weights, network.parameters(), strict=True))


def test_one_step_of_the_whole_radius_is_fgsm(images: Tensor, network: nn.Module) -> None:
    path = pgd(network, images, LABELS, radius=0.06, step=0.06, steps=1)
    torch.testing.assert_close(path[1], fgsm(network, images, LABELS, 0.06))


def stretched(classify: Any, images: Tensor, labels: Tensor, radius: float, steps: int) -> list[Tensor]:
    """Wrong: a pixel that the end of the range stops moves slower than the radius from the start."""
    end = fgsm(classify, images, labels, radius)
    return [torch.lerp(images, end, at / steps) for at in range(steps + 1)]


@pytest.mark.parametrize(("path_of", "keeps_the_law"), [(fgsm_path, True), (stretched, False)])
def test_every_point_of_the_path_is_fgsm_of_its_radius(
    images: Tensor, network: nn.Module, path_of: Callable[..., list[Tensor]], keeps_the_law: bool
) -> None:
    path = path_of(network, images, LABELS, radius=0.4, steps=5)
    assert len(path) == 6
    assert torch.equal(path[0], images)
    expected = [fgsm(network, images, LABELS, 0.4 * at / 5) for at in range(1, 6)]
    worst = max(float((one - other).abs().max()) for one, other in zip(path[1:], expected, strict=True))
    assert (worst < 1e-12) is keeps_the_law


def test_half_way_is_found_between_steps() -> None:
    values = np.array([[1.0, 0.8, 0.4, 0.0], [0.0, 1.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0]])
    # 1 to 0: half-way at 0.5, three quarters of the way from 0.8 to 0.4. 0 to 4: exactly at step 2.
    np.testing.assert_allclose(half_time(values), [1.75, 2.0, np.nan])


def path(norm: list[float], angle: list[float]) -> dict[str, np.ndarray]:
    """Three copies of one path that switches at its last step."""
    switched = [0.0] * (len(norm) - 1) + [1.0]
    rows = {"norm": norm, "angle": angle, "end_angle": angle[::-1], "switched": switched}
    return {name: np.tile(np.array(values), (3, 1)) for name, values in rows.items()}


def judged(paths: dict[str, np.ndarray]) -> dict[str, Any]:
    found: list[Found] = judge_paths(paths, {})
    return {name: value for one in found for name, value in one.metrics.items()}


def test_which_comes_first_is_told_by_the_path_and_not_by_the_attack() -> None:
    early, late = [1.0, 0.6, 0.52, 0.5, 0.5], [0.4, 0.42, 0.45, 0.6, 1.2]
    shrinking = judged(path(early, late))
    assert shrinking["lead"]["value"] > 0.3
    assert shrinking["norm_first"]["value"] == 1.0
    assert shrinking["norm_at_switch"] == {"value": 0.5, "low": 0.5, "high": 0.5, "over": "images", "samples": 3}
    # The same two curves with their roles exchanged: the angle turns at once, the norm shrinks at the end.
    turning = judged(path([2 - value for value in [0.4, 0.42, 0.45, 0.6, 1.2]], [1.5 - value for value in early]))
    assert turning["lead"]["value"] == pytest.approx(-shrinking["lead"]["value"], abs=1e-3)
    assert turning["norm_first"]["value"] == 0.0


def test_a_path_that_never_switches_or_grows_says_nothing() -> None:
    paths = path([1.0, 1.2, 1.4], [0.4, 0.5, 0.6])
    assert "lead" not in judged(paths)
    assert judged(paths)["shrinks"]["value"] == 0.0
    paths["switched"][:] = 0
    assert judged(paths)["switched"] == 0
    assert "norm_at_switch" not in judged(paths)


def test_the_interval_holds_the_mean_and_narrows() -> None:
    generator = np.random.default_rng(0)
    few, many = (mean_with_interval(generator.normal(1.0, 1.0, count)) for count in (20, 2000))
    assert few["low"] < few["value"] < few["high"]
    assert many["high"] - many["low"] < few["high"] - few["low"]
    assert many["high"] - many["low"] == pytest.approx(2 * 1.96 / math.sqrt(2000), rel=0.15)
