"""Everything the scores need to know of a sample, in a few numbers a sample instead of one a class.

`summarise` walks over the samples in chunks that fit the cache: one matrix product a chunk gives logits and cosines
alike, and only per-sample numbers leave it, so all samples x all classes never exists.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from hardsight.geometry import angle_between, angle_of_cosine, angles_to_classes, directions, norms

Part = Literal["angles", "logits", "spread"]

# Elements of one chunk (samples x classes): 2**18 floats stay in a core's cache, a GPU wants more to do at once.
_CHUNK_ON_CPU = 2**18
_CHUNK_ON_GPU = 2**25
# Where |cosine| exceeds this, an arccos of a float32 product is no measurement any more (see geometry).
_NEARLY_PARALLEL = 0.995
# Norms outside this range might overflow or vanish in a float32 product or its reciprocal.
_SAFE_NORMS = (1e-12, 1e12)


@dataclass(frozen=True)
class ClassSummary:
    """Per-sample numbers over all classes; `other` means every class but the labelled one. Parts not asked for are None.

    Angles in radians. `other_probability` is the softmax mass of the other classes, summed without cancellation, so
    it is exact where the labelled probability rounds to 1; `other_squares` is the sum of their squared probabilities.
    """

    num_classes: int
    has_bias: bool
    labels: Tensor
    predicted: Tensor
    feature_norm: Tensor
    label_angle: Tensor | None = None
    angle_sum: Tensor | None = None
    nearest_other_angle: Tensor | None = None
    label_logit: Tensor | None = None
    largest_other_logit: Tensor | None = None
    log_sum_exp: Tensor | None = None
    other_probability: Tensor | None = None
    other_squares: Tensor | None = None
    entropy: Tensor | None = None

    @staticmethod
    def concatenate(chunks: list["ClassSummary"]) -> "ClassSummary":
        """The summary of all chunks' samples, in order."""
        first = chunks[0]
        columns: dict[str, Tensor | None] = {}
        for field in fields(first):
            if isinstance(getattr(first, field.name), Tensor):
                columns[field.name] = torch.cat([getattr(chunk, field.name) for chunk in chunks])
        return ClassSummary(num_classes=first.num_classes, has_bias=first.has_bias, **columns)  # type: ignore[arg-type]


def summarise(
    features: Tensor,
    weight: Tensor,
    labels: Tensor | None,
    bias: Tensor | None = None,
    *,
    parts: Iterable[Part] = ("angles", "logits", "spread"),
    chunk: int | None = None,
) -> ClassSummary:
    """Summary of every sample; without labels, against the predicted class. Memory beyond the result: one chunk."""
    classes = len(weight)
    budget = _CHUNK_ON_CPU if features.device.type == "cpu" else _CHUNK_ON_GPU
    rows = chunk or max(32, budget // classes)
    head = Head(weight, bias)
    asked = frozenset(parts)
    chunks = [
        summarise_chunk(features[start : start + rows], head, None if labels is None else labels[start : start + rows], asked)
        for start in range(0, len(features), rows)
    ]
    return ClassSummary.concatenate(chunks)


class Head:
    """A linear head prepared once for many chunks: weight and bias in the precision of the computation, and norms."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = _wide(weight.detach())
        self.bias = None if bias is None else _wide(bias.detach())
        self.norms = norms(self.weight)
        self.inverse_norms = torch.where(self.norms == 0, 0.0, 1 / torch.where(self.norms == 0, 1.0, self.norms))
        self.safe = _norms_are_safe(self.norms)


@torch.no_grad()
def summarise_chunk(
    features: Tensor, head: Head, labels: Tensor | None, parts: frozenset[Part], logits: Tensor | None = None
) -> ClassSummary:
    """Summary of one chunk. `logits`, where the model computed them already, save the matrix product."""
    features = _wide(features.detach())
    feature_norm = norms(features)
    scores, cosines = _logits_and_cosines(features, feature_norm, head, logits, "angles" in parts)
    predicted = scores.argmax(1)
    labels = predicted if labels is None else labels.long()
    columns = {"predicted": predicted, "feature_norm": feature_norm, "labels": labels}
    if cosines is not None:
        columns |= _summarise_angles(features, head.weight, labels, cosines)
    if parts & {"logits", "spread"}:
        columns |= summarise_logits(scores, labels, "spread" in parts)
    return ClassSummary(num_classes=len(head.weight), has_bias=head.bias is not None, **columns)


def _logits_and_cosines(
    features: Tensor, feature_norm: Tensor, head: Head, logits: Tensor | None, want_cosines: bool
) -> tuple[Tensor, Tensor | None]:
    """Both from one product: cosine = product / (|x| |w|), logit = product + bias. Cosines are made in place."""
    if not (head.safe and _norms_are_safe(feature_norm)):
        return _logits_and_cosines_of_extreme_norms(features, feature_norm, head, logits)
    if logits is None:
        product = features @ head.weight.T
        scores = product if head.bias is None else product + head.bias
    else:
        scores = logits
        product = logits if head.bias is None else logits - head.bias
    if not want_cosines:
        return scores, None
    inverse = torch.where(feature_norm == 0, 0.0, 1 / torch.where(feature_norm == 0, 1.0, feature_norm))
    return scores, (product * head.inverse_norms).mul_(inverse.unsqueeze(1))


def _logits_and_cosines_of_extreme_norms(
    features: Tensor, feature_norm: Tensor, head: Head, logits: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The same through unit vectors, saturating where a logit would exceed the largest number: slower, never inf."""
    cosines = directions(features) @ directions(head.weight).T
    if logits is not None:
        return logits, cosines
    # A quarter of the largest number: differences of two logits stay finite.
    largest = torch.finfo(features.dtype).max / 4
    scores = ((cosines * feature_norm.unsqueeze(1)).clamp(-largest, largest) * head.norms).clamp(-largest, largest)
    return (scores if head.bias is None else (scores + head.bias).clamp(-largest, largest)), cosines


def _summarise_angles(features: Tensor, weight: Tensor, labels: Tensor, cosines: Tensor) -> dict[str, Tensor]:
    """Label angle (exact), sum of all angles, nearest other angle. Uses up `cosines`."""
    column = labels.unsqueeze(1)
    label_angle = angle_between(features, weight[labels])
    # The labelled class leaves the product: a cosine of 0 neither wins the maximum over real neighbours falsely
    # (it is put to -2 for that) nor needs a second look, and its pi/2 is taken off the sum again.
    nearest = cosines.scatter_(1, column, -2.0).amax(1)
    cosines.scatter_(1, column, 0.0)
    farthest = cosines.amin(1)
    again = (nearest > _NEARLY_PARALLEL) | (farthest < -_NEARLY_PARALLEL)
    cosines.clamp_(-1.0, 1.0)
    angle_sum = torch.acos_(cosines).sum(1) - math.pi / 2
    nearest_other = angle_of_cosine(nearest)
    if bool(again.any()):
        rows = again.nonzero().squeeze(1)
        exact = angles_to_classes(features[rows], weight)
        others = exact.scatter(1, column[rows], 0.0)
        angle_sum[rows] = others.sum(1)
        nearest_other[rows] = exact.scatter(1, column[rows], math.inf).amin(1)
    return {"label_angle": label_angle, "angle_sum": angle_sum + label_angle, "nearest_other_angle": nearest_other}


def summarise_logits(logits: Tensor, labels: Tensor, spread: bool) -> dict[str, Tensor]:
    """What the scores of a softmax need: log-sum-exp, margins and masses, and with `spread` entropy and squares."""
    column = labels.unsqueeze(1)
    label_logit = logits.gather(1, column).squeeze(1)
    top = logits.amax(1, keepdim=True)
    exponentials = (logits - top).exp_()
    label_exponential = exponentials.gather(1, column).squeeze(1)
    entropy_sum = (exponentials * (top - logits)).sum(1) if spread else None
    exponentials.scatter_(1, column, 0.0)
    others = exponentials.sum(1)
    total = others + label_exponential
    columns = {
        "label_logit": label_logit,
        "largest_other_logit": logits.scatter(1, column, -math.inf).amax(1),
        "log_sum_exp": top.squeeze(1) + total.log(),
        "other_probability": others / total,
    }
    if entropy_sum is not None:
        columns["entropy"] = entropy_sum / total + total.log()
        columns["other_squares"] = exponentials.square_().sum(1) / total.square()
    return columns


def _norms_are_safe(values: Tensor) -> bool:
    low, high = _SAFE_NORMS
    return bool(((values == 0) | ((values > low) & (values < high))).all())


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
