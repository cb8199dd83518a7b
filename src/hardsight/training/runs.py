"""Which records lie under a folder, and what each says of itself in a line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hardsight.files import plain_file
from hardsight.owners import lives
from hardsight.records import read_run
from hardsight.training.locks import CLAIM, is_abandoned


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
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(plain_file(folder / "epochs.parquet")).num_rows
    except (OSError, ValueError):
        return None
