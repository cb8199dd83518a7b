"""Confident learning: how many labels of each class are really of another, from predicted probabilities.

Northcutt, Jiang & Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", 2021, Sections 3.1 and 3.2.
The probabilities should come from models that did not train on the sample (cross-validation): a network that has
memorised a wrong label is confident in it, and the count comes out too low.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.cleaning.columns import score_names
from hardsight.names import check_name
from hardsight.validation import check_finite, check_labels

# The column of a table that holds probabilities of all classes.
PROBABILITIES = "probabilities"
# How far the label is ahead by probabilities that lie beside a training's record.
MARGIN = pa.field("margin_of_probabilities", pa.float64(), metadata={
    "kind": "score", "title": "Margin of the probabilities", "direction": "larger is easier"})  # fmt: skip

# Probabilities looked at in one go: 2**22 doubles are 32 MiB.
_PIECE = 2**22
# A class whose labels nobody believes has a threshold of about 0, which every sample would reach, also with a
# probability of 0.
_LEAST_THRESHOLD = 1e-6


def class_thresholds(
    probabilities: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"]
) -> Float[Tensor, "classes"]:
    """Mean probability of class j over the samples labelled j; 1 for a class that labels nothing."""
    check_probabilities(probabilities, labels)
    return _thresholds(probabilities, labels)


def confident_class(
    probabilities: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"]
) -> Int[Tensor, "samples"]:
    """The most probable of the classes whose probability reaches their threshold; -1 where none does.

    Of equally probable ones the label itself: a model that tells two classes apart by nothing contradicts no label.
    """
    check_probabilities(probabilities, labels)
    return _confident(probabilities, labels)


def confident_joint(
    probabilities: Float[Tensor, "samples classes"],
    labels: Int[Tensor, "samples"],
    *,
    engine: Literal["hardsight", "cleanlab"] = "hardsight",
) -> Float[Tensor, "classes classes"]:
    """Estimated number of samples labelled i (row) that are truly j (column), calibrated: rows sum to the label counts.

    A label class in which no sample is confident of anything counts as right. `engine="cleanlab"` computes it with
    that library where it is installed; it rounds to whole samples, and where two or more classes are confident but the
    most probable is not, it takes the most probable all the same.
    """
    check_probabilities(probabilities, labels)
    check_name("engine", engine, ("hardsight", "cleanlab"))
    if engine == "hardsight":
        return joint_of_checked(probabilities, labels)
    try:
        from cleanlab.count import compute_confident_joint
    except ImportError:
        raise ImportError('engine="cleanlab" needs cleanlab: pip install cleanlab, or leave engine out') from None
    joint = compute_confident_joint(labels.numpy().astype(np.int64), probabilities.double().numpy())
    return torch.from_numpy(np.asarray(joint, dtype=np.float64))


def joint_of_checked(
    probabilities: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"]
) -> Float[Tensor, "classes classes"]:
    """`confident_joint` of probabilities that were looked at already: of a million samples each look takes seconds."""
    classes = probabilities.shape[1]
    truth = _confident(probabilities, labels)
    counted = truth >= 0
    cells = labels.long()[counted] * classes + truth[counted]
    counts = torch.bincount(cells, minlength=classes * classes).reshape(classes, classes).double()
    unseen = counts.sum(1) == 0
    counts[unseen, unseen] += 1
    label_counts = torch.bincount(labels.long(), minlength=classes).double()
    return counts * (label_counts / counts.sum(1)).unsqueeze(1)


def _thresholds(probabilities: Tensor, labels: Tensor) -> Tensor:
    own = probabilities.gather(1, labels.long().unsqueeze(1)).squeeze(1).double()
    classes = probabilities.shape[1]
    sums = torch.zeros(classes, dtype=torch.float64).index_add_(0, labels.long(), own)
    counts = torch.bincount(labels.long(), minlength=classes)
    return torch.where(counts > 0, sums / counts.clamp(min=1), 1.0)


def _confident(probabilities: Tensor, labels: Tensor) -> Tensor:
    # Means are sums of roundings: a class all of whose members share one probability must reach its own mean. In
    # parts of the threshold, which may be smaller than a rounding of 1; and the mean of halves is no half.
    slack = 1e-9 + min(torch.finfo(dtype).eps for dtype in (probabilities.dtype, torch.float32))
    thresholds = _thresholds(probabilities, labels).clamp(min=_LEAST_THRESHOLD) * (1 - slack)

    def choose(rows: Tensor, own: Tensor) -> tuple[Tensor]:
        confident = torch.where(rows >= thresholds, rows, -1.0)
        highest, best = confident.max(1)
        best = torch.where(confident.gather(1, own).squeeze(1) == highest, own.squeeze(1), best)
        return (torch.where(highest >= 0, best, -1),)

    return in_pieces(choose, probabilities, labels)[0]


def expected_issues(joint: Float[Tensor, "classes classes"]) -> float:
    """What of the joint lies off its diagonal: the estimated number of wrong labels."""
    return float(joint.sum() - joint.diagonal().sum())


def in_pieces(
    look: Callable[[Tensor, Tensor], tuple[Tensor, ...]], probabilities: Tensor, labels: Tensor
) -> list[Tensor]:
    """The columns that `look` makes of probabilities and a column of labels, from some samples after others.

    Each is allocated once: many small pieces would lie between the large ones, whose room could not be used again.
    """
    columns: list[Tensor] = []
    rows = max(1, _PIECE // probabilities.shape[1])
    for start in range(0, len(labels), rows):
        place = slice(start, start + rows)
        made = look(probabilities[place], labels[place].long().unsqueeze(1))
        columns = columns or [one.new_empty(len(labels)) for one in made]
        for column, part in zip(columns, made, strict=True):
            column[place] = part
    return columns


def check_probabilities(probabilities: Tensor, labels: Tensor) -> None:
    """Probabilities are [N, C] floats in [0, 1] that sum to 1, C >= 2; labels are [N] integers in [0, C)."""
    if not probabilities.is_floating_point() or probabilities.ndim != 2 or probabilities.shape[1] < 2:
        raise ValueError(
            "probabilities must be floats [samples, classes] of at least 2 classes; "
            f"got {probabilities.dtype} {list(probabilities.shape)}"
        )
    if len(probabilities) == 0:
        raise ValueError("probabilities must not be empty; got no samples")
    check_labels(labels, len(probabilities), probabilities.shape[1])
    # All while a piece is in the cache; halves are summed in more digits than they have.
    wide = torch.promote_types(probabilities.dtype, torch.float32)
    lowest, highest, sums = in_pieces(
        lambda rows, own: (rows.amin(1), rows.amax(1), rows.sum(1, dtype=wide)), probabilities, labels
    )
    low, high = float(lowest.min()), float(highest.max())
    if not math.isfinite(low) or not math.isfinite(high):
        check_finite("probabilities", probabilities)
    if low < 0 or high > 1 + 1e-3:
        raise ValueError(f"probabilities must lie in [0, 1]; got {low:g} to {high:g} (logits need a softmax first)")
    off = (sums - 1).abs() > 1e-2
    if bool(off.any()):
        first = int(off.nonzero()[0])
        raise ValueError(
            f"probabilities must sum to 1 for each sample; {int(off.sum())} rows do not, first row {first} "
            f"sums to {float(probabilities[first].sum()):g}"
        )


def beliefs_of(table: pa.Table, given: Tensor | np.ndarray | None = None) -> Tensor | None:
    """Probabilities [samples, classes]: those given, else those of the table's list column; None without either."""
    if given is None and PROBABILITIES in table.column_names:
        given = matrix_of(table.column(PROBABILITIES), PROBABILITIES)
    if given is None:
        return None
    beliefs = torch.as_tensor(given).detach().cpu()
    if beliefs.ndim != 2 or len(beliefs) != table.num_rows:
        raise ValueError(
            f"probabilities must be [samples, classes] with a row for each of the {table.num_rows} rows of the table; "
            f"got {list(beliefs.shape)}"
        )
    kind = table.schema.field("label").type
    if not pa.types.is_integer(kind):
        raise TypeError(f"label must be integers, the columns of probabilities; the table holds {kind}")
    return beliefs


def with_scores(table: pa.Table, beliefs: Tensor | None) -> pa.Table:
    """The table with `confidence`, `margin`, `el2n` and `predicted` of the probabilities, where it has no score.

    None needs logits: the margin is the logarithm of the label's probability over the largest other. A sample without a
    label has none. A training's record has margins of its own: beside it there is `margin_of_probabilities` alone.
    """
    recorded = "el2n_mean" in table.column_names and MARGIN.name not in table.column_names
    if beliefs is None or (score_names(table) and not recorded):
        return table
    known = table.column("label").is_valid().to_numpy(zero_copy_only=False)
    labels = torch.from_numpy(np.array(pc.fill_null(table.column("label"), 0).to_numpy(), np.int64))
    check_probabilities(beliefs, labels)
    confidence, margin, error = (
        pa.array(values.numpy(), mask=~known) for values in in_pieces(_scores, beliefs, labels)
    )
    added = {MARGIN: margin} if recorded else {"confidence": confidence, "margin": margin, "el2n": error}
    for name, values in added.items():
        table = table.append_column(name, values)
    if "predicted" not in table.column_names:
        table = table.append_column("predicted", pa.array(beliefs.argmax(1).numpy()))
    return table


def _scores(beliefs: Tensor, column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    beliefs = beliefs.double()
    logarithms = beliefs.clamp_min(torch.finfo(torch.float64).tiny).log()
    other = logarithms.scatter(1, column, -torch.inf).amax(1)
    error = beliefs.scatter_add(1, column, torch.full(column.shape, -1.0, dtype=beliefs.dtype))
    margin = logarithms.gather(1, column).squeeze(1) - other
    return beliefs.gather(1, column).squeeze(1), margin, torch.linalg.vector_norm(error, dim=1)


def matrix_of(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """The lists as rows, copied once and in the precision they have; a missing list, or number, becomes NaN."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise TypeError(f"column {name!r} must hold a list of numbers for each sample; it holds {kind}")
    if not len(column):
        raise ValueError("table must have at least one row; it has none")
    if not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise TypeError(f"column {name!r} must hold lists of numbers; it holds {kind}")
    lengths = pc.unique(pc.list_value_length(column)).drop_null().to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        raise ValueError(f"column {name!r} must hold one list for each sample, all of one length")
    narrow = kind.value_type in (pa.float16(), pa.float32())
    matrix = np.full((len(column), lengths[0]), np.nan, np.float32 if narrow else np.float64)
    start = 0
    for chunk in column.chunks:
        filled = start + np.flatnonzero(chunk.is_valid().to_numpy(zero_copy_only=False))
        rows = chunk.drop_null().flatten().to_numpy(zero_copy_only=False).reshape(len(filled), lengths[0])
        matrix[slice(start, start + len(chunk)) if len(filled) == len(chunk) else filled] = rows
        start += len(chunk)
    return matrix
