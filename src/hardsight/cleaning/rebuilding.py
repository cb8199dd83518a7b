"""Decisions applied to the data: class folders rebuilt, a table with a corrected column, a log, and the way back."""

import filecmp
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from hardsight.cleaning.applying import LABELS_FILE, Applied, applied_rows
from hardsight.cleaning.labelled import Scored
from hardsight.cleaning.reading import read_rows
from hardsight.datasets.interface import ArrayDataset, FileDataset
from hardsight.files import LARGEST_TEXT, read_bytes
from hardsight.names import check_name
from hardsight.records import atomic_path, write_table, write_text

LOG_FILE = "applied.jsonl"
WAYS = ("link", "copy", "move")
# The published form of people's labels beside a data set's own, which its readers take columns from.
_HUMAN = {"cifar10": "CIFAR-10_human.npz", "cifar100": "CIFAR-100_human.npz"}


@dataclass(frozen=True)
class Rebuilt:
    """What was written: `applied` counts the actions, `samples` how many remain, `written` is a folder or a file."""

    applied: Applied
    samples: int
    written: Path


def rebuild(
    scored: Scored,
    actions: Path | str,
    to: Path | str,
    *,
    images: FileDataset | ArrayDataset | None = None,
    label: str = "label",
    files: str = "link",
) -> Rebuilt:
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
    table, kept, applied = applied_rows(scored, actions)
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
    if scored.path is not None and scored.path.is_file() and scored.path.suffix in (".csv", ".parquet", ".pq"):
        rows = read_rows(scored.path)
        new = table.column("new_label_name" if "new_label_name" in table.column_names else "new_label")
        place = rows.column_names.index(label) + 1 if label in rows.column_names else rows.num_columns
        result = rows.add_column(place, f"corrected_{label}", new).filter(pa.array(kept))
        written = [to / scored.path.name]
    else:
        result, written = table.filter(pa.array(kept)), [to / LABELS_FILE]
    human = _HUMAN.get((images.name if isinstance(images, ArrayDataset) else "").removesuffix("n"))
    written += [to / human] if human else []
    _write(written[0], result)
    if human:
        assert isinstance(images, ArrayDataset)
        with atomic_path(written[1]) as draft, draft.open("wb") as file:
            labels: dict[str, Any] = _human_labels(images, table, kept)
            np.savez(file, **labels)
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
        _remove_empty(folder)
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
    found = (at for at in range(depth) if all(parts[at] == name for parts, name in known))
    place = next(found, None)
    return place if place is None or all((images.root / path).is_file() for path in images.paths[:1]) else None


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


def _remove_empty(folder: Path) -> None:
    for inner, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(inner):
            os.rmdir(inner)


def _write(path: Path, table: pa.Table) -> None:
    if path.suffix != ".csv":
        write_table(path, table)
        return
    with atomic_path(path) as draft:
        pyarrow.csv.write_csv(table, draft)


def _human_labels(images: ArrayDataset, table: pa.Table, kept: np.ndarray) -> dict[str, np.ndarray]:
    """Clean and corrected label of every image in the official order, -1 where it is dropped."""
    corrected = np.full(len(images), -1, np.int64)
    corrected[table.column("id").to_numpy()[kept]] = table.column("new_label").to_numpy()[kept]
    given = images.columns.get("clean_label", images.labels).numpy()
    return {"clean_label": given, "corrected_label": corrected, **{
        name: values.numpy() for name, values in images.columns.items() if name.endswith("label") and values.ndim == 1
        and name not in ("clean_label", "corrected_label")}}  # fmt: skip
