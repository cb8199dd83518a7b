"""What is explored: an audit's folder, a run's record, a table of scores or its shards, and what lies beside it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardsight.files import read_json
from hardsight.files.parquet import text_metadata
from hardsight.files.shards import MANIFEST_FILE, is_sharded, open_table

_TABLES = (("audit.json", "table.parquet"), ("run.json", "samples.parquet"))


@dataclass(frozen=True)
class Source:
    """A table and its surroundings.

    `decisions` is the folder of marks.jsonl and actions.csv; `records` are the folders that may hold pictures and
    histories, the nearest first; `images` is the folder that the table's paths are relative to; `estimated` is how many
    labels a run's record says are wrong.
    """

    name: str
    table: Path
    decisions: Path
    records: tuple[Path, ...]
    class_names: tuple[str, ...]
    images: Path | None
    estimated: int


def find_source(source: Path | str, images: Path | str | None = None) -> Source:
    """The table of an audit's folder or a run's record, or the Parquet file itself; its images as the record says."""
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"source must be an audit, a run or a table of scores; there is nothing at {path}")
    details: Mapping[str, Any] = {}
    table, decisions = path, path.with_name(f"{path.stem}-audit")
    records: tuple[Path, ...] = (path.parent,)
    if is_sharded(path):
        details, records = {"class_names": _inside(read_json(path / MANIFEST_FILE), "class_names")}, (path,)
    elif path.is_dir():
        pair = next(((path / one, path / two) for one, two in _TABLES if (path / two).is_file()), None)
        if pair is None:
            tables = " or ".join(two for _, two in _TABLES)
            raise FileNotFoundError(f"source must hold {tables}; {path} is no audit, and no run that kept its samples")
        said = read_json(pair[0]) if pair[0].is_file() else {}
        details = said if isinstance(said, dict) else {}
        audited = details.get("kind") == "audit"
        table, decisions, records = pair[1], path if audited else path / "audit", (path,)
        origin = _inside(details, "config", "source")
        if audited and isinstance(origin, str) and Path(origin).exists():
            records = (path, Path(origin) if Path(origin).is_dir() else Path(origin).parent)
    if images is not None and not Path(images).is_dir():
        raise NotADirectoryError(f"images must be the folder that the table's paths are relative to; got {images}")
    names, estimated = details.get("class_names"), _inside(details, "results", "label_issues", "estimated")
    return Source(
        name=str(details.get("name") or path.resolve().name),
        table=table,
        decisions=decisions,
        records=records,
        class_names=tuple(str(one) for one in names) if isinstance(names, list) else (),
        images=Path(images) if images is not None else _recorded_images(details, table),
        estimated=max(0, estimated) if isinstance(estimated, int) else 0,
    )


def _recorded_images(details: Mapping[str, Any], table: Path) -> Path | None:
    """Where the images were, by the record or by the table's own metadata; None where they are not there."""
    with open_table(table) as file:
        written = text_metadata(file.schema).get("root")
    said = (_inside(details, "data", "root"), _inside(details, "config", "data", "root"), written)
    return next((Path(one) for one in said if isinstance(one, str) and os.path.isdir(one)), None)


def _inside(details: Any, *keys: str) -> Any:
    for key in keys:
        details = details.get(key) if isinstance(details, Mapping) else None
    return details
