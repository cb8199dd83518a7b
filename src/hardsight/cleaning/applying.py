"""An action list, applied: which labels change, and which samples are dropped."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Int
from torch import Tensor

from hardsight.cleaning.action_list import ACTIONS, Action, read_actions
from hardsight.cleaning.columns import labels_of
from hardsight.cleaning.labelled import Scored
from hardsight.names import unknown_name
from hardsight.records import require_column
from hardsight.validation import check_classes

LABELS_FILE = "labels.parquet"


@dataclass(frozen=True)
class Applied:
    """Labels after the list, and which samples it keeps; `counts` says how many of each action took place."""

    labels: Tensor
    kept: Tensor
    counts: dict[str, int]


def apply_actions(
    actions: Sequence[Action],
    ids: Sequence[Any] | Tensor,
    labels: Int[Tensor, "samples"],
    *,
    class_names: Sequence[str] | None = None,
) -> Applied:
    """Labels and kept samples after the list. All of it is checked first: nothing happens where a line is wrong.

    A line whose label is no longer the sample's was written for other data, and is rejected. With `class_names` the
    list holds names; without, class numbers.
    """
    where = {str(one): at for at, one in enumerate(ids.tolist() if isinstance(ids, Tensor) else ids)}
    if len(where) != len(labels):
        raise ValueError(f"ids must be one for each label and all different; got {len(where)} for {len(labels)} labels")
    classes, most = _Classes(class_names), torch.iinfo(labels.dtype).max
    new, kept = labels.clone(), torch.ones_like(labels, dtype=torch.bool)
    # As numbers once: one by one, a tensor takes longer to look into than a line to read.
    present = labels.tolist()
    for one in actions:
        if one.id not in where:
            raise ValueError(f"line {one.line}: id must be one of the data's; {one.id!r} is not there")
        at = where[one.id]
        if classes.number(one.label, one.line, "label") != present[at]:
            raise ValueError(
                f"line {one.line}: label must be the sample's present one, {classes.name(present[at])!r}; "
                f"got {one.label!r}, so the list was written for other labels"
            )
        if one.action == "relabel":
            number = classes.number(one.new_label, one.line, "new_label")
            check_classes(f"line {one.line}: new_label", np.array([number]), "the action for such a sample is drop")
            if number > most:
                raise ValueError(
                    f"line {one.line}: new_label must be a class number of at most {most}; got {one.new_label!r}"
                )
            new[at] = number
        elif one.action == "drop":
            kept[at] = False
    counts = Counter(one.action for one in actions)
    return Applied(new, kept, {action: counts[action] for action in ACTIONS})


class _Classes:
    """Class names or numbers, as the list spells them."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self.names = None if names is None else [str(name) for name in names]
        self._numbers = {name: at for at, name in enumerate(self.names or ())}
        if self.names is not None and len(self._numbers) != len(self.names):
            raise ValueError("class_names must all be different, or a name in the list could mean two classes")

    def name(self, number: int) -> str:
        return self.names[number] if self.names is not None and 0 <= number < len(self.names) else str(number)

    def number(self, text: str, line: int, column: str) -> int:
        if text in self._numbers:
            return self._numbers[text]
        if self.names is not None:
            raise unknown_name(f"line {line}: {column}", text, self.names, "class names")
        if re.fullmatch(r"-?\d+", text):
            return int(text)
        raise ValueError(f"line {line}: {column} must be a class number; got {text!r}")


def apply_to(scored: Scored, actions: Path | str) -> tuple[pa.Table, Applied]:
    """The data's labels after an edited action list: id, label, new_label and path, without the dropped samples.

    With `new_label_name` where the labels are numbers that have names. A sample without a label is kept without one.
    """
    table, kept, applied = applied_rows(scored, actions)
    return table.filter(pa.array(kept)), applied


def applied_rows(scored: Scored, actions: Path | str) -> tuple[pa.Table, np.ndarray, Applied]:
    """`apply_to` with the dropped samples, and which are kept."""
    for column in ("id", "label"):
        require_column(scored.table, column)
    labelled = scored.table.column("label").is_valid().to_numpy(zero_copy_only=False)
    table = scored.table.filter(pa.array(labelled))
    names, labels = _numbered(scored, table)
    listed = read_actions(actions)
    applied = apply_actions(listed, table.column("id").to_pylist(), torch.from_numpy(labels), class_names=names)
    places, kept = np.full(len(labelled), -1), np.ones(len(labelled), bool)
    places[labelled], kept[labelled] = np.arange(len(labels)), applied.kept.numpy()
    new = pa.array(applied.labels.numpy()).take(pa.array(places, mask=~labelled))
    columns = {name: scored.table.column(name) for name in ("id", "label", "path") if name in scored.table.column_names}
    if pa.types.is_integer(table.column("label").type):
        columns |= {"new_label": new} | ({"new_label_name": pa.array(names).take(new)} if names else {})
    else:
        columns["new_label"] = pa.array(names).take(new)
    order = [name for name in ("id", "label", "new_label", "new_label_name", "path") if name in columns]
    return pa.table({name: columns[name] for name in order}), kept, applied


def _numbered(scored: Scored, table: pa.Table) -> tuple[list[str] | None, np.ndarray]:
    """Class names and each label as a number; classes that are text are their own names, predicted ones among them."""
    labels = labels_of(table)
    if labels.dtype.kind in "iu":
        return scored.class_names, labels.astype(np.int64)
    columns = [table.column(name) for name in ("label", "expected", "predicted") if name in table.column_names]
    names = sorted({str(one) for column in columns for one in column.unique().to_pylist() if one is not None})
    return names, np.searchsorted(names, labels.astype(str))
