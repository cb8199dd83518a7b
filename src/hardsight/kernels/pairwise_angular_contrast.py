"""AMC-Loss over all pairs of a batch: n^2 work, a block of rows in memory, the gradient made on the way."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.geometry import angles_to_classes, widen
from hardsight.kernels.angular_cross_entropy import project_gradient
from hardsight.kernels.dispatch import call, runs_fused
from hardsight.kernels.inputs import check_labels, check_number, check_sample_weight
from hardsight.kernels.rescaled_cross_entropy import kept_labels


def pairwise_angular_contrast(
    features: Float[Tensor, "samples dim"],
    labels: Int[Tensor, "samples"],
    margin_radians: float = 0.5,
    *,
    sample_weight: Float[Tensor, "samples"] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, ""]:
    """angle^2 of samples with one label, max(0, margin - angle)^2 of others, over every two samples (AMC, Eq. 2).

    "mean" divides by the sum of the pairs' weights (products of the samples'; 0 where a label is ignored), "sum" by
    nothing. In the fused version lengths beyond float32's squares count as zero vectors.
    """
    check_labels(labels, len(features))
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
    # Ignored labels keep their number here: they pair with nobody, whatever it is.
    _, weight = kept_labels(labels, sample_weight, ignore_index)
    wanted = torch.is_grad_enabled() and features.requires_grad
    total = _Contrast.apply(features, labels.long(), weight.float(), float(margin_radians), wanted)
    return total / _pairs_weight(weight) if reduction == "mean" else total


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


def _pairs_weight(weight: Tensor) -> Tensor:
    """Sum of the products of every two weights, 1 where there is none; in float64, for the difference of squares."""
    exact = weight.double()
    total = ((exact.sum().square() - exact.square().sum()) / 2).clamp_min(0.0)
    return torch.where(total <= 1e-12 * exact.square().sum(), 1.0, total).to(weight.dtype)


class _Contrast(torch.autograd.Function):
    """The sum over pairs, its gradient made on the way."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, labels: Tensor, weight: Tensor, margin: float, wanted: bool) -> Tensor:
        contrast, gradient, factor = call(
            _angular_contrast_op, _angular_contrast, features, labels, weight, margin, wanted
        )
        if wanted:
            ctx.save_for_backward(features, gradient, factor)
        return contrast.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        features, gradient, factor = ctx.saved_tensors
        return project_gradient(gradient, features, grad * factor), None, None, None, None


def _angular_contrast(
    features: Tensor, labels: Tensor, weight: Tensor, margin: float, slopes_wanted: bool
) -> tuple[Tensor, Tensor, Tensor]:
    from hardsight.kernels.fused import pairwise_angular_contrast as fused

    return fused.contrast(features.contiguous(), labels, weight, margin, slopes_wanted)


_angular_contrast_op = torch.library.custom_op("hardsight::angular_contrast", _angular_contrast, mutates_args=())


@_angular_contrast_op.register_fake
def _(
    features: Tensor, labels: Tensor, weight: Tensor, margin: float, slopes_wanted: bool
) -> tuple[Tensor, Tensor, Tensor]:
    rows = features.new_empty(features.shape[0], dtype=torch.float32)
    gradient = features.new_empty(features.shape if slopes_wanted else (0,), dtype=torch.float32)
    return rows, gradient, features.new_empty((), dtype=torch.float32)
