"""What one step says of each of its samples: a few numbers a row, from logits that exist already.

Everything is made of the *other* classes' logits (the labelled one put to -inf), so nothing cancels where a sample is
easy: with `gap` the labelled logit minus the log-sum-exp of the others, confidence is sigmoid(gap), its complement
sigmoid(-gap), the loss softplus(-gap). No value is looked at, so a GPU is never waited for.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.geometry import angle_of_cosine

MEASURES = ("margin", "loss", "confidence", "el2n", "avh", "angular_margin")
ANGULAR = frozenset({"avh", "angular_margin"})


class Cosines(NamedTuple):
    """What turns logits into cosines: (logit - bias) / (|x| |w|)."""

    features_norm: Float[Tensor, "batch"]
    weight_norm: Float[Tensor, "classes"]
    bias: Float[Tensor, "classes"] | None


class Measured(NamedTuple):
    """One row a sample: `values` in the order asked for, whether the label won, and whether all of it is sound.

    A row is not sound where its logits hold NaN or +inf (or the labelled one is infinite); its values are zero.
    """

    values: Float[Tensor, "batch measures"]
    correct: Tensor
    sound: Tensor


@torch.no_grad()
def measure(
    logits: Float[Tensor, "batch classes"],
    labels: Int[Tensor, "batch"],
    wanted: tuple[str, ...] = MEASURES,
    cosines: Cosines | None = None,
) -> Measured:
    """The `wanted` measures of every row; labels must lie in [0, classes). A tie counts as wrong.

    A class ruled out by a logit of -inf is allowed: it has no probability and lies opposite the features.
    """
    logits = _wide(logits.detach())
    column = labels.unsqueeze(1)
    label_logit = logits.gather(1, column)
    others = logits.scatter(1, column, -math.inf)
    largest_other = others.amax(1, keepdim=True)
    margin = label_logit - largest_other
    found = {"margin": margin}
    if not {"loss", "confidence", "el2n"}.isdisjoint(wanted):
        found |= _probabilities(others, largest_other, margin, "el2n" in wanted)
    # Zero times a number is zero, times NaN or infinity NaN: four times fewer launches than isfinite.
    poison = label_logit * 0 + largest_other * 0
    if cosines is not None and not ANGULAR.isdisjoint(wanted):
        found |= _angles(logits, column, cosines)
        poison = poison + found["avh"] * 0
    sound = poison == 0
    values = torch.cat([found[name] for name in wanted], 1) if wanted else logits.new_zeros(len(logits), 0)
    return Measured(torch.where(sound, values, 0.0), (margin > 0).squeeze(1), sound.squeeze(1))


def _probabilities(others: Tensor, largest: Tensor, margin: Tensor, spread: bool) -> dict[str, Tensor]:
    exponentials = (others - largest).exp_()
    total = exponentials.sum(1, keepdim=True)
    gap = margin - total.log()
    error = torch.sigmoid(-gap)
    found = {"confidence": torch.sigmoid(gap), "loss": torch.nn.functional.softplus(-gap)}
    if spread:
        # |p - y|^2 = (1 - p_y)^2 (1 + sum q^2), q being the softmax among the others alone.
        share = torch.linalg.vector_norm(exponentials, dim=1, keepdim=True) / total
        found["el2n"] = torch.hypot(error, error * share)
    return found


def _angles(logits: Tensor, column: Tensor, known: Cosines) -> dict[str, Tensor]:
    """AVH and angular margin. As exact as the logits are; a zero norm has no direction and gives pi/2."""
    features_norm, weight_norm = _wide(known.features_norm.detach()), _wide(known.weight_norm.detach())
    products = logits if known.bias is None else logits - _wide(known.bias.detach())
    # One after the other: the product of two norms may overflow. Over infinity, the cosine of a zero vector is zero.
    cosines = products / _zero_to_infinity(weight_norm) / _zero_to_infinity(features_norm).unsqueeze(1)
    angles = angle_of_cosine(cosines)
    label_angle = angles.gather(1, column)
    nearest = angles.scatter(1, column, math.inf).amin(1, keepdim=True)
    total = angles.sum(1, keepdim=True)
    # All angles zero: every class is as near as any other, the chance level.
    avh = torch.where(total > 0, label_angle / total, 1.0 / angles.shape[1] + total)
    return {"avh": avh, "angular_margin": nearest - label_angle}


def _zero_to_infinity(values: Tensor) -> Tensor:
    return torch.where(values == 0, math.inf, values)


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
