"""Which target samples get a pseudo-label, and which one: the selectors of CBST, CRST and AVH as pure functions.

First the confidences of the n samples predicted as a class give its threshold, the one at rank floor(n * portion).
Then each sample is labelled, and kept or not, by its own row and the thresholds alone. So a set may come in chunks, in
any order, from several processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int, Int64
from torch import Tensor

from hardsight.hardness import angular_visual_confidence
from hardsight.names import check_name

Measure = Literal["softmax", "visual"]
# Numbers of one piece: 2**19 floats are 2 MiB.
_PIECE = 2**19
# n * portion is a whole number more often than its floating-point product is: 100 * 0.29 must be 29.
_ROUNDING = 1e-9
_LOW_BITS = 2**32 - 1
_LARGEST_BITS = 2**31 - 1


class Evidence(NamedTuple):
    """What a model says of some samples: softmax probabilities and, where a selector asks, visual confidences.

    `certainty` is -log(1 - p) of the likeliest class, which tells apart samples whose p is rounded to 1; without it
    they are tied.
    """

    softmax: Float[Tensor, "samples classes"]
    visual: Float[Tensor, "samples classes"] | None = None
    certainty: Float[Tensor, "samples"] | None = None

    def of(self, measure: Measure) -> Float[Tensor, "samples classes"]:
        """The measure of that name."""
        found = self.softmax if measure == "softmax" else self.visual
        if found is None:
            raise ValueError("evidence must hold visual confidences for this selector; it has softmax alone")
        return found


class Selection(NamedTuple):
    """The pseudo-label of each sample, -1 where it is left out; soft labels where the selector makes them."""

    labels: Int64[Tensor, "samples"]
    soft: Float32[Tensor, "samples classes"] | None = None

    @property
    def selected(self) -> Bool[Tensor, "samples"]:
        """Which samples have a label."""
        return self.labels >= 0


@dataclass(frozen=True)
class Selector:
    """A rule of selection. `label_by` decides the class, `keep_by` whether the label is kept.

    `balance`: "class", a threshold for each class, the label being the class whose confidence is largest *relative to
    its threshold*; "overall", one threshold for all; "none", everything is kept under its likeliest class.
    `keeps_threshold`: whether a confidence equal to the threshold is enough, and with it all that are tied there.
    `entropy_weight`: alpha of LRENT; above 0 labels are soft, proportional to (p / threshold) ** (1 / alpha).
    `divergence_weight`: alpha of MRKLD, which changes the loss of the retraining, not the selection.
    """

    name: str
    label_by: Measure = "softmax"
    keep_by: Measure = "softmax"
    balance: Literal["class", "overall", "none"] = "class"
    keeps_threshold: bool = True
    entropy_weight: float = 0.0
    divergence_weight: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("entropy_weight", "divergence_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a number not below 0; got {getattr(self, name)!r}")
        for name in ("label_by", "keep_by"):
            check_name(name, getattr(self, name), ("softmax", "visual"))
        check_name("balance", self.balance, ("class", "overall", "none"))
        if self.entropy_weight and (self.balance != "class" or self.needs_visual):
            raise ValueError("entropy_weight must be 0 where labels are not made by a softmax threshold of each class")

    @property
    def needs_visual(self) -> bool:
        """Whether the angles to the classes are looked at."""
        return "visual" in (self.label_by, self.keep_by)


_CBST, _CRST = "Zou et al. 2018", "Zou et al. 2019"
SELECTORS: dict[str, Selector] = {
    one.name: one
    for one in (
        Selector("cbst", source=f"{_CBST}; AVH, Eq. 2"),
        Selector("crst-mrkld", divergence_weight=0.1, source=_CRST),
        Selector("crst-lrent", entropy_weight=0.25, source=_CRST),
        Selector("crst", entropy_weight=0.25, divergence_weight=0.1, source=f"{_CRST}: MRKLD and LRENT"),
        Selector("avh", keep_by="visual", keeps_threshold=False, source="AVH, Eq. 4"),
        Selector("avh-inclusive", keep_by="visual", source="AVH, Eq. 4, with CBST's rule for the threshold itself"),
        Selector("avh-slides", label_by="visual", keep_by="visual", keeps_threshold=False, source="AVH, slides"),
        Selector("confidence", balance="overall", source="the most confident predictions"),
        Selector("argmax", balance="none", source="every prediction (Lee 2013)"),
    )
}


def get_selector(selector: str | Selector) -> Selector:
    """The selector of that name; one that is a selector already stays."""
    if isinstance(selector, Selector):
        return selector
    check_name("selector", selector, SELECTORS)
    return SELECTORS[selector]


def evidence_of(
    logits: Float[Tensor, "samples classes"],
    features: Float[Tensor, "samples dim"] | None = None,
    weight: Float[Tensor, "classes dim"] | None = None,
) -> Evidence:
    """Softmax probabilities, and visual confidences (AVH, Eq. 3) where features and weight are given."""
    if (features is None) != (weight is None):
        raise ValueError("features and weight must be given together, or neither; got one of them")
    visual = None
    if features is not None and weight is not None:
        visual = angular_visual_confidence(features.float(), weight.detach().float())
    return Evidence(logits.float().softmax(1), visual, certainty_of(logits))


def certainty_of(logits: Float[Tensor, "samples classes"]) -> Float32[Tensor, "samples"]:
    """-log(1 - p) of the likeliest class, from the others' logits: exact where p itself is rounded to 1."""
    largest, predicted = logits.float().max(1, keepdim=True)
    others = (logits.float() - largest).scatter(1, predicted, -torch.inf).logsumexp(1)
    return torch.nn.functional.softplus(-others)


def select(selector: str | Selector, evidence: Evidence | Sequence[Evidence], portion: float) -> Selection:
    """Pseudo-labels of all samples; a sequence of chunks gives what the chunks in one piece give.

    Confidences of any precision are taken as float32.

    >>> probabilities = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.45, 0.55]])
    >>> select("cbst", Evidence(probabilities), portion=0.5).labels
    tensor([ 0, -1,  1, -1])
    """
    rule = get_selector(selector)
    chunks = [evidence] if isinstance(evidence, Evidence) else list(evidence)
    _check_evidence(chunks)
    pieces = [piece for chunk in chunks for piece in _pieces(chunk)]
    seen = Confidences.joined([confidences(rule, piece) for piece in pieces])
    thresholds = thresholds_of(rule, seen, chunks[0].softmax.shape[1], portion)
    parts = [label_samples(rule, piece, thresholds) for piece in pieces]
    soft = [part.soft for part in parts if part.soft is not None]
    return Selection(torch.cat([part.labels for part in parts]), torch.cat(soft) if soft else None)


class Confidences(NamedTuple):
    """A sample in three numbers: its predicted class and what both measures say of it; all that thresholds need."""

    predicted: Int64[Tensor, "samples"]
    labelling: Float32[Tensor, "samples"]
    keeping: Float32[Tensor, "samples"]

    @staticmethod
    def joined(parts: "Sequence[Confidences]") -> "Confidences":
        """Several chunks as one, in any order."""
        return Confidences(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def confidences(selector: Selector, evidence: Evidence) -> Confidences:
    """Each sample's predicted class, by the measure that labels, and its confidence in it by both measures."""
    labelling, predicted = evidence.of(selector.label_by).max(1)
    keeping = of_labels(evidence.of(selector.keep_by), predicted)
    return Confidences(predicted, labelling, _told_apart(selector, evidence, keeping))


def _told_apart(selector: Selector, evidence: Evidence, confidence: Tensor) -> Tensor:
    """A confidence that does not tie where p is rounded: -log(1 - p), above 1/2, from p = 1/2 on, where it is known."""
    if selector.keep_by != "softmax" or evidence.certainty is None:
        return confidence
    return torch.where(confidence < 0.5, confidence, evidence.certainty)


class Thresholds(NamedTuple):
    """A threshold a class, and how many samples its rank counted; where that is none, the threshold is 1."""

    values: Float32[Tensor, "classes"]
    ranks: Int64[Tensor, "classes"]


def check_portion(portion: float, name: str = "portion") -> None:
    """Reject a portion outside (0, 1]."""
    if not 0 < portion <= 1:
        raise ValueError(f"{name} must lie in (0, 1], the share of target samples to pseudo-label; got {portion!r}")


def rank_thresholds(
    confidence: Float[Tensor, "samples"], predicted: Int[Tensor, "samples"], num_classes: int, portion: float
) -> Thresholds:
    """For each class, the confidence at rank floor(n * portion), counted from 1 down, of its n predicted samples.

    Where that rank is 0 (few samples, or none predicted as the class) the threshold is 1. One sort of whole numbers,
    class above confidence: not negative floats order as their bits do, of float32 that they are taken as.
    """
    check_portion(portion)
    counts = torch.bincount(predicted, minlength=num_classes)
    # -0.0 + 0.0 is 0.0: a negative zero's bits would order it below everything.
    bits = (confidence.float() + 0.0).view(torch.int32).to(torch.int64)
    keys = (predicted.to(torch.int64) << 32) + (_LARGEST_BITS - bits)
    # NumPy's sort of whole numbers on a CPU is ten times as fast as torch's.
    keys = torch.from_numpy(np.sort(keys.numpy())) if keys.device.type == "cpu" else keys.sort().values
    ranks = (counts.double() * portion + _ROUNDING).floor().to(torch.int64)
    places = (counts.cumsum(0) - counts + ranks - 1).clamp(min=0)
    values = (_LARGEST_BITS - (keys[places] & _LOW_BITS)).to(torch.int32).view(torch.float32)
    return Thresholds(torch.where(ranks > 0, values, 1.0), ranks)


class SelectorThresholds(NamedTuple):
    """What labels are weighed by, a confidence, and what they must reach to be kept, as `Confidences.keeping` is."""

    labelling: Thresholds
    keeping: Thresholds


def thresholds_of(selector: Selector, seen: Confidences, num_classes: int, portion: float) -> SelectorThresholds:
    """The selector's thresholds from all samples' confidences."""
    check_portion(portion)
    if selector.balance == "class":
        labelling = rank_thresholds(seen.labelling, seen.predicted, num_classes, portion)
        if torch.equal(seen.labelling, seen.keeping):
            return SelectorThresholds(labelling, labelling)
        return SelectorThresholds(labelling, rank_thresholds(seen.keeping, seen.predicted, num_classes, portion))
    ones = torch.ones(num_classes, device=seen.predicted.device)
    likeliest = Thresholds(ones, torch.bincount(seen.predicted, minlength=num_classes))
    if selector.balance == "none":
        return SelectorThresholds(likeliest, likeliest._replace(values=torch.zeros_like(ones)))
    overall = rank_thresholds(seen.keeping, torch.zeros_like(seen.predicted), 1, portion)
    return SelectorThresholds(likeliest, Thresholds(overall.values * ones, overall.ranks.expand(num_classes)))


def label_samples(selector: Selector, evidence: Evidence, thresholds: SelectorThresholds) -> Selection:
    """Labels of these samples under given thresholds. A class whose rank is 0 selects nothing, not even certainty."""
    weighed = evidence.of(selector.label_by)
    ratios = weighed if selector.balance != "class" else weighed / thresholds.labelling.values
    largest, labels = ratios.max(1)
    confidence = _told_apart(selector, evidence, of_labels(evidence.of(selector.keep_by), labels))
    needed, soft = thresholds.keeping.values[labels], None
    kept = confidence >= needed if selector.keeps_threshold else confidence > needed
    if selector.entropy_weight:
        log_ratio = largest.log()
        if evidence.certainty is not None:
            # The quotient may be rounded to 1; where both are certainties it is known from them.
            known = torch.log1p(-(-confidence).exp()) - torch.log1p(-(-needed).exp())
            log_ratio = torch.where(torch.minimum(confidence, needed) >= 0.5, known, log_ratio)
        soft, excess = _entropy_regularised(ratios, largest, labels, log_ratio, selector.entropy_weight)
        kept |= excess > 0
    kept &= (thresholds.keeping.ranks > 0)[labels]
    return Selection(torch.where(kept, labels, -1), soft)


def _entropy_regularised(
    ratios: Tensor, largest: Tensor, labels: Tensor, log_largest: Tensor, alpha: float
) -> tuple[Float32[Tensor, "samples classes"], Float32[Tensor, "samples"]]:
    """LRENT: labels proportional to r ** (1 / alpha), r = p / threshold; those with sum(r ** (1 / alpha)) > 1 are kept.

    With the label put in, sum(-y log p + alpha y log y) < sum(-y log threshold) says just that, so all that CBST keeps
    is kept; returned is the sum less 1.
    """
    # Relative to the largest ratio, whose power is then 1: a small alpha would overflow.
    powers = (ratios / largest.unsqueeze(1)).pow_(1 / alpha)
    others = powers.scatter(1, labels.unsqueeze(1), 0.0).sum(1)
    excess = torch.expm1(log_largest / alpha) + largest.pow(1 / alpha) * others
    return powers / (1 + others).unsqueeze(1), excess


def _pieces(evidence: Evidence) -> list[Evidence]:
    """The same in float32, in pieces that stay in a processor's cache; a GPU is given all at once."""
    samples, classes = evidence.softmax.shape
    rows = max(1, _PIECE // classes) if evidence.softmax.device.type == "cpu" else samples
    count = len(evidence.softmax.split(rows))
    columns = ([None] * count if column is None else column.float().split(rows) for column in evidence)
    return [Evidence(*one) for one in zip(*columns, strict=True)]


def of_labels(values: Float[Tensor, "samples classes"], labels: Int64[Tensor, "samples"]) -> Float[Tensor, "samples"]:
    """Of each row the column of its label."""
    return values.gather(1, labels.unsqueeze(1)).squeeze(1)


def _check_evidence(chunks: Sequence[Evidence]) -> None:
    if sum(len(chunk.softmax) for chunk in chunks) == 0:
        raise ValueError("evidence must hold at least one sample; got none")
    shapes = {values.shape[1] for chunk in chunks for values in (chunk.softmax, chunk.visual) if values is not None}
    if len(shapes) > 1 or min(shapes) < 2:
        raise ValueError(f"evidence must be about the same two classes or more in every chunk; got {sorted(shapes)}")
    if len({chunk.certainty is None for chunk in chunks}) > 1:
        raise ValueError("evidence must hold the certainty in every chunk or in none; some have it, others not")
    for chunk in chunks:
        for values, most in ((chunk.softmax, 1.0), (chunk.visual, 1.0), (chunk.certainty, torch.inf)):
            low, high = values.aminmax() if values is not None and values.numel() else torch.zeros(2)
            if not (low >= 0 and high <= most):
                raise ValueError(
                    f"evidence must be confidences in [0, 1], certainties from 0; got {float(low)} to {float(high)}"
                )
