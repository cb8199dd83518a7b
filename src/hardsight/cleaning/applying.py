"""An action list, applied: which labels change, which samples are dropped, and the data rebuilt so, with a way back."""

import filecmp
import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from jaxtyping import Int
from torch import Tensor

from hardsight.cleaning.columns import labels_of
from hardsight.cleaning.decisions import ACTIONS, Action, read_actions
from hardsight.cleaning.reading import read_rows
from hardsight.cleaning.samples import Samples
from hardsight.datasets.interface import ArrayDataset, FileDataset
from hardsight.files import LARGEST_TEXT, read_bytes
from hardsight.names import check_name, unknown_name
from hardsight.records import atomic_path, require_column, write_table, write_text
from hardsight.validation import check_classes

LABELS_FILE, LOG_FILE = "labels.parquet", "applied.jsonl"
WAYS = ("link", "copy", "move")
# The published form of people's labels beside a data set's own, which its readers take columns from.
_HUMAN = {"cifar10": "CIFAR-10_human.npz", "cifar100": "CIFAR-100_human.npz"}


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
    names = None if class_names is None else [str(name) for name in class_names]
    numbers = {name: at for at, name in enumerate(names or ())}
    if names is not None and len(numbers) != len(names):
        raise ValueError("class_names must all be different, or a name in the list could mean two classes")

    def number(one: Action, column: str) -> int:
        """A class of the list, as a number."""
        text = getattr(one, column)
        if text in numbers:
            return numbers[text]
        if names is not None:
            raise unknown_name(f"line {one.line}: {column}", text, names, "class names")
        if re.fullmatch(r"-?\d+", text):
            return int(text)
        raise ValueError(f"line {one.line}: {column} must be a class number; got {text!r}")

    most = torch.iinfo(labels.dtype).max
    new, kept = labels.clone(), torch.ones_like(labels, dtype=torch.bool)
    # As numbers once: one by one, a tensor takes longer to look into than a line to read.
    present = labels.tolist()
    for one in actions:
        if one.id not in where:
            raise ValueError(f"line {one.line}: id must be one of the data's; {one.id!r} is not there")
        at = where[one.id]
        if number(one, "label") != present[at]:
            named = names is not None and 0 <= present[at] < len(names)
            raise ValueError(
                f"line {one.line}: label must be the sample's present one, "
                f"{names[present[at]] if names and named else str(present[at])!r}; got {one.label!r}, so the list was "
                "written for other labels"
            )
        if one.action == "relabel":
            chosen = number(one, "new_label")
            check_classes(f"line {one.line}: new_label", np.array([chosen]), "the action for such a sample is drop")
            if chosen > most:
                raise ValueError(
                    f"line {one.line}: new_label must be a class number of at most {most}; got {one.new_label!r}"
                )
            new[at] = chosen
        elif one.action == "drop":
            kept[at] = False
    counts = Counter(one.action for one in actions)
    return Applied(new, kept, {action: counts[action] for action in ACTIONS})


def apply_to(samples: Samples, actions: Path | str) -> tuple[pa.Table, Applied]:
    """The data's labels after an edited action list: id, label, new_label and path, without the dropped samples.

    With `new_label_name` where the labels are numbers that have names. A sample without a label is kept without one.
    """
    table, kept, applied = _applied_rows(samples, actions)
    return table.filter(pa.array(kept)), applied


def _applied_rows(samples: Samples, actions: Path | str) -> tuple[pa.Table, np.ndarray, Applied]:
    """`apply_to` with the dropped samples, and which are kept."""
    for column in ("id", "label"):
        require_column(samples.table, column)
    labelled = samples.table.column("label").is_valid().to_numpy(zero_copy_only=False)
    table = samples.table.filter(pa.array(labelled))
    labels, names = labels_of(table), samples.class_names
    if numbered := labels.dtype.kind in "iu":
        codes = labels.astype(np.int64)
    else:
        # Classes that are text are their own names, expected and predicted ones among them.
        columns = [table.column(name) for name in ("label", "expected", "predicted") if name in table.column_names]
        names = sorted({str(one) for column in columns for one in column.unique().to_pylist() if one is not None})
        codes = np.searchsorted(names, labels.astype(str))
    ids = table.column("id").to_pylist()
    applied = apply_actions(read_actions(actions), ids, torch.from_numpy(codes), class_names=names)
    places, kept = np.full(len(labelled), -1), np.ones(len(labelled), bool)
    places[labelled], kept[labelled] = np.arange(len(codes)), applied.kept.numpy()
    new = pa.array(applied.labels.numpy()).take(pa.array(places, mask=~labelled))
    found = {name: samples.table.column(name) for name in ("id", "label")}
    found["new_label"] = new if numbered else pa.array(names).take(new)
    if numbered and names:
        found["new_label_name"] = pa.array(names).take(new)
    if "path" in samples.table.column_names:
        found["path"] = samples.table.column("path")
    return pa.table(found), kept, applied


@dataclass(frozen=True)
class Rebuilt:
    """What was written: `applied` counts the actions, `samples` how many remain, `written` is a folder or a file."""

    applied: Applied
    samples: int
    written: Path


def rebuild(samples: Samples, actions: Path | str, to: Path | str, *, files: str = "link") -> Rebuilt:
    """Apply an edited list, and write the data as it is then into `to`, a folder that is empty or not there.

    Images in class folders: the same folders again, each file by `files` (a symbolic link, a copy, or moved). A table,
    Parquet or CSV: all of its columns, and `corrected_<label>` after the label's. Anything else: `labels.parquet`; of
    CIFAR also its file of people's labels, with the column `corrected_label`, -1 for what is dropped. `applied.jsonl`
    says what changed, and `undo` takes it back. Dropped samples are left where they are.
    """
    check_name("files", files, WAYS)
    to = Path(to)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ValueError(f"to must be an empty folder, or not there; {to} holds something: name another")
    table, kept, applied = _applied_rows(samples, actions)
    images, label = samples.images, samples.label
    root = images.root.resolve() if isinstance(images, FileDataset) else None
    if root is not None and to.resolve().is_relative_to(root):
        raise ValueError(f"to must not lie in the images' own folder, {root}; got {to}")
    changes = list(_changes(table, kept))
    if isinstance(images, FileDataset) and (at := _class_folder(images)) is not None:
        moves = _places(images, table, kept, at)
        _log(to, {"files": files, "root": str(root)}, [*changes, *({"from": old, "to": new} for old, new in moves)])
        for old, new in moves:
            _put(images.root / old, to / new, files)
        return Rebuilt(applied, int(kept.sum()), to)
    path = samples.path
    if path is not None and path.is_file() and path.suffix in (".csv", ".parquet", ".pq"):
        rows = read_rows(path)
        new = table.column("new_label_name" if "new_label_name" in table.column_names else "new_label")
        place = rows.column_names.index(label) + 1 if label in rows.column_names else rows.num_columns
        result = rows.add_column(place, f"corrected_{label}", new).filter(pa.array(kept))
        written = [to / path.name]
    else:
        result, written = table.filter(pa.array(kept)), [to / LABELS_FILE]
    human = _HUMAN.get((images.name if isinstance(images, ArrayDataset) else "").removesuffix("n"))
    written += [to / human] if human else []
    if written[0].suffix == ".csv":
        with atomic_path(written[0]) as draft:
            pyarrow.csv.write_csv(result, draft)
    else:
        write_table(written[0], result)
    if human:
        assert isinstance(images, ArrayDataset)
        with atomic_path(written[1]) as draft, draft.open("wb") as file:
            np.savez(file, **_human_labels(images, table, kept))
    _log(to, {"files": "write"}, [*changes, *({"to": path.name, "sha256": _digest(path)} for path in written)])
    return Rebuilt(applied, int(kept.sum()), written[0])


def undo(folder: Path | str) -> tuple[int, list[str]]:
    """Take back what `rebuild` wrote: moved files return, links and copies go. How many; and what was left alone.

    Left alone is a file that has changed since, or whose place is taken. Only files within the folder are touched, and
    only those that its log names.
    """
    folder = Path(folder)
    if not (folder / LOG_FILE).is_file():
        raise FileNotFoundError(f"{folder} holds no {LOG_FILE}, the log of what was applied: nothing to take back")
    lines = read_bytes(folder / LOG_FILE, LARGEST_TEXT).decode("utf-8").splitlines()
    try:
        header, *rest = [json.loads(line) for line in lines]
        files, root = header["files"], Path(header.get("root", "."))
        listed = [one for one in rest if "to" in one]
        for path in (one[key] for one in listed for key in ("from", "to") if key in one):
            inner = PurePosixPath(path)
            if inner.is_absolute() or ".." in inner.parts:
                raise ValueError(path)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{folder / LOG_FILE} must be a log as it was written; it has been changed") from None
    left, done = [], 0
    for one in listed:
        target = folder / one["to"]
        if not os.path.lexists(target):
            continue
        if _digest(target) == one.get("sha256") if files == "write" else _take_back(root / one["from"], target, files):
            target.unlink(missing_ok=True)
            done += 1
        else:
            left.append(one["to"])
    if not left:
        (folder / LOG_FILE).unlink()
        for place, _, _ in os.walk(folder, topdown=False):
            if not os.listdir(place):
                os.rmdir(place)
    return done, left


def _changes(table: pa.Table, kept: np.ndarray) -> Iterator[dict[str, Any]]:
    """Id, old and new label of every sample that the list changes, its name where the labels are numbers."""
    old, new = table.column("label").to_pylist(), table.column("new_label").to_pylist()
    changed = [at for at, stays in enumerate(kept) if not stays or old[at] != new[at]]
    for row, stays in zip(table.take(pa.array(changed, pa.int64())).to_pylist(), kept[changed], strict=True):
        yield {"action": "relabel", **row} if stays else {"action": "drop", "id": row["id"], "label": row["label"]}


def _class_folder(images: FileDataset) -> int | None:
    """Which part of every labelled image's path is the folder of its class; None where the layout has no such."""
    names = images.class_names
    if not all(PurePosixPath(name).name == name and name not in (".", "..") for name in names):
        return None
    known = [(PurePosixPath(path).parts, names[label])
             for path, label in zip(images.paths, images.labels.tolist(), strict=True) if label >= 0]  # fmt: skip
    depth = min((len(parts) for parts, _ in known), default=1) - 1
    if not all((images.root / path).is_file() for path in images.paths[:1]):
        return None
    return next((at for at in range(depth) if all(parts[at] == name for parts, name in known)), None)


def _places(images: FileDataset, table: pa.Table, kept: np.ndarray, at: int) -> list[tuple[str, str]]:
    """Old and new path of every image that stays: in the folder of its new class, under a name that is free there."""
    new_names = table.column("new_label").to_pylist()
    rows = {one: row for row, one in enumerate(table.column("id").to_pylist())}
    unchanged, moved = [], []
    for path, label, one in zip(images.paths, images.labels.tolist(), images.ids.tolist(), strict=True):
        row = rows.get(one)
        if row is None or not kept[row]:
            continue
        parts = list(PurePosixPath(path).parts)
        if new_names[row] is None or new_names[row] == label:
            unchanged.append((path, path))
            continue
        old, parts[at] = parts[at], images.class_names[new_names[row]]
        moved.append((path, PurePosixPath(*parts), old))
    taken = {path for path, _ in unchanged}
    places = unchanged
    for path, wanted, old in moved:
        free, number = wanted, 1
        while str(free) in taken:
            free = wanted.with_name(f"{wanted.stem}-{old}{'' if number == 1 else number}{wanted.suffix}")
            number += 1
        taken.add(str(free))
        places.append((path, str(free)))
    return places


def _log(to: Path, header: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Written whole before anything is: what is cut off can be taken back."""
    to.mkdir(parents=True, exist_ok=True)
    write_text(to / LOG_FILE, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in (header, *lines)))


def _put(source: Path, target: Path, how: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if how == "link":
        target.symlink_to(source.resolve())
    elif how == "copy":
        with atomic_path(target) as draft:
            shutil.copy2(source, draft)
    else:
        shutil.move(source, target)


def _take_back(source: Path, target: Path, how: str) -> bool:
    """Whether the target may go: it is the link or the copy that was made, or has been moved back."""
    if how == "move":
        if os.path.lexists(source):
            return False
        source.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(target, source)
        return True
    if how == "link":
        return target.is_symlink()
    return source.is_file() and filecmp.cmp(source, target, shallow=False)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _human_labels(images: ArrayDataset, table: pa.Table, kept: np.ndarray) -> dict[str, Any]:
    """Clean and corrected label of every image in the official order, -1 where it is dropped."""
    corrected = np.full(len(images), -1, np.int64)
    corrected[table.column("id").to_numpy()[kept]] = table.column("new_label").to_numpy()[kept]
    given = {name: values.numpy() for name, values in images.columns.items() if values.ndim == 1}
    people = {name: values for name, values in given.items() if name.endswith("label")}
    return people | {"clean_label": given.get("clean_label", images.labels.numpy()), "corrected_label": corrected}
