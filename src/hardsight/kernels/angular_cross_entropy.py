"""The AVH loss straight from features and weight, fused: samples x classes exists a block of samples at a time.

By default the gradient is made during the forward pass, while a block's products are at hand: three matrix products
in all, two where features or weight are frozen, and the gradients are held until the backward pass. Where there are no
more classes than dimensions, that by features waits as slopes, which take less memory, and the backward pass multiplies
them with the weight. With `recompute` (and always where every sample's loss is returned) the forward pass keeps nothing
and the backward pass multiplies again: four products.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.derivatives import applied, plain_when_differentiated
from hardsight.kernels.dispatch import Op, aligned_width, held_dtype


def keeps_slopes(features: Tensor, weight: Tensor) -> bool | torch.SymBool:
    """Whether slopes, one a class, wait for the backward pass instead of a gradient, one a dimension."""
    return weight.shape[0] <= features.shape[1]


def _shapes(features: Tensor, weight: Tensor, *given: Any) -> tuple[Tensor, ...]:
    reduction, _, wanted = given[-3:]
    samples, classes = features.shape[0], weight.shape[0]
    wide = features.new_empty(0, dtype=torch.float32)
    slopes_wait = wanted[0] and keeps_slopes(features, weight)
    if slopes_wait:
        by_features = features.new_empty(samples, aligned_width(classes))
    else:
        by_features = wide.new_empty(features.shape if wanted[0] else (0,), dtype=held_dtype(features.dtype))
    return (
        wide.new_empty((samples,) if reduction == "none" else ()),
        wide.new_empty(samples + classes),
        by_features,
        wide.new_empty(weight.shape if wanted[1] else (0,)),
        wide.new_empty(2 if any(wanted) else 0),
        wide.new_empty(samples if slopes_wait else 0),
    )


_walk = Op(
    "angular_walk",
    "angular_cross_entropy.walk",
    "(Tensor features, Tensor weight, Tensor labels, Tensor? scale, float scale_value, Tensor? sample_weight,"
    " int ignore_index, str reduction, Tensor? upstream, bool[3] wanted)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _shapes,
)
_gradients_from_slopes = Op(
    "gradients_from_slopes",
    "directions.gradients_from_slopes",
    "(Tensor slopes, Tensor along, Tensor? by_weight, Tensor features, Tensor weight, Tensor inverses, Tensor factor,"
    " Tensor? upstream) -> Tensor[]",
    lambda slopes, along, by_weight, features, weight, *given: [
        one.new_empty(one.shape) for one in ([features] if by_weight is None else [features, weight])
    ],
)
project_gradients = Op(
    "project_gradients",
    "directions.project",
    "(Tensor[] gradients, Tensor[] vectors, Tensor inverses, int offset, Tensor factor, Tensor? upstream) -> Tensor[]",
    lambda gradients, vectors, *given: [one.new_empty(one.shape) for one in vectors],
)


def angular_cross_entropy(
    features: Float[Tensor, "samples dim"], weight: Float[Tensor, "classes dim"], labels: Integer[Tensor, "samples"],
    scale: Tensor | float, sample_weight: Float[Tensor, "samples"] | None, ignore_index: int, reduction: str, *,
    recompute: bool = False, plain: Callable[..., Tensor],
) -> Float[Tensor, "..."]:  # fmt: skip
    """`losses.avh_loss`; `plain`, a function of features, weight and scale, gives what second derivatives need."""
    pointer = scale.to(features.device) if isinstance(scale, Tensor) else None
    number = 1.0 if isinstance(scale, Tensor) else float(scale)
    given = (features, weight, labels, pointer, number, sample_weight, ignore_index, reduction)
    trained = any(one is not None and one.requires_grad for one in (features, weight, pointer))
    if torch.is_grad_enabled() and trained:
        kept = None if torch.compiler.is_compiling() else plain
        return applied(_AngularLoss, kept, recompute or reduction == "none", *given)
    with torch.no_grad():
        value: Tensor = _walk(*given, None, (False, False, False))[0]
        return value


class _AngularLoss(torch.autograd.Function):
    """The loss, reduced or of every sample. Its gradients are made on the way, or in the backward from the inputs."""

    @staticmethod
    def forward(
        ctx: Any, plain: Any, recompute: bool, features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor | None,
        number: float, sample_weight: Tensor | None, *settings: Any,
    ) -> Tensor:  # fmt: skip
        ctx.plain, ctx.differentiated = plain, (None, None, 0, 1, None, 2, None, None, None, None)
        ctx.number, ctx.settings = number, settings
        given = (features, weight, labels, scale, number, sample_weight, *settings, None)
        value: Tensor
        if recompute:
            value = _walk(*given, (False, False, False))[0]
            ctx.save_for_backward(features, weight, scale, labels, sample_weight)
        else:
            value, *made = _walk(*given, _wanted(ctx))
            ctx.save_for_backward(features, weight, scale, None, None, *made)
        return value

    @staticmethod
    @plain_when_differentiated
    def backward(ctx: Any, saved: tuple[Any, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, scale, labels, sample_weight, *made = saved
        each, whole = (grad, None) if grad.ndim else (None, grad)
        if not made:
            given = (features, weight, labels, scale, ctx.number, sample_weight, *ctx.settings, each)
            _, *made = _walk(*given, _wanted(ctx))
        by_features, by_weight, by_scale = _projected(_wanted(ctx), whole, scale, features, weight, *made)
        return None, None, by_features, by_weight, None, by_scale, None, None, None, None


def _wanted(ctx: Any) -> tuple[bool, bool, bool]:
    """Whether gradients by features, weight and scale are."""
    needed = ctx.needs_input_grad
    return needed[2], needed[3], needed[5]


def _projected(
    wanted: tuple[bool, bool, bool], upstream: Tensor | None, scale: Tensor | None, features: Tensor, weight: Tensor,
    inverses: Tensor, by_features: Tensor, by_weight: Tensor, totals: Tensor, along: Tensor,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """The gradients by features, weight and scale."""
    if wanted[0] and keeps_slopes(features, weight):
        others = by_weight if wanted[1] else None
        made = _gradients_from_slopes(by_features, along, others, features, weight, inverses, totals, upstream)
    else:
        gradients = [one for one, is_wanted in zip((by_features, by_weight), wanted, strict=False) if is_wanted]
        vectors = [one for one, is_wanted in zip((features, weight), wanted, strict=False) if is_wanted]
        made = project_gradients(gradients, vectors, inverses, 0 if wanted[0] else len(features), totals, upstream)
    by_scale = None
    if wanted[2] and scale is not None:
        by_scale = (totals[1] if upstream is None else totals[1] * upstream).to(scale.dtype).reshape(scale.shape)
    return made[0] if wanted[0] else None, made[-1] if wanted[1] else None, by_scale
