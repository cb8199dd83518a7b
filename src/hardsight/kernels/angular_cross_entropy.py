"""The AVH loss straight from features and weight: samples x classes exists only a block of samples at a time.

By default the gradient is made during the forward pass, while a block's products are at hand: three matrix products
in all, and the gradients of features and weight are held until the backward pass. With `recompute` (and always where
every sample's loss is returned) the forward pass keeps nothing and the backward pass multiplies again: four products.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.geometry import angles_to_classes, widen
from hardsight.kernels.dispatch import call, runs_fused, same_precision
from hardsight.kernels.inputs import check_choice, check_head, check_labels, check_number, check_sample_weight
from hardsight.kernels.rescaled_cross_entropy import kept_labels, reduced


def angular_cross_entropy(
    features: Float[Tensor, "samples dim"],
    weight: Float[Tensor, "classes dim"],
    labels: Int[Tensor, "samples"],
    scale: Tensor | float = 10.0,
    *,
    sample_weight: Float[Tensor, "samples"] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    recompute: bool = False,
) -> Float[Tensor, "..."]:
    """-log softmax of scale (pi - angle) at the label; gradients for features, weight and scale.

    Lengths beyond float32's squares (about 1e-19 to 1e19) count as zero vectors in the fused version: a right angle
    and no gradient.
    """
    check_head(features, weight)
    check_labels(labels, len(features), len(weight), ignore_index=ignore_index)
    check_sample_weight(sample_weight, len(features))
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    check_number("scale", scale)
    features, weight = same_precision((features, weight))
    if not _serves(features, weight):
        return reference(
            features, weight, labels, scale, sample_weight=sample_weight, ignore_index=ignore_index, reduction=reduction
        )
    labels, sample_weight = kept_labels(labels, sample_weight, ignore_index)
    scale = torch.as_tensor(scale, dtype=torch.float32, device=features.device)
    if recompute or reduction == "none" or not torch.is_grad_enabled():
        losses = _Recomputed.apply(features, weight, labels, scale)
        return reduced(losses, sample_weight, reduction)
    total = sample_weight.sum() if reduction == "mean" else torch.ones_like(sample_weight[:1]).sum()
    return _Eager.apply(features, weight, labels, scale, sample_weight / torch.where(total == 0, 1.0, total))


def reference(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    scale: Tensor | float = 10.0,
    *,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """`angular_cross_entropy` in plain PyTorch: the definition, with samples x classes in memory."""
    labels, sample_weight = kept_labels(labels, sample_weight, ignore_index)
    logits = scale * (math.pi - angles_to_classes(widen(features), widen(weight), exact=False))
    losses = -logits.log_softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1)
    return reduced(losses, sample_weight.to(losses.dtype), reduction)


def project_gradient(gradient: Tensor, vectors: Tensor, factor: Tensor) -> Tensor:
    """factor times the gradient's part along the sphere at each vector, in the vectors' dtype."""
    return call(_project_gradient_op, _project_gradient, gradient, vectors, factor)


class _Eager(torch.autograd.Function):
    """sum(coefficient * loss), its gradients made on the way."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor, coefficient: Tensor
    ) -> Tensor:
        if not any(ctx.needs_input_grad):
            losses = call(_angular_losses_op, _angular_losses, features, weight, labels, scale)
        else:
            made = call(_angular_gradients_op, _angular_gradients, features, weight, labels, scale, coefficient)
            losses, by_features, by_weight, by_scale, factor = made
            ctx.save_for_backward(features, weight, by_features, by_weight, by_scale, factor)
        return torch.where(coefficient == 0, 0.0, coefficient * losses).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, by_features, by_weight, by_scale, factor = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            project_gradient(by_features, features, grad * factor) if wanted[0] else None,
            project_gradient(by_weight, weight, grad * factor) if wanted[1] else None,
            None,
            by_scale * grad if wanted[3] else None,
            None,
        )


class _Recomputed(torch.autograd.Function):
    """The loss of every sample; the backward pass starts from the inputs again."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(features, weight, labels, scale)
        return call(_angular_losses_op, _angular_losses, features, weight, labels, scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, labels, scale = ctx.saved_tensors
        made = call(_angular_gradients_op, _angular_gradients, features, weight, labels, scale, grad.contiguous())
        _, by_features, by_weight, by_scale, factor = made
        wanted = ctx.needs_input_grad
        return (
            project_gradient(by_features, features, factor) if wanted[0] else None,
            project_gradient(by_weight, weight, factor) if wanted[1] else None,
            None,
            by_scale if wanted[3] else None,
        )


def _serves(features: Tensor, weight: Tensor) -> bool:
    return runs_fused(features, weight) and features.numel() > 0


def _fused() -> Any:
    from hardsight.kernels.fused import angular_cross_entropy as fused

    return fused


def _angular_losses(features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
    return _fused().losses(features.contiguous(), weight.contiguous(), labels, scale)


_angular_losses_op = torch.library.custom_op("hardsight::angular_losses", _angular_losses, mutates_args=())


@_angular_losses_op.register_fake
def _(features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
    return features.new_empty(features.shape[0], dtype=torch.float32)


def _angular_gradients(
    features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor, coefficient: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _fused().gradients(features.contiguous(), weight.contiguous(), labels, scale, coefficient)


_angular_gradients_op = torch.library.custom_op("hardsight::angular_gradients", _angular_gradients, mutates_args=())


@_angular_gradients_op.register_fake
def _(
    features: Tensor, weight: Tensor, labels: Tensor, scale: Tensor, coefficient: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    number = features.new_empty((), dtype=torch.float32)
    return (
        features.new_empty(features.shape[0], dtype=torch.float32),
        features.new_empty(features.shape, dtype=torch.float32),
        weight.new_empty(weight.shape, dtype=torch.float32),
        number,
        torch.empty_like(number),
    )


def _project_gradient(gradient: Tensor, vectors: Tensor, factor: Tensor) -> Tensor:
    return _fused().project(gradient, vectors.contiguous(), factor)


_project_gradient_op = torch.library.custom_op("hardsight::project_gradient", _project_gradient, mutates_args=())


@_project_gradient_op.register_fake
def _(gradient: Tensor, vectors: Tensor, factor: Tensor) -> Tensor:
    return vectors.new_empty(vectors.shape)
