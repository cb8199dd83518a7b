"""Kinds of findings: what is the matter with each sample, and how many there are of each kind.

| kind | a sample that |
|---|---|
| `mislabelled` | is among the most suspicious, as many as are estimated to be wrong |
| `ambiguous` | has its label among two classes of which neither is twice as probable as the other |
| `hard` | is believed to be right, yet its label has less than half of its class's usual probability, or half of its neighbours carry other labels |
| `outlier` | is far from every class and from its neighbours |
| `near_duplicate` | is one of a group of almost equal samples |
| `leakage` | has a near duplicate in another split |
| `conflict` | has a near duplicate with another label |

A sample is of at most one of the first three, and may be of any of the others.
"""  # noqa: E501

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from hardsight.cleaning.confident import class_thresholds, confident_class, in_pieces
from hardsight.cleaning.duplicates import in_mixed_group

KINDS = ("mislabelled", "ambiguous", "hard", "outlier", "near_duplicate", "leakage", "conflict")
# What the intervals of the counts say, for pages and files.
INTERVAL = (
    "95 %, over samples: the counts that as many samples drawn again from the same source would give, the model and "
    "the way of counting unchanged; near duplicates are counted in this data and have none"
)
_RESAMPLES = 500
_NORMAL = 1.959964


@dataclass(frozen=True)
class Count:
    """How many samples, and the 95 % interval over samples; null where the number is a fact of the data."""

    count: int
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class Findings:
    """`columns` in the order of the ranking, `counts` of kinds, `classes`: what is the matter with which.

    `notes` say what was not looked for, and why.
    """

    columns: dict[str, pa.Array | pa.ChunkedArray] = field(default_factory=dict)
    counts: dict[str, Count] = field(default_factory=dict)
    classes: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """As `audit.json` holds it."""
        counts = {name: asdict(count) for name, count in self.counts.items()}
        return {"kinds": counts, "interval": INTERVAL, "classes": self.classes}


@dataclass(frozen=True)
class Kinds:
    """For each row of the audited table: its kinds, and what to say of them; and how many there are of each."""

    kinds: pa.Array
    reasons: pa.Array
    counts: dict[str, Count]


def kinds_of(
    labels: np.ndarray,
    expected: np.ndarray | None,
    issue: np.ndarray,
    *,
    beliefs: Tensor | None = None,
    disagreement: np.ndarray | None = None,
    outlier: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    splits: np.ndarray | None = None,
    class_names: Sequence[str] | None = None,
    estimate: str = "",
) -> Kinds:
    """The kinds that can be told from what is given, of all samples in the same order.

    `labels` number the classes; `groups` are those of near duplicates and `splits` numbers, -1 for none; `issue` are
    the suspects, and `estimate` says how their number was found.
    """
    found: dict[str, np.ndarray] = {"mislabelled": issue}
    between = None
    right = np.zeros(len(labels), bool) if expected is None else ~issue & (expected == labels)
    doubted = np.zeros(len(labels), bool)
    if beliefs is not None and beliefs.shape[1] > 1:
        own, between, close = _two_likeliest(beliefs, labels)
        found["ambiguous"] = ~issue & close
        usual = class_thresholds(beliefs, torch.from_numpy(labels)).numpy()
        doubted |= own < usual[labels] / 2
    if disagreement is not None:
        doubted |= disagreement >= 0.5
    if beliefs is not None or disagreement is not None:
        found["hard"] = right & doubted & ~found.get("ambiguous", issue)
    if outlier is not None:
        found["outlier"] = outlier
    if groups is not None:
        found["near_duplicate"] = groups >= 0
        if splits is not None:
            found["leakage"] = in_mixed_group(groups, splits)
        found["conflict"] = in_mixed_group(groups, labels)
    counts = {name: _counted(name, mask) for name, mask in found.items()}
    if estimate == "confident_joint" and beliefs is not None:
        counts["mislabelled"] = _issues_interval(int(issue.sum()), beliefs, labels)
    return Kinds(_lists(found), _reasons(found, between, groups, class_names), counts)


def _two_likeliest(beliefs: Tensor, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The label's probability, the two likeliest classes, and whether these are close and the label is one of them."""

    def look(rows: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values, classes = rows.topk(2, dim=1)
        close = (values[:, 1] * 2 >= values[:, 0]) & (classes == own).any(1)
        return rows.gather(1, own).squeeze(1), classes[:, 0], classes[:, 1], close

    own, first, second, close = in_pieces(look, beliefs, torch.from_numpy(labels))
    return own.double().numpy(), torch.stack([first, second], 1).numpy(), close.numpy()


def wilson(count: int, samples: int) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's score."""
    share, spread = count / samples, _NORMAL**2 / samples
    middle = share + spread / 2
    half = _NORMAL * math.sqrt(share * (1 - share) / samples + spread / (4 * samples))
    # What rounding adds must not cut off a share that was seen.
    return min(share, max(0.0, (middle - half) / (1 + spread))), max(share, min(1.0, (middle + half) / (1 + spread)))


def _counted(name: str, mask: np.ndarray) -> Count:
    count = int(mask.sum())
    if name in ("near_duplicate", "leakage", "conflict"):
        return Count(count)
    low, high = wilson(count, len(mask))
    return Count(count, round(low * len(mask)), round(high * len(mask)))


def _issues_interval(count: int, beliefs: Tensor, labels: np.ndarray) -> Count:
    """The count by the confident joint, with the interval of samples drawn again and their joint calibrated again."""
    given = torch.from_numpy(labels)
    truth = confident_class(beliefs, given).numpy()
    classes = beliefs.shape[1]
    # A sample is a label and the class that is confidently meant, or none: to draw samples is to draw these pairs.
    pairs, counts = np.unique(labels * (classes + 1) + truth + 1, return_counts=True)
    label, meant = pairs // (classes + 1), pairs % (classes + 1) - 1
    generator = np.random.default_rng(0)
    drawn = generator.multinomial(len(labels), counts / counts.sum(), size=_RESAMPLES)
    found = np.zeros(_RESAMPLES)
    for one in np.unique(label):
        own = label == one
        total = drawn[:, own].sum(1)
        sure = drawn[:, own & (meant >= 0)].sum(1)
        off = drawn[:, own & (meant >= 0) & (meant != one)].sum(1)
        found += np.where(sure > 0, total * off / np.maximum(sure, 1), 0.0)
    low, high = np.quantile(found, [0.025, 0.975])
    return Count(count, min(count, round(low)), max(count, round(high)))


def _lists(found: Mapping[str, np.ndarray]) -> pa.Array:
    """The names of the kinds of each sample."""
    present = np.stack([found.get(name, np.zeros_like(found["mislabelled"])) for name in KINDS])
    _, codes = np.nonzero(present.T)
    offsets = np.concatenate([[0], np.cumsum(present.sum(0))])
    names = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(KINDS))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names.cast(pa.string()))


def _reasons(
    found: Mapping[str, np.ndarray], between: np.ndarray | None, groups: np.ndarray | None, names: Sequence[str] | None
) -> pa.Array:
    """What to say of each sample beside its scores; empty for most."""
    said: list[Any] = [""] * len(found["mislabelled"])

    def add(name: str, text: Any) -> None:
        for at in np.flatnonzero(found.get(name, np.zeros(0, bool))):
            said[at] = "; ".join(part for part in (said[at], text(at)) if part)

    def class_name(code: int) -> str:
        return str(code) if names is None else names[code]

    if between is not None:
        first, second = between[:, 0].tolist(), between[:, 1].tolist()
        add("ambiguous", lambda at: f"between {class_name(first[at])} and {class_name(second[at])}")
    add("outlier", lambda at: "far from every class")
    if groups is not None:
        sizes = np.bincount(groups[groups >= 0]) if (groups >= 0).any() else np.zeros(0, np.int64)
        add("near_duplicate", lambda at: f"one of {sizes[groups[at]]} near duplicates")
    add("leakage", lambda at: "in several splits")
    add("conflict", lambda at: "with different labels")
    return pa.array(said, pa.string()).dictionary_encode()
