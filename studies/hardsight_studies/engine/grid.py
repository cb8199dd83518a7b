"""The runs of a study's preset: every point of its axes, in order of value, each with its configuration."""

import copy
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardsight.names import check_name
from hardsight_studies.engine.study import Study, Tree, merged, text

Settings = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A point of the grid and a seed: its settings, its configuration of `hardsight train`, its record's folder."""

    settings: Settings
    config: Tree = field(repr=False)
    folder: Path

    @property
    def seed(self) -> int:
        """Which draw of everything random."""
        seed: int = self.settings["seed"]
        return seed

    @property
    def point(self) -> Settings:
        """The settings without the seed: what the runs of all seeds share."""
        return {name: value for name, value in self.settings.items() if name != "seed"}

    @property
    def name(self) -> str:
        """The settings as a folder name: `rate=0.4,method=cce,seed=0`."""
        return self.folder.name


def plan(study: Study, preset: str, output: Path | str | None = None) -> list[Run]:
    """The runs of a preset, those of the largest value first; their records lie below `output`."""
    tree = study.at(preset)
    folder = records_folder(study, preset) if output is None else Path(output)
    return [Run(one, _configured(study, tree, one), folder / name_of(one)) for one in _points(tree)]


def records_folder(study: Study, preset: str) -> Path:
    """Where the records of a preset lie, one folder for all studies that share them."""
    folder: Path = Path("runs") / "studies" / study.tree.get("runs", study.id) / preset
    return folder


def name_of(settings: Mapping[str, Any]) -> str:
    """The settings as a folder name, as a sweep makes it."""
    words = {name: value if isinstance(value, str) else json.dumps(value) for name, value in settings.items()}
    return ",".join(f"{name}={word}" for name, word in words.items()).replace("/", "_")


def picked(study: Study, runs: list[Run], words: Iterable[str]) -> list[Run]:
    """The runs that one of the words names, such as `method=cce,seed=0`; without words all of them."""
    words = list(words)
    wanted: list[dict[str, str]] = []
    for word in words:
        parts = [part.partition("=") for part in word.split(",")]
        values = {name: {text(run.settings.get(name)) for run in runs} for name in study.axes}
        for name, _, value in parts:
            check_name("runs", name, study.axes, "axes")
            check_name(f"runs: {name}", value, sorted(values[name]), "values")
        wanted.append({name: value for name, _, value in parts})
    found = [run for run in runs if not words or any(_is_of(run, one) for one in wanted)]
    if words and not found:
        raise ValueError(f"runs must match a run of {study.id}, such as {runs[0].name}; got {', '.join(words)}")
    return found


def matches(settings: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    """Whether the settings are those of a pattern; a list in it allows several values, null an absent setting."""
    return all(
        settings.get(name) in wanted if isinstance(wanted, list | tuple) else settings.get(name) == wanted
        for name, wanted in pattern.items()
    )


def _is_of(run: Run, wanted: Mapping[str, str]) -> bool:
    return all(name in run.settings and text(run.settings[name]) == value for name, value in wanted.items())


def _points(tree: Tree) -> list[Settings]:
    """All points: the first axis varies slowest; those of an earlier pattern of `first` come first."""
    points = _product(tree.get("axes", {})) + [one for extra in tree.get("extra", []) for one in _product(extra)]
    kept = [one for one in points if not any(matches(one, pattern) for pattern in tree.get("skip", []))]
    first = tree.get("first", [])

    def turn(settings: Settings) -> int:
        return next((at for at, pattern in enumerate(first) if matches(settings, pattern)), len(first))

    return sorted({name_of(one): one for one in kept}.values(), key=turn)


def _product(axes: Mapping[str, Any]) -> list[Settings]:
    """Every combination of the values; an axis without any is left out, a seed that is not given is 0."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in axes.items()}
    named = {name: values for name, values in lists.items() if values}
    named.setdefault("seed", [0])
    points = [dict(zip(named, values, strict=True)) for values in itertools.product(*named.values())]
    # Wherever the seed stands among the axes, it is the last of a run's settings.
    return [{**{name: value for name, value in one.items() if name != "seed"}, "seed": one["seed"]} for one in points]


def _configured(study: Study, tree: Tree, settings: Settings) -> Tree:
    """The base configuration with what each setting changes of it; empty where the study has no base."""
    config: Tree = copy.deepcopy(tree.get("base", {}))
    if not config:
        return {}
    for axis, value in settings.items():
        known = tree.get("values", {}).get(axis)
        key = tree.get("axis", {}).get(axis, {}).get("key", axis if axis == "seed" or "." in axis else None)
        if known is not None and key is None:
            check_name(f"{study.id}: {axis}", text(value), known, "values")
        config = merged(config, _filled((known or {}).get(text(value), {}).get("set", {}), settings))
        if key is not None:
            config = merged(config, _at_key(key, value))
    return config


def _at_key(key: str, value: Any) -> Tree:
    first, dot, rest = key.partition(".")
    return {first: _at_key(rest, value) if dot else value}


def _filled(tree: Any, settings: Mapping[str, Any]) -> Any:
    """The tree with the text `{rate}` replaced by the run's rate."""
    if isinstance(tree, Mapping):
        return {key: _filled(value, settings) for key, value in tree.items()}
    named = tree[1:-1] if isinstance(tree, str) and tree.startswith("{") and tree.endswith("}") else None
    return tree if named is None else settings.get(named, tree)
