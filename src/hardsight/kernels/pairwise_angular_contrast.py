"""AMC-Loss over all pairs of a batch: n^2 work, a block of rows in memory, the gradient made on the way."""

from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.derivatives import once_differentiable
from hardsight.geometry import angles_to_classes, widen
from hardsight.kernels.directions import project_gradients
from hardsight.kernels.dispatch import call, runs_fused
from hardsight.kernels.inputs import check_labels, check_matrix, check_number, check_sample_weight
from hardsight.kernels.samples import kept_labels


def pairwise_angular_contrast(
    features: Float[Tensor, "samples dim"],
    labels: Integer[Tensor, "samples"],
    margin_radians: float = 0.5,
    *,
    sample_weight: Float[Tensor, "samples"] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, ""]:
    """angle^2 of samples with one label, max(0, margin - angle)^2 of others, over every two samples (AMC, Eq. 2).

    "mean" divides by the sum of the pairs' weights (products of the samples'; 0 where a label is ignored), "sum" by
    nothing. In the fused version lengths beyond float32's squares count as zero vectors, and the weights of samples get
    no gradient.
    """
    check_matrix(features, "features", "[samples, dim]")
    labels = check_labels(labels, len(features))
    check_sample_weight(sample_weight, len(features))
    check_number("margin_radians", margin_radians)
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean' or 'sum'; all pairs are not returned one by one; got {reduction!r}")
    if torch.is_autocast_enabled(features.device.type) and features.dtype == torch.float32:
        features = features.to(torch.get_autocast_dtype(features.device.type))
    if not runs_fused(features) or not features.numel():
        return reference(
            features,
            labels,
            margin_radians,
            sample_weight=sample_weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )
    given = (features, labels, sample_weight, float(margin_radians), ignore_index, reduction)
    if torch.is_grad_enabled() and features.requires_grad:
        return _Contrast.apply(*given)
    with torch.no_grad():
        return call(_angular_contrast_op, _angular_contrast, *given, False)[0]


def reference(
    features: Tensor,
    labels: Tensor,
    margin_radians: float = 0.5,
    *,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """`pairwise_angular_contrast` in plain PyTorch: the definition, with all pairs in memory."""
    _, weight = kept_labels(labels, sample_weight, ignore_index)
    left, right = torch.triu_indices(len(features), len(features), offset=1, device=features.device)
    angles = angles_to_classes(widen(features), widen(features), exact=False)[left, right]
    distance = torch.where(labels[left] == labels[right], angles, (margin_radians - angles).clamp_min(0.0))
    pair_weight = (weight[left] * weight[right]).to(distance.dtype)
    total = torch.where(pair_weight == 0, 0.0, pair_weight * distance.square()).sum()
    if reduction == "sum":
        return total
    divisor = pair_weight.sum()
    return total / torch.where(divisor == 0, 1.0, divisor)


class _Contrast(torch.autograd.Function):
    """The reduced contrast, its gradient made on the way."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, *given: Any) -> Tensor:
        value, inverses, gradient, factor = call(_angular_contrast_op, _angular_contrast, features, *given, True)
        ctx.unused = (None,) * len(given)
        ctx.save_for_backward(features, inverses, gradient, factor)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        features, inverses, gradient, factor = saved
        return project_gradients([gradient], [features], inverses, 0, factor, grad)[0], *ctx.unused


def _angular_contrast(
    features: Tensor,
    labels: Tensor,
    sample_weight: Tensor | None,
    margin: float,
    ignore_index: int,
    reduction: str,
    slopes_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from hardsight.kernels.fused import pairwise_angular_contrast as fused

    return fused.contrast(features.contiguous(), labels, sample_weight, margin, ignore_index, reduction, slopes_wanted)


_angular_contrast_op = torch.library.custom_op("hardsight::angular_contrast", _angular_contrast, mutates_args=())


@_angular_contrast_op.register_fake
def _(
    features: Tensor,
    labels: Tensor,
    sample_weight: Tensor | None,
    margin: float,
    ignore_index: int,
    reduction: str,
    slopes_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    wide = features.new_empty((), dtype=torch.float32)
    gradient = wide.new_empty(features.shape if slopes_wanted else (0,))
    return wide, wide.new_empty(features.shape[0]), gradient, torch.empty_like(wide)
