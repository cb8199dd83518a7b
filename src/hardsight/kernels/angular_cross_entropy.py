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
from hardsight.kernels.directions import project_gradients
from hardsight.kernels.dispatch import aligned_width, call, held_dtype
from hardsight.kernels.tangent_product import gradients_from_slopes


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
        return applied(_Recomputed if recompute or reduction == "none" else _Eager, kept, *given)
    with torch.no_grad():
        return _walk(*given, upstream=None, wanted=_NOTHING)[0]


class _Eager(torch.autograd.Function):
    """The reduced loss, its gradients made on the way."""

    @staticmethod
    def forward(
        ctx: Any, plain: Any, features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor | None, *settings: Any
    ) -> Tensor:
        wanted = _wanted(ctx.needs_input_grad)
        made = _walk(features, weight, labels, scale, *settings, upstream=None, wanted=wanted)
        ctx.unused = (None,) * len(settings)
        ctx.plain, ctx.differentiated = plain, (None, 1, 2, None, 0, *ctx.unused)
        ctx.save_for_backward(scale, features, weight, *made[1:])
        return made[0]

    @staticmethod
    @plain_when_differentiated
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_projected(_wanted(ctx.needs_input_grad), grad, *saved), *ctx.unused


class _Recomputed(torch.autograd.Function):
    """The loss, reduced or of every sample; the backward pass starts from the inputs again."""

    @staticmethod
    def forward(
        ctx: Any,
        plain: Any,
        features: Tensor,
        weight: Tensor,
        labels: Tensor,
        scale: Tensor | None,
        number: float,
        sample_weight: Tensor | None,
        *settings: Any,
    ) -> Tensor:
        ctx.plain, ctx.differentiated = plain, (None, 0, 1, None, 3, None, None, None, None)
        ctx.save_for_backward(features, weight, labels, scale, sample_weight)
        ctx.number, ctx.settings = number, settings
        given = (features, weight, labels, scale, number, sample_weight, *settings)
        return _walk(*given, upstream=None, wanted=_NOTHING)[0]

    @staticmethod
    @plain_when_differentiated
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, labels, scale, sample_weight = saved
        each = grad if grad.ndim else None
        given = (features, weight, labels, scale, ctx.number, sample_weight, *ctx.settings)
        wanted = _wanted(ctx.needs_input_grad)
        _, *made = _walk(*given, upstream=each, wanted=wanted)
        found = _projected(wanted, None if grad.ndim else grad, scale, features, weight, *made)
        return None, *found, None, None, None, None


# Whether gradients by features, weight and scale are wanted.
_Wanted = tuple[bool, bool, bool]
_NOTHING: _Wanted = (False, False, False)


def _wanted(needs_input_grad: tuple[bool, ...]) -> _Wanted:
    return needs_input_grad[1], needs_input_grad[2], needs_input_grad[4]


def _walk(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    scale: Tensor | None,
    number: float,
    sample_weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    *,
    upstream: Tensor | None,
    wanted: _Wanted,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    given = (features, weight, labels, scale, number, sample_weight, upstream, ignore_index, reduction, *wanted)
    return call(_angular_walk_op, _angular_walk, *given)


def _projected(
    wanted: _Wanted,
    upstream: Tensor | None,
    scale: Tensor | None,
    features: Tensor,
    weight: Tensor,
    inverses: Tensor,
    by_features: Tensor,
    by_weight: Tensor,
    totals: Tensor,
    along: Tensor,
) -> tuple[Tensor | None, Tensor | None, None, Tensor | None]:
    """The gradients by features, weight, labels (none) and scale."""
    if wanted[0] and _keeps_slopes(features, weight):
        others = by_weight if wanted[1] else None
        made = gradients_from_slopes(by_features, along, others, features, weight, inverses, totals, upstream)
    else:
        gradients = [one for one, is_wanted in zip((by_features, by_weight), wanted, strict=False) if is_wanted]
        vectors = [one for one, is_wanted in zip((features, weight), wanted, strict=False) if is_wanted]
        made = project_gradients(gradients, vectors, inverses, 0 if wanted[0] else len(features), totals, upstream)
    by_scale = None
    if wanted[2] and scale is not None:
        by_scale = (totals[1] if upstream is None else totals[1] * upstream).to(scale.dtype).reshape(scale.shape)
    return made[0] if wanted[0] else None, made[-1] if wanted[1] else None, None, by_scale


def _keeps_slopes(features: Tensor, weight: Tensor) -> bool:
    """Whether slopes, one a class, wait for the backward pass instead of a gradient, one a dimension."""
    return weight.shape[0] <= features.shape[1]


def _angular_walk(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    scale: Tensor | None,
    number: float,
    sample_weight: Tensor | None,
    upstream: Tensor | None,
    ignore_index: int,
    reduction: str,
    features_wanted: bool,
    weight_wanted: bool,
    scale_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    from hardsight.kernels.fused import angular_cross_entropy as fused

    return fused.walk(
        features.contiguous(),
        weight.contiguous(),
        labels,
        scale,
        number,
        sample_weight,
        upstream,
        ignore_index,
        reduction,
        (features_wanted, weight_wanted, scale_wanted),
        _keeps_slopes(features, weight),
    )


_angular_walk_op = torch.library.custom_op("hardsight::angular_walk", _angular_walk, mutates_args=())


@_angular_walk_op.register_fake
def _(features: Tensor, weight: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    reduction, features_wanted, weight_wanted, scale_wanted = given[-4:]
    samples, classes = features.shape[0], weight.shape[0]
    wide = features.new_empty(0, dtype=torch.float32)
    keeps_slopes = features_wanted and _keeps_slopes(features, weight)
    if keeps_slopes:
        by_features = features.new_empty(samples, aligned_width(classes))
    else:
        by_features = wide.new_empty(features.shape if features_wanted else (0,), dtype=held_dtype(features.dtype))
    return (
        wide.new_empty((samples,) if reduction == "none" else ()),
        wide.new_empty(samples + classes),
        by_features,
        wide.new_empty(weight.shape if weight_wanted else (0,)),
        wide.new_empty(2 if features_wanted or weight_wanted or scale_wanted else 0),
        wide.new_empty(samples if keeps_slopes else 0),
    )
