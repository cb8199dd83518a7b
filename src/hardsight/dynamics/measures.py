"""The measures of a step: a few numbers per sample, from logits that exist already.

All are computed from the *other* classes' logits (the labelled one set to -inf), so nothing cancels where a sample is
easy: with `gap` the labelled logit minus the log-sum-exp of the others, confidence is sigmoid(gap), its complement
sigmoid(-gap), the loss softplus(-gap). Python reads no value, so it never waits for a GPU.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.geometry import angle_of_cosine, angle_of_cosine_, widen
from hardsight.hardness import Score

MEASURES = ("margin", "loss", "confidence", "agreement", "el2n", "avh", "angular_margin")
ANGULAR = frozenset({"avh", "angular_margin"})
_OF_PROBABILITIES = frozenset({"loss", "confidence", "agreement", "el2n"})
# Too small to be seen beside any angle, large enough to divide by.
_NOTHING = 1e-30


class Cosines(NamedTuple):
    """What turns logits into cosines: (logit - bias) / (|x| |w|).

    Norms of the weights and biases may be those of several steps, one row per step, for equal parts of the batch.
    """

    features_norm: Float[Tensor, "batch"]
    weight_norm: Float[Tensor, "*steps classes"]
    bias: Float[Tensor, "*steps classes"] | None


class Measured(NamedTuple):
    """One row per sample: `values` in the order asked for, whether the label won, and whether all of it is sound.

    A row is not sound where its margin (or its AVH) is not finite, because the logits hold NaN or infinity.
    """

    values: list[Tensor]
    correct: Tensor
    sound: Tensor


def measures_of(scores: Iterable[Score]) -> tuple[str, ...]:
    """What must be measured for these scores, in the order of `MEASURES`."""
    needed = {measure for score in scores for measure in score.measures or ()}
    return tuple(measure for measure in MEASURES if measure in needed)


@torch.no_grad()
def measure(
    logits: Float[Tensor, "batch classes"],
    labels: Int[Tensor, "batch"],
    wanted: tuple[str, ...] = MEASURES,
    cosines: Cosines | None = None,
    *,
    consume: bool = False,
    scratch: Tensor | None = None,
) -> Measured:
    """The `wanted` measures of every row, each a column; labels must lie in [0, classes). A tie counts as wrong.

    A class ruled out by a logit of -inf is allowed: it has no probability and lies opposite the features. `consume`
    allows the logits to be overwritten, `scratch` is memory for the cosines: on a CPU, new memory costs more than
    what is computed in it.
    """
    logits = widen(logits.detach())
    column = labels.unsqueeze(1)
    label_logit = logits.gather(1, column)
    found = {}
    if cosines is not None and not ANGULAR.isdisjoint(wanted):
        found = _angles(logits, column, cosines, scratch)
    others = logits.scatter_(1, column, -math.inf) if consume else logits.scatter(1, column, -math.inf)
    largest_other = others.amax(1, keepdim=True)
    margin = found["margin"] = label_logit - largest_other
    witness = margin + found["avh"] if "avh" in found else margin
    if not _OF_PROBABILITIES.isdisjoint(wanted):
        found |= _probabilities(others, margin, wanted, scratch)
    # A finite number minus itself is 0, NaN and infinity give NaN: fewer launches than isfinite.
    return Measured([found[name] for name in wanted], margin > 0, (witness - witness) == 0)


def _probabilities(
    others: Tensor, margin: Tensor, wanted: tuple[str, ...], scratch: Tensor | None
) -> dict[str, Tensor]:
    """The measures made of probabilities; the memory of the cosines, if there is any, is used up by now."""
    out = scratch.view_as(others) if scratch is not None and scratch.dtype == others.dtype else None
    # The softmax among the others alone: the first of them has the share exp(0) / total.
    shares = torch.softmax(others, 1, out=out)
    top_share = shares.amax(1, keepdim=True)
    gap = margin + top_share.log()
    against = -gap
    error, confidence = torch.sigmoid(against), torch.sigmoid(gap)
    found = {"confidence": confidence}
    if "loss" in wanted:
        found["loss"] = torch.nn.functional.softplus(against)
    if "agreement" in wanted:
        # The most probable class is the label, or the first among the others.
        found["agreement"] = torch.maximum(confidence, error * top_share)
    if "el2n" in wanted:
        # |p - y|^2 = (1 - p_y)^2 (1 + sum q^2), q being the softmax among the others alone.
        found["el2n"] = torch.hypot(error, error * torch.linalg.vector_norm(shares, dim=1, keepdim=True))
    return found


def _angles(logits: Tensor, column: Tensor, known: Cosines, scratch: Tensor | None) -> dict[str, Tensor]:
    """AVH and angular margin, as exact as the logits are; a zero norm has no direction and gives pi/2."""
    features_norm, weight_norm = widen(known.features_norm.detach()), widen(known.weight_norm.detach())
    classes = logits.shape[1]
    # One row of norms and biases for each step: the batch is cut accordingly.
    steps = weight_norm.numel() // classes
    products = logits.view(steps, -1, classes)
    out = scratch.view_as(products) if scratch is not None and scratch.dtype == logits.dtype else None
    if known.bias is not None:
        products = torch.sub(products, widen(known.bias.detach()).view(steps, 1, classes), out=out)
    # One after the other: the product of two norms may overflow. Over infinity, the cosine of a zero vector is zero.
    cosines = torch.div(products, _zero_to_infinity(weight_norm).view(steps, 1, classes), out=out)
    cosines = cosines.view(-1, classes).div_(_zero_to_infinity(features_norm).unsqueeze(1))
    of_label = cosines.gather(1, column)
    nearest = cosines.scatter_(1, column, -math.inf).amax(1, keepdim=True)
    label_angle, nearest_angle = angle_of_cosine(torch.cat([of_label, nearest], 1)).split(1, 1)
    # A cosine of 1 for the label adds an angle of exactly 0 to the others'. In place: `angle_of_cosine` would allocate.
    cosines = cosines.scatter_(1, column, 1.0).clamp_(-1.0, 1.0)
    total = angle_of_cosine_(cosines).sum(1, keepdim=True) + label_angle
    # All angles zero: every class is as near as any other, and the share is that of chance.
    avh = (label_angle + _NOTHING) / (total + classes * _NOTHING)
    return {"avh": avh, "angular_margin": nearest_angle - label_angle}


def _zero_to_infinity(values: Tensor) -> Tensor:
    return torch.where(values == 0, math.inf, values)
