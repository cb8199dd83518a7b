"""The record of a training on disk, complete without the code: `run.json`, `epochs.parquet`, `samples.parquet`.

One process writes; what is written follows the checkpoint, so a resumed run never holds an epoch twice.
"""

import datetime
import importlib.metadata
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from hardsight import records
from hardsight.claims import CLAIM, is_abandoned
from hardsight.files import read_text
from hardsight.owners import lives, this_process
from hardsight.records import read_run

# What a column of `epochs.parquet` means; the columns of subsets and rates appear where they were measured.
EPOCH_COLUMNS = {
    "epoch": "counted from 1",
    "train_loss": "mean over the epoch's batches, weights moving, augmented",
    "train_accuracy": "share in [0, 1], weights moving, augmented",
    "test_loss": "mean cross-entropy after the epoch (nats)",
    "test_accuracy": "share in [0, 1] after the epoch",
    "corrupted_accuracy": "predictions against the given labels, whole training set",
    "intact_accuracy": "predictions against the true labels, whole training set",
    "clean_accuracy": "against the given labels, on the samples whose label is right",
    "noisy_accuracy": "against the given labels, on the samples whose label is wrong",
    "estimated_noise_rate": "share of wrong labels that automatic gradient rescaling estimated",
    "beta": "of automatic gradient rescaling from the next epoch on; null: cross-entropy",
    "lam": "of automatic gradient rescaling from the next epoch on; null: cross-entropy",
    "learning_rate": "of the epoch's last step",
    "seconds": "of training, without evaluation",
}
# What may change between a run and its continuation without changing a number.
_MAY_DIFFER = ("folder", "name", "data.root", "record.checkpoint_every", "record.tracker", "device")
Row = dict[str, float | int]
_PACKAGES = ("torch", "numpy", "safetensors", "pyarrow", "hardsight")


class RunRecord:
    """The folder of one run; without a folder nothing is written."""

    def __init__(self, folder: Path | str | None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.details: dict[str, Any] = {}

    def begin(self, **details: Any) -> None:
        """Write `run.json` with what is known beforehand; the status is `running`."""
        self.details = {
            "kind": "training",
            **_with_settings(details),
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "status": "running",
            "process": this_process(),
            "versions": versions(),
            "commit": commit(),
            "results": {},
        }
        self._write()

    def check_same_run(self, config: Mapping[str, Any]) -> None:
        """Refuse to go on with another configuration than the record's, naming the first key that differs."""
        earlier = (self._read() or {}).get("config")
        if not earlier or not config:
            return
        ours, theirs = flat(_settings(config)), flat(earlier)
        for key in [*theirs, *ours]:
            if key not in _MAY_DIFFER and ours.get(key) != theirs.get(key):
                raise ValueError(
                    f"{self.folder} holds a run with {key} = {theirs.get(key)!r}; got {ours.get(key)!r}: "
                    "choose another folder, or begin anew (--restart, or resume=False)"
                )

    def go_on(self, **details: Any) -> None:
        """Take up a record that was begun earlier: when it began, and on which commit, stays."""
        earlier = self._read()
        if earlier is None:
            self.begin(**details)
            return
        now = {"status": "running", "process": this_process(), "versions": versions()}
        self.details = {**earlier, **_with_settings(details), **now}
        for gone in ("error", "retry"):
            self.details.pop(gone, None)
        self._write()

    def _read(self) -> dict[str, Any] | None:
        return None if self.folder is None else records.read_run(self.folder)

    def write_epochs(self, rows: Sequence[Mapping[str, float | int]]) -> None:
        """One row an epoch; a number that was not measured in an epoch is null there."""
        if self.folder is None or not rows:
            return
        names = list(dict.fromkeys(name for row in rows for name in row))
        arrays = [pa.array([row.get(name) for row in rows]) for name in names]
        described = [{"meaning": EPOCH_COLUMNS[name]} if name in EPOCH_COLUMNS else None for name in names]
        fields = [
            pa.field(name, array.type, metadata=meaning)
            for name, array, meaning in zip(names, arrays, described, strict=True)
        ]
        records.write_table(self.folder / "epochs.parquet", pa.table(arrays, schema=pa.schema(fields)))

    def clear_tables(self) -> None:
        """Remove the tables of an earlier run in this folder."""
        if self.folder is not None:
            for name in ("epochs.parquet", "samples.parquet"):
                (self.folder / name).unlink(missing_ok=True)

    def write_samples(self, table: pa.Table) -> None:
        """One row a sample."""
        if self.folder is not None:
            records.write_table(self.folder / "samples.parquet", table)

    def note(self, sentence: str) -> None:
        """Keep what a person should know of the run; what was said before an interruption is not said twice."""
        notes = self.details.setdefault("notes", [])
        if sentence not in notes:
            notes.append(sentence)
            self._write()

    def finish(self, results: Mapping[str, Any]) -> None:
        """The run is complete: `finished`, with its results."""
        self._end(status="finished", results=dict(results))

    def fail(self, reason: str, *, retry: bool = False) -> None:
        """The run stopped: `failed`, why, and whether trying again may help, as after a full disk."""
        self._end(status="failed", error=reason, retry=retry)

    def interrupt(self) -> None:
        """The run was stopped from outside: `interrupted`."""
        self._end(status="interrupted")

    def _end(self, **details: Any) -> None:
        self.details.pop("process", None)
        self.details |= details
        self._write()

    def _write(self) -> None:
        if self.folder is not None:
            records.write_json(self.folder / "run.json", self.details)


def _with_settings(details: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _settings(value) if name == "config" else value for name, value in details.items()}


def _settings(value: Any) -> Any:
    """A configuration as JSON gives it back; infinity and NaN, for which it has no number, as text."""
    if isinstance(value, Mapping):
        return {str(key): _settings(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_settings(item) for item in value]
    said = records.plain(value)
    return str(value) if said is None and value is not None else said


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that numbers depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """Commit of the checkout that this library lies in; None where it was installed.

    Read from git's own files: git itself would run what the configuration of a folder names.
    """
    source = Path(__file__).resolve().parents[2]
    try:
        git = source.parent / ".git"
        if source.name != "src" or not git.exists():
            return None
        if git.is_file():
            git = source.parent / read_text(git).removeprefix("gitdir:").strip()
        shared = git / read_text(git / "commondir").strip() if (git / "commondir").exists() else git
        head = read_text(git / "HEAD").strip()
        return _resolved(head.removeprefix("ref:").strip(), shared) if head.startswith("ref:") else _hash(head)
    except (OSError, ValueError):
        return None


def _resolved(reference: str, git: Path) -> str | None:
    """The commit of a branch; one that has not moved for long is in a list with others."""
    if not reference.startswith("refs/") or ".." in reference:
        return None
    if (git / reference).is_file():
        return _hash(read_text(git / reference).strip())
    packed = (line.split() for line in read_text(git / "packed-refs").splitlines())
    return next((_hash(line[0]) for line in packed if line[1:] == [reference]), None)


def _hash(text: str) -> str | None:
    return text if re.fullmatch(r"[0-9a-f]{40,64}", text) else None


def device_name(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()})"


def list_runs(folder: Path | str) -> list[dict[str, Any]]:
    """Every record at or below `folder`, oldest first: folder, name, kind, status, created, epochs, results.

    A run that says `running` while its process has ended is `gone`: killed, or the machine went down.
    A record inside another is a part of that one and not listed.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"folder must be one that holds run records; there is no folder {folder}")
    runs = [_line(path) for path in _records(folder, set())]
    return sorted(runs, key=lambda run: (str(run["created"] or ""), run["folder"]))


def _records(folder: Path, seen: set[Path]) -> Iterator[Path]:
    place = folder.resolve()
    if place in seen:
        return  # a link that leads back
    seen.add(place)
    if (folder / "run.json").is_file():
        yield folder
        return
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and not inner.name.startswith("."):
            yield from _records(inner, seen)


def _line(folder: Path) -> dict[str, Any]:
    details = read_run(folder) or {"status": "unreadable"}
    if details.get("status") == "running" and _is_gone(folder, details.get("process")):
        details["status"] = "gone"
    wanted = ("name", "kind", "status", "created", "seed", "device", "results", "error")
    line: dict[str, Any] = {"folder": str(folder)} | {key: details.get(key) for key in wanted}
    line["epochs"] = _epochs(folder)
    return line


def _is_gone(folder: Path, process: Any) -> bool:
    """Whether nobody works on a run that says it is running; a record may have come from anywhere."""
    known = isinstance(process, dict) and {"host", "pid", "started"} <= process.keys()
    alive = lives(process) if known else None
    # On another machine only the claim tells, which its owner keeps touching.
    return is_abandoned(folder / CLAIM) if alive is None else not alive


def _epochs(folder: Path) -> int | None:
    from hardsight.files.parquet import Parquet

    try:
        with Parquet(folder / "epochs.parquet") as epochs:
            return epochs.rows
    except (OSError, ValueError):
        return None
