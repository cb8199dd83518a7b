"""Angles, norms and directions: the one place of the library where an arccos is written.

Conventions, everywhere: angles are radians in [0, pi]; a zero vector has no direction, so its angle to anything
is pi/2 and its gradient is zero; half precision is computed in float32 and rounded once, at the end. No finite
input gives NaN or infinity, in the value or in the gradient.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# Above this |cosine| an arccos of a float32 product loses more than a few units in the last place (its error is
# eps / sin(angle)), so those pairs are measured again from the vectors themselves.
NEARLY_PARALLEL = 0.995
# How many vector components one block of such pairs may gather: 2**22 floats are 16 MiB.
_REMEASURE_BLOCK = 2**22


def norms(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
    """Euclidean length of each vector; squares neither overflow nor vanish, and the gradient at zero is zero."""
    wide = widen(x)
    scale = _scale(wide)
    length: Tensor = torch.linalg.vector_norm(wide / scale, dim=-1) * scale.squeeze(-1)
    # The length of a finite vector may exceed the largest number of its type.
    return length.clamp(max=torch.finfo(x.dtype).max).to(x.dtype)


def directions(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """Each vector divided by its length; a zero vector stays zero and gets no gradient."""
    unit: Tensor = _Direction.apply(widen(x))  # type: ignore[no-untyped-call]
    return unit.to(x.dtype)


def angle_between(x: Float[Tensor, "*#batch dim"], y: Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*batch"]:
    """Angle in radians, in [0, pi], by Kahan's half-angle formula: exact near 0 and pi, where arccos is not.

    >>> angle_between(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1e-4]))
    tensor(1.0000e-04)
    """
    dtype = torch.promote_types(x.dtype, y.dtype)
    return _half_angle(directions(widen(x)), directions(widen(y))).to(dtype)


def angles_to_classes(
    features: Float[Tensor, "*batch dim"], weight: Float[Tensor, "classes dim"], *, exact: bool = True
) -> Float[Tensor, "*batch classes"]:
    """Angle between every feature and every class's weights: `angle_between` for all pairs, at a product's cost.

    One matrix product and an arccos; with `exact`, the pairs that are nearly parallel are measured again from the
    vectors. That looks at the values, so it waits for a GPU and is left out under `torch.compile`; without it an
    angle near 0 or pi is right to about sqrt(eps), 3e-4 in float32: enough for a loss, not for a measurement.
    """
    with full_precision(features):
        both = directions(widen(features)), directions(widen(weight))
        common = torch.promote_types(both[0].dtype, both[1].dtype)
        angles: Tensor = _AllPairsAngle.apply(*(one.to(common) for one in both), exact)  # type: ignore[no-untyped-call]
    return angles.to(torch.promote_types(features.dtype, weight.dtype))


@torch.no_grad()
def angle_of_cosine(cosine: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Arccos of a cosine that rounding may have pushed past one; without gradient, which is infinite at -1 and 1."""
    return torch.acos(widen(cosine).clamp(-1.0, 1.0)).to(cosine.dtype)


@torch.no_grad()
def angle_of_cosine_(cosine: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """`angle_of_cosine` in place, without clamping: past 1 it is NaN, which the caller must replace."""
    return torch.acos_(cosine)


class _Direction(torch.autograd.Function):
    """x / |x| for any finite x, with the gradient (g - (g.u) u) / |x| cut off where it would overflow."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        scaled = x / _scale(x)
        return scaled / _nonzero(torch.linalg.vector_norm(scaled, dim=-1, keepdim=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, unit = ctx.saved_tensors
        tangent = grad - (grad * unit).sum(-1, keepdim=True) * unit
        scale = _scale(x)
        length = torch.linalg.vector_norm(x / scale, dim=-1, keepdim=True)
        largest = torch.finfo(x.dtype).max
        # 1/|x| of a tiny vector overflows although x is finite: the steepest gradient that exists is taken instead.
        steep = (tangent / _nonzero(length) / scale).nan_to_num(0.0, largest, -largest)
        return torch.where(length == 0, 0.0, steep)


class _Widened(torch.autograd.Function):
    """Half precision as float32; a gradient too large for half precision is cut off, not turned into infinity."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.float()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        largest = torch.finfo(ctx.dtype).max
        return grad.clamp(-largest, largest).to(ctx.dtype)


class _AllPairsAngle(torch.autograd.Function):
    """Angles between all pairs of unit (or zero) vectors; keeps the inputs and the angles, not the cosines."""

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, weight: Tensor, exact: bool) -> Tensor:
        cosines = features @ weight.T
        angles = torch.acos(cosines.clamp(-1.0, 1.0))
        # Which pairs are nearly parallel depends on the values, which compiling has none of.
        remeasures = exact and not torch.compiler.is_compiling()
        return _remeasure_nearly_parallel(angles, cosines, features, weight) if remeasures else angles

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2], output)
        eps = torch.finfo(output.dtype).eps
        # Angles measured from the vectors have exact sines: below eps there is no direction left to follow.
        # Of a cosine near 1: two of them one rounding step apart differ by this angle, so no smaller one can be told.
        ctx.least_sine = eps if inputs[2] and not torch.compiler.is_compiling() else math.sqrt(2 * eps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        features, weight, angles = ctx.saved_tensors
        with full_precision(features):
            # d angle / d cosine; the part along the vector itself is removed by the backward of _Direction.
            slope = -grad / torch.sin(angles).clamp_min(ctx.least_sine)
            by_features = slope @ weight if ctx.needs_input_grad[0] else None
            by_weight = slope.flatten(0, -2).T @ features.flatten(0, -2) if ctx.needs_input_grad[1] else None
        return by_features, by_weight, None


def _remeasure_nearly_parallel(angles: Tensor, cosines: Tensor, features: Tensor, weight: Tensor) -> Tensor:
    """Replace the angles of nearly parallel pairs by Kahan's, block by block so that memory stays bounded."""
    classes, dim = weight.shape
    rows = features.reshape(-1, dim)
    pairs = (cosines.abs() > NEARLY_PARALLEL).reshape(-1).nonzero().squeeze(1)
    flat = angles.reshape(-1)
    for block in pairs.split(max(1, _REMEASURE_BLOCK // max(1, dim))):
        flat[block] = _half_angle(rows[block // classes], weight[block % classes])
    return flat.reshape(angles.shape)


def _half_angle(u: Tensor, v: Tensor) -> Tensor:
    """2 atan2(|u - v|, |u + v|) of unit vectors; pi/2 by itself when one of them is zero."""
    apart = torch.linalg.vector_norm(u - v, dim=-1)
    together = torch.linalg.vector_norm(u + v, dim=-1)
    both_zero = (apart == 0) & (together == 0)
    return torch.where(both_zero, math.pi / 2, 2 * torch.atan2(apart, torch.where(both_zero, 1.0, together)))


def _scale(x: Tensor) -> Tensor:
    """The scale that keeps squares in range; 1 for a zero vector. A power of two, so dividing by it is exact."""
    if not x.shape[-1]:
        raise ValueError(f"vectors must have at least one component; got shape {list(x.shape)}")
    largest = x.detach().abs().amax(-1, keepdim=True)
    limit = 1000 if x.dtype == torch.float64 else 120
    exponent = torch.frexp(largest).exponent.clamp(-limit, limit)
    # The exponent of 0 is 0.
    return torch.ldexp(torch.ones_like(largest), exponent)


def _nonzero(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1.0, x)


def widen(x: Tensor) -> Tensor:
    """Half precision as float32; anything wider as it is. No gradient overflows on its way back."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        return x
    wide: Tensor = _Widened.apply(x)  # type: ignore[no-untyped-call]
    return wide


def full_precision(x: Tensor) -> torch.autocast:
    """Autocast would round the product to half precision before the arccos, which magnifies the error."""
    return torch.autocast(x.device.type, enabled=False)
