"""How a summary of every sample is made without ever holding a number for each sample and class.

`summarise` walks over the samples in chunks that fit the cache: one matrix product a chunk gives logits and cosines
alike, and only per-sample numbers leave it, so all samples x all classes never exists. The passes over a chunk are
counted: at a few hundred features a sample, each costs as much as a tenth of the product.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from hardsight.class_shards import ShardedHead
from hardsight.geometry import (
    NEARLY_PARALLEL,
    angle_between,
    angle_of_cosine,
    angle_of_cosine_,
    directions,
    norms,
    widen,
)
from hardsight.hardness.columns import COLUMNS, ClassSummary, Part, SummaryColumns

# Elements of one chunk (samples x classes), and the fewest samples worth a product: with fewer, reading the weight
# again for every chunk costs as much as the arithmetic. Half as many where a chunk would be larger than 64 MiB.
_CHUNK_ELEMENTS = {"cpu": 2**21, "cuda": 2**25}
_FEWEST_SAMPLES, _LARGE_CHUNK_ELEMENTS = 512, 2**24
# Elements of a chunk's features (samples x dim), which half precision is copied into float32 by: 128 MiB.
_FEATURE_ELEMENTS = 2**25
# Elements of a weight that is copied to save a pass over every chunk: 64 MiB.
_COPIED_ELEMENTS = 2**24
# Norms outside this range might overflow or vanish in a float32 product or its reciprocal.
SAFE_NORMS = (1e-12, 1e12)
# Elements of the vectors of pairs that are measured together, and a multiple of what any processor's register holds.
_PAIR_ELEMENTS, _REGISTERS = 2**22, 64
# Beside a bias this many times as large, a product keeps too few digits for an angle.
_LARGE_BIAS = 8.0
_HALVES = (torch.bfloat16, torch.float16)
# Below exp of these there are only denormal numbers, on which a CPU is 80 times slower.
_LEAST_EXPONENT = {torch.float32: -87.0, torch.float64: -708.0}


def summarise(
    features: Tensor, weight: Tensor, labels: Tensor | None, bias: Tensor | None = None, *,
    parts: Iterable[Part] = ("predicted", "angles", "logits", "spread"), chunk: int | None = None, fused: bool = True,
) -> ClassSummary:  # fmt: skip
    """Summary of every sample; without labels, against the predicted class. Memory beyond the result: one chunk.

    Fused, where a GPU serves half precision, one kernel gives the same; not `fused` is its definition, of any type.
    """
    if fused and features.device.type == "cuda" and features.dtype in _HALVES and "rank" not in parts:
        # Imported here: registering the kernels costs more than all else that scoring on a CPU imports.
        from hardsight.kernels.angular_scores import serves

        if serves(features, weight):
            return _fused(features, weight, labels, bias, frozenset(parts))
    rows = chunk or _chunk_rows(features.device.type, *weight.shape)
    # Features in the finer precision of the two follow chunk by chunk.
    head = Head(weight.to(torch.promote_types(features.dtype, weight.dtype)), bias)
    asked, columns = frozenset(parts), SummaryColumns(len(features))
    for start in range(0, len(features), rows):
        given = None if labels is None else labels[start : start + rows]
        columns.add(summarise_chunk(features[start : start + rows], head, given, asked))
    return columns.summary()


def _chunk_rows(device: str, classes: int, dim: int) -> int:
    """How many samples a chunk has."""
    fewest = _FEWEST_SAMPLES if _FEWEST_SAMPLES * classes <= _LARGE_CHUNK_ELEMENTS else _FEWEST_SAMPLES // 2
    elements = _CHUNK_ELEMENTS.get(device, _CHUNK_ELEMENTS["cuda"])
    return max(fewest, min(elements // classes, _FEATURE_ELEMENTS // dim))


def _fused(
    features: Tensor, weight: Tensor, labels: Tensor | None, bias: Tensor | None, parts: frozenset[Part]
) -> ClassSummary:
    """The same in one kernel: half precision is multiplied as it is, and no chunk of products is written."""
    from hardsight.kernels.angular_scores import angular_scores

    labels = None if labels is None else labels.long()
    logits, spread = not _angles_suffice(parts, labels), "spread" in parts
    found = angular_scores(features, weight, labels, bias, logits=logits, spread=spread)._asdict()
    always = {"feature_norm"} if labels is not None else {"feature_norm", "predicted"}
    asked = {name for part in parts for name in COLUMNS[part]} | always
    columns = {name: value for name, value in found.items() if name in asked}
    against = found["predicted"] if labels is None else labels
    return ClassSummary(len(weight), bias is not None, labels=against, **columns)


class Head:
    """A linear head prepared once for many chunks: weight and bias in the precision of the computation, and norms."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = widen(weight.detach())
        self.bias = None if bias is None else widen(bias.detach())
        self.norms = torch.linalg.vector_norm(self.weight, dim=1)
        self.safe = _norms_are_safe(self.norms, self.weight)
        if not self.safe:
            self.norms = norms(self.weight)
        self.inverse_norms = _inverse(self.norms)
        self._buffers: dict[str, Tensor] = {}
        self._directions: Tensor | None = None
        self._bias_reach: float | None = None

    @property
    def directions(self) -> Tensor | None:
        """The weight's rows at length 1, for products that are nothing but cosines; None where a copy is too large."""
        if self._directions is None and self.safe and self.weight.numel() <= _COPIED_ELEMENTS:
            self._directions = self.weight * self.inverse_norms.unsqueeze(1)
        return self._directions

    def hides(self, feature_norm: Tensor) -> bool:
        """Whether the bias is so large beside the products of some features that the logits lose their digits."""
        if self.bias is None:
            return False
        if self._bias_reach is None:
            shortest = self.norms[self.norms > 0].min().item() if bool(self.norms.any()) else math.inf
            self._bias_reach = self.bias.abs().max().item() / shortest
        return bool(((feature_norm > 0) & (feature_norm * _LARGE_BIAS < self._bias_reach)).any())

    def buffer(self, name: str, rows: int) -> Tensor:
        """Memory for one chunk, the same every time: new memory costs as much as what is computed in it."""
        held = self._buffers.get(name)
        if held is None or len(held) < rows:
            held = self._buffers[name] = self.weight.new_empty(rows, len(self.weight))
        return held[:rows]


@torch.no_grad()
def summarise_chunk(
    features: Tensor, head: Head, labels: Tensor | None, parts: frozenset[Part], logits: Tensor | None = None
) -> ClassSummary:
    """Summary of one chunk. `logits`, where the model computed them already, save the matrix product."""
    features = widen(features.detach()).to(head.weight.dtype)
    feature_norm = torch.linalg.vector_norm(features, dim=1)
    cosines: Tensor | None
    if head.safe and _norms_are_safe(feature_norm, features):
        if logits is None and _angles_suffice(parts, labels) and head.directions is not None:
            # Cosines in the place of both, where no logits are needed: one pass less.
            scores = torch.mm(features, head.directions.T, out=head.buffer("product", len(features)))
            cosines = scores.mul_(_inverse(feature_norm).unsqueeze(1))
        else:
            scores, cosines = _logits_and_cosines(features, feature_norm, head, logits, "angles" in parts)
    else:
        feature_norm = norms(features)
        scores, cosines = _logits_and_cosines_of_extreme_norms(features, feature_norm, head, logits)
    columns = {"feature_norm": feature_norm}
    if labels is None or "predicted" in parts:
        columns["predicted"] = first_largest(scores)
    labels = columns["predicted"] if labels is None else labels.long()
    if cosines is not None and "angles" in parts:
        columns |= _summarise_angles(features, head.weight, labels, cosines)
    if parts & {"logits", "spread", "rank"}:
        # The memory of the cosines, which are used up by now.
        scratch = head.buffer("cosines", len(features)) if logits is None and parts & {"spread", "rank"} else None
        columns |= summarise_logits(scores, labels, parts, consume=logits is None, scratch=scratch)
    columns["labels"] = labels
    return ClassSummary(len(head.weight), head.bias is not None, **columns)


def summarise_outputs(
    features: Tensor, logits: Tensor, head: Head, labels: Tensor | None, parts: frozenset[Part], *, linear: bool
) -> ClassSummary:
    """Summary from the input and output of a model's head. `linear`: whether the logits are features @ weight.T + bias.

    Where they are something else (an angular head), angles come from features and weight, the rest from the logits.
    """
    if linear:
        # Half-precision logits are too coarse for an angle, and logits that overflowed hold nothing: then
        # the product is computed again from the features.
        usable = logits.dtype in (torch.float32, torch.float64) and bool(logits.sum().isfinite())
        return summarise_chunk(features, head, labels, parts, logits if usable else None)
    predicted = logits.argmax(1)
    against = predicted if labels is None else labels.long()
    angular = summarise_chunk(features, head, against, parts & {"angles"})
    columns = summarise_logits(widen(logits.detach()), against, parts) | {"predicted": predicted}
    return replace(angular, **columns)  # type: ignore[arg-type]


def _angles_suffice(parts: frozenset[Part], labels: Tensor | None) -> bool:
    """Whether no logits are needed; without labels they are, for the prediction."""
    return labels is not None and parts <= {"angles"}


def _logits_and_cosines(
    features: Tensor, feature_norm: Tensor, head: Head, logits: Tensor | None, want_cosines: bool
) -> tuple[Tensor, Tensor | None]:
    """Both from one product: cosine = product / (|x| |w|), logit = product + bias."""
    rows, cosines = len(features), None
    product = logits if logits is not None else torch.mm(features, head.weight.T, out=head.buffer("product", rows))
    if want_cosines:
        cosines = head.buffer("cosines", rows)
        if logits is not None and head.hides(feature_norm):
            torch.mm(features, head.weight.T, out=cosines).mul_(head.inverse_norms)
        elif logits is not None and head.bias is not None:
            torch.sub(logits, head.bias, out=cosines).mul_(head.inverse_norms)
        else:
            torch.mul(product, head.inverse_norms, out=cosines)
        cosines.mul_(_inverse(feature_norm).unsqueeze(1))
    if logits is None and head.bias is not None:
        product.add_(head.bias)
    return product, cosines


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
    """Label angle, sum of all angles, nearest other angle; exact also where vectors are parallel. Uses up `cosines`."""
    column = labels.unsqueeze(1)
    label_cosine = cosines.gather(1, column).squeeze(1)
    label_angle = angle_of_cosine(label_cosine)
    aligned = (label_cosine.abs() > NEARLY_PARALLEL).nonzero().squeeze(1)
    if len(aligned):
        label_angle[aligned] = _angles_of_pairs(features, weight, aligned, labels[aligned])

    # The labelled class leaves the row: -2 never is the largest cosine, and 0 adds a known pi/2 to the sum.
    nearest = cosines.scatter_(1, column, -2.0).amax(1)
    farthest = cosines.scatter_(1, column, 0.0).amin(1)
    nearest_other = angle_of_cosine(nearest)
    # Also the rows where rounding pushed a cosine past 1, whose arccos is no number.
    rows = ((nearest > NEARLY_PARALLEL) | (farthest < -NEARLY_PARALLEL)).nonzero().squeeze(1)
    remeasured = cosines[rows]
    angle_sum = angle_of_cosine_(cosines).sum(1) - math.pi / 2
    if len(rows):
        exact = angle_of_cosine(remeasured)
        at, classes = (remeasured.abs() > NEARLY_PARALLEL).nonzero().unbind(1)
        exact[at, classes] = _angles_of_pairs(features, weight, rows[at], classes)
        nearest_other[rows] = exact.scatter_(1, column[rows], math.inf).amin(1)
        angle_sum[rows] = exact.scatter_(1, column[rows], 0.0).sum(1)
    return {"label_angle": label_angle, "angle_sum": angle_sum + label_angle, "nearest_other_angle": nearest_other}


def _angles_of_pairs(features: Tensor, weight: Tensor, rows: Tensor, classes: Tensor) -> Tensor:
    """`angle_between` of some pairs, each the same to the bit whichever others are measured with it.

    Torch rounds the last few atan2 of a vector, which fill no register, otherwise than those before.
    """
    fill = (0, -len(rows) % _REGISTERS)
    block = max(1, _PAIR_ELEMENTS // (_REGISTERS * features.shape[1])) * _REGISTERS
    pairs = zip(F.pad(rows, fill).split(block), F.pad(classes, fill).split(block), strict=True)
    return torch.cat([angle_between(features[row], weight[one]) for row, one in pairs])[: len(rows)]


def summarise_logits(
    logits: Tensor, labels: Tensor, parts: frozenset[Part], *, consume: bool = False, scratch: Tensor | None = None,
    shards: ShardedHead | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """What the scores of a softmax need: log-sum-exp, margins, masses, and what else of a softmax the parts name.

    `consume` allows the logits to be overwritten, `scratch` is memory as large: on a CPU, new memory costs as much as
    what is computed in it. With `shards`, the logits are those of this process's classes.
    """
    mine, place = (None, labels) if shards is None else shards.own(labels)
    column, spread = place.unsqueeze(1), "spread" in parts
    label_logit = logits.gather(1, column).squeeze(1)
    others = _fill_label(logits if consume else logits.clone(), column, -math.inf, mine)
    largest_other = others.amax(1)
    if shards is not None and mine is not None:
        label_logit = shards.reduce(torch.where(mine, label_logit, 0.0))
        largest_other = shards.reduce(largest_other, "max")
    # Memory for the exponentials: until then for what is counted, as floats, since torch sums booleans slowly.
    spare = torch.empty_like(others) if scratch is None and parts & {"spread", "rank"} else scratch
    sums = {}
    if "rank" in parts:
        sums["others_above"] = torch.gt(others, label_logit.unsqueeze(1), out=spare).sum(1)
    top = torch.maximum(largest_other, label_logit)
    # Smaller ones count as the least, and the labelled class as 0, so the sum is the others' alone.
    exponents = others.sub_(top.unsqueeze(1)).clamp_(min=_LEAST_EXPONENT[logits.dtype])
    exponentials = _fill_label(torch.exp(exponents, out=spare if spread else exponents), column, 0.0, mine)
    sums["mass"] = exponentials.sum(1)
    if spread:
        sums |= {"below_top": exponents.mul_(exponentials).sum(1).neg(), "squares": exponentials.square_().sum(1)}
    if shards is not None:
        sums = dict(zip(sums, shards.reduce(torch.stack(list(sums.values()))).unbind(), strict=True))
    label_mass = (label_logit - top).exp()
    others_mass = sums.pop("mass")
    total = others_mass + label_mass
    # Where the label leads, its own term is 1, and adding it would round small masses away.
    log_total = torch.where(label_logit >= largest_other, others_mass.log1p(), total.log())
    columns = {
        "label_logit": label_logit,
        "largest_other_logit": largest_other,
        "log_sum_exp": top + log_total,
        "other_probability": others_mass / total,
    }
    if spread:
        # Entropy is the mean of log-sum-exp minus the logit: a sum of terms that are not negative.
        columns["entropy"] = (sums.pop("below_top") + label_mass * (top - label_logit)) / total + log_total
        columns["other_squares"] = sums.pop("squares") / total.square()
    return columns | sums


def _fill_label(values: Tensor, column: Tensor, fill: float, mine: Tensor | None) -> Tensor:
    """In place, at the label of each row; with shards, of those rows whose label is this process's."""
    if mine is None:
        return values.scatter_(1, column, fill)
    return values.scatter_(1, column, values.gather(1, column).masked_fill_(mine.unsqueeze(1), fill))


def first_largest(values: Tensor) -> Tensor:
    """The first largest entry of each row, in two plain passes: torch's own argmax on a CPU is several times slower."""
    if values.device.type != "cpu" or values.shape[1] >= 2**24:
        return values.argmax(1)
    places = torch.arange(values.shape[1], dtype=torch.float32)
    return torch.where(values == values.amax(1, keepdim=True), places, math.inf).amin(1).long()


def _inverse(values: Tensor) -> Tensor:
    """1 / value, and 0 for a zero vector, which so gets a cosine of 0: an angle of pi/2."""
    return torch.where(values == 0, 0.0, 1 / values)


def _norms_are_safe(values: Tensor, vectors: Tensor) -> bool:
    """Whether all are in the safe range, or 0 because the vector is, not because its squares vanished."""
    low, high = SAFE_NORMS
    zero = values == 0
    safe = bool((zero | ((values > low) & (values < high))).all())
    return safe and not (bool(zero.any()) and bool(vectors[zero].any()))
