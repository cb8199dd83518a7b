"""Runs: a grid of them, each finished run a record; running again computes only what is missing; the list of records.

Any number of processes may run the same sweep: a run is its claimer's, and taken again where that has died.
"""

import contextlib
import copy
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardsight.claims import CLAIM, claim, is_abandoned, release_abandoned
from hardsight.distributed import join_processes, rank_and_count
from hardsight.names import visible
from hardsight.records import lives, read_run
from hardsight.training.config import TrainingConfig
from hardsight.training.from_config import train
from hardsight.training.progress import NonFiniteLossError
from hardsight.training.reading import put
from hardsight.training.record import RunRecord

RUNNING, FINISHED, FAILED = "running", "finished", "failed"
_CLAIMS = ".claims"


@dataclass(frozen=True)
class Run:
    """One point of the grid: its settings by dotted key, and the folder of its record below the sweep's."""

    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The settings as a folder name: `loss.options.beta=4,seed=0`."""
        texts = ((key, value if isinstance(value, str) else json.dumps(value)) for key, value in self.settings.items())
        return ",".join(f"{key}={text}" for key, text in texts).replace("/", "_") or "only"


def grid(**axes: Sequence[Any]) -> list[Run]:
    """Every combination of the axes' values; the last axis changes fastest. `__` in a name stands for a dot.

    >>> [run.name for run in grid(noise__rate=[0.2, 0.4], seed=[0, 1])]
    ['noise.rate=0.2,seed=0', 'noise.rate=0.2,seed=1', 'noise.rate=0.4,seed=0', 'noise.rate=0.4,seed=1']
    """
    keys = [key.replace("__", ".") for key in axes]
    for key, values in zip(keys, axes.values(), strict=True):
        if isinstance(values, str) or not len(values):
            raise ValueError(f"{key} must be a list of values to go through; got {values!r}")
    return [Run(dict(zip(keys, values, strict=True))) for values in itertools.product(*axes.values())]


def status_of(folder: Path) -> str | None:
    """What a run's record says of itself; None where there is none yet."""
    return (read_run(folder) or {}).get("status")


def missing(folder: Path | str, runs: Iterable[Run], *, retry_failed: bool = False) -> list[Run]:
    """The runs that have no finished record; a run whose loss was no number has failed for good, unless asked."""
    found = []
    for run in runs:
        details = read_run(Path(folder) / run.name) or {}
        for_good = details.get("status") == FAILED and not details.get("retry", False)
        if details.get("status") != FINISHED and (retry_failed or not for_good):
            found.append(run)
    return found


def sweep(
    config: dict[str, Any],
    folder: Path | str,
    runs: Sequence[Run],
    *,
    retry_failed: bool = False,
    progress: bool | None = None,
) -> list[Run]:
    """Train `config` (plain values, as in the TOML file) with each run's settings; only what is missing.

    Returns the runs that this process computed.
    """

    def compute(mine: Sequence[tuple[Run, Path]]) -> None:
        for run, place in mine:
            train(_with_settings(config, run, place), progress=progress)

    def say(sentence: str) -> None:
        if progress is not False:
            print(visible(sentence), file=sys.stderr)

    join_processes()
    _, joined = rank_and_count()
    if joined > 1:
        raise ValueError(
            f"a sweep's processes must be started one by one; got {joined} that were joined, as torchrun does"
        )
    for run in runs:
        # All of them before the first is trained: a misspelt key must not be found after hours, and a run that
        # another configuration finished is not this sweep's.
        place = Path(folder) / run.name
        RunRecord(place).check_same_run(_with_settings(config, run, place).as_dict())
    return run_sweep(folder, runs, compute, retry_failed=retry_failed, say=say)


def _with_settings(config: dict[str, Any], run: Run, place: Path) -> TrainingConfig:
    tree = copy.deepcopy(config)
    for key, value in run.settings.items():
        put(tree, key, value)
    return TrainingConfig(**(tree | {"folder": str(place), "name": run.name}))


def run_sweep(
    folder: Path | str,
    runs: Sequence[Run],
    compute: Callable[[Sequence[tuple[Run, Path]]], object],
    *,
    at_once: int = 1,
    retry_failed: bool = False,
    say: Callable[[str], object] = lambda sentence: None,
) -> list[Run]:
    """Compute the missing runs, `at_once` together; returns those that this process computed.

    `compute` trains the runs it is given into their folders, resuming where there is something to resume. It is called
    with runs that no living process works on. Runs that others hold are left to them. What a process that was killed
    left unfinished is computed too; `say` is told.
    """
    folder = Path(folder)
    for left in [*(folder / _CLAIMS).glob("*.json"), *(folder / run.name / CLAIM for run in runs)]:
        release_abandoned(left)
    names = [run.name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"runs must differ in their settings; {name!r} comes twice")
        if len(name.encode()) > 200:
            raise ValueError(f"a run's settings must make a folder name of at most 200 characters; got {name[:60]!r}")
    if at_once < 1:
        raise ValueError(f"at_once must be at least 1; got {at_once!r}")
    computed: list[Run] = []
    while True:
        mine: list[tuple[Run, Path]] = []
        with contextlib.ExitStack() as claims:
            for run in missing(folder, runs, retry_failed=retry_failed):
                if len(mine) == at_once:
                    break
                if run in computed or not claims.enter_context(claim(folder / _CLAIMS / f"{run.name}.json")):
                    continue
                # Looked at again under the claim: another process may have finished it in between.
                if missing(folder, [run], retry_failed=retry_failed):
                    mine.append((run, folder / run.name))
                    if status_of(folder / run.name) == RUNNING:
                        say(f"{run.name}: going on where a process that has ended left it")
            if not mine:
                # What is still missing is in other hands.
                return computed
            with contextlib.suppress(NonFiniteLossError):
                # The record says that it failed, and why; the sweep goes on.
                compute(mine)
        computed += [run for run, _ in mine]


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
    from hardsight.files.parquet import Parquet

    details = read_run(folder) or {"status": "unreadable"}
    if details.get("status") == RUNNING:
        # A record may have come from anywhere.
        alive = None
        with contextlib.suppress(ValueError):
            alive = lives(details.get("process"))
        # On another machine only the claim tells, which its owner keeps touching.
        if is_abandoned(folder / CLAIM) if alive is None else not alive:
            details["status"] = "gone"
    epochs = None
    with contextlib.suppress(OSError, ValueError), Parquet(folder / "epochs.parquet") as table:
        epochs = table.rows
    wanted = ("name", "kind", "status", "created", "seed", "device", "results", "error")
    return {"folder": str(folder)} | {key: details.get(key) for key in wanted} | {"epochs": epochs}
