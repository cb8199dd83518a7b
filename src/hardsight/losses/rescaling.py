"""Gradient rescaling (GR): the logit gradient keeps its direction and gets the L1 norm w = g(beta p^lam (1 - p)).

CE, MAE and GCE push the logits in the same direction, (p - y) / (2 (1 - p_y)), with magnitudes 2(1-p), 4p(1-p) and
2 p^q (1-p); GR sets the magnitude (Eq. 6). It acts on the gradient alone: the value it returns is for logging only, and
a second derivative raises. The formula is in `emphasis`.
"""

import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight import distributed
from hardsight.class_shards import ShardedHead
from hardsight.derivatives import wants_gradient
from hardsight.geometry import full_precision, widen
from hardsight.kernels.dispatch import Fused, chooses_fused
from hardsight.kernels.rescaled_cross_entropy import rescaled_cross_entropy, rescaled_linear_cross_entropy
from hardsight.losses.emphasis import Transform, attach_gradient, check_rescaling, rescale, rescaled_gradient
from hardsight.losses.inputs import Rows, as_rows, by_rows, check_range, check_weight, labels_of, reduce, weight_of
from hardsight.losses.registry import LossModule, one_of, registered
from hardsight.losses.sharded import rescaled_of_shards
from hardsight.losses.terms import Over

check_rescaling_reduction = one_of("weight", "mean", "sum", "none")


class _Settings(NamedTuple):
    """What both forms of gradient rescaling take."""

    beta: float
    lam: float
    transform: Transform
    epsilon: float
    reduction: str
    sample_weight: Tensor | None
    ignore_index: int
    normaliser: Tensor | float | None
    across_processes: bool
    fused: Fused

    def check(self) -> None:
        check_rescaling(self.beta, self.lam, self.transform, self.epsilon)
        check_rescaling_reduction(self.reduction, "reduction")
        if self.normaliser is None:
            return
        if self.reduction != "weight":
            raise ValueError(
                f"normaliser needs reduction 'weight', which divides by it; got reduction {self.reduction!r}"
            )
        if not isinstance(self.normaliser, Tensor):
            check_range(self.normaliser, "normaliser", 0.0)
        elif self.normaliser.numel() != 1:
            raise ValueError(f"normaliser must be one number; got a tensor of shape {list(self.normaliser.shape)}")

    def processes(self, *trained: Tensor | None) -> int:
        """How many processes' weights are summed: those of others only where a gradient is wanted."""
        wanted = self.across_processes and any(one is not None and wants_gradient(one) for one in trained)
        return distributed.world_size() if wanted and self.reduction == "weight" else 1

    def for_kernel(self, processes: int) -> dict[str, Any]:
        """As the kernels take them."""
        given = self.normaliser is not None
        return {
            "settings": (
                self.ignore_index, float(self.beta), float(self.lam), float(self.epsilon), self.transform == "exp",
                self.reduction,
            ),
            "normaliser": self.normaliser / processes if self.normaliser is not None else None,
            "log_divisor": None if given or processes == 1 else distributed.log_mean_over_processes,
        }  # fmt: skip


def gradient_rescaling(
    logits: Tensor, labels: Tensor, *, beta: float = 6.0, lam: float = 0.5, transform: Transform = "exp",
    epsilon: float = 1e-6, reduction: Annotated[str, check_rescaling_reduction] = "weight",
    sample_weight: Tensor | None = None, ignore_index: int = -100, normaliser: Tensor | float | None = None,
    across_processes: bool = True, fused: Fused = "auto", value: Callable[[Tensor, Tensor], Tensor] | None = None,
    in_place: bool = False,
) -> Float[Tensor, "..."]:  # fmt: skip
    """A loss whose gradient at the logits is w_i (p - y) / (2 (1 - p_y)), and whose value is the cross-entropy.

    Reductions of the gradient: "weight" divides by the sum of the weights over all processes (what the authors' code
    does), "mean" by the number of samples here, "sum" by nothing, "none" keeps one loss a sample. `normaliser` is a
    sum of weights known beforehand, of all processes and of all parts of an accumulated batch. `value` replaces the
    logged cross-entropy: a function of logits [rows, classes] and labels that gives one number per sample. `epsilon` is
    added to 2 (1 - p_y), as in the authors' code: a sample is let go once 1 - p_y falls below it. With 0, Eq. 6 to the
    letter, a fitted sample pulls with weight 1 for ever and logits grow without end. Fused, `in_place` writes the
    gradient over the logits during the backward pass: nothing may read them after.
    """
    settings = _Settings(
        beta, lam, transform, epsilon, reduction, sample_weight, ignore_index, normaliser, across_processes, fused,
    )  # fmt: skip
    settings.check()
    processes = settings.processes(logits)
    flat, shape = by_rows(logits)
    obstacles = {
        "transform must be 'exp' or 'identity'": not isinstance(transform, str),
        "value must be None": value is not None,
        "logits must have their classes side by side in memory": flat.stride(1) != 1,
    }
    if chooses_fused(fused, flat, unless=next((one for one, is_there in obstacles.items() if is_there), None)):
        known = labels_of(labels, shape, flat.shape[1], ignore_index), weight_of(sample_weight, shape)
        loss = rescaled_cross_entropy(flat, *known, in_place=in_place, **settings.for_kernel(processes))
        return loss.reshape(shape) if reduction == "none" else loss
    rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=ignore_index, soft_targets=False)
    with torch.no_grad():
        log_p, _, log_weights, direction = rescale(rows, beta, lam, transform, epsilon)
        gradient = rescaled_gradient(log_weights, direction, _log_divisor(rows, log_weights, settings, processes))
        assert rows.labels is not None
        logged = -log_p if value is None else value(rows.logits, rows.labels)
        logged = reduce(logged, "mean" if reduction == "weight" else reduction, weight=rows.weight, shape=shape)
    return attach_gradient(logged, rows.logits, gradient)


# What `linear_gradient_rescaling` takes as well, with its default.
_DEFAULTS = {name: inspect.signature(gradient_rescaling).parameters[name].default for name in _Settings._fields}


def linear_gradient_rescaling(
    features: Float[Tensor, "samples dim"], weight: Float[Tensor, "classes dim"] | ShardedHead,
    bias: Float[Tensor, "classes"] | None, labels: Tensor, **settings: Any,
) -> Float[Tensor, "..."]:  # fmt: skip
    """`gradient_rescaling` of features @ weight.T + bias; fused, those logits are never stored.

    It takes the settings of `gradient_rescaling`, but `value` and `in_place`. A `ShardedHead` has its own bias, and all
    processes' samples are one batch.
    """
    chosen = _Settings(**(_DEFAULTS | settings))
    chosen.check()
    if isinstance(weight, ShardedHead):
        if bias is not None:
            raise ValueError("bias must be None with a ShardedHead, which has its own; got a tensor")
        return rescaled_of_shards(weight, features, labels, **chosen._asdict())
    check_weight(features, weight, bias)
    obstacle = None if isinstance(chosen.transform, str) else "transform must be 'exp' or 'identity'"
    if chosen.reduction == "none":
        obstacle = obstacle or "reduction must be 'weight', 'mean' or 'sum'"
    if not chooses_fused(chosen.fused, features, weight, unless=obstacle):
        with full_precision(features):
            logits = widen(features) @ widen(weight).T
        logits = logits if bias is None else logits + widen(bias)
        return gradient_rescaling(logits, labels, **(settings | {"fused": False}))
    shape = (len(features),)
    known = labels_of(labels, shape, len(weight), chosen.ignore_index), weight_of(chosen.sample_weight, shape)
    processes = chosen.processes(features, weight, bias)
    return rescaled_linear_cross_entropy(features, weight, bias, *known, **chosen.for_kernel(processes))


def _log_divisor(rows: Rows, log_weights: Tensor, settings: _Settings, processes: int) -> Float[Tensor, ""]:
    """The log of what the gradient is divided by."""
    assert rows.weight is not None
    if settings.reduction == "mean":
        return rows.weight.sum().log()
    if settings.reduction != "weight":
        return torch.zeros_like(rows.weight.sum())
    if settings.normaliser is not None:
        given = torch.as_tensor(settings.normaliser, dtype=log_weights.dtype, device=log_weights.device)
        return given.log() - math.log(processes)
    log_sum = log_weights.logsumexp(0)
    return distributed.log_mean_over_processes(log_sum) if processes > 1 else log_sum


def rescaling_weights(
    logits: Tensor, labels: Tensor, *, beta: float = 6.0, lam: float = 0.5, transform: Transform = "exp",
    sample_weight: Tensor | None = None, ignore_index: int = -100,
) -> Float[Tensor, "..."]:  # fmt: skip
    """The weight w_i of every sample (times its sample weight), 0 where ignored; their sum is the normaliser."""
    check_rescaling(beta, lam, transform)
    rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=ignore_index, soft_targets=False)
    with torch.no_grad():
        return rescale(rows, beta, lam, transform).log_weights.exp().reshape(rows.shape)


@registered(
    "gradient_rescaling", "gradient w (p−y) / 2(1−p_y) / Σw, w = exp(β p^λ (1−p)); value −log p_y",
    "Wang et al., 2019, Eq. 6", value_has_gradient=False, soft_targets=False,
)  # fmt: skip
class GradientRescaling(LossModule, of=gradient_rescaling):
    """`gradient_rescaling` as a module: forward(logits, labels).

    A larger `beta` makes the weights differ more; a larger `lam` moves the emphasis towards easier samples (the largest
    weight is at the probability lam / (1 + lam)). Above `losses.emphasis.largest_beta(lam, classes)` it rules classes
    out. For gradient accumulation see `AccumulatedRescaling`; for several processes nothing is needed.
    """

    def check(self) -> None:
        check_rescaling(self.beta, self.lam, self.transform, self.epsilon)

    @property
    def mean_over(self) -> Over:
        """What the gradient is a mean over."""
        if self.reduction == "sum":
            return "nothing"
        return "processes" if self.reduction == "weight" and self.across_processes else "labels"

    @property
    def value_over(self) -> Over:
        """What the value is a mean over."""
        return "nothing" if self.reduction == "sum" else "labels"

    def forward(
        self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None,
        normaliser: Tensor | float | None = None,
    ) -> Tensor:  # fmt: skip
        return self.call(logits, labels, sample_weight=sample_weight, normaliser=normaliser)
