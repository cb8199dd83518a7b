"""What the scores need to know of the logits of a chunk, in as few passes over it as there are."""

import math

import torch
from torch import Tensor

from hardsight.hardness.columns import Part

# Below exp of these there are only denormal numbers, on which a CPU is 80 times slower.
_LEAST_EXPONENT = {torch.float32: -87.0, torch.float64: -708.0}


def summarise_logits(
    logits: Tensor, labels: Tensor, parts: frozenset[Part], *, consume: bool = False, scratch: Tensor | None = None
) -> dict[str, Tensor]:
    """What the scores of a softmax need: log-sum-exp, margins, masses, and what else of a softmax the parts name.

    `consume` allows the logits to be overwritten, `scratch` is memory as large: on a CPU, new memory costs as much as
    what is computed in it.
    """
    column, spread = labels.unsqueeze(1), "spread" in parts
    label_logit = logits.gather(1, column).squeeze(1)
    others = logits.scatter_(1, column, -math.inf) if consume else logits.scatter(1, column, -math.inf)
    largest_other = others.amax(1)
    # Memory for the exponentials: until then for what is counted, as floats, since torch sums booleans slowly.
    spare = torch.empty_like(others) if scratch is None and parts & {"spread", "rank"} else scratch
    above = {}
    if "rank" in parts:
        above = {"others_above": torch.gt(others, label_logit.unsqueeze(1), out=spare).sum(1)}
    top = torch.maximum(largest_other, label_logit)
    # Smaller ones count as the least, and the labelled class as 0, so the sum is the others' alone.
    exponents = others.sub_(top.unsqueeze(1)).clamp_(min=_LEAST_EXPONENT[logits.dtype])
    exponentials = torch.exp(exponents, out=spare if spread else exponents).scatter_(1, column, 0.0)
    others_mass = exponentials.sum(1)
    label_mass = (label_logit - top).exp()
    total = others_mass + label_mass
    # Where the label leads, its own term is 1, and adding it would round small masses away.
    log_total = torch.where(label_logit >= largest_other, others_mass.log1p(), total.log())
    columns = {
        "label_logit": label_logit,
        "largest_other_logit": largest_other,
        "log_sum_exp": top + log_total,
        "other_probability": others_mass / total,
        **above,
    }
    if spread:
        # Entropy is the mean of log-sum-exp minus the logit: a sum of terms that are not negative.
        below_top = exponents.mul_(exponentials).sum(1).neg() + label_mass * (top - label_logit)
        columns["entropy"] = below_top / total + log_total
        columns["other_squares"] = exponentials.square_().sum(1) / total.square()
    return columns


def first_largest(values: Tensor) -> Tensor:
    """The first largest entry of each row, in two plain passes: torch's own argmax on a CPU is several times slower."""
    if values.device.type != "cpu" or values.shape[1] >= 2**24:
        return values.argmax(1)
    places = torch.arange(values.shape[1], dtype=torch.float32)
    return torch.where(values == values.amax(1, keepdim=True), places, math.inf).amin(1).long()
