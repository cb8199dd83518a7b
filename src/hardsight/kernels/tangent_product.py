"""The gradients of the AVH loss from the slopes that waited for the backward pass."""

from typing import Any

import torch
from torch import Tensor

from hardsight.kernels.dispatch import call


def gradients_from_slopes(
    slopes: Tensor,
    along: Tensor,
    by_weight: Tensor | None,
    features: Tensor,
    weight: Tensor,
    inverses: Tensor,
    factor: Tensor,
    upstream: Tensor | None,
) -> list[Tensor]:
    """factor times upstream times the tangent parts of slopes @ weight and, where it is given, of `by_weight`.

    `along` says how many times the features lie in slopes @ weight.
    """
    given = (slopes, along, by_weight, features, weight, inverses, factor, upstream)
    return call(_gradients_from_slopes_op, _gradients_from_slopes, *given)


def _gradients_from_slopes(
    slopes: Tensor,
    along: Tensor,
    by_weight: Tensor | None,
    features: Tensor,
    weight: Tensor,
    inverses: Tensor,
    factor: Tensor,
    upstream: Tensor | None,
) -> list[Tensor]:
    from hardsight.kernels.fused import tangent_product as fused

    vectors = features.contiguous(), weight.contiguous()
    return fused.gradients_from_slopes(slopes, along, by_weight, *vectors, inverses, factor, upstream)


_gradients_from_slopes_op = torch.library.custom_op(
    "hardsight::gradients_from_slopes", _gradients_from_slopes, mutates_args=()
)


@_gradients_from_slopes_op.register_fake
def _(
    slopes: Tensor, along: Tensor, by_weight: Tensor | None, features: Tensor, weight: Tensor, *_: Any
) -> list[Tensor]:
    vectors = (features,) if by_weight is None else (features, weight)
    return [one.new_empty(one.shape) for one in vectors]
