"""Everything an audit finds beside the ranking: kinds of samples, near duplicates, outliers, and what is of classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from hardsight.cleaning.classes import alike, confused_pairs, imbalance, several_in_one
from hardsight.cleaning.duplicates import near_duplicates
from hardsight.cleaning.issues import LabelIssues
from hardsight.cleaning.kinds import Findings, kinds_of
from hardsight.cleaning.neighbours import angles_to, nearest_in_angle, neighbour_disagreement
from hardsight.cleaning.outliers import find_outliers
from hardsight.cleaning.probabilities import COLUMN as PROBABILITIES
from hardsight.cleaning.probabilities import beliefs_of
from hardsight.cleaning.scored import Scored
from hardsight.geometry import directions, widen

# Neighbours that near duplicates, outliers and pages are about, and those whose labels are asked.
NEAREST, _ASKED = 10, 50
# What neighbours weigh beside the heads, and the least probability, chosen on development sets (the study `detection`).
_WEIGHT, _FLOOR = 0.4, 1e-4
# Rows of beliefs that are mixed at one time.
_ROWS = 2**14
_RADIANS = {"kind": "score", "direction": "larger is harder", "range": "[0, pi]"}
_SCORES = {
    "neighbour_disagreement": {
        "kind": "score",
        "title": "Neighbours with other labels",
        "direction": "larger is harder",
        "range": "[0, 1]",
    },
    "margin_with_neighbours": {
        "kind": "score",
        "title": "Margin of head and neighbours",
        "direction": "larger is easier",
        "range": "[-9.22, 9.22]",
    },
    "class_angle": _RADIANS | {"title": "Angle to the nearest class"},
    "neighbour_angle": _RADIANS | {"title": "Angle to the tenth neighbour"},
}


@dataclass(frozen=True)
class Surroundings:
    """What features say of samples by themselves: neighbours, duplicates, outliers and a plane to draw them in.

    All arrays are in the order of the features; `scores` are described columns for the table; `asked` are the
    neighbours whose labels count, of other groups where there are groups.
    """

    features: Tensor
    neighbours: Tensor
    groups: np.ndarray
    outlier: np.ndarray
    plane: np.ndarray
    scores: dict[pa.Field, np.ndarray]
    asked: Tensor


@torch.no_grad()
def surroundings(features: Any, labels: Tensor, groups: Any = None) -> Surroundings:
    """Neighbours by angle around the mean of the features, what follows from them, and two principal components.

    With `groups` the labels are compared with those of neighbours of other groups; near duplicates may be of the same.
    """
    wide = features if isinstance(features, Tensor) else torch.from_numpy(np.array(features))
    wide = wide if wide.dtype == torch.float64 else wide.float()
    wide = wide - wide.mean(0)
    # Of few samples fewer, or most of those asked would be of other classes.
    asked = nearest_in_angle(wide, min(max(NEAREST, min(_ASKED, len(labels) // 20)), len(labels) - 1))
    near = asked[:, :NEAREST]
    angles = angles_to(wide, near)
    if groups is not None:
        codes = torch.from_numpy(np.unique(groups, return_inverse=True)[1].reshape(-1)).to(wide.device)
        asked = nearest_in_angle(wide, asked.shape[1], codes)
    labels = labels.to(wide.device)
    outliers = find_outliers(wide, labels, angles)
    scores = {
        "neighbour_disagreement": neighbour_disagreement(labels, asked[:, :NEAREST]).cpu().double().numpy(),
        "class_angle": outliers.class_angle,
        "neighbour_angle": outliers.neighbour_angle,
    }
    described = {pa.field(name, pa.float64(), metadata=_SCORES[name]): values for name, values in scores.items()}
    return Surroundings(wide, near, near_duplicates(wide, near, angles), outliers.found, plane_of(wide), described,
                         asked)  # fmt: skip


@torch.no_grad()
def margin_with_neighbours(around: Surroundings, beliefs: Tensor, labels: Tensor) -> tuple[pa.Field, np.ndarray]:
    """How much likelier the label is than any other class: the difference of the logarithms, as a column.

    Likely by what a model believes of the sample, 0.6, and by the labels of its neighbours, 0.4, each of which counts
    by the square of its cosine.
    """
    classes, found = beliefs.shape[1], []
    for rows in torch.arange(len(labels)).split(_ROWS):
        near = around.asked[rows.to(around.asked.device)]
        own = directions(widen(around.features[rows.to(around.features.device)])).unsqueeze(1)
        cosines = (own * directions(widen(around.features[near]))).sum(2).clamp_min(0).cpu()
        weight = cosines.square().double()
        shares = torch.zeros(len(rows), classes, dtype=torch.float64).scatter_add_(1, labels[near.cpu()], weight)
        shares /= weight.sum(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        likely = ((1 - _WEIGHT) * beliefs[rows].double() + _WEIGHT * shares).clamp_min(_FLOOR).log()
        column = labels[rows, None]
        other = likely.scatter(1, column, -torch.inf).amax(1)
        found.append(likely.gather(1, column).squeeze(1) - other)
    name = "margin_with_neighbours"
    return pa.field(name, pa.float64(), metadata=_SCORES[name]), torch.cat(found).numpy()


def surroundings_or_note(
    features: Any, labels: Tensor, groups: Any = None
) -> tuple[Surroundings, None] | tuple[None, str]:
    """`surroundings`, or why there are none: of very many samples they need a library that may be absent."""
    try:
        return surroundings(features, labels, groups), None
    except ImportError as missing:
        return None, f"neighbours, near duplicates and outliers were not looked for: {missing}"


def plane_of(features: Tensor) -> np.ndarray:
    """The first two principal components of the directions, [samples, 2]; the second is 0 where there is none."""
    units = directions(widen(features))
    units = units - units.mean(0)
    products = (units.T @ units).double()
    vectors = torch.linalg.eigh(products).eigenvectors[:, -2:].flip(1)
    # A principal component has no sign of its own: its largest part is positive.
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    found = (units @ (vectors * largest.sign()).to(units.dtype)).cpu().double().numpy()
    return found if found.shape[1] == 2 else np.pad(found, ((0, 0), (0, 1)))


def find(
    scored: Scored,
    issues: LabelIssues,
    *,
    beliefs: Tensor | None = None,
    around: Surroundings | None = None,
    note: str | None = None,
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
    kinds = kinds_of(
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
    columns = {"kinds": kinds.kinds.take(pa.array(order))}
    if around is not None:
        columns |= _placed(around, order)
        copies = around.groups >= 0
        copies[np.unique(around.groups, return_index=True)[1]] = False
        classes["several"] = several_in_one(around.features, torch.from_numpy(labels), issue | copies, names)
    found = issues.table.append_column("kinds", columns["kinds"])
    reasons = _joined(found.column("reasons"), kinds.reasons.take(pa.array(order)))
    found = found.set_column(found.column_names.index("reasons"), "reasons", reasons)
    return replace(issues, table=found), Findings(columns, kinds.counts, classes, () if note is None else (note,))


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


def _joined(reasons: pa.ChunkedArray, more: pa.Array) -> pa.ChunkedArray:
    first, second = reasons.cast(pa.string()), more.cast(pa.string())
    both = pc.binary_join_element_wise(first, second, "; ")
    return pc.if_else(pc.equal(second, ""), first, pc.if_else(pc.equal(first, ""), second, both)).dictionary_encode()


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
