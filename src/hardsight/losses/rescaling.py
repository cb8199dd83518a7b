"""Gradient rescaling (GR): the logit gradient keeps its direction and gets the L1 norm w = g(beta p^lam (1 - p)).

CCE, MAE and GCE push the logits in the same direction, (p - y) / (2 (1 - p_y)), with magnitudes 2(1-p), 4p(1-p) and
2 p^q (1-p); GR sets the magnitude (Eq. 6). It acts on the gradient alone: the value it returns is for logging only, and
a second derivative raises.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from hardsight import distributed
from hardsight.derivatives import applied, once_differentiable, trace_of, wants_gradient
from hardsight.geometry import full_precision, widen
from hardsight.kernels.dispatch import Fused, chooses_fused
from hardsight.kernels.rescaled_cross_entropy import RowStatistics, attach_rescaled_gradient, weigh_rows
from hardsight.kernels.rescaled_linear_cross_entropy import rescaled_linear_cross_entropy
from hardsight.losses.inputs import (
    Rows,
    as_rows,
    by_rows,
    check_not_negative,
    check_range,
    check_reduction,
    check_weight,
    labels_of,
    reduce,
    weight_of,
)
from hardsight.losses.registry import register
from hardsight.losses.terms import Over

Transform = str | Callable[[Tensor], Tensor]
RESCALING_REDUCTIONS = ("weight", "mean", "sum", "none")


def gradient_rescaling(
    logits: Tensor,
    labels: Tensor,
    *,
    beta: float = 6.0,
    lam: float = 0.5,
    transform: Transform = "exp",
    epsilon: float = 1e-6,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "weight",
    normaliser: Tensor | float | None = None,
    across_processes: bool = True,
    process_group: Any = None,
    value: Callable[[Tensor, Tensor], Tensor] | None = None,
    in_place: bool = False,
    fused: Fused = "auto",
) -> Float[Tensor, "..."]:
    """A loss whose gradient at the logits is w_i (p - y) / (2 (1 - p_y)), and whose value is the cross-entropy.

    Reductions of the gradient: "weight" divides by the sum of the weights over all processes (what the authors' code
    does), "mean" by the number of samples here, "sum" by nothing, "none" keeps one loss a sample. `normaliser` is a
    sum of weights known beforehand, of all processes and of all parts of an accumulated batch. `value` replaces the
    logged cross-entropy: a function of logits [rows, classes] and labels that gives one number per sample. `epsilon` is
    added to 2 (1 - p_y), as in the authors' code: a sample is let go once 1 - p_y falls below it. With 0, Eq. 6 to the
    letter, a fitted sample pulls with weight 1 for ever and logits grow without end. Fused, `in_place` writes the
    gradient over the logits during the backward pass: nothing may read them after.
    """
    check_rescaling(beta, lam, transform, epsilon)
    check_reduction(reduction, RESCALING_REDUCTIONS)
    _check_normaliser(normaliser, reduction)
    group = _Group(process_group) if across_processes and wants_gradient(logits) else None
    flat, shape = by_rows(logits)
    if chooses_fused(fused, flat, unless=_obstacle(flat)):
        settings = (ignore_index, float(beta), float(lam), float(epsilon), transform == "exp", reduction)
        known = labels_of(labels, shape, flat.shape[1], ignore_index), weight_of(sample_weight, shape)
        share = normaliser if normaliser is None or group is None else normaliser / group.size
        logged, kept = weigh_rows(flat, *known, share, settings)
        if not isinstance(transform, str) or value is not None:
            logged, kept = _by_rows(flat, *known, share, settings, transform, value, kept)
        if group is not None and group.size > 1 and reduction == "weight" and normaliser is None:
            kept[-1:] = group.mean_of_logs(kept[-1])
        logged = attach_rescaled_gradient(logged, flat, known[0], kept, in_place=in_place)
        return logged.reshape(shape) if reduction == "none" else logged
    rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=ignore_index, soft_targets=False)
    with torch.no_grad():
        log_p, _, log_weights, direction = rescale(rows, beta, lam, transform, epsilon)
        gradient = rescaled_gradient(
            log_weights, direction, _log_divisor(rows, log_weights, reduction, normaliser, group)
        )
        logged = _logged(rows, log_p, value, reduction, rows.shape if reduction == "none" else None)
    return attach_gradient(logged, rows.logits, gradient)


def linear_gradient_rescaling(
    features: Float[Tensor, "samples dim"],
    weight: Float[Tensor, "classes dim"],
    bias: Float[Tensor, "classes"] | None,
    labels: Tensor,
    *,
    beta: float = 6.0,
    lam: float = 0.5,
    transform: Transform = "exp",
    epsilon: float = 1e-6,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "weight",
    normaliser: Tensor | float | None = None,
    across_processes: bool = True,
    process_group: Any = None,
    fused: Fused = "auto",
) -> Float[Tensor, "..."]:
    """`gradient_rescaling` of features @ weight.T + bias; fused, those logits never lie in memory."""
    check_rescaling(beta, lam, transform, epsilon)
    check_reduction(reduction, RESCALING_REDUCTIONS)
    _check_normaliser(normaliser, reduction)
    check_weight(features, weight)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must be one number for each of the {len(weight)} classes; got {list(bias.shape)}")
    if not chooses_fused(fused, features, weight, unless=_linear_obstacle(transform, reduction)):
        with full_precision(features):
            logits = widen(features) @ widen(weight).T
        logits = logits if bias is None else logits + widen(bias)
        return gradient_rescaling(
            logits, labels, beta=beta, lam=lam, transform=transform, epsilon=epsilon, sample_weight=sample_weight,
            ignore_index=ignore_index, reduction=reduction, normaliser=normaliser, across_processes=across_processes,
            process_group=process_group, fused=False,
        )  # fmt: skip
    settings = (ignore_index, float(beta), float(lam), float(epsilon), transform == "exp", reduction)
    shape, log_divisor = (len(features),), None
    trained = any(one is not None and wants_gradient(one) for one in (features, weight, bias))
    if across_processes and trained and reduction == "weight" and distributed.several(process_group):
        group = _Group(process_group)
        if normaliser is None:
            log_divisor = group.mean_of_logs
        else:
            normaliser = normaliser / group.size
    known = labels_of(labels, shape, len(weight), ignore_index), weight_of(sample_weight, shape)
    return rescaled_linear_cross_entropy(features, weight, bias, *known, normaliser, settings, log_divisor=log_divisor)


class _Group:
    """The processes over which weights are summed."""

    def __init__(self, group: Any) -> None:
        self.group, self.size = group, distributed.world_size(group)

    def mean_of_logs(self, log_sum: Tensor) -> Tensor:
        """log of the mean of the sums: data-parallel training divides the sum of the gradients by the processes."""
        return distributed.log_sum_over_processes(log_sum, self.group) - math.log(self.size)


def _log_divisor(
    rows: Rows, log_weights: Tensor, reduction: str, normaliser: Tensor | float | None, group: _Group | None
) -> Float[Tensor, ""]:
    """The log of what the gradient is divided by; `group` where the weights of several processes count."""
    assert rows.weight is not None
    if reduction == "mean":
        return rows.weight.sum().log()
    if reduction != "weight":
        return torch.zeros_like(rows.weight.sum())
    if normaliser is not None:
        log_divisor = _log(normaliser, log_weights)
        return log_divisor if group is None else log_divisor - math.log(group.size)
    log_divisor = log_weights.logsumexp(0)
    return log_divisor if group is None else group.mean_of_logs(log_divisor)


def _logged(rows: Rows, log_p: Tensor, value: Any, reduction: str, shape: tuple[int, ...] | None) -> Tensor:
    """The value of the loss, which is for logging."""
    logged = -log_p if value is None else value(widen(rows.logits), rows.labels)
    return reduce(logged, "mean" if reduction == "weight" else reduction, weight=rows.weight, shape=shape)


@torch.no_grad()
def _by_rows(
    logits: Float[Tensor, "rows classes"],
    labels: Integer[Tensor, "rows"],
    sample_weight: Float[Tensor, "rows"] | None,
    normaliser: Tensor | float | None,
    settings: tuple[int, float, float, float, bool, str],
    transform: Transform,
    value: Callable[[Tensor, Tensor], Tensor] | None,
    kept: Float[Tensor, "kept"],
) -> tuple[Tensor, Tensor]:
    """The value and what `weigh_rows` keeps, with a transform or value that no kernel knows: arithmetic on the rows."""
    ignore_index, beta, lam, epsilon, _, reduction = settings
    counts = labels != ignore_index
    labels = torch.where(counts, labels, 0).long()
    weight = counts.float() if sample_weight is None else torch.where(counts, sample_weight.float(), 0.0)
    # The logits as they are: to widen them would copy what is to be read once.
    rows = Rows(logits.detach(), labels, None, weight, (len(logits),))
    found = RowStatistics(rows.at_label(rows.logits).float(), kept[: len(logits)])
    logged = _logged(rows, found.log_p, value, reduction, None)
    if isinstance(transform, str):
        return logged, kept
    log_weights = log_weight(found.log_p, found.log_rest, beta, lam, transform) + weight.log()
    log_divisor = _log_divisor(rows, log_weights, reduction, normaliser, None)
    log_held = torch.nn.functional.logsigmoid(found.log_rest + math.log(2 / epsilon)) if epsilon > 0 else 0.0
    return logged, torch.cat((found.log_others, log_weights + log_held, log_divisor.reshape(1)))


def _obstacle(logits: Tensor) -> str | None:
    """What keeps the kernel from this call, besides devices and types."""
    return None if logits.stride(1) == 1 else "logits must have their classes side by side in memory"


def _linear_obstacle(transform: Transform, reduction: str) -> str | None:
    if not isinstance(transform, str):
        return "transform must be 'exp' or 'identity'"
    return "reduction must be 'weight', 'mean' or 'sum'" if reduction == "none" else None


def _check_normaliser(normaliser: Tensor | float | None, reduction: str) -> None:
    if normaliser is not None and reduction != "weight":
        raise ValueError(f"normaliser needs reduction 'weight', which divides by it; got reduction {reduction!r}")
    if isinstance(normaliser, Tensor):
        if normaliser.numel() != 1:
            raise ValueError(f"normaliser must be one number; got a tensor of shape {list(normaliser.shape)}")
    elif normaliser is not None:
        check_range(normaliser, "normaliser", 0.0)


def rescaling_weights(
    logits: Tensor,
    labels: Tensor,
    *,
    beta: float = 6.0,
    lam: float = 0.5,
    transform: Transform = "exp",
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
) -> Float[Tensor, "..."]:
    """The weight w_i of every sample (times its sample weight), 0 where ignored; their sum is the normaliser."""
    check_rescaling(beta, lam, transform)
    rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=ignore_index, soft_targets=False)
    with torch.no_grad():
        return rescale(rows, beta, lam, transform).log_weights.exp().reshape(rows.shape)


class GradientRescaling(nn.Module):
    """`gradient_rescaling` as a module: forward(logits, labels).

    A larger `beta` makes the weights differ more; a larger `lam` moves the emphasis towards easier samples (the largest
    weight is at the probability lam / (1 + lam)). Above
    `losses.emphasis.largest_beta(lam, classes)` it rules classes out. `epsilon=0` is Eq. 6 to the letter, under
    which a fitted sample pulls for ever. For gradient accumulation see `AccumulatedRescaling`; for several processes
    nothing is needed.
    """

    def __init__(
        self,
        beta: float = 6.0,
        lam: float = 0.5,
        transform: Transform = "exp",
        reduction: str = "weight",
        *,
        epsilon: float = 1e-6,
        ignore_index: int = -100,
        across_processes: bool = True,
        process_group: Any = None,
        value: Callable[[Tensor, Tensor], Tensor] | None = None,
        in_place: bool = False,
        fused: Fused = "auto",
    ) -> None:
        super().__init__()
        check_rescaling(beta, lam, transform, epsilon)
        self.epsilon, self.in_place, self.fused = epsilon, in_place, fused
        self.beta, self.lam, self.transform, self.ignore_index = beta, lam, transform, ignore_index
        self.reduction = check_reduction(reduction, RESCALING_REDUCTIONS)
        self.across_processes, self.process_group, self.value = across_processes, process_group, value

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
        self,
        logits: Tensor,
        labels: Tensor,
        sample_weight: Tensor | None = None,
        normaliser: Tensor | float | None = None,
    ) -> Tensor:
        return gradient_rescaling(
            logits,
            labels,
            beta=self.beta,
            lam=self.lam,
            transform=self.transform,
            epsilon=self.epsilon,
            sample_weight=sample_weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            normaliser=normaliser,
            across_processes=self.across_processes,
            process_group=self.process_group,
            value=self.value,
            in_place=self.in_place,
            fused=self.fused,
        )

    def extra_repr(self) -> str:
        shown = f"beta={self.beta}, lam={self.lam}, transform={self.transform!r}, reduction={self.reduction!r}"
        return f"{shown}, epsilon={self.epsilon}"


class Rescaled(NamedTuple):
    """What gradient rescaling makes of a batch."""

    log_p: Float[Tensor, "rows"]  # of the label
    log_rest: Float[Tensor, "rows"]  # of 1 - p, exact where that rounds to 0
    log_weights: Float[Tensor, "rows"]  # of w times the sample weight; minus infinity where ignored
    direction: Float[Tensor, "rows classes"]  # (p - y) / (2 (1 - p_y) + epsilon): without epsilon its L1 norm is 1


def rescale(rows: Rows, beta: float, lam: float, transform: Transform, epsilon: float = 0.0) -> Rescaled:
    """Weights and directions of a batch.

    The direction of the other classes is half their softmax among themselves: no difference of nearly equal numbers
    and no epsilon, so it is right at p_y = 1 too.
    """
    assert rows.labels is not None
    assert rows.weight is not None
    # A negative weight has no logarithm and would spoil the whole batch.
    check_not_negative(rows.weight)
    label = rows.labels.unsqueeze(-1)
    shifted = rows.logits - rows.logits.amax(-1, keepdim=True)
    others = shifted.scatter(-1, label, -math.inf)
    log_total, log_others = shifted.logsumexp(-1), others.logsumexp(-1)
    log_p, log_rest = rows.at_label(shifted) - log_total, log_others - log_total
    log_w = log_weight(log_p, log_rest, beta, lam, transform) + rows.weight.log()
    # Not from `others`: shifted by a labelled logit far above them, they are rounded to its grid.
    among_others = rows.logits.scatter(-1, label, -math.inf).softmax(-1)
    direction = let_go((among_others / 2).scatter(-1, label, -0.5), log_rest, epsilon)
    # Where every other class is masked out there is nothing to learn.
    direction = torch.where((log_others == -math.inf).unsqueeze(-1), 0.0, direction)
    return Rescaled(log_p, log_rest, log_w, direction)


def let_go(
    direction: Float[Tensor, "rows classes"], log_rest: Float[Tensor, "rows"], epsilon: float
) -> Float[Tensor, "rows classes"]:
    """direction * 2 (1 - p) / (2 (1 - p) + epsilon), from log (1 - p): exact where 1 - p rounds to 0."""
    if epsilon == 0:
        return direction
    return direction * torch.sigmoid(log_rest + math.log(2 / epsilon)).unsqueeze(-1)


def log_weight(log_p: Tensor, log_rest: Tensor, beta: float, lam: float, transform: Transform) -> Tensor:
    """log g(beta p^lam (1 - p)) from log p and log (1 - p): exact where p or 1 - p rounds to 0."""
    log_power = log_rest if lam == 0 else lam * log_p + log_rest
    if transform == "identity":
        return log_power + (math.log(beta) if beta > 0 else -math.inf)
    argument = beta * log_power.exp()
    return argument if transform == "exp" else _as_callable(transform)(argument).log()


def rescaled_gradient(
    log_weights: Float[Tensor, "rows"], direction: Float[Tensor, "rows classes"], log_divisor: Float[Tensor, ""]
) -> Float[Tensor, "rows classes"]:
    """direction * w_i / divisor; 0 where the weight is 0, the largest number where a weight overflows."""
    ratio = torch.where(log_weights == -math.inf, 0.0, (log_weights - log_divisor).exp())
    return direction * ratio.clamp(max=torch.finfo(ratio.dtype).max).unsqueeze(-1)


def attach_gradient(value: Tensor, logits: Tensor, gradient: Float[Tensor, "rows classes"]) -> Tensor:
    """`value`, with `gradient` as its derivative by the logits whatever the value is."""
    return applied(_AttachGradient, value, logits, gradient, trace_of(logits))


def check_rescaling(beta: float, lam: float, transform: Transform, epsilon: float = 0.0) -> None:
    check_range(beta, "beta", 0.0)
    check_range(lam, "lam", 0.0)
    check_range(epsilon, "epsilon", 0.0)
    if isinstance(transform, str):
        if transform not in ("exp", "identity"):
            raise ValueError(f"transform must be 'exp', 'identity' or a callable; got {transform!r}")
    elif not torch.compiler.is_compiling():
        largest = beta * (lam / (1 + lam)) ** lam / (1 + lam)
        weights = _as_callable(transform)(torch.linspace(0, largest, 65, dtype=torch.float64))
        if not (torch.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError(f"transform must be finite and non-negative on [0, {largest:g}]; got {weights.tolist()}")


class _AttachGradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, logits: Tensor, gradient: Tensor, trace: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[None, Tensor, None, None]:
        gradient, _ = saved
        return None, (grad.reshape(-1, 1) if grad.ndim else grad) * gradient, None, None


def _as_callable(transform: Transform) -> Callable[[Tensor], Tensor]:
    if isinstance(transform, str):
        return torch.exp if transform == "exp" else lambda argument: argument
    return transform


def _log(number: Tensor | float, like: Tensor) -> Tensor:
    return torch.as_tensor(number, dtype=like.dtype, device=like.device).log()


register(
    "gradient_rescaling",
    lambda n: GradientRescaling(),
    "gradient w (p−y) / 2(1−p_y) / Σw, w = exp(β p^λ (1−p)); value −log p_y",
    "Wang et al., 2019, Eq. 6",
    value_has_gradient=False,
    soft_targets=False,
)
