"""Labelled data of any kind as one table: ids, classes as numbers, what to show of a sample, and which are left out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from hardsight.cleaning.columns import FACTS, require_column
from hardsight.cleaning.probabilities import matrix_of
from hardsight.cleaning.scored import Scored, distinct
from hardsight.names import unknown_name
from hardsight.records import check_ids

# A field of a table that holds what people are to see of a sample, and no score of it.
SHOWN = {"kind": "shown"}
_TAKEN = FACTS | {"probabilities", "features", "reasons", "issue", "action", "new_label", "label_name", "expected_name"}
# Columns that are taken along without being asked for.
_FACTS_SHOWN = ("path", "split", "domain")
# Rows that are looked at for NaN at one time.
_ROWS = 2**14


@dataclass(frozen=True)
class Labelled:
    """Samples with labels and features or probabilities, or both.

    `table` has id, label as it was given and what is to be shown; `codes` number the classes from 0, -1 where there is
    no label; `classes` are the labels that the codes stand for; `class_names` name them where labels are numbers.
    """

    table: pa.Table
    codes: np.ndarray
    classes: pa.Array
    class_names: list[str] | None
    features: Any
    probabilities: Any
    groups: np.ndarray | None

    def scored(self, name: str, path: Path | None) -> Scored:
        """All samples, as `apply_to` takes them."""
        return Scored(self.table, self.class_names, name, path)

    def judged(self) -> tuple["Labelled", pa.Table]:
        """The samples that can be judged; and id and reason of the others."""
        reasons = np.full(len(self.codes), "", object)
        for name in ("features", "probabilities"):
            if getattr(self, name) is not None:
                reasons[~finite_rows(getattr(self, name))] = f"{name} hold NaN or infinity"
        reasons[self.codes < 0] = "no label"
        out = np.flatnonzero(reasons != "")
        listed = pa.array(reasons[out].tolist(), pa.string())
        left_out = pa.table({"id": self.table.column("id").take(pa.array(out)), "reason": listed})
        if not len(out):
            return self, left_out
        places = np.flatnonzero(reasons == "")
        if not len(places):
            raise ValueError(
                f"features and probabilities must be finite for at least one labelled sample; all {len(out)} are left "
                f"out, the first for: {listed[0].as_py()}"
            )
        kept = replace(
            self,
            table=self.table.take(pa.array(places)),
            codes=self.codes[places],
            features=None if self.features is None else self.features[places],
            probabilities=None if self.probabilities is None else self.probabilities[places],
            groups=None if self.groups is None else self.groups[places],
        )
        return kept, left_out


def finite_rows(matrix: Any) -> np.ndarray:
    """Which rows hold finite numbers alone; an array on disk is read some rows after others."""
    parts = [matrix[start : start + _ROWS] for start in range(0, len(matrix), _ROWS)]
    return np.concatenate([_finite(part) for part in parts])


def labelled_table(
    source: Any,
    *,
    label: str = "label",
    features: Any = None,
    probabilities: Any = None,
    text: str | None = None,
    show: Sequence[str] = (),
    groups: Any = None,
    class_names: Sequence[str] | None = None,
) -> Labelled:
    """A table of anything that speaks Arrow; features, probabilities and groups name a column or are an array."""
    table = arrow_table(source)
    if not table.num_rows:
        raise ValueError("table must have at least one row; it has none")
    require_column(table, label)
    given = {}
    for name, value in (("features", features), ("probabilities", probabilities)):
        column = name if value is None and name in table.column_names else value
        if isinstance(column, str):
            require_column(table, column)
            value = matrix_of(table.column(column), column)
        given[name] = value
    if all(value is None for value in given.values()):
        about = (
            f"; the text column {text!r} says nothing by itself: give a backbone, or an encoder's features of it"
            if text
            else ""
        )
        raise ValueError(
            f"features or probabilities must be a column or an array; got neither, and the table has "
            f"{', '.join(table.column_names)}{about}"
        )
    if isinstance(groups, str):
        require_column(table, groups)
        groups = table.column(groups).to_numpy()
    ids = table.column("id") if "id" in table.column_names else None
    return labelled_arrays(
        table.column(label),
        ids=ids,
        shown=shown_columns(table, text, show),
        groups=groups,
        class_names=class_names,
        **given,
    )


def labelled_arrays(
    labels: Any,
    *,
    features: Any = None,
    probabilities: Any = None,
    ids: Any = None,
    shown: Mapping[str, Any] | None = None,
    groups: Any = None,
    class_names: Sequence[str] | None = None,
) -> Labelled:
    """Labels, as numbers or text, beside features or probabilities; an id is the place, from 0, unless `ids` say it."""
    values = _label_column(labels)
    matrices = {"features": features, "probabilities": probabilities}
    if features is None and probabilities is None:
        raise ValueError("labels must come with features or probabilities, a row for each; got neither")
    for name, matrix in matrices.items():
        if matrix is not None:
            matrices[name] = _matrix(name, matrix, len(values))
    width = None if probabilities is None else int(matrices["probabilities"].shape[1])
    if width == 1:
        raise ValueError(
            "probabilities must have a column for each class; got 1: of a model with one logit give both, 1 - p and p"
        )
    names = distinct(None if class_names is None else [str(one) for one in class_names])
    codes, classes = _coded(values, names, width)
    identity = pa.array(range(len(values))) if ids is None else ids
    check_ids(identity)
    if groups is not None:
        groups = np.asarray(groups)
        if groups.shape != (len(values),):
            raise ValueError(
                f"groups must name one group for each of {len(values)} samples; got shape {list(groups.shape)}"
            )
    table = with_shown(pa.table({"id": identity, "label": values}), shown or {})
    return Labelled(
        table, codes, classes, names if pa.types.is_integer(values.type) else None, **matrices, groups=groups
    )


def arrow_table(source: Any) -> pa.Table:
    """A table of pandas, polars, pyarrow or anything else with the Arrow protocol."""
    if isinstance(source, pa.Table):
        return source
    if any(hasattr(source, f"__arrow_c_{kind}__") for kind in ("stream", "array")) or hasattr(source, "iterrows"):
        return pa.table(source)
    raise TypeError(
        f"source must be a table that speaks Arrow (pandas, polars, pyarrow), a path, or left out beside labels; got "
        f"{type(source).__name__}"
    )


def _matrix(name: str, value: Any, samples: int) -> Any:
    matrix = value.detach() if isinstance(value, torch.Tensor) else np.asanyarray(value)
    if matrix.ndim != 2:
        raise ValueError(f"{name} must be a matrix with a row for each sample; got shape {list(matrix.shape)}")
    if len(matrix) != samples:
        raise ValueError(f"{name} must have a row for each of the {samples} labels; got {len(matrix)} rows")
    if not (matrix.is_floating_point() if isinstance(matrix, torch.Tensor) else matrix.dtype.kind == "f"):
        raise TypeError(f"{name} must be floating point numbers; got {matrix.dtype}")
    return matrix


def _finite(part: Any) -> np.ndarray:
    if isinstance(part, torch.Tensor):
        return part.isfinite().all(1).cpu().numpy()
    finite: np.ndarray = np.isfinite(part).all(1)
    return finite


def _label_column(labels: Any) -> pa.ChunkedArray:
    """Labels as whole numbers or text; whole numbers that a gap made floats of are whole again."""
    if isinstance(labels, torch.Tensor):
        labels = labels.detach().cpu().numpy()
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise ValueError(
            f"labels must be one class for each sample; got shape {list(labels.shape)}: with several labels a sample, "
            "audit each of them by itself, as a table with two classes"
        )
    if not isinstance(labels, pa.Array | pa.ChunkedArray):
        try:
            labels = pa.array(labels, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
            raise TypeError("labels must be whole numbers or text, all of one kind; got several") from None
    column = labels if isinstance(labels, pa.ChunkedArray) else pa.chunked_array([labels])
    if column.null_count == len(column):
        raise ValueError(f"labels must be filled for at least one sample; got {len(column)}, none of them filled")
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
        if not pc.all(pc.equal(column, pc.floor(column))).as_py():
            raise TypeError(
                "labels must be classes, whole numbers or text; got fractions: a quantity has no wrong class, "
                "divide it into ranges"
            )
        column = column.cast(pa.int64())
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_string_view(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
    if not (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
        raise TypeError(f"labels must be classes as whole numbers or text; got {column.type}")
    return column


def _coded(values: pa.ChunkedArray, names: list[str] | None, width: int | None) -> tuple[np.ndarray, pa.Array]:
    """Each label's number, -1 for none, and the labels that the numbers stand for."""
    found = pc.unique(values.combine_chunks()).drop_null()
    found = found.take(pc.array_sort_indices(found))
    if pa.types.is_integer(values.type) and (names is not None or width is not None):
        classes = len(names) if names is not None else int(width or 0)
        low, high = found[0].as_py(), found[-1].as_py()
        if low < 0 or high >= classes:
            raise ValueError(f"labels must lie in [0, {classes - 1}], the classes; got {low if low < 0 else high}")
        known = pa.array(range(classes), values.type)
    elif names is not None:
        lost = next((one for one in found.to_pylist() if one not in names), None)
        if lost is not None:
            raise unknown_name("labels", lost, names, "class names")
        known = pa.array(names)
    else:
        known = found
    if width is not None and len(known) != width:
        raise ValueError(
            f"probabilities must have a column for each class; got {width} columns for {len(known)} classes"
            + ("" if names is not None else ": name them in their order with class_names")
        )
    return pc.fill_null(pc.index_in(values, known), -1).to_numpy().astype(np.int64), known


def shown_columns(table: pa.Table, text: str | None, show: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """The columns that people are to see: path, split and domain where they are, the text, and those that are named."""
    wanted = {name: name for name in _FACTS_SHOWN if name in table.column_names}
    wanted |= {} if text is None else {"text": text}
    wanted |= {name: name for name in ([show] if isinstance(show, str) else show) if name != text}
    found = {}
    for name, column in wanted.items():
        require_column(table, column)
        if name in _TAKEN and name not in _FACTS_SHOWN:
            raise ValueError(f"show must name columns of your own; {name!r} is one that the audit writes: rename it")
        values = table.column(column)
        nested = pa.types.is_nested(values.type) or pa.types.is_binary(values.type)
        if nested or pa.types.is_large_binary(values.type):
            raise TypeError(f"column {column!r} must hold text or numbers to be shown; it holds {values.type}")
        found[name] = values
    return found


def with_label(table: pa.Table, label: str) -> pa.Table:
    """A table of scores whose column of this name is called label."""
    if label == "label":
        return table
    require_column(table, label)
    if "label" in table.column_names:
        raise ValueError(
            f"label must be left out where a table of scores has a column 'label' that they were made by; got {label!r}"
        )
    return table.rename_columns(["label" if name == label else name for name in table.column_names])


def with_shown(table: pa.Table, shown: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    """The table with these columns, in their own place where it has them, as what is to be shown."""
    for name, column in shown.items():
        field = pa.field(name, column.type, metadata=SHOWN)
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), field, column)
        else:
            table = table.append_column(field, column)
    return table


def few_of_a_class(codes: np.ndarray, classes: pa.Array) -> None:
    """One sentence where a class has a single sample, which no head could be judged by."""
    alone = [code for code, count in Counter(codes.tolist()).items() if count == 1]
    if alone:
        named = classes[min(alone)].as_py()
        raise ValueError(
            f"every class must have at least 2 samples, one to learn from when the other is judged; {named!r} has 1 "
            f"({len(alone)} such {'class' if len(alone) == 1 else 'classes'}): leave it out or join it to another"
        )
