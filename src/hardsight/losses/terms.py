"""What a loss is a mean over: what a training must know to put a batch together that comes in parts or in processes.

A loss says it by `mean_over`, where it is no plain mean over this process's samples; one of several summands that
differ in it gives them by `terms`, with the arguments of its forward.
"""

from typing import Literal, NamedTuple

from jaxtyping import Float, Shaped
from torch import Tensor, nn

# "labels": this process's samples, as the loss counts their labels (`label_count`); "samples": those of them that have
# a label; "processes": the samples of all processes; "step": all of them, those of accumulated batches too; "nothing":
# it is a sum.
Over = Literal["labels", "samples", "processes", "step", "nothing"]


class Term(NamedTuple):
    """A summand of a loss."""

    value: Float[Tensor, ""]
    over: Over


def mean_over(loss: object) -> Over:
    """What a loss is a mean over."""
    said: Over | None = getattr(loss, "mean_over", None)
    if said is not None:
        return said
    return "nothing" if getattr(loss, "reduction", "mean") == "sum" else "labels"


def label_count(loss: object, labels: Shaped[Tensor, "batch *rest"]) -> Float[Tensor, ""]:
    """By what the mean of a loss divides: the labels that it does not ignore, each by the weight of its class.

    A loss around another hands the question on, as a method of this name.
    """
    own = getattr(loss, "label_count", None)
    if own is not None:
        return own(labels)
    kept = labels != getattr(loss, "ignore_index", -100)
    # Only torch's own weigh by class; of soft labels their mean runs over the samples all the same.
    by_class = loss.weight if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) else None
    if by_class is None or labels.is_floating_point():
        return kept.sum().float()
    return (by_class[labels.where(kept, 0)] * kept).sum()
