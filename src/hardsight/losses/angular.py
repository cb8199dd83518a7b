"""The AVH loss, and a head whose logits turn any loss on logits into its angular form."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight.class_shards import ShardedHead
from hardsight.geometry import angles_to_classes, widen
from hardsight.kernels.angular_cross_entropy import angular_cross_entropy
from hardsight.kernels.dispatch import Fused, chooses_fused, same_precision
from hardsight.losses.entropy import cross_entropy
from hardsight.losses.inputs import check_range, check_reduction, check_weight, labels_of, reduce, weight_of
from hardsight.losses.registry import LossModule, registered
from hardsight.losses.sharded import check_not_fused, cross_entropy_of_shards, gathered_batch


def angular_logits(features: Tensor, weight: Tensor, *, scale: Tensor | float = 1.0) -> Float[Tensor, "*batch classes"]:
    """scale * (pi - angle to each class): in [0, scale pi], larger is closer; float32 for half precision.

    A zero feature has an angle of pi/2 to every class and gets no gradient.
    """
    check_weight(features, weight)
    return scale * (math.pi - angles_to_classes(widen(features), widen(weight), exact=False))


def avh_loss(
    features: Tensor,
    weight: Tensor | ShardedHead,
    target: Tensor,
    scale: Tensor | float = 10.0,
    *,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    recompute: bool = False,
    fused: Fused = "auto",
) -> Float[Tensor, "..."]:
    """-log softmax of s (pi - angle) at the label (AVH, Eq. 5, which prints the softmax without its -log).

    Fused, samples x classes is never stored, and lengths beyond float32's squares (about 1e-19 to 1e19) count as
    zero vectors. The gradients then wait for the backward pass, unless `recompute` has that multiply again. With a
    `ShardedHead` mean and sum run over all processes' samples.
    """
    if isinstance(weight, ShardedHead):
        check_reduction(reduction)
        check_not_fused(fused)
        batch = gathered_batch(weight, features, target, sample_weight, ignore_index)
        shared = weight.share(scale) if isinstance(scale, Tensor) else scale
        return cross_entropy_of_shards(
            weight, angular_logits(batch.features, weight.weight, scale=shared), batch, reduction
        )
    check_weight(features, weight)
    options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": reduction}
    if not chooses_fused(fused, features, weight, unless=_obstacle(features, target)):
        logits = angular_logits(features, weight, scale=scale)
        return cross_entropy(logits, target, sample_weight=sample_weight, **options)
    check_reduction(reduction)
    shape = (len(features),)
    labels, known = labels_of(target, shape, len(weight), ignore_index), weight_of(sample_weight, shape)
    if sample_weight is not None and sample_weight.requires_grad:
        # Weights that are learned: their gradient is arithmetic on [samples] numbers.
        losses = avh_loss(features, weight, labels, scale, ignore_index=ignore_index, reduction="none", fused=True)
        return reduce(
            losses, reduction, weight=torch.where(labels == ignore_index, 0.0, sample_weight.to(losses.dtype))
        )

    def plain(features: Tensor, weight: Tensor, scale_then: Tensor | None) -> Tensor:
        chosen = scale if scale_then is None else scale_then
        return avh_loss(features, weight, target, chosen, sample_weight=sample_weight, fused=False, **options)

    left, right = same_precision((features, weight))
    return angular_cross_entropy(
        left, right, labels, scale, known, ignore_index, reduction, recompute=recompute, plain=plain
    )


def _obstacle(features: Tensor, target: Tensor) -> str | None:
    """What keeps the kernel from this call, besides devices and types."""
    if target.is_floating_point():
        return "target must hold class indices"
    return "features must be [samples, dim]" if features.ndim != 2 else None


class AngularLinear(nn.Module):
    """A classifier head with logits s (pi - angle): cross-entropy on them is the AVH loss.

    `weight` has the shape of `nn.Linear`'s, and there is no bias. The scale s is fixed or learned; it is kept as its
    logarithm, so it stays positive, and under the same name either way, so one checkpoint fits both. The paper sets s
    by cross-validation; 10 lets the softmax of 1000 classes reach 0.999 within 80 degrees of difference.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        scale: float = 10.0,
        *,
        learnable_scale: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_range(scale, "scale", 0.0, open_low=True)
        self.dim, self.classes = dim, classes
        # Directions are all that counts: normal components make them uniform on the sphere.
        self.weight = nn.Parameter(torch.randn(classes, dim, generator=generator) / math.sqrt(dim))
        log_scale = torch.tensor(math.log(scale))
        if learnable_scale:
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale)

    @property
    def scale(self) -> Float[Tensor, ""]:
        return self.log_scale.exp()

    def forward(self, features: Tensor) -> Float[Tensor, "*batch classes"]:
        return angular_logits(features, self.weight, scale=self.scale)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, classes={self.classes}, scale={float(self.scale.detach()):g}"


@registered(
    "avh",
    "−log softmax_y s(π−θ)",
    "Chen et al., ICML 2020, Eq. 5 (its −log is missing in print)",
    class_rows=("head.weight",),
)
class AVHLoss(LossModule, of=avh_loss, fixed={"recompute": False}, kept=("scale",)):
    """`avh_loss` with its own class weights, an `AngularLinear` head: forward(features, labels)."""

    def __init__(
        self, dim: int, classes: int, scale: float = 10.0, *, learnable_scale: bool = False,
        generator: torch.Generator | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(**settings)
        self.head = AngularLinear(dim, classes, scale, learnable_scale=learnable_scale, generator=generator)

    def forward(self, features: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        return self.call(features, self.head.weight, target, self.head.scale, sample_weight=sample_weight)
