"""Angles: against float64 truth, the laws of the sphere, and inputs without a direction."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hardsight.geometry import (
    angle_between,
    angle_of_cosine,
    angles_to_classes,
    directions,
    norms,
)

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
# Rounding the result to the type, plus what rounding the inputs costs nobody: inputs are compared as they are.
TOLERANCE = {torch.float64: 1e-14, torch.float32: 4e-7, torch.bfloat16: 8e-3, torch.float16: 1e-3}


def slow_angle(x: Tensor, y: Tensor) -> float:
    """atan2 of the exact sine and cosine, one component after the other, in float64."""
    a, b = [float(v) for v in x], [float(v) for v in y]
    length_a, length_b = math.hypot(*a), math.hypot(*b)
    if length_a == 0 or length_b == 0:
        return math.pi / 2
    a, b = [v / length_a for v in a], [v / length_b for v in b]
    apart = math.hypot(*(p - q for p, q in zip(a, b, strict=True)))
    together = math.hypot(*(p + q for p, q in zip(a, b, strict=True)))
    return 2 * math.atan2(apart, together)


def naive_angle(x: Tensor, y: Tensor) -> Tensor:
    """The textbook formula that these tests must reject."""
    cosine = (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))
    return torch.acos(cosine.clamp(-1, 1))


def tilted_pairs(angle: float, dim: int, count: int = 200) -> tuple[Tensor, Tensor]:
    """Pairs at (about) this angle, in float32, of various lengths."""
    generator = torch.Generator().manual_seed(dim)
    x, other = torch.randn(2, count, dim, dtype=torch.float64, generator=generator)
    x = x / x.norm(dim=1, keepdim=True)
    other = other - (other * x).sum(1, keepdim=True) * x
    other = other / other.norm(dim=1, keepdim=True)
    y = math.cos(angle) * x + math.sin(angle) * other
    return (3.7 * x).float(), (0.02 * y).float()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [1, 2, 3, 17, 512])
def test_equals_a_slow_loop_in_float64(dtype: torch.dtype, dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 20, dim, generator=generator, dtype=torch.float64).to(dtype)
    expected = torch.tensor([slow_angle(a, b) for a, b in zip(x, y, strict=True)], dtype=torch.float64)
    assert angle_between(x, y).dtype == dtype
    torch.testing.assert_close(angle_between(x, y).double(), expected, rtol=0, atol=TOLERANCE[dtype])
    torch.testing.assert_close(angles_to_classes(x, y).diagonal().double(), expected, rtol=0, atol=4 * TOLERANCE[dtype])


@pytest.mark.parametrize("dim", [2, 3, 64, 2048])
@pytest.mark.parametrize("angle", [1e-4, 1e-6])
def test_a_small_angle_comes_back_within_1e_7(dim: int, angle: float) -> None:
    x, y = tilted_pairs(angle, dim)
    expected = angle_between(x.double(), y.double())
    assert (angle_between(x, y).double() - expected).abs().max() < 1e-7
    assert (angles_to_classes(x, y).diagonal().double() - expected).abs().max() < 1e-7
    # Near pi the float32 grid itself is 2.4e-7 wide.
    assert (angle_between(x, -y).double() - (math.pi - expected)).abs().max() < 2.5e-7
    assert (angles_to_classes(x, -y).diagonal().double() - (math.pi - expected)).abs().max() < 2.5e-7


def test_the_small_angle_test_rejects_the_textbook_formula() -> None:
    x, y = tilted_pairs(1e-4, 64)
    assert (naive_angle(x, y).double() - angle_between(x.double(), y.double())).abs().max() > 1e-5


vectors = st.integers(0, 2**31 - 1).map(
    lambda seed: torch.randn(3, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
)


@given(vectors, st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
@settings(deadline=None, max_examples=50)
def test_laws_of_the_sphere(points: Tensor, stretch: float, shrink: float) -> None:
    a, b, c = points
    ab = angle_between(a, b)
    torch.testing.assert_close(ab, angle_between(b, a), rtol=0, atol=0)
    torch.testing.assert_close(angle_between(stretch * a, shrink * b), ab, rtol=0, atol=1e-12)
    torch.testing.assert_close(angle_between(a, -b), math.pi - ab, rtol=0, atol=1e-12)
    assert ab <= angle_between(a, c) + angle_between(c, b) + 1e-12
    rotation = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))[0]
    torch.testing.assert_close(angle_between(a @ rotation, b @ rotation), ab, rtol=0, atol=1e-12)
    torch.testing.assert_close(angles_to_classes(points @ rotation, points @ rotation).diagonal().sum(), ab * 0)


@given(
    st.sampled_from(DTYPES),
    st.sampled_from([0.0, 1e-45, 1e-30, 1e-6, 1.0, 1e4, 1e30, 3e38]),
    st.sampled_from([0.0, 1e-30, 1.0, 1e30]),
    st.sampled_from(["random", "aligned", "opposite"]),
    st.integers(1, 9),
)
@settings(deadline=None, max_examples=200)
def test_finite_input_gives_finite_angles_and_gradients(
    dtype: torch.dtype, scale: float, other_scale: float, kind: str, dim: int
) -> None:
    largest = torch.finfo(dtype).max
    base = torch.randn(3, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(dim))
    other = {"random": base.flip(0), "aligned": base, "opposite": -base}[kind]
    x = (base * scale).clamp(-largest, largest).to(dtype).requires_grad_()
    y = (other * other_scale).clamp(-largest, largest).to(dtype).requires_grad_()
    for measure in (angle_between, angles_to_classes):
        x.grad = y.grad = None
        angles = measure(x, y)
        angles.sum().backward()
        assert angles.isfinite().all()
        assert ((angles >= 0) & (angles <= math.pi + 0.01)).all()
        assert x.grad is not None
        assert y.grad is not None
        assert x.grad.isfinite().all()
        assert y.grad.isfinite().all()
        if not x.detach().any():
            torch.testing.assert_close(angles.double(), torch.full_like(angles, math.pi / 2).double())
            assert not x.grad.any()
    lengths = norms(x)
    lengths.sum().backward()
    assert lengths.isfinite().all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("scale", [1e-307, 1e-200, 1e200, 1e307])
def test_the_whole_range_of_float64_has_lengths_and_angles(scale: float) -> None:
    """The squares of such numbers are 0 or infinite."""
    x, y = torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    torch.testing.assert_close(norms(x * scale) / scale, norms(x), rtol=1e-13, atol=0)
    torch.testing.assert_close(angle_between(x * scale, y), angle_between(x, y), rtol=0, atol=1e-14)


def test_large_components_may_be_the_negative_ones() -> None:
    x = torch.tensor([[-3e30, -4e30, 1.0], [-3e-30, -4e-30, 0.0]])
    torch.testing.assert_close(norms(x), torch.tensor([5e30, 5e-30]), rtol=1e-6, atol=0)
    torch.testing.assert_close(directions(x), torch.tensor([-0.6, -0.8, 0.0]).expand(2, 3), rtol=0, atol=1e-7)


def test_the_textbook_gradient_is_not_finite_where_ours_is() -> None:
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    naive_angle(x, x.detach()).backward()
    assert not x.grad.isfinite().all()


@pytest.mark.parametrize("measure", [lambda x, w: angle_between(x, w[: len(x)]), angles_to_classes])
def test_gradients_are_those_of_finite_differences(measure: Callable[[Tensor, Tensor], Tensor]) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    w = torch.randn(6, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(measure, (x, w))


def test_gradients_of_norms_and_directions() -> None:
    x = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4), requires_grad=True)
    assert torch.autograd.gradcheck(norms, x)
    assert torch.autograd.gradcheck(directions, x)


def test_the_gradient_of_a_small_angle_has_the_length_one_over_the_norm() -> None:
    x, y = tilted_pairs(1e-4, 16)
    for measure in (angle_between, lambda a, b: angles_to_classes(a, b).diagonal()):
        leaf = x.clone().requires_grad_()
        measure(leaf, y).sum().backward()
        torch.testing.assert_close(leaf.grad.norm(dim=1) * x.norm(dim=1), torch.ones(len(x)), rtol=2e-2, atol=0)


def test_without_remeasuring_an_angle_is_good_to_the_root_of_eps() -> None:
    x, y = tilted_pairs(1e-4, 64, count=20)
    rough = angles_to_classes(x, y, exact=False)
    exact = angles_to_classes(x, y)
    assert 1e-6 < (rough - exact).abs().max() < 2 * math.sqrt(torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("angle", [1e-5, 1e-4, 3e-4, 1e-3, math.pi - 2e-4])
def test_without_remeasuring_no_gradient_is_steeper_than_an_angle_can_be(angle: float) -> None:
    # A cosine that rounds to 1 has a sine of 0: divided by eps instead, it made gradients 2000 times too long.
    x, y = tilted_pairs(angle, 64)
    leaf = x.clone().requires_grad_()
    angles_to_classes(leaf, y, exact=False).diagonal().sum().backward()
    assert (leaf.grad.norm(dim=1) * x.norm(dim=1)).max() < 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("end", [1.0, -1.0])
def test_a_cosine_past_the_end_by_a_rounding_has_the_angle_of_the_end(dtype: torch.dtype, end: float) -> None:
    cosines = torch.tensor([end, end * (1 + 2 * torch.finfo(dtype).eps)], dtype=dtype)
    assert angle_of_cosine(cosines).tolist() == pytest.approx([math.acos(end)] * 2)


def test_autocast_does_not_round_the_product() -> None:
    x, w = torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(6))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = angles_to_classes(x, w)
    torch.testing.assert_close(cast, angles_to_classes(x, w), rtol=0, atol=0)


def test_many_parallel_pairs_are_measured_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1, 8, generator=torch.Generator().manual_seed(7)).repeat(20, 1)
    whole = angles_to_classes(x, x)
    monkeypatch.setattr("hardsight.geometry._REMEASURE_BLOCK", 8 * 7)
    torch.testing.assert_close(angles_to_classes(x, x), whole, rtol=0, atol=0)
    assert not whole.any()
