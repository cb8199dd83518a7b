"""That no measured number was lost when results became rows; its output is kept in `carried_over.txt`.

    python studies/tests/carried_over.py > studies/tests/carried_over.txt

Every number of every results file of commit c66dbed must be in the rows or points, or follow from them:
`carried.{avh,domains,gr,amc,together}.numbers(study, preset)` says where it is now, by its old path. Likewise
every number of the tables that were printed then is looked for in the tables that are printed now.
"""

import collections
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hardsight_studies.engine import study as studies
from hardsight_studies.engine.rows import PUBLISHED, Number, read
from hardsight_studies.engine.tables import make_table

COMMIT = "c66dbed"
ROOT = Path(__file__).parents[2]
# What a results file said of itself; of a training's protocol, the study's TOML says it now.
HEADER = {"study", "preset", "date", "hardware", "versions", "commit", "cells", "cells_planned", "seeds", "protocol"}
# Old values were rounded to four digits, so a mean of them may differ by one unit of the last digit.
ROUNDED = 1.01e-4
Keys = tuple[str, ...]


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


def printed(markdown: str) -> collections.Counter[str]:
    """The numbers in the tables of a text."""
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    return collections.Counter(re.findall(r"\d+(?:\.\d+)?", " ".join(rows).replace("−", "-")))


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
    return 1 if lost else 0


def _tables(head: studies.Head) -> int:
    """Print which numbers of the old page's tables no table prints now."""
    try:
        before = printed(_git("show", f"{COMMIT}:docs/studies/{head.id}.md"))
    except subprocess.CalledProcessError:
        return 0
    study = studies.load(head.path)
    tables = [
        make_table(study, read(head.id, PUBLISHED, preset), about["name"]).markdown()
        for preset in study.presets
        if _measured(head.id, preset)
        for about in study.tables("table")
    ]
    gone = before - printed("".join(tables))
    print(
        f"{head.id}, tables: {sum(before.values())} numbers were printed, {sum(gone.values())} are in no table now",
        *gone,
    )
    return 0


def _measured(study: str, preset: str) -> bool:
    try:
        return bool(read(study, PUBLISHED, preset))
    except FileNotFoundError:
        return False


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
