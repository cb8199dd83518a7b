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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from hardsight.cleaning.classes import alike, confused_pairs, imbalance, several_in_one, wilson
from hardsight.cleaning.confident import PROBABILITIES, beliefs_of, class_thresholds, confident_class, in_pieces
from hardsight.cleaning.issues import LabelIssues
from hardsight.cleaning.neighbours import Surroundings, in_mixed_group
from hardsight.cleaning.samples import Samples
from hardsight.dynamics.detector import SUREST, noise_rate

KINDS = ("mislabelled", "ambiguous", "hard", "outlier", "near_duplicate", "leakage", "conflict")
# What the intervals of the counts say, for pages and files.
INTERVAL = (
    "95 %, over samples: the counts that as many samples drawn again from the same source would give, the model and "
    "the way of counting unchanged; near duplicates are counted in this data and have none"
)
_RESAMPLES = 500
# The share of the counted labels below which what the surest predictions contradict is noted.
_NOTED = 0.8


@dataclass(frozen=True)
class Count:
    """How many samples, and the 95 % interval over samples; null where the number is a fact of the data."""

    count: int
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class Findings:
    """`columns` in the order of the ranking, `counts` of kinds, `classes`: what is the matter with which.

    `notes` say what was not looked for, and what speaks against the count.
    """

    columns: dict[str, pa.Array | pa.ChunkedArray] = field(default_factory=dict)
    counts: dict[str, Count] = field(default_factory=dict)
    classes: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """As `audit.json` holds it."""
        counts = {name: asdict(count) for name, count in self.counts.items()}
        return {"kinds": counts, "interval": INTERVAL, "classes": self.classes, "notes": list(self.notes)}


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
) -> tuple[pa.Array, pa.Array, dict[str, Count]]:
    """The kinds of all samples that can be told from what is given, what to say of them, and how many there are.

    `labels` number the classes; `groups` are those of near duplicates and `splits` numbers, -1 for none; `issue` are
    the suspects, and `estimate` says how their number was found.
    """
    found: dict[str, np.ndarray] = {"mislabelled": issue}
    between = None
    right = np.zeros(len(labels), bool) if expected is None else ~issue & (expected == labels)
    doubted = np.zeros(len(labels), bool) if disagreement is None else disagreement >= 0.5
    if beliefs is not None and beliefs.shape[1] > 1:
        own, between, close = _two_likeliest(beliefs, labels)
        found["ambiguous"] = ~issue & close
        usual = class_thresholds(beliefs, torch.from_numpy(labels), checked=True).numpy()
        doubted = doubted | (own < usual[labels] / 2)
    if beliefs is not None or disagreement is not None:
        found["hard"] = right & doubted & ~found.get("ambiguous", issue)
    if outlier is not None:
        found["outlier"] = outlier
    if groups is not None:
        found["near_duplicate"] = groups >= 0
        if splits is not None:
            found["leakage"] = in_mixed_group(groups, splits)
        found["conflict"] = in_mixed_group(groups, labels)
    counts = {}
    for name, mask in found.items():
        low, high = wilson(int(mask.sum()), len(mask))
        # Copies are counted in this data.
        ends = () if name in ("near_duplicate", "leakage", "conflict") else (low * len(mask), high * len(mask))
        counts[name] = Count(int(mask.sum()), *(round(end) for end in ends))
    if estimate == "confident_joint" and beliefs is not None:
        counts["mislabelled"] = _issues_interval(int(issue.sum()), beliefs, labels)
    present = np.stack([found.get(name, np.zeros_like(issue)) for name in KINDS])
    offsets = np.concatenate([[0], np.cumsum(present.sum(0))])
    names = pa.array(KINDS).take(pa.array(np.nonzero(present.T)[1]))
    kinds = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names)
    return kinds, _reasons(found, between, groups, class_names), counts


def _two_likeliest(beliefs: Tensor, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The label's probability, the two likeliest classes, and whether these are close and the label is one of them."""

    def look(rows: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values, classes = rows.topk(2, dim=1)
        close = (values[:, 1] * 2 >= values[:, 0]) & (classes == own).any(1)
        return rows.gather(1, own).squeeze(1), classes[:, 0], classes[:, 1], close

    own, first, second, close = in_pieces(look, beliefs, torch.from_numpy(labels))
    return own.double().numpy(), torch.stack([first, second], 1).numpy(), close.numpy()


def _issues_interval(count: int, beliefs: Tensor, labels: np.ndarray) -> Count:
    """The count by the confident joint, with the interval of samples drawn again and their joint calibrated again."""
    given = torch.from_numpy(labels)
    truth = confident_class(beliefs, given, checked=True).numpy()
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


def _against(share: float, beliefs: Tensor, labels: Tensor) -> Iterator[str]:
    """A note where the surest predictions contradict a clearly smaller share of their labels than that.

    Labels that are wrong whatever the sample are contradicted there too. Otherwise people err on hard samples, which
    the surest are not, or the predictions err, and are counted: the share was between the two, or within 15 % of one
    of them, on every set of the study `detection` that was looked at.
    """
    sure, predicted = beliefs.max(1)
    rate, looked = noise_rate(predicted, sure, labels), max(1, round(SUREST * len(labels)))
    if wilson(round(rate * looked), looked)[1] < _NOTED * share:
        yield (
            f"the surest tenth of the predictions contradict {rate:.1%} of their labels, not {share:.1%}: some of "
            "those counted may be the predictions' own mistakes; likely the share of wrong labels is between the two"
        )


def _reasons(
    found: Mapping[str, np.ndarray], between: np.ndarray | None, groups: np.ndarray | None, names: Sequence[str] | None
) -> pa.Array:
    """What to say of each sample beside its scores; empty for most."""
    said: list[Any] = [""] * len(found["mislabelled"])
    sizes = np.bincount(groups[groups >= 0], minlength=1) if groups is not None else np.zeros(0, np.int64)
    texts = {"outlier": "far from every class", "leakage": "in several splits", "conflict": "with different labels"}
    for name in KINDS:
        for at in np.flatnonzero(found.get(name, ())).tolist():
            text = texts.get(name)
            if name == "ambiguous" and between is not None:
                text = " and ".join(str(code) if names is None else names[code] for code in between[at])
                text = f"between {text}"
            elif name == "near_duplicate" and groups is not None:
                text = f"one of {sizes[groups[at]]} near duplicates"
            if text:
                said[at] = f"{said[at]}; {text}" if said[at] else text
    return pa.array(said, pa.string()).dictionary_encode()


def find(
    scored: Samples,
    issues: LabelIssues,
    *,
    beliefs: Tensor | None = None,
    around: Surroundings | None = None,
    notes: tuple[str, ...] = (),
) -> tuple[LabelIssues, Findings]:
    """What there is beside the ranking, and the ranking with kinds and with reasons that name them.

    `beliefs` are the probabilities of the table's samples, where it has none itself; `around` is what their features
    say. Without either, a table of scores has only what its columns allow.
    """
    rows = np.sort(issues.order)
    order = np.searchsorted(rows, issues.order)
    whole = len(rows) == scored.table.num_rows
    table = scored.table if whole else scored.table.take(pa.array(rows))
    if beliefs is None and PROBABILITIES in table.column_names:
        beliefs = beliefs_of(table)
    labels, expected, names = _numbered(issues, order, beliefs, scored.class_names)
    issue = np.zeros(len(labels), bool)
    issue[order[: issues.estimated]] = True
    near = "neighbour_disagreement"
    groups = around.groups if around is not None else _codes(table, "duplicate_group")
    kinds, reasons, counts = kinds_of(
        labels,
        expected,
        issue,
        beliefs=beliefs,
        disagreement=table.column(near).to_numpy() if near in table.column_names else None,
        outlier=None if around is None else around.outlier,
        groups=groups,
        splits=_codes(table, "split"),
        class_names=[str(one) for one in names],
        estimate=issues.estimate,
    )
    classes: dict[str, Any] = {"imbalance": imbalance(labels, names)}
    if expected is not None:
        classes["confused"] = confused_pairs(labels, expected, issue, names)
    if beliefs is not None:
        classes["alike"] = alike(beliefs, torch.from_numpy(labels), names)
    columns = {"kinds": kinds.take(pa.array(order))}
    if around is not None:
        columns |= _placed(around, order)
        copies = around.groups >= 0
        copies[np.unique(around.groups, return_index=True)[1]] = False
        classes["several"] = several_in_one(around.features, torch.from_numpy(labels), issue | copies, names)
    if issues.estimate == "confident_joint" and beliefs is not None:
        notes = (*notes, *_against(issues.estimated / len(labels), beliefs, torch.from_numpy(labels)))
    found = issues.table.append_column("kinds", columns["kinds"])
    first, more = found.column("reasons").cast(pa.string()), reasons.take(pa.array(order)).cast(pa.string())
    both = pc.binary_join_element_wise(first, more, "; ")
    said = pc.if_else(pc.equal(more, ""), first, pc.if_else(pc.equal(first, ""), more, both)).dictionary_encode()
    found = found.set_column(found.column_names.index("reasons"), "reasons", said)
    return replace(issues, table=found), Findings(columns, counts, classes, notes)


def _numbered(
    issues: LabelIssues, order: np.ndarray, beliefs: Tensor | None, class_names: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray | None, list[Any]]:
    """Labels and expected classes as numbers in the order of the rows, and what the numbers stand for."""
    known = not issues.table.column("expected").null_count
    found = [issues.table.column(name).to_numpy() for name in ("label", *(["expected"] if known else []))]
    values = np.unique(np.concatenate(found)) if beliefs is None else np.arange(beliefs.shape[1])
    numbered = []
    for one in found:
        codes = np.empty(len(order), np.int64)
        codes[order] = np.searchsorted(values, one)
        numbered.append(codes)
    named = class_names is not None and values.dtype.kind in "iu" and int(values.max()) < len(class_names)
    names = [class_names[int(one)] for one in values] if class_names is not None and named else values.tolist()
    return numbered[0], numbered[1] if known else None, names


def _placed(around: Surroundings, order: np.ndarray) -> Mapping[str, pa.Array]:
    """Where each sample is, and its neighbours as places in the order of the ranking."""
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    near = places[around.neighbours.cpu().numpy()[order]]
    offsets = np.arange(0, near.size + 1, near.shape[1], dtype=np.int32)
    return {
        "x": pa.array(around.plane[order, 0].astype(np.float32)),
        "y": pa.array(around.plane[order, 1].astype(np.float32)),
        "neighbours": pa.ListArray.from_arrays(pa.array(offsets), pa.array(near.reshape(-1))),
        "duplicate_group": pa.array(around.groups[order], pa.int32(), mask=around.groups[order] < 0),
    }


def _codes(table: pa.Table, name: str) -> np.ndarray | None:
    """The different values of a column as numbers, -1 for null; None without the column."""
    if name not in table.column_names:
        return None
    column = table.column(name).combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    indices = column.dictionary_encode().indices
    codes: np.ndarray = indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
