"""AMC-Loss over all pairs of a batch, fused: n^2 work, a block of rows in memory, the gradient made on the way."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.derivatives import applied, plain_when_differentiated
from hardsight.kernels.angular_cross_entropy import project_gradients
from hardsight.kernels.dispatch import Op


def _shapes(features: Tensor, *given: Any) -> tuple[Tensor, ...]:
    wide, slopes_wanted = features.new_empty((), dtype=torch.float32), given[-1]
    gradient = wide.new_empty(features.shape if slopes_wanted else (0,))
    return wide, wide.new_empty(features.shape[0]), gradient, wide.new_empty(1)


_angular_contrast = Op(
    "angular_contrast",
    "pairwise_angular_contrast.contrast",
    "(Tensor features, Tensor labels, Tensor? sample_weight, float margin, int ignore_index, str reduction,"
    " bool slopes_wanted) -> (Tensor, Tensor, Tensor, Tensor)",
    _shapes,
)


def pairwise_angular_contrast(
    features: Float[Tensor, "samples dim"], labels: Integer[Tensor, "samples"], margin_radians: float,
    sample_weight: Float[Tensor, "samples"] | None, ignore_index: int, reduction: str, *,
    plain: Callable[[Tensor], Tensor],
) -> Float[Tensor, ""]:  # fmt: skip
    """`losses.amc_loss` over every two samples; `plain` of the features has further derivatives.

    Lengths beyond float32's squares count as zero vectors, and the weights of samples get no gradient.
    """
    if torch.is_autocast_enabled(features.device.type) and features.dtype == torch.float32:
        features = features.to(torch.get_autocast_dtype(features.device.type))
    given = (features, labels, sample_weight, float(margin_radians), ignore_index, reduction)
    if torch.is_grad_enabled() and features.requires_grad:
        return applied(_Contrast, None if torch.compiler.is_compiling() else plain, *given)
    with torch.no_grad():
        value, *_ = _angular_contrast(*given, False)
        return value


class _Contrast(torch.autograd.Function):
    """The reduced contrast, its gradient made on the way."""

    @staticmethod
    def forward(ctx: Any, plain: Any, features: Tensor, *given: Any) -> Tensor:
        value, inverses, gradient, factor = _angular_contrast(features, *given, True)
        ctx.unused = (None,) * len(given)
        ctx.plain, ctx.differentiated = plain, (None, 0, *ctx.unused)
        ctx.save_for_backward(features, inverses, gradient, factor)
        return value

    @staticmethod
    @plain_when_differentiated
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        features, inverses, gradient, factor = saved
        return None, project_gradients([gradient], [features], inverses, 0, factor, grad)[0], *ctx.unused
