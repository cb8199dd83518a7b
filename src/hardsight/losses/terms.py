"""What a loss is a mean over: what a training must know to put a batch together that comes in parts or in processes.

A loss says it by `mean_over`, where it is no plain mean over this process's samples; one of several summands that
differ in it gives them by `terms`, with the arguments of its forward. One whose value is no antiderivative of its
gradient says of the value what that is a mean over, by `value_over`.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

# "labels": this process's samples, as the loss counts their labels (`label_count`); "samples": those of them that have
# a label; "processes": the samples of all processes; "step": all of them, those of accumulated batches too; "nothing":
# it is a sum.
Over = Literal["labels", "samples", "processes", "step", "nothing"]


class Term(NamedTuple):
    """A summand of a loss: its value, what its gradient is a mean over and, where that differs, what its value is."""

    value: Float[Tensor, ""]
    over: Over
    value_over: Over | None = None


def mean_over(loss: object) -> Over:
    """What a loss is a mean over."""
    said: Over | None = getattr(loss, "mean_over", None)
    if said is not None:
        return said
    return "nothing" if getattr(loss, "reduction", "mean") == "sum" else "labels"


def value_over(loss: object) -> Over:
    """What the value of a loss is a mean over: of gradient rescaling this process's samples, unlike its gradient."""
    said: Over | None = getattr(loss, "value_over", None)
    return mean_over(loss) if said is None else said


def label_count(loss: object, labels: Shaped[Tensor, "batch *rest"]) -> Float[Tensor, ""]:
    """By what the mean of a loss divides: the labels that it does not ignore, each by the weight of its class.

    A loss around another hands the question on, as a method of this name.
    """
    own = getattr(loss, "label_count", None)
    if own is not None:
        found: Tensor = own(labels)
        return found
    kept = labels != getattr(loss, "ignore_index", -100)
    # Only torch's own weigh by class; of soft labels their mean runs over the samples all the same.
    by_class = loss.weight if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) else None
    if by_class is None or labels.is_floating_point():
        return kept.sum().float()
    return (by_class[labels.where(kept, 0)] * kept).sum()


def value_of(loss: Callable[..., Tensor], inputs: Tensor, labels: Tensor, **names: Any) -> Tensor:
    """loss(inputs, labels), and 0 with no gradient where none of the labels counts, as of the library's own losses.

    torch's divide 0 by 0 there, and weights of 0 make the gradient no number either. Where -100 alone is ignored they
    are called as they are: their gradient is 0, and who adds up values knows which batch has no label.
    """
    plain = not isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) or (
        loss.weight is None and loss.ignore_index == -100
    )
    if plain or loss.reduction != "mean" or labels.is_floating_point():  # type: ignore[attr-defined]
        return loss(inputs, labels, **names)
    counts = label_count(loss, labels) != 0
    # All of them ignored, the gradient is 0; weighted by 0 it would be 0 / 0.
    value = loss(inputs, labels.where(counts, loss.ignore_index), **names)  # type: ignore[attr-defined]
    return torch.where(counts, value, 0.0)
