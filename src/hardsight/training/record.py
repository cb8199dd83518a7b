"""What a training leaves: its record on disk, complete without the code, and what it gives back.

`run.json`, `epochs.parquet`, `samples.parquet`: one process writes. What is written follows the checkpoint, so a
resumed run never holds an epoch twice.
"""

import contextlib
import datetime
import importlib.metadata
import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import nn

from hardsight import records
from hardsight.distributed import lost_process_named
from hardsight.records import tag
from hardsight.training.checkpoints import Checkpoints
from hardsight.training.progress import NonFiniteLossError

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


@dataclass(frozen=True)
class Details:
    """What a record says about its run. `preprocessing`: how images become input, for using the weights later."""

    name: str | None = None
    seed: int | None = None
    config: Mapping[str, Any] | None = None
    class_names: Sequence[str] = ()
    preprocessing: Mapping[str, Any] | None = None
    kind: str = "training"

    def as_dict(self, name: str, device: torch.device) -> dict[str, Any]:
        """As `RunRecord` takes them; `name` is that of a run without one of its own."""
        found: dict[str, Any] = {"kind": self.kind, "name": self.name or name, "seed": self.seed}
        found |= {"config": dict(self.config or {}), "device": device_name(device)}
        found["class_names"] = list(self.class_names)
        return found if self.preprocessing is None else found | {"preprocessing": dict(self.preprocessing)}


class RunRecord:
    """The folder of one run; without a folder nothing is written."""

    def __init__(self, folder: Path | str | None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.details: dict[str, Any] = {}

    def begin(self, **details: Any) -> None:
        """Write `run.json` with what is known beforehand; the status is `running`."""
        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        now = {"created": created, "status": "running", "process": tag(), "versions": versions(), "results": {}}
        self.details = {"kind": "training", **_with_settings(details), **now}
        self._write()

    def check_same_run(self, config: Mapping[str, Any]) -> None:
        """Reject another configuration than the record's, naming the first key that differs."""
        earlier = (self._read() or {}).get("config")
        if not earlier or not config:
            return
        if not isinstance(earlier, Mapping):
            raise ValueError(f"{self.folder} must hold the record of a run; its config is {type(earlier).__name__}")
        ours, theirs = flat(_settings(config)), flat(earlier)
        for key in [*theirs, *ours]:
            if key not in _MAY_DIFFER and ours.get(key) != theirs.get(key):
                raise ValueError(
                    f"{self.folder} holds a run with {key} = {theirs.get(key)!r}; got {ours.get(key)!r}: "
                    "choose another folder, or start over (--restart, or resume=False)"
                )

    def go_on(self, **details: Any) -> None:
        """Continue a record that was begun earlier; its date stays."""
        earlier = self._read()
        if earlier is None:
            self.begin(**details)
            return
        kept = {name: value for name, value in earlier.items() if name not in ("error", "retry")}
        now = {"status": "running", "process": tag(), "versions": versions()}
        self.details = {**kept, **_with_settings(details), **now}
        self._write()

    def _read(self) -> dict[str, Any] | None:
        return None if self.folder is None else records.read_run(self.folder)

    def write_epochs(self, rows: Sequence[Mapping[str, float | int]]) -> None:
        """One row an epoch; a number that was not measured in an epoch is null there."""
        if self.folder is None or not rows:
            return
        names = dict.fromkeys(name for row in rows for name in row)
        arrays = {name: pa.array([row.get(name) for row in rows]) for name in names}
        meanings = {name: {"meaning": EPOCH_COLUMNS[name]} for name in arrays if name in EPOCH_COLUMNS}
        fields = [pa.field(name, array.type, metadata=meanings.get(name)) for name, array in arrays.items()]
        records.write_table(self.folder / "epochs.parquet", pa.table(list(arrays.values()), schema=pa.schema(fields)))

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
        """Keep what a person should know about the run, each sentence once."""
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


@contextlib.contextmanager
def failure_recorded(record: RunRecord, folder: Path | None, *, resume: bool = True) -> Iterator[None]:
    """Write what stops a training to its record before the caller gets it, an interruption with how to go on.

    `folder`: where the training writes; the records of other processes than the first have none.
    """
    try:
        with lost_process_named():
            yield
    except (KeyboardInterrupt, GeneratorExit) as stop:
        _write_end(record, record.interrupt)
        kept = None if folder is None else Checkpoints(folder).latest()
        how = f"the same command goes on from {kept}"
        if kept is None:
            how = "nothing is kept yet, and the same command begins from the start"
        elif not resume:
            how = (
                f"the last checkpoint is {kept}, and the same command without --restart (resume=False) goes on from it"
            )
        # A part of this training, in a folder of its own, may have said what it keeps.
        if kept is not None or folder is None or not getattr(stop, "__notes__", ()):
            stop.add_note(how)
        raise
    except Exception as reason:
        if isinstance(reason, OSError) and reason.strerror and reason.filename is None:
            # Python names the file where opening fails, not where writing does: say whose disk is full.
            reason.filename = None if folder is None else str(folder)
        expected = isinstance(reason, NonFiniteLossError | OSError)
        said = str(reason) if expected else f"{type(reason).__name__}: {reason}"
        _write_end(record, lambda: record.fail(said, retry=not isinstance(reason, NonFiniteLossError)))
        raise


def _write_end(record: RunRecord, write: Callable[[], None]) -> None:
    """Write how a run ended, if it began; the reason itself is what must reach the caller, not that a disk is full."""
    with contextlib.suppress(OSError):
        try:
            if record.details:
                write()
        except RuntimeError:
            # torch reports a killed worker whenever the system does, in the middle of whatever is done just then.
            write()


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
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that numbers depend on."""
    found = {"python": platform.python_version()}
    for package in ("torch", "numpy", "safetensors", "pyarrow", "hardsight"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def device_name(device: torch.device) -> str:
    """The device in words."""
    cuda = device.type == "cuda"
    return torch.cuda.get_device_name(device) if cuda else f"{device.type} ({platform.machine()})"


@dataclass(frozen=True)
class Fitted:
    """What a training gives back. `evaluated` is the average of the weights where one is kept.

    `notes`: one sentence for each sign that the training went wrong.
    """

    model: nn.Module
    evaluated: nn.Module
    epochs: list[Row]
    results: dict[str, Any]
    samples: pa.Table | None
    folder: Path | None
    notes: list[str]

    def __repr__(self) -> str:
        """A summary: the network, epochs, last numbers, where the record is; its weights and tables are not printed."""
        parts = [type(self.model).__name__, f"{len(self.epochs)} epochs"]
        for name, value in self.results.items():
            if name.endswith("accuracy") and isinstance(value, int | float):
                parts.append(f"{name.replace('_', ' ')} {100 * value:.2f} %")
        parts += [] if self.samples is None else [f"{self.samples.num_rows} scored samples"]
        parts += [] if self.folder is None else [f"record in {self.folder}"]
        parts += [f"note: {note}" for note in self.notes]
        return f"<Fitted: {', '.join(parts)}>"


@dataclass(frozen=True)
class Hooks:
    """What else is done on the way.

    `after_epoch(epoch, row)`: with every epoch's numbers, epochs counted from 1; what it puts into the row is written
    with them. `measure(model)`: at the end, with the network that is evaluated; what it returns joins the results.
    `start()`: before the first epoch, and not where a training goes on. `before_epoch(done)`: with the number of epochs
    that are done; where it returns a larger one, the epochs up to that are left out. `memory`: what has
    `state_dict` and `load_state_dict`, and is kept in the checkpoints.
    """

    after_epoch: Callable[[int, Row], None] | None = None
    measure: Callable[[nn.Module], Mapping[str, Any]] | None = None
    start: Callable[[], None] | None = None
    before_epoch: Callable[[int], int | None] | None = None
    memory: Any = None


@dataclass
class Counters:
    """How far a training is, and what it has measured so far."""

    step: int = 0
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    best_epoch: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def best_accuracy(self) -> float:
        """Best test accuracy so far; -inf before the first."""
        return self.rows[self.best_epoch - 1]["test_accuracy"] if self.best_epoch else -math.inf

    def results(self) -> dict[str, Any]:
        """Last and best test accuracy, the epoch of the best, and the last row's other accuracies and losses."""
        last = self.rows[-1] if self.rows else {}
        results: dict[str, Any] = {name: value for name, value in last.items() if name.endswith(("accuracy", "loss"))}
        if self.best_epoch:
            results |= {"test_accuracy_best": self.best_accuracy, "best_epoch": self.best_epoch}
        return results
