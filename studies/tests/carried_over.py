"""That no measured number was lost when results became rows; its output is kept in `carried_over.txt`.

    python studies/tests/carried_over.py > studies/tests/carried_over.txt

Every number of every results file of commit c66dbed must be in the rows or points, or follow from them:
`carried.{avh,domains,gr,amc,together}.numbers(study, preset)` says where it is now, by its old path. Likewise
every number of the tables that were printed then is looked for in the tables that are printed now.
"""

import importlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.expressions import difference
from hardsight_studies.engine.pages import PAGES, Scope, filled
from hardsight_studies.engine.rows import PUBLISHED, Number, Rows, point_key, read
from hardsight_studies.engine.tables import make_table

COMMIT = "c66dbed"
ROOT = Path(__file__).parents[2]
# What a results file said of itself; of a training's protocol, the study's TOML says it now.
HEADER = {"study", "preset", "date", "hardware", "versions", "commit", "cells", "cells_planned", "seeds", "protocol"}
# Old values were rounded to four digits, so a mean of them may differ by one unit of the last digit.
ROUNDED = 1.01e-4
Keys = tuple[str, ...]
# Numbers of the old tables that no row needs to hold.
EXPLAINED = {
    "avh-table1": ("29987", "837", "2732", "6541", "11066", "8811"),  # the paper's numbers of images
    "avh-table2": ("0.0003",),  # the paper's p-value of Kendall's coefficient
    # The formula of two classes, which the figure computes; no measurement.
    "avh-figure20": ("0.330", "0.413", "0.468", "0.482", "0.518", "0.532", "0.587", "0.670", "0.804", "0.972"),
    # p-values of AMC against the Euclidean loss: they follow from the values by seed, and the page has intervals.
    "amc-table1": ("1.7", "08", "5.7", "05", "0.093"),
}


def old_results() -> dict[tuple[str, str], Any]:
    """The old results by study and preset."""
    names = _git("ls-tree", "--name-only", COMMIT, "studies/results/").split()
    found = {}
    for name in names:
        study, _, preset = Path(name).stem.rpartition("-")
        found[study, preset] = json.loads(_git("show", f"{COMMIT}:{name}"))
    return found


def leaves(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, float]]:
    """Every number below a value, by the keys that lead to it."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, int | float):
        yield keys, value
        return
    for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
        if keys or key not in HEADER:
            yield from leaves(inner, (*keys, str(key)))


def spread(keys: Keys, number: Number) -> dict[Keys, float]:
    """What the old results held of a number over seeds: mean, sd and values."""
    found = {(*keys, "mean"): number.mean} | {(*keys, "values", str(at)): one for at, one in enumerate(number.values)}
    return found if number.sd is None else found | {(*keys, "sd"): number.sd}


def compared(old: Mapping[Keys, float], new: Mapping[Keys, float]) -> dict[str, list[Keys]]:
    """The old paths by what became of them: equal, equal up to rounding, different, or missing."""
    found: dict[str, list[Keys]] = {name: [] for name in ("equal", "rounded", "different", "missing")}
    for keys, value in old.items():
        if keys not in new:
            found["missing"].append(keys)
        elif new[keys] == value or (value != value and new[keys] != new[keys]):
            found["equal"].append(keys)
        else:
            found["rounded" if abs(new[keys] - value) <= ROUNDED else "different"].append(keys)
    return found


def printed(text: str) -> set[str]:
    """The numbers of a text as they are written, without sign and thousands' commas."""
    return set(re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text)))


def main() -> int:
    lost = 0
    for (study, preset), results in old_results().items():
        head = studies.find(study)
        if head is None:
            print(f"{study} {preset}: the study has not moved")
            lost += 1
            continue
        package = "domains" if study in ("avh-table3", "avh-table5") else head.path.parent.name
        try:
            numbers = importlib.import_module(f"carried.{package}").numbers
        except ImportError:
            print(f"{study} {preset}: nothing says where its numbers are")
            lost += 1
            continue
        found = compared(dict(leaves(results)), numbers(study, preset))
        print(f"{study} {preset}: " + ", ".join(f"{len(keys)} {name}" for name, keys in found.items()))
        for name in ("different", "missing"):
            lost += len(found[name])
            for keys in found[name][:20]:
                print(f"    {name}: {' / '.join(keys)}")
    for head in studies.heads():
        lost += _tables(head)
    print(f"{lost} numbers are lost")
    return 1 if lost else 0


def _tables(head: studies.Head) -> int:
    """Say which numbers of the old page's tables are neither printed now nor in the rows; returns how many."""
    try:
        page = _git("show", f"{COMMIT}:docs/studies/{head.id}.md")
    except subprocess.CalledProcessError:
        return 0
    before = printed("\n".join(line for line in page.splitlines() if line.startswith("|")))
    study, source = studies.load(head.path), PAGES / f"{head.id}.md"
    there = [read(head.id, PUBLISHED, preset) for preset in study.presets if _measured(head.id, preset)]
    tables = [make_table(study, rows, about["name"]).markdown() for rows in there for about in study.tables("table")]
    text = filled(source.read_text(encoding="utf-8"), Scope(study)) if source.is_file() else ""
    now = printed("".join(tables) + text + head.path.read_text(encoding="utf-8"))
    held = [value for rows in there for value in _values(rows)]
    gone = [one for one in sorted(before - now - {*EXPLAINED.get(head.id, ())}) if not _holds(held, one)]
    if gone:
        differences = [value for rows in there for value in _differences(rows)]
        gone = [one for one in gone if not _holds(differences, one)]
    counted = f"{len(before)} different numbers, {len(before & now)} printed now, "
    print(
        f"{head.id}, tables: {counted}{len(before - now) - len(gone)} only in the rows, {len(gone)} in neither", *gone
    )
    return len(gone)


def _values(rows: Rows) -> Iterator[float]:
    """Every number of the rows and points, and mean and deviation over the seeds of a point."""
    for row in rows:
        yield from (value for _, value in leaves({"": [row.metrics, row.settings]}, ("",)))
        own = {**dict.fromkeys(rows.axes), **row.settings}
        for number in (rows.number(name, **own) for name in row.metrics):
            yield from () if number is None else (one for one in (number.mean, number.sd) if one is not None)
    for name in rows.points.column_names:
        yield from (one for one in rows.points[name].to_pylist() if isinstance(one, int | float))


def _differences(rows: Rows) -> Iterator[float]:
    """Mean, deviation and standard error of the difference of a metric between any two points."""
    for name in rows.metrics:
        every = {point_key(row.settings): row.settings for row in rows if row.metrics.get(name) is not None}
        numbers = [rows.number(name, **{**dict.fromkeys(rows.axes), **point}) for point in every.values()]
        for first, second in itertools.combinations([one for one in numbers if one is not None], 2):
            apart = difference(first, second)
            yield from (apart.mean, apart.sd or 0.0)
            yield sum((one.sd or 0.0) ** 2 / one.count for one in (first, second)) ** 0.5


def _holds(held: Sequence[float], number: str) -> bool:
    """Whether a value, or a hundred times it, is this number at its digits; or a difference of the last digit."""
    digits = len(number.partition(".")[2])
    unit = 10.0**-digits
    values = np.abs(np.array(held, float))
    return bool(np.isclose(np.concatenate([values, 100 * values]), float(number), rtol=0, atol=1.01 * unit).any())


def _measured(study: str, preset: str) -> bool:
    try:
        return bool(read(study, PUBLISHED, preset))
    except FileNotFoundError:
        return False


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
