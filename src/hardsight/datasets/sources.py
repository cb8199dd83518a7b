"""The public data sets that have a reader: their folders, splits, sizes and published checksums, from sources.toml."""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Source:
    """What is known about a data set before it is read; sources.toml says what each value means."""

    name: str
    title: str
    reader: str
    splits: Mapping[str, int | None]
    num_classes: int | None
    folders: tuple[str, ...]
    layout: str
    md5: Mapping[str, str] = dataclasses.field(default_factory=dict)
    optional: frozenset[str] = frozenset()


def _sources() -> tuple[Source, ...]:
    found = []
    for name, row in tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8")).items():
        splits = {split: None if count < 0 else count for split, count in row.pop("splits").items()}
        folders, optional = tuple(row.pop("folders", ())), frozenset(row.pop("optional", ()))
        classes = row.pop("num_classes", None)
        found.append(Source(name=name, splits=splits, num_classes=classes, folders=folders, optional=optional, **row))
    return tuple(found)


SOURCES: tuple[Source, ...] = _sources()
