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
from hardsight.kernels.ops import angular_walk, gradients_from_slopes, keeps_slopes, project_gradients


def angular_cross_entropy(
    features: Float[Tensor, "samples dim"],
    weight: Float[Tensor, "classes dim"],
    labels: Integer[Tensor, "samples"],
    scale: Tensor | float,
    sample_weight: Float[Tensor, "samples"] | None,
    ignore_index: int,
    reduction: str,
    *,
    recompute: bool = False,
    plain: Callable[..., Tensor],
) -> Float[Tensor, "..."]:
    """`losses.avh_loss`; `plain`, a function of features, weight and scale, gives what second derivatives need."""
    pointer = scale.to(features.device) if isinstance(scale, Tensor) else None
    number = 1.0 if isinstance(scale, Tensor) else float(scale)
    given = (features, weight, labels, pointer, number, sample_weight, ignore_index, reduction)
    trained = any(one is not None and one.requires_grad for one in (features, weight, pointer))
    if torch.is_grad_enabled() and trained:
        kept = None if torch.compiler.is_compiling() else plain
        return applied(_AngularLoss, kept, recompute or reduction == "none", *given)
    with torch.no_grad():
        value: Tensor = angular_walk(*given, None, (False, False, False))[0]
        return value


class _AngularLoss(torch.autograd.Function):
    """The loss, reduced or of every sample. Its gradients are made on the way, or in the backward from the inputs."""

    @staticmethod
    def forward(
        ctx: Any,
        plain: Any,
        recompute: bool,
        features: Tensor,
        weight: Tensor,
        labels: Tensor,
        scale: Tensor | None,
        number: float,
        sample_weight: Tensor | None,
        *settings: Any,
    ) -> Tensor:
        ctx.plain, ctx.differentiated = plain, (None, None, 0, 1, None, 2, None, None, None, None)
        ctx.number, ctx.settings = number, settings
        given = (features, weight, labels, scale, number, sample_weight, *settings, None)
        value: Tensor
        if recompute:
            value = angular_walk(*given, (False, False, False))[0]
            ctx.save_for_backward(features, weight, scale, labels, sample_weight)
        else:
            value, *made = angular_walk(*given, _wanted(ctx))
            ctx.save_for_backward(features, weight, scale, None, None, *made)
        return value

    @staticmethod
    @plain_when_differentiated
    def backward(ctx: Any, saved: tuple[Any, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, scale, labels, sample_weight, *made = saved
        each, whole = (grad, None) if grad.ndim else (None, grad)
        if not made:
            given = (features, weight, labels, scale, ctx.number, sample_weight, *ctx.settings, each)
            _, *made = angular_walk(*given, _wanted(ctx))
        by_features, by_weight, by_scale = _projected(_wanted(ctx), whole, scale, features, weight, *made)
        return None, None, by_features, by_weight, None, by_scale, None, None, None, None


def _wanted(ctx: Any) -> tuple[bool, bool, bool]:
    """Whether gradients by features, weight and scale are."""
    needed = ctx.needs_input_grad
    return needed[2], needed[3], needed[5]


def _projected(
    wanted: tuple[bool, bool, bool],
    upstream: Tensor | None,
    scale: Tensor | None,
    features: Tensor,
    weight: Tensor,
    inverses: Tensor,
    by_features: Tensor,
    by_weight: Tensor,
    totals: Tensor,
    along: Tensor,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients by features, weight and scale."""
    if wanted[0] and keeps_slopes(features, weight):
        others = by_weight if wanted[1] else None
        made = gradients_from_slopes(by_features, along, others, features, weight, inverses, totals, upstream)
    else:
        gradients = [one for one, is_wanted in zip((by_features, by_weight), wanted, strict=False) if is_wanted]
        vectors = [one for one, is_wanted in zip((features, weight), wanted, strict=False) if is_wanted]
        made = project_gradients(gradients, vectors, inverses, 0 if wanted[0] else len(features), totals, upstream)
    by_scale = None
    if wanted[2] and scale is not None:
        by_scale = (totals[1] if upstream is None else totals[1] * upstream).to(scale.dtype).reshape(scale.shape)
    return made[0] if wanted[0] else None, made[-1] if wanted[1] else None, by_scale
