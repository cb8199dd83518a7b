"""A study as data: its TOML file, found, read and checked. Nothing here imports torch.

A study's id is its file's name. Listing reads heads alone, the lines before the first table of a file.
"""

import copy
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hardsight.names import check_name, unknown_name

PRESETS = ("smoke", "cpu", "paper")
PACKAGES = ("avh", "amc", "gr", "together", "language", "uses")
HOME = Path(__file__).parents[1]
Tree = dict[str, Any]
_HEAD_KEYS = ("title", "question", "paper", "runs", "include")
_PRESET_KEYS = ("base", "axes", "axis", "values", "first", "extra", "skip", "at_once")
_KEYS = (*_HEAD_KEYS, *_PRESET_KEYS, "presets", "metrics", "points", "hooks", "table", "figure", "result")
_INNER_KEYS = {
    "axis": ("title", "format", "key"),
    "hooks": ("run", "compute", "begin", "after_epoch", "measure", "rows", "points"),
    "points": ("x", "y", "most"),
    "table": ("name", "title", "where", "rows", "columns", "cell", "cells", "join", "paper", "function", "lines"),
    "figure": ("name", "title", "kind", "x", "y", "by", "panels", "where", "draw", "paper"),
    "result": ("of", "what", "paper", "ours", "seeds", "preset", "verdict"),
}


@dataclass(frozen=True)
class Head:
    """What listing says of a study: `paper` is the table or figure that it is compared with."""

    id: str
    title: str
    question: str
    paper: str
    path: Path


@dataclass(frozen=True)
class Study:
    """A study with everything its file says; `tree` holds the file's tables, includes merged below them."""

    head: Head
    tree: Tree = field(repr=False)

    @property
    def id(self) -> str:
        """The file's name."""
        return self.head.id

    @cached_property
    def presets(self) -> tuple[str, ...]:
        """The presets that the study has, smallest first."""
        return tuple(name for name in PRESETS if name in self.tree.get("presets", {}))

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Every axis of any preset."""
        of_presets = [one.get("axes", {}) for one in self.tree.get("presets", {}).values()]
        extras = [point for one in (self.tree, *self._overlays) for point in one.get("extra", [])]
        return tuple(dict.fromkeys(name for one in (self.tree.get("axes", {}), *of_presets, *extras) for name in one))

    @property
    def _overlays(self) -> tuple[Tree, ...]:
        return tuple(self.tree.get("presets", {}).values())

    def at(self, preset: str) -> Tree:
        """The study's tables with those of a preset merged above them."""
        check_name("preset", preset, PRESETS)
        if preset not in self.presets:
            raise unknown_name(f"preset of {self.id}", preset, self.presets, "presets")
        return merged(self.tree, self.tree["presets"][preset])

    def tables(self, kind: str) -> list[Tree]:
        """The entries of `[[table]]`, `[[figure]]` or `[[result]]`."""
        found = self.tree.get(kind, [])
        return [found] if isinstance(found, dict) else list(found)

    def entry(self, kind: str, name: str | None) -> Tree:
        """The table or figure of that name; left out, the first."""
        entries = self.tables(kind)
        if name is None and entries:
            return entries[0]
        named = {one["name"]: one for one in entries}
        check_name(f"{kind} of {self.id}", name, named, f"{kind}s")
        return named[str(name)]


def heads() -> list[Head]:
    """The heads of all studies, in the order in which they are listed."""
    paths = [path for package in PACKAGES for path in sorted((HOME / package).glob("*.toml"), key=_in_order)]
    return [head for path in paths if (head := _head(path)) is not None]


def find(id: str) -> Head | None:
    """The study of that id, or that with this table or figure of a paper in it: `amc-figure2` is in `amc-figure6`."""
    every = heads()
    found = [one for one in every if one.id == id] or [one for one in every if _holds(one, id)]
    return found[0] if found else None


def get(id: str) -> Study:
    """The study, read and checked; an unknown id is an error with the nearest ones."""
    head = find(id)
    if head is None:
        raise unknown_name("study", id, [one.id for one in heads()], "studies", "listed by `hardsight study list`")
    return load(head.path)


def load(path: Path) -> Study:
    """A study's file, read and checked."""
    head = _head(path)
    if head is None:
        raise ValueError(f"{path}: title must be given as text, before the first table")
    study = Study(head, _included(path))
    _check(study)
    return study


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Tree:
    """Both trees as one: tables are merged key by key, everything else is that of the one above."""
    found = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if both else copy.deepcopy(value)
    return found


def text(value: Any) -> str:
    """A setting's value as keys of TOML files and folder names hold it: 0.4, 30, true, gr-8-0.5."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)


def _read(path: Path, content: str) -> Tree:
    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(f"{path} must be a TOML file: {problem}") from None


def _head(path: Path) -> Head | None:
    """The head of a study's file; None of a file without one, which others include."""
    head, *_ = re.split(r"^\[", path.read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE)
    found = _read(path, head)
    if not {"title", "question"} & found.keys():
        return None
    for name in ("title", "question"):
        if not isinstance(found.get(name), str):
            raise ValueError(f"{path}: {name} must be given as text, before the first table")
    return Head(path.stem, found["title"], found["question"], found.get("paper", ""), path)


def _included(path: Path) -> Tree:
    tree = _read(path, path.read_text(encoding="utf-8"))
    below: Tree = {}
    for name in tree.get("include", []):
        below = merged(below, _included(path.parent / name))
    return merged(below, tree)


def _in_order(path: Path) -> list[tuple[bool, int, str]]:
    """`gr-table10` after `gr-table9`."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.findall(r"\d+|\D+", path.stem)]


def _holds(head: Head, id: str) -> bool:
    asked = re.fullmatch(r"([a-z]+)-(table|figure)s?(\d+)", id)
    if asked is None or not head.paper.startswith(asked[1].upper()):
        return False
    numbers: set[int] = set()
    for listed in re.findall(rf"{asked[2][:3]}\w*\.? ((?:\d+|, | and | to )+)", head.paper, re.IGNORECASE):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", listed):
            numbers |= {*range(int(first), int(last or first) + 1)}
    return int(asked[3]) in numbers


def _check(study: Study) -> None:
    """Every key, preset and axis that the file names must be one there is."""
    _known(study, "key", study.tree, _KEYS)
    _known(study, "preset", study.tree.get("presets", {}), PRESETS)
    if not study.presets:
        raise ValueError(f"{study.id}: presets must name at least one of {', '.join(PRESETS)}")
    for overlay in (study.tree, *study._overlays):
        if overlay is not study.tree:
            _known(study, "key of a preset", overlay, _PRESET_KEYS)
        for name in ("axis", "values"):
            _known(study, f"axis of {name}", overlay.get(name, {}), study.axes)
        for kind in ("first", "skip"):
            for point in overlay.get(kind, []):
                _known(study, f"axis of {kind}", point, study.axes)
    for kind, keys in _INNER_KEYS.items():
        for entry in _entries(study.tree.get(kind, []), kind):
            _known(study, f"key of {kind}", entry, keys)
            if kind in ("table", "figure"):
                _check_entry(study, kind, entry)
            if kind == "result" and not {"ours", "verdict"} <= entry.keys():
                raise ValueError(f"{study.id}: ours and verdict must be given in every [[result]]")


def _entries(found: Any, kind: str) -> Iterator[Mapping[str, Any]]:
    if isinstance(found, list):
        yield from found
    else:
        yield from found.values() if kind == "axis" else [found]


def _check_entry(study: Study, kind: str, entry: Mapping[str, Any]) -> None:
    if not isinstance(entry.get("name"), str):
        raise ValueError(f"{study.id}: name must be given as text in every [[{kind}]]")
    named = [*entry.get("where", {}), *entry.get("rows", []), *entry.get("columns", []), *entry.get("by", [])]
    _known(study, f"axis of {kind} {entry['name']}", [*named, *entry.get("panels", [])], study.axes)
    if study.tree.get("hooks", {}).get("rows") or not study.tree.get("metrics"):
        return  # which metrics there are, the rows say
    formats = [entry.get("cell", ""), *entry.get("cells", {}).values()]
    _known(study, f"metric of {kind} {entry['name']}", [name for one in formats for name in metrics_of(one)],
           study.tree["metrics"])  # fmt: skip


def metrics_of(format: str) -> list[str]:
    """The metrics that a cell's format shows: `{last:.1%} ({best:.1%})`."""
    return re.findall(r"\{(\w+)", format)


def _known(study: Study, what: str, given: Any, known: Any) -> None:
    for name in given:
        check_name(f"{study.id}: {what}", name, known)
