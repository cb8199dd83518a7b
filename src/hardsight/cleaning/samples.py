"""Samples to be audited, as one table: with scores, or with labels beside features or probabilities."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from hardsight.cleaning.columns import FACTS
from hardsight.engines.images import Images, with_paths
from hardsight.files.inside import is_text
from hardsight.names import unknown_name
from hardsight.records import check_ids, require_column

# A field of a table that holds what people are to see of a sample, and no score of it.
SHOWN = {"kind": "shown"}
_TAKEN = FACTS | {"probabilities", "features", "reasons", "issue", "action", "new_label", "label_name", "expected_name"}
# Columns that are taken along without being asked for.
_FACTS_SHOWN = ("path", "split", "domain")
_SEVERAL = "with several labels a sample, audit each of them by itself, as a table with two classes"
# Rows that are looked at for NaN at one time.
_ROWS = 2**14


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Samples to be audited, by scores in their table or, as `Labelled`, by features or probabilities.

    `path` is None where they are in memory alone or are known by name; `images` are those they were made of; `unusable`
    says by id why one has no features or could not be read; `label` is what its file calls the column of labels.
    """

    table: pa.Table
    class_names: list[str] | None = None
    name: str = "labels"
    path: Path | None = None
    label: str = "label"
    images: Images | None = None
    unusable: Mapping[Any, str] = field(default_factory=dict)

    def with_images(self, images: Images) -> "Samples":
        """With these images, and their files and names of classes where it has none of its own."""
        found = replace(self, table=with_paths(self.table, images), images=images)
        columns = [found.table.column(name) for name in ("label", "predicted") if name in found.table.column_names]
        numbered = columns and all(pa.types.is_integer(column.type) for column in columns)
        if found.class_names or isinstance(self, Labelled) or not numbered:
            return found
        # A training keeps numbers of classes: the names are theirs where they are enough.
        largest = max(pc.max(column).as_py() or 0 for column in columns)
        enough = largest < len(images.class_names)
        return replace(found, class_names=distinct(list(images.class_names))) if enough else found


@dataclass(frozen=True, kw_only=True)
class Labelled(Samples):
    """Samples with labels and features or probabilities, or both.

    `table` has id, label as it was given and what is to be shown; `codes` number the classes from 0, -1 where there is
    no label; `classes` are the labels that the codes stand for; `class_names` name them where labels are numbers.
    """

    codes: np.ndarray
    classes: pa.Array
    features: Any
    probabilities: Any
    groups: np.ndarray | None

    def judged(self) -> tuple["Labelled", pa.Table]:
        """The samples that can be judged; and id and reason of the others."""
        arrays = {name: getattr(self, name) for name in ("features", "probabilities", "groups", "codes")}
        reasons = np.full(len(self.codes), "", object)
        for name in ("features", "probabilities"):
            matrix = arrays[name]
            # An array on disk is read some rows after others.
            for start in range(0, 0 if matrix is None else len(matrix), _ROWS):
                part = matrix[start : start + _ROWS]
                finite = part.isfinite().cpu().numpy() if isinstance(part, torch.Tensor) else np.isfinite(part)
                reasons[start : start + _ROWS][~finite.all(1)] = f"{name} hold NaN or infinity"
        reasons[self.codes < 0] = "no label"
        kept = reasons == ""
        listed = pa.array(reasons[~kept].tolist(), pa.string())
        left_out = pa.table({"id": self.table.column("id").filter(pa.array(~kept)), "reason": listed})
        if kept.all():
            return self, left_out
        if not kept.any():
            raise ValueError(
                f"features and probabilities must be finite for at least one labelled sample; all {len(kept)} are left "
                f"out, the first for: {reasons[0]}"
            )
        places = np.flatnonzero(kept)
        taken: dict[str, Any] = {name: None if array is None else array[places] for name, array in arrays.items()}
        return replace(self, table=self.table.take(pa.array(places)), **taken), left_out


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
    values = label_column(labels)
    if features is None and probabilities is None:
        raise ValueError("labels must come with features or probabilities, a row for each; got neither")
    features = None if features is None else _matrix("features", features, len(values))
    probabilities = None if probabilities is None else _matrix("probabilities", probabilities, len(values))
    width = None if probabilities is None else int(probabilities.shape[1])
    if width == 1:
        raise ValueError(
            "probabilities must have a column for each class; got 1: of a model with one logit give both, 1 - p and p"
        )
    names = distinct(None if class_names is None else list(class_names))
    codes, classes = _coded(values, names, width)
    identity = pa.array(range(len(values))) if ids is None else ids
    check_ids(identity)
    groups = None if groups is None else np.asarray(groups)
    if groups is not None and groups.shape != (len(values),):
        raise ValueError(
            f"groups must name one group for each of {len(values)} samples; got shape {list(groups.shape)}"
        )
    table = with_shown(pa.table({"id": identity, "label": values}), shown or {})
    names = names if pa.types.is_integer(values.type) else None
    return Labelled(table=table, class_names=names, codes=codes, classes=classes, features=features,
                    probabilities=probabilities, groups=groups)  # fmt: skip


def _matrix(name: str, value: Any, samples: int) -> Any:
    matrix = value.detach() if isinstance(value, torch.Tensor) else np.asanyarray(value)
    if matrix.ndim != 2 or len(matrix) != samples:
        raise ValueError(
            f"{name} must be a matrix with a row for each of the {samples} labels; got shape {list(matrix.shape)}"
        )
    if not (matrix.is_floating_point() if isinstance(matrix, torch.Tensor) else matrix.dtype.kind == "f"):
        raise TypeError(f"{name} must be floating point numbers; got {matrix.dtype}")
    return matrix


def label_column(labels: Any) -> pa.ChunkedArray:
    """Labels as whole numbers or text; whole numbers that a gap made floats of are whole again."""
    if isinstance(labels, torch.Tensor):
        labels = labels.detach().cpu().numpy()
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise ValueError(f"labels must be one class for each sample; got shape {list(labels.shape)}: {_SEVERAL}")
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
        advice = f": {_SEVERAL}" if pa.types.is_list(column.type) else ""
        raise TypeError(f"labels must be classes as whole numbers or text; got {column.type}{advice}")
    return column


def _coded(values: pa.ChunkedArray, names: list[str] | None, width: int | None) -> tuple[np.ndarray, pa.Array]:
    """Each label's number, -1 for none, and the labels that the numbers stand for."""
    known = pc.unique(values.combine_chunks()).drop_null()
    known = known.take(pc.array_sort_indices(known))
    if pa.types.is_integer(values.type) and (names is not None or width is not None):
        classes = len(names) if names is not None else int(width or 0)
        low, high = known[0].as_py(), known[-1].as_py()
        if low < 0 or high >= classes:
            raise ValueError(f"labels must lie in [0, {classes - 1}], the classes; got {low if low < 0 else high}")
        known = pa.array(range(classes), values.type)
    elif names is not None:
        lost = next((one for one in known.to_pylist() if one not in names), None)
        if lost is not None:
            raise unknown_name("labels", lost, names, "class names")
        known = pa.array(names)
    if width is not None and len(known) != width:
        raise ValueError(
            f"probabilities must have a column for each class; got {width} columns for {len(known)} classes"
            + ("" if names is not None else ": name them in their order with class_names")
        )
    return pc.fill_null(pc.index_in(values, known), -1).to_numpy().astype(np.int64), known


def distinct(names: Any) -> list[str] | None:
    """Class names of which none means two classes: one that occurs again is followed by its number, "" is it."""
    if not isinstance(names, list) or not names:
        return None
    texts = [str(name) or str(at) for at, name in enumerate(names)]
    broken = next((text for text in texts if not is_text(text)), None)
    if broken is not None:
        raise ValueError(f"class names must be Unicode text; got {broken!r}, which holds half a letter")
    # What is made so may be the name of a third.
    while len(often := Counter(texts)) < len(texts):
        texts = [f"{text} ({at})" if often[text] > 1 else text for at, text in enumerate(texts)]
    return texts


def shown_columns(table: pa.Table, text: str | None, show: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """The columns that people are to see: path, split and domain where they are, the text, and those that are named."""
    wanted = {name: name for name in _FACTS_SHOWN if name in table.column_names}
    wanted |= {} if text is None else {"text": text}
    wanted |= {name: name for name in show if name != text}
    found = {}
    for name, column in wanted.items():
        require_column(table, column)
        if name in _TAKEN and name not in _FACTS_SHOWN:
            raise ValueError(f"show must name columns of your own; {name!r} is one that the audit writes: rename it")
        found[name] = table.column(column)
        kind = found[name].type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise TypeError(f"column {column!r} must hold text or numbers to be shown; it holds {kind}")
    return found


def with_shown(table: pa.Table, shown: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    """The table with these columns, in their own place where it has them, as what is to be shown."""
    for name, column in shown.items():
        field = pa.field(name, column.type, metadata=SHOWN)
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), field, column)
        else:
            table = table.append_column(field, column)
    return table
