"""Losses of the angle to each class: the AVH loss and the margin family, and heads that make such logits.

NormFace, CosFace, ArcFace and SphereFace need no angle: cosines, one exact sine (ArcFace) and a polynomial (SphereFace)
say it all. So no arccos can spoil a gradient: all are finite for aligned, opposite and zero features.
"""

import math
from typing import Annotated, Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from hardsight.class_shards import ShardedHead
from hardsight.geometry import angles_to_classes, directions, full_precision, norms, widen
from hardsight.kernels.angular_cross_entropy import angular_cross_entropy
from hardsight.kernels.dispatch import Fused, chooses_fused, same_precision
from hardsight.losses.entropy import cross_entropy
from hardsight.losses.inputs import (
    as_rows,
    check_labels,
    check_range,
    check_reduction,
    check_weight,
    labels_of,
    reduce,
    weight_of,
)
from hardsight.losses.registry import LossModule, NotNegative, checked, registered
from hardsight.losses.sharded import cross_entropy_of_shards, gathered_batch
from hardsight.names import check_name

MARGINS = ("normface", "cosface", "arcface", "sphereface")


def _check_scale(value: float | None, name: str) -> None:
    if value is not None:
        check_range(value, name, 0.0, open_low=True)


Scale = Annotated[float | None, _check_scale]


def angular_logits(features: Tensor, weight: Tensor, *, scale: Tensor | float = 1.0) -> Float[Tensor, "*batch classes"]:
    """scale * (pi - angle to each class): in [0, scale pi], larger is closer; float32 for half precision.

    A zero feature has an angle of pi/2 to every class and gets no gradient.
    """
    check_weight(features, weight)
    return scale * (math.pi - angles_to_classes(widen(features), widen(weight), exact=False))


def avh_loss(
    features: Tensor, weight: Tensor | ShardedHead, target: Tensor, scale: Tensor | float = 10.0, *,
    sample_weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean", recompute: bool = False,
    fused: Fused = "auto",
) -> Float[Tensor, "..."]:  # fmt: skip
    """-log softmax of s (pi - angle) at the label (AVH, Eq. 5, which prints the softmax without its -log).

    Fused, samples x classes is never stored, and lengths beyond float32's squares (about 1e-19 to 1e19) count as
    zero vectors. The gradients then wait for the backward pass, unless `recompute` has that multiply again. With a
    `ShardedHead` mean and sum run over all processes' samples.
    """
    if isinstance(weight, ShardedHead):
        check_reduction(reduction)
        batch = gathered_batch(weight, features, target, sample_weight, ignore_index, fused)
        shared = weight.share(scale) if isinstance(scale, Tensor) else scale
        return cross_entropy_of_shards(
            weight, angular_logits(batch.features, weight.weight, scale=shared), batch, reduction
        )
    check_weight(features, weight)
    options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": reduction}
    obstacle = None if features.ndim == 2 else "features must be [samples, dim]"
    if target.is_floating_point():
        obstacle = "target must hold class indices"
    if not chooses_fused(fused, features, weight, unless=obstacle):
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


class AngularLinear(nn.Module):
    """A classifier head with logits s (pi - angle): cross-entropy on them is the AVH loss.

    `weight` has the shape of `nn.Linear`'s, and there is no bias. The scale s is fixed or learned; it is kept as its
    logarithm, so it stays positive, and under the same name either way, so one checkpoint fits both. The paper sets s
    by cross-validation; 10 lets the softmax of 1000 classes reach 0.999 within 80 degrees of difference.
    """

    def __init__(
        self, dim: int, classes: int, scale: float = 10.0, *, learnable_scale: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:  # fmt: skip
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


@checked
def margin_loss(
    features: Tensor, weight: Tensor, labels: Tensor, *, kind: str, scale: Scale, margin: float | int = 0.0,
    annealing: NotNegative = 0.0, sample_weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:  # fmt: skip
    """Cross-entropy on `margin_logits`. The margin is put on the labelled class, so labels are class indices."""
    if features.ndim != 2:
        raise ValueError(f"features must be [batch, dim]; got shape {list(features.shape)}")
    flat, _ = check_labels(labels, (len(features),), len(weight), ignore_index)
    logits = margin_logits(features, weight, flat, kind=kind, scale=scale, margin=margin, annealing=annealing)
    rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=ignore_index, soft_targets=False)
    return rows.reduce(-rows.at_label(rows.log_softmax()), reduction)


def margin_logits(
    features: Tensor, weight: Tensor, labels: Integer[Tensor, "*batch"], *, kind: str, scale: float | None,
    margin: float | int = 0.0, annealing: float = 0.0,
) -> Float[Tensor, "*batch classes"]:  # fmt: skip
    """s cos(angle) for the other classes, and for the labelled one

    normface: s cos(angle); cosface: s (cos(angle) - m); arcface: s cos(angle + m), continued past pi - m by the line
    s (cos(angle) - m sin m) so that it keeps falling; sphereface: s psi(angle), psi = (-1)^k cos(m angle) - 2k on
    [k pi/m, (k+1) pi/m], mixed with cos(angle) in the shares 1 : `annealing`. A scale of None is the feature's norm.
    """
    check_weight(features, weight)
    _check_margin(kind, margin)
    features = widen(features)
    with full_precision(features):
        toward, centres = directions(features), directions(widen(weight)).to(features.dtype)
        cosines = toward @ centres.T
    cosine = cosines.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    if kind == "sphereface":
        target = (annealing * cosine + _sphereface(cosine, int(margin))) / (1 + annealing)
    elif kind == "arcface":
        turned = cosine * math.cos(margin) - _sine(toward, centres[labels]) * math.sin(margin)
        target = torch.where(cosine >= -math.cos(margin), turned, cosine - margin * math.sin(margin))
    else:
        target = cosine - margin
    logits = cosines.scatter(-1, labels.unsqueeze(-1), target.unsqueeze(-1))
    if scale is not None:
        return scale * logits
    # psi is at least 1 - 2 * 8 and its slope at most 8 * 8: a norm that leaves sums of their products finite.
    return logits * norms(features).clamp(max=torch.finfo(logits.dtype).max * 1e-6).unsqueeze(-1)


class CosineLinear(nn.Module):
    """A classifier head with logits s cos(angle): what the margin family trains, and what it predicts with.

    `weight` has the shape of `nn.Linear`'s, and there is no bias. A scale of None is the feature's norm.
    """

    def __init__(
        self, dim: int, classes: int, scale: float | None = 30.0, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        _check_scale(scale, "scale")
        self.scale = scale
        self.weight = nn.Parameter(torch.randn(classes, dim, generator=generator) / math.sqrt(dim))

    def forward(self, features: Tensor) -> Float[Tensor, "*batch classes"]:
        # No margin: the label it would be put on is not known.
        anyone = torch.zeros(features.shape[:-1], dtype=torch.long, device=features.device)
        return margin_logits(features, self.weight, anyone, kind="normface", scale=self.scale)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}, scale={self.scale}"


class MarginLoss(LossModule):
    """A loss of the margin family with its own class weights: forward(features, labels)."""

    def __init__(
        self, dim: int, classes: int, *given: Any, generator: torch.Generator | None = None, **settings: Any
    ) -> None:
        super().__init__(*given, **settings)
        self.weight = nn.Parameter(torch.randn(classes, dim, generator=generator) / math.sqrt(dim))

    def check(self) -> None:
        _check_margin(self.kind, self.margin)

    def forward(self, features: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        return self.call(features, labels=labels, sample_weight=sample_weight)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}, {super().extra_repr()}"


_LAWS: dict[str, Any] = {"class_rows": ("weight",), "soft_targets": False}


@registered("normface", "−log softmax_y s cos θ", "Wang et al., ACM MM 2017", **_LAWS)
class NormFace(MarginLoss, of=margin_loss, fixed={"kind": "normface", "margin": 0.0, "annealing": 0.0}, scale=30.0):
    """Cross-entropy on s cos(angle) (Wang et al., 2017)."""


@registered("cosface", "s(cos θ_y − m) at the label", "Wang et al., CVPR 2018", **_LAWS)
class CosFace(MarginLoss, of=margin_loss, fixed={"kind": "cosface", "annealing": 0.0}, scale=64.0, margin=0.35):
    """Cross-entropy with s (cos(angle) - m) at the label (Wang et al., 2018)."""


@registered("arcface", "s cos(θ_y + m) at the label", "Deng et al., CVPR 2019", **_LAWS)
class ArcFace(MarginLoss, of=margin_loss, fixed={"kind": "arcface", "margin": 0.5, "annealing": 0.0}, scale=64.0):
    """Cross-entropy with s cos(angle + m) at the label (Deng et al., 2019)."""

    def __init__(
        self, dim: int, classes: int, scale: float = 64.0, margin_radians: float = 0.5, **settings: Any
    ) -> None:
        super().__init__(dim, classes, scale, **settings)
        self.margin = check_range(margin_radians, "margin_radians", 0.0, math.pi)


@registered("sphereface", "‖x‖ ψ(θ_y) at the label, ψ = (−1)^k cos(mθ) − 2k", "Liu et al., CVPR 2017", **_LAWS)
class SphereFace(MarginLoss, of=margin_loss, fixed={"kind": "sphereface"}, scale=None, margin=4):
    """Cross-entropy with |x| psi(angle) at the label, a margin that multiplies the angle (Liu et al., 2017).

    `annealing` is the paper's lambda, set to a large value first and lowered during training to 5.
    """

    def __init__(self, dim: int, classes: int, margin: int = 4, **settings: Any) -> None:
        super().__init__(dim, classes, margin=margin, **settings)


def _check_margin(kind: str, margin: float | int) -> None:
    check_name("kind", kind, MARGINS)
    if kind == "normface" and margin != 0:
        raise ValueError(f"margin must be 0 for normface, which has none; got {margin!r}")
    if kind == "sphereface" and margin not in range(1, 9):
        raise ValueError(f"margin must be an integer from 1 to 8, it multiplies the angle; got {margin!r}")
    if kind in ("cosface", "arcface"):
        check_range(margin, "margin", 0.0, math.pi if kind == "arcface" else math.inf)


def _sphereface(cosine: Float[Tensor, "*batch"], margin: int) -> Float[Tensor, "*batch"]:
    """(-1)^k cos(m angle) - 2k on [k pi/m, (k+1) pi/m]: cos(m angle) unrolled, falling from 1 to 1 - 2m."""
    step = torch.zeros_like(cosine)
    for boundary in range(1, margin):
        step = step + (cosine.detach() < math.cos(boundary * math.pi / margin))
    # cos(m angle) is Chebyshev's polynomial of the cosine: smooth at 0 and pi, where the angle is not.
    before, multiple = torch.ones_like(cosine), cosine
    for _ in range(margin - 1):
        before, multiple = multiple, 2 * cosine * multiple - before
    return (1 - 2 * (step % 2)) * multiple - 2 * step


def _sine(x: Float[Tensor, "*batch dim"], y: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
    """Sine of the angle between unit vectors, |x - y| |x + y| / 2: exact near 0 and pi, with a finite gradient."""
    apart, together = torch.linalg.vector_norm(x - y, dim=-1), torch.linalg.vector_norm(x + y, dim=-1)
    # Squares that sum to 4 for two unit vectors, to 2 at most when one is zero: then the angle is a right one.
    one_is_zero = apart.detach().square() + together.detach().square() < 3
    return torch.where(one_is_zero, 1.0, apart * together / 2)
