"""What every loss on logits does first and last: checks, one row a sample, half precision widened, reduction.

Conventions of all losses on logits, those of `torch.nn.functional.cross_entropy`: logits are [classes],
[batch, classes] or [batch, classes, ...]; the target holds class indices (the logits' shape without the classes) or,
where a loss says so, class probabilities (the logits' shape). Two things differ, both to keep finite input finite:
half-precision logits are computed in float32 and give a float32 loss (sixteen bits overflow in a sum), and a mean over
no sample at all is 0, not NaN.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from hardsight.derivatives import applied
from hardsight.geometry import widen
from hardsight.names import check_name
from hardsight.validation import check_integers

# What torch neither compares nor indexes with.
_WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
REDUCTIONS = ("mean", "sum", "none")


class Rows(NamedTuple):
    """A batch as the losses see it: one row a sample, the classes last, float32 or float64."""

    logits: Float[Tensor, "rows classes"]
    labels: Int[Tensor, "rows"] | None  # class indices; 0 where ignored
    probabilities: Float[Tensor, "rows classes"] | None  # soft targets, when the target was not an index
    weight: Float[Tensor, "rows"] | None  # sample weight, 0 where ignored; None when all are 1
    shape: tuple[int, ...]  # of the losses before reduction

    def log_softmax(self) -> Float[Tensor, "rows classes"]:
        return torch.log_softmax(self.logits, dim=-1)

    def at_label(self, values: Float[Tensor, "rows classes"]) -> Float[Tensor, "rows"]:
        """The value of each row's labelled class."""
        assert self.labels is not None
        return values.gather(-1, self.labels.unsqueeze(-1)).squeeze(-1)

    def targets(self) -> Float[Tensor, "rows classes"]:
        """The target as probabilities; one-hot for class indices."""
        if self.probabilities is not None:
            return self.probabilities
        assert self.labels is not None
        return torch.zeros_like(self.logits).scatter(-1, self.labels.unsqueeze(-1), 1.0)

    def expected(
        self, values: Float[Tensor, "rows classes"], function: Callable[[Tensor], Tensor] | None = None
    ) -> Float[Tensor, "rows"]:
        """Mean of function(value) under a row's target; for an index, that of the labelled class alone."""
        if self.probabilities is None:
            value = self.at_label(values)
            return value if function is None else function(value)
        if function is not None:
            values = function(values)
        # A class of probability 0 counts nothing, also where its value is infinite.
        return torch.where(self.probabilities == 0, 0.0, self.probabilities * values).sum(-1)

    def reduce(self, losses: Float[Tensor, "rows"], reduction: str) -> Float[Tensor, "..."]:
        return reduce(losses, reduction, weight=self.weight, shape=self.shape)


def as_rows(
    logits: Tensor, target: Tensor, *, sample_weight: Tensor | None = None, ignore_index: int = -100,
    soft_targets: bool = True,
) -> Rows:  # fmt: skip
    """Check a batch and bring it into rows; see the module's conventions."""
    rows, shape = by_rows(logits)
    classes = rows.shape[1]
    wide = widen(rows)
    weight = None if sample_weight is None else flat_weight(sample_weight, shape, wide)
    if target.is_floating_point():
        if not soft_targets:
            raise TypeError(f"target must hold class indices for this loss; got {target.dtype}")
        if target.shape != logits.shape:
            raise ValueError(f"target must have the logits' shape {list(logits.shape)}; got {list(target.shape)}")
        probabilities = by_rows(target)[0].to(wide.dtype)
        return Rows(wide, None, probabilities, weight, shape)
    labels, kept = check_labels(target, shape, classes, ignore_index)
    # Looking for ignored labels would wait for the device, so the mask is always applied.
    weight = kept.to(wide.dtype) if weight is None else torch.where(kept, weight, 0.0)
    return Rows(wide, labels, None, weight, shape)


def by_rows(logits: Tensor) -> tuple[Float[Tensor, "rows classes"], tuple[int, ...]]:
    """Logits of any shape as one row a sample, and the shape of the losses."""
    check_floating(logits, "logits")
    if logits.ndim == 0 or logits.shape[min(1, logits.ndim - 1)] < 2:
        raise ValueError(
            f"logits must be [classes] or [batch, classes, ...] with two classes or more; got {list(logits.shape)}"
        )
    if logits.ndim == 2:
        return logits, (len(logits),)
    class_dim = min(1, logits.ndim - 1)
    shape = (*logits.shape[:class_dim], *logits.shape[class_dim + 1 :])
    return logits.movedim(class_dim, -1).reshape(-1, logits.shape[class_dim]), shape


def labels_of(target: Tensor, shape: tuple[int, ...], classes: int, ignore_index: int) -> Integer[Tensor, "rows"]:
    """Flat class indices as a kernel takes them: ignored ones among them, nothing started on a device."""
    if classes < 2:
        raise ValueError(f"labels must be of two classes or more; got {classes}")
    if _may_look(target):
        check_labels(target, shape, classes, ignore_index)
    else:
        _check_label_type(target, shape)
    flat = target if target.ndim == 1 else target.reshape(-1)
    # Kernels need not know what torch neither compares nor indexes with.
    return flat.long() if flat.dtype in _WIDE_UNSIGNED else flat


def check_labels(
    target: Tensor, shape: tuple[int, ...], classes: int, ignore_index: int
) -> tuple[Int[Tensor, "rows"], Bool[Tensor, "rows"]]:
    """Flat class indices (0 where ignored) and which of them count."""
    _check_label_type(target, shape)
    labels = target.reshape(-1).long()
    kept = labels != ignore_index
    labels = torch.where(kept, labels, 0)
    # On an accelerator the gather's own bounds check reports the label.
    if (outside := seen_outside(labels, 0, classes - 1)) is not None:
        raise ValueError(f"labels must lie in [0, {classes}) or be ignore_index {ignore_index}; got {outside}")
    return labels, kept


def _check_label_type(target: Tensor, shape: tuple[int, ...]) -> None:
    check_integers("labels", target)
    if tuple(target.shape) != tuple(shape):
        raise ValueError(f"labels must have shape {list(shape)}; got {list(target.shape)}")


def weight_of(sample_weight: Tensor | None, shape: tuple[int, ...]) -> Float[Tensor, "rows"] | None:
    """One weight a sample as a kernel takes it, none of them negative."""
    if sample_weight is None:
        return None
    weight = flat_weight(sample_weight, shape)
    check_not_negative(weight)
    return weight


def flat_weight(sample_weight: Tensor, shape: tuple[int, ...], like: Tensor | None = None) -> Float[Tensor, "rows"]:
    """One weight a sample, of `like`'s dtype; another shape raises, as it would be broadcast unnoticed."""
    if tuple(sample_weight.shape) != tuple(shape):
        raise ValueError(f"sample_weight must have shape {list(shape)}; got {list(sample_weight.shape)}")
    weight = sample_weight if sample_weight.ndim == 1 else sample_weight.reshape(-1)
    return weight if like is None else weight.to(like.dtype)


def check_not_negative(weight: Tensor) -> None:
    if (outside := seen_outside(weight, 0)) is not None:
        raise ValueError(f"sample_weight must be 0 or more throughout; got {outside:g}")


def check_ids(ids: Integer[Tensor, "..."], rows: int, samples: int) -> Int[Tensor, "rows"]:
    """Flat numbers of samples in a table, one for each row: none is spread over several, none counts from the end."""
    if ids.numel() != rows:
        raise ValueError(f"ids must have shape {[rows]}, one a sample; got {list(ids.shape)}")
    # Bytes would index as a mask, and torch compares no unsigned integers of more than 8 bits.
    ids = ids.long()
    if (outside := seen_outside(ids, 0, samples - 1)) is not None:
        raise ValueError(f"ids must lie in [0, {samples}), the samples of the table; got {outside}")
    return ids.reshape(-1)


def seen_outside(values: Tensor, low: float | int, high: float | int = math.inf) -> float | int | None:
    """A value that is not in [low, high], NaN included; None where there is none, or where values must not be read.

    Looking waits for an accelerator; while compiling and under `torch.func.vmap` there are no values to look at.
    """
    if not _may_look(values) or not values.numel():
        return None
    least, largest = values.aminmax()
    try:
        worst = (largest if least >= low else least).item()
    except RuntimeError:
        return None
    return None if low <= worst <= high else worst


def _may_look(values: Tensor) -> bool:
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def sum_slack(probabilities: Tensor) -> float:
    """How far from 1 probabilities may sum: what people round to, or what their type does."""
    return max(1e-4, 2 * torch.finfo(probabilities.dtype).eps)


def check_weight(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Raise where class weights and bias do not fit the features or each other."""
    check_floating(features, "features")
    if not features.shape[-1:].numel():
        raise ValueError(f"features must have a dim of at least 1; got shape {list(features.shape)}")
    if weight.ndim != 2 or features.shape[-1:] != weight.shape[-1:]:
        raise ValueError(
            f"weight must be [classes, dim] with the features' dim {features.shape[-1]}; got {list(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must be one number for each of the {len(weight)} classes; got {list(bias.shape)}")


def reduce(
    losses: Float[Tensor, "rows"], reduction: str, *, weight: Float[Tensor, "rows"] | None = None,
    shape: tuple[int, ...] | None = None,
) -> Float[Tensor, "..."]:  # fmt: skip
    """Weighted mean (by the sum of the weights, 0 when that is 0), weighted sum, or the weighted losses themselves.

    What would be larger than the largest number is that number, with its gradient as it is.
    """
    check_reduction(reduction)
    largest = torch.finfo(losses.dtype).max
    if weight is not None:
        losses = torch.where(weight == 0, 0.0, losses * weight)
    if reduction == "none":
        return bounded(losses if shape is None else losses.reshape(shape), largest)
    if reduction == "sum":
        return bounded(losses.sum(), largest)
    if weight is None:
        return bounded(losses.sum() / max(1, losses.numel()), largest)
    total = weight.sum()
    return bounded(losses.sum() / torch.where(total == 0, 1.0, total), largest)


def bounded(x: Float[Tensor, "*shape"], limit: float) -> Float[Tensor, "*shape"]:
    """x within [-limit, limit], with the gradient that it would have beyond them too."""
    return applied(_Bounded, x, limit)


def within_squares(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """x, bounded so that a distance of two such vectors has a square: by 1.8e16 in single precision."""
    return bounded(x, math.sqrt(torch.finfo(x.dtype).max) / 1024)


class _Bounded(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, limit: float) -> Tensor:
        return x.clamp(-limit, limit)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None: ...

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def check_reduction(reduction: str, allowed: tuple[str, ...] = REDUCTIONS) -> str:
    check_name("reduction", reduction, allowed)
    return reduction


def check_floating(tensor: Tensor, name: str) -> None:
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must be floating point; got {tensor.dtype}")


def check_range(value: float | int, name: str, low: float, high: float = math.inf, *, open_low: bool = False) -> float:
    """`value` if it lies in [low, high] (or (low, high]), else raises. An upper bound of infinity is open."""
    inside = (value > low if open_low else value >= low) and value <= high and not math.isinf(value)
    if not inside:
        if math.isinf(high):
            wanted = f"be {'greater than' if open_low else 'at least'} {low:g} and finite"
        else:
            wanted = f"lie in {'(' if open_low else '['}{low:g}, {high:g}]"
        raise ValueError(f"{name} must {wanted}; got {value!r}")
    return float(value)
