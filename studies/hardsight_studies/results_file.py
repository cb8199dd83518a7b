"""`results/STUDY-PRESET.json`: where it lies, how it is read and written."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hardsight import records
from hardsight_studies.framework import PRESETS, Study, check_preset
from hardsight_studies.keeping import HEADER

_Made = TypeVar("_Made")


def results_path(study: Study, preset: str, results: Path | str) -> Path:
    """Where a preset's results lie."""
    return Path(results) / f"{study.id}-{preset}.json"


def read_results(study: Study, results: Path | str, preset: str | None = None) -> dict[str, Any]:
    """The results of a preset; left out, of the largest preset that was run."""
    if preset is not None:
        check_preset(preset)
    for one in (preset,) if preset else reversed(PRESETS):
        path = results_path(study, one, results)
        if path.is_file():
            return _read(study, path)
    command = f"hardsight study run {study.id}" + (f" --preset {preset}" if preset else "")
    raise FileNotFoundError(f"results of {study.id} were looked for in {results} and are not there: run `{command}`")


def _read(study: Study, path: Path) -> dict[str, Any]:
    try:
        found = records.read_json(path)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("study") != study.id or not found.keys() >= HEADER:
        raise ValueError(f"{path} must be a results file of {study.id}, as `hardsight study run` writes it")
    return found


def made_from(results: Mapping[str, Any], make: Callable[[Mapping[str, Any]], _Made]) -> _Made:
    """A study's table or figures of its results, refused where they are of another version and lack what is shown."""
    try:
        return make(results)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        study, preset = results["study"], results["preset"]
        raise ValueError(
            f"results of {study}, preset {preset}, must be of this version to be shown; these are of another "
            f"({type(error).__name__}: {error}): remove them and run `hardsight study run {study} --preset {preset}`"
        ) from error


def results_at(study: Study, preset: str, path: Path) -> dict[str, Any] | None:
    """The results that lie at the place; None where there are none of this study and preset, or they are damaged."""
    try:
        found = _read(study, path)
    except (OSError, ValueError):
        return None
    whole = (
        found["preset"] == preset
        and isinstance(found["cells"], int)
        and _all_of(str, found["hardware"])
        and _all_of(int, found["seeds"])
        and isinstance(found["versions"], dict)
        and _all_of(str, list(found["versions"].values()))
    )
    return found if whole else None


def _all_of(kind: type, values: object) -> bool:
    return isinstance(values, list) and all(isinstance(one, kind) for one in values)


def compact_json(value: Any, depth: int = 4) -> str:
    """JSON indented down to `depth`, one line below it: a diff of results shows one line a number."""
    return _indented(value, depth, "") + "\n"


def _indented(value: Any, depth: int, margin: str) -> str:
    if not isinstance(value, Mapping) or depth == 0 or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = margin + "  "
    lines = [f"{inner}{json.dumps(str(key))}: {_indented(item, depth - 1, inner)}" for key, item in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
