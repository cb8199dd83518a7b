"""What a results file holds and the records at hand do not, stays when these are judged.

Who has the results of a study but not its records computes or imports a few cells: the entries of all other subjects
are kept, as long as the settings are the same, and further seeds of a subject join those that are there.
"""

import json
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hardsight.training.sweeps import Cell
from hardsight_studies.wording import plural

# What every results file holds, whatever its study judges.
HEADER = {"study", "preset", "date", "hardware", "versions", "commit", "cells", "cells_planned", "seeds"}
# The key of an entry; of nested mappings, their keys from the outside in.
Keys = tuple[str, ...]


def seeds_told(found: Mapping[str, Any]) -> int:
    """How many seeds are behind a subject's entries: as they say, else as many as a spread in them has values."""
    counts = [1]
    for entry in found.values():
        if isinstance(entry, Mapping):
            counts += [entry["seeds"]] if isinstance(entry.get("seeds"), int) else []
            counts += [len(one["values"]) for one in entry.values() if isinstance(one, Mapping) and "values" in one]
    return max(counts)


@dataclass(frozen=True)
class Entries:
    """The mappings of a study's results with one entry a subject, each judged from the subject's own cells alone.

    `of` names the subject of a cell as the mappings do. They may also name single cells: those that failed, say.
    `cells`: how many cells are behind a subject's entries, given by mapping. `together`: a subject's old and new
    entries as one, where they rest on different seeds; else None. `derived`: what follows from the entries of all
    subjects, given the preset and the results.
    """

    names: tuple[str, ...]
    of: Callable[[Cell], str | Keys]
    cells: Callable[[Mapping[str, Any]], int] = seeds_told
    together: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any] | None] = lambda old, new: None
    derived: Callable[[str, Mapping[str, Any]], dict[str, Any]] | None = None

    def beside(self, *names: str) -> "Entries":
        """These and further mappings of the same subjects."""
        return replace(self, names=(*self.names, *names))

    def subject(self, cell: Cell) -> Keys:
        """The subject of a cell."""
        found = self.of(cell)
        return (found,) if isinstance(found, str) else found


@dataclass(frozen=True)
class Stays:
    """The subjects whose old entries stay, with the cells behind each: `absent` from the records, or `fuller`.

    `grown`: those that got further seeds, with the cells behind the old entries; `whole`: their entries, old and new.
    """

    absent: Mapping[Keys, int] = field(default_factory=dict)
    fuller: Mapping[Keys, int] = field(default_factory=dict)
    grown: Mapping[Keys, int] = field(default_factory=dict)
    whole: Mapping[Keys, Mapping[str, Mapping[Keys, Any]]] = field(default_factory=dict)

    @property
    def cells(self) -> Mapping[Keys, int]:
        """Those that stay as they are."""
        return {**self.absent, **self.fuller}


def staying(
    entries: Entries,
    preset: str,
    planned: Sequence[Cell],
    old: Mapping[str, Any],
    judged: Mapping[str, Any],
    done: Sequence[Cell],
) -> Stays | None:
    """What stays of the old results beside what was judged of the cells that are done; None where they do not mix.

    They do not where anything differs that is no subject's, or the old ones are none of these entries. An entry that
    both have is the new one, unless the old one rests on more cells, or the two on different seeds: then it is both.
    """
    try:
        before, now = (_by_subject(entries, planned, one) for one in (old, judged))
        told = {subject: _told(entries, subject, found) for subject, found in before.items()}
    except (AttributeError, KeyError, TypeError):
        return None
    if not _same_settings(entries, preset, old, judged):
        return None
    here = Counter(map(entries.subject, done))
    both = [subject for subject in told if subject in now]
    finished = {(cell.name,) for cell in done}
    joint = {subject: _together(entries, subject, before[subject], now[subject], finished) for subject in both}
    whole = {subject: found for subject, found in joint.items() if found is not None}
    return Stays(
        {subject: count for subject, count in told.items() if subject not in now},
        {subject: told[subject] for subject in both if subject not in whole and told[subject] > here[subject]},
        {subject: told[subject] for subject in whole},
        whole,
    )


def joined(
    entries: Entries, planned: Sequence[Cell], old: Mapping[str, Any], payload: Mapping[str, Any], stays: Stays
) -> dict[str, Any]:
    """The new results and the old entries that stay, in the order of the cells, as if all had been judged together.

    The payload's header is that of the new entries that come in.
    """
    before, now = (_by_subject(entries, planned, one) for one in (old, payload))
    chosen = [stays.whole.get(subject, found) for subject, found in now.items() if subject not in stays.cells]
    chosen += [before[subject] for subject in stays.cells]
    order: dict[Keys, int] = {}
    for at, cell in enumerate(planned):
        order.setdefault(entries.subject(cell), at)
        order[(cell.name,)] = at
    merged = dict(payload)
    for name in entries.names:
        every = {keys: entry for found in chosen for keys, entry in found.get(name, {}).items()}
        merged[name] = _nested(
            {keys: every[keys] for keys in sorted(every, key=lambda one: order.get(one, len(planned)))}
        )
    old_cells = sum({**stays.cells, **stays.grown}.values())
    if old_cells:
        merged |= {name: sorted({*old[name], *payload[name]}) for name in ("hardware", "seeds")}
        merged["versions"] = versions_of([payload["versions"], old["versions"]])
        merged["cells"] = payload["cells"] + old_cells
    return merged if entries.derived is None else merged | entries.derived(payload["preset"], merged)


def say_what_stays(say: Callable[[str], object], path: Path, cells: int, stays: Stays | None, done: int) -> None:
    """One line on a results file of so many cells: what is kept of it, or that fewer cells replace it."""
    more = "of more cells than are here"
    if stays is None and cells > done:
        say(f"replaced {path}, of {plural(cells, 'cell')}, by the results of {done}: the two do not mix")
    elif stays is not None and stays.absent:
        beside = f", and {len(stays.fuller)} {more}" if stays.fuller else ""
        say(f"kept {_counted(len(stays.absent))} of {path} whose records are not here{beside}")
    elif stays is not None and stays.fuller:
        say(f"kept {_counted(len(stays.fuller))} of {path} {more}")
    if stays is not None and stays.grown:
        say(f"{_counted(len(stays.grown))} of {path} got further seeds")


def versions_of(several: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Each package's version; where there are several, all of them."""
    names = dict.fromkeys(name for one in several for name in one)
    return {
        name: ", ".join(sorted({version for one in several if name in one for version in one[name].split(", ")}))
        for name in names
    }


def _same_settings(entries: Entries, preset: str, old: Mapping[str, Any], judged: Mapping[str, Any]) -> bool:
    derived = () if entries.derived is None else entries.derived(preset, judged)
    apart = {*HEADER, *entries.names, *derived}
    # As read from a file: keys are text, tuples lists; and compared as text, where NaN equals NaN.
    first, second = (
        json.loads(json.dumps({name: value for name, value in one.items() if name not in apart}))
        for one in (old, judged)
    )
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def _by_subject(
    entries: Entries, planned: Sequence[Cell], results: Mapping[str, Any]
) -> dict[Keys, dict[str, dict[Keys, Any]]]:
    """Of each subject, by mapping: its entries."""
    subjects = {cell.name: entries.subject(cell) for cell in planned}
    depth = max(map(len, subjects.values()))
    found: dict[Keys, dict[str, dict[Keys, Any]]] = {}
    for name in entries.names:
        for keys, entry in _flat(results.get(name, {}), depth):
            found.setdefault(subjects.get(keys[0], keys), {}).setdefault(name, {})[keys] = entry
    return found


def _told(entries: Entries, subject: Keys, found: Mapping[str, Mapping[Keys, Any]]) -> int:
    """The cells behind a subject's entries; none where only single cells are named, which are not finished."""
    own = _own(subject, found)
    return entries.cells(own) if own else 0


def _own(subject: Keys, found: Mapping[str, Mapping[Keys, Any]]) -> dict[str, Any]:
    """A subject's entries by mapping, without those of its single cells."""
    return {name: by_keys[subject] for name, by_keys in found.items() if subject in by_keys}


def _together(
    entries: Entries,
    subject: Keys,
    before: Mapping[str, Mapping[Keys, Any]],
    now: Mapping[str, Mapping[Keys, Any]],
    finished: Container[Keys],
) -> dict[str, dict[Keys, Any]] | None:
    """A subject's entries, old and new, as one; of single cells, such as failed ones, those that are not finished."""
    old, new = _own(subject, before), _own(subject, now)
    whole = entries.together(old, new) if old and new else None
    if whole is None:
        return None
    single = {name: {**before.get(name, {}), **now.get(name, {})} for name in {**before, **now}}
    return {
        name: {keys: entry for keys, entry in by_keys.items() if keys not in finished}
        | ({subject: whole[name]} if name in whole else {})
        for name, by_keys in single.items()
    }


def _flat(mapping: Mapping[str, Any], depth: int) -> Iterator[tuple[Keys, Any]]:
    for key, value in mapping.items():
        if depth == 1:
            yield (str(key),), value
        else:
            yield from (((str(key), *inner), entry) for inner, entry in _flat(value, depth - 1))


def _nested(entries: Mapping[Keys, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for keys, entry in entries.items():
        place = found
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = entry
    return found


def _counted(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"
