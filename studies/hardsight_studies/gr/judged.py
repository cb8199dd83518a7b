"""What the records of Gradient Rescaling's trainings become: accuracies over seeds, curves, and how they are shown.

Kept, over seeds: the last test accuracy (the headline), the best one (chosen by the test set, as the paper prints it),
and the accuracy on the corrupted and on the intact training labels.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from hardsight.training import Cell
from hardsight.training.sweeps import FAILED, FINISHED, status_of
from hardsight_studies.framework import run_details, shown, spread
from hardsight_studies.gr.trainings import Protocol
from hardsight_studies.keeping import Entries

# What a judged method holds, by the name of it in a record's results.
ACCURACIES = {
    "last": "test_accuracy",
    "best": "test_accuracy_best",
    "corrupted": "corrupted_accuracy",
    "intact": "intact_accuracy",
    "clean": "clean_accuracy",
    "noisy": "noisy_accuracy",
}
_CURVE_POINTS = 40


def key_of(cell: Cell) -> str:
    """What the cells of all seeds share: their name without the seed."""
    return Cell({name: value for name, value in cell.settings.items() if name != "seed"}).name


def kind_of(rate: float, method: str, protocol: str = "") -> str:
    """The same of cells that a rate, a method and, where it is not the study's own, a protocol name."""
    return under_protocol(f"rate={rate},method={method}", protocol)


def under_protocol(kind: str, protocol: str) -> str:
    """A kind of cell under a protocol that is not the study's own."""
    return f"{kind},protocol={protocol}" if protocol else kind


def cell_of(rate: float, method: str, seed: int = 0, protocol: str = "") -> Cell:
    """The training with one loss at one rate of noise; without a protocol under the study's own."""
    named = {"protocol": protocol} if protocol else {}
    return Cell({"rate": rate, "method": method, **named, "seed": seed})


def under(results: Mapping[str, Any], protocol: str) -> dict[str, Any]:
    """The results of the cells of one protocol, under the names that they have under the study's own."""
    mark = under_protocol("", protocol)

    def kept(of: Mapping[str, Any]) -> dict[str, Any]:
        mine = (name for name in of if (mark in name if mark else ",protocol=" not in name))
        return {name.replace(mark, ""): of[name] for name in mine}

    parts = ("accuracies", "curves", "classes_learnt", "failed", "choices")
    return {**results, **{part: kept(results[part]) for part in parts if part in results}}


def kinds_of(cells: Iterable[Cell]) -> list[str]:
    """The kinds of cells of a preset, in their order: what a table names also before it is measured."""
    return list(dict.fromkeys(key_of(cell) for cell in cells))


def together(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was found of a kind of cell with some seeds and with others, as one; None where a seed is in both.

    Numbers are over all seeds in their order; what is told of the first seed alone, of the first of all.
    """
    before, now = (one.get("seeds_of", []) for one in (old, new))
    mergeable = {*old, *new} <= {"accuracies", "curves", "classes_learnt", "failed", "seeds_of", "choices", "weakest"}
    if not before or not now or {*before} & {*now} or not mergeable:
        return None
    seeds = sorted([*before, *now])

    def ordered(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
        by_seed = dict(zip([*before, *now], [*first, *second], strict=True))
        return [by_seed[seed] for seed in seeds]

    def over_all(first: Any, second: Any) -> Any:
        if isinstance(first, Mapping):
            return spread(ordered(first["values"], second["values"]))
        return ordered(first, second) if isinstance(first, Sequence) else first + second

    whole = {**new, **old} if min(before) < min(now) else {**old, **new}
    for name in {"accuracies", "choices"} & whole.keys():
        one, other = old[name], new[name]
        whole[name] = {key: over_all(one[key], other[key]) for key in one if key in other}
    return whole | {"seeds_of": seeds}


# What `judge_cells` finds of every kind of cell.
KINDS = Entries(("accuracies", "curves", "classes_learnt", "failed", "seeds_of"), key_of, together=together)


def judge_cells(cells: Iterable[Cell], folder: Path, protocol: Protocol | None = None) -> dict[str, Any]:
    """Accuracies of every kind of cell over its seeds, curves of the first seed, and what failed and why."""
    by_kind: dict[str, list[Path]] = {}
    seeds: dict[str, list[int]] = {}
    failed: dict[str, str] = {}
    for cell in cells:
        place = folder / cell.name
        if status_of(place) == FINISHED:
            by_kind.setdefault(key_of(cell), []).append(place)
            seeds.setdefault(key_of(cell), []).append(cell.settings["seed"])
        elif status_of(place) == FAILED:
            failed[cell.name] = str(run_details(place).get("error", ""))
    return {
        "protocol": None if protocol is None else dataclasses.asdict(protocol),
        "accuracies": {key: _accuracies(places) for key, places in by_kind.items()},
        "curves": {key: curve(places[0]) for key, places in by_kind.items()},
        "classes_learnt": {
            key: learnt for key, places in by_kind.items() if (learnt := _learnt(places[0])) is not None
        },
        "failed": failed,
        "seeds_of": seeds,
    }


def _learnt(place: Path) -> list[int] | None:
    """How many classes the first seed recognises in more than half of their test images, of how many."""
    shares = run_details(place)["results"].get("recalls")
    return None if shares is None else [sum(share > 0.5 for share in shares), len(shares)]


def _accuracies(places: Sequence[Path]) -> dict[str, Any]:
    results = [run_details(place)["results"] for place in places]
    return {
        name: spread([one[column] for one in results])
        for name, column in ACCURACIES.items()
        # No number where there is nothing to measure: the fit of wrong labels where all are right.
        if all(one.get(column) is not None and one[column] == one[column] for one in results)
    }


def curve(place: Path) -> dict[str, list[int | float]]:
    """Test and training accuracy by epoch, at no more than 40 of them; the last one always."""
    path = place / "epochs.parquet"
    if not path.is_file():
        return {}
    columns = pq.read_table(path, columns=["epoch", "test_accuracy", "train_accuracy"]).to_pydict()
    count = len(columns["epoch"])
    step = -(-count // _CURVE_POINTS)
    kept = sorted({*range(step - 1, count, step), count - 1})
    names = {"epoch": "epoch", "test": "test_accuracy", "train": "train_accuracy"}
    return {ours: [round(columns[name][at], 4) for at in kept] for ours, name in names.items()}


def number_of(results: Mapping[str, Any], key: str, accuracy: str) -> Mapping[str, Any] | None:
    """Mean, standard deviation and values over seeds, as shares; None where it is not measured."""
    return results["accuracies"].get(key, {}).get(accuracy)


def mean_of(results: Mapping[str, Any], key: str, accuracy: str) -> float | None:
    """Mean over seeds in percent; None where it is not measured."""
    number = number_of(results, key, accuracy)
    return None if number is None else 100 * number["mean"]


def gaps(results: Mapping[str, Any], methods: Mapping[float, Sequence[str]], protocol: str = "") -> dict[float, float]:
    """By rate, the last accuracy of the second method less that of the first, in points, where both are measured."""
    found = {}
    for rate, both in methods.items():
        first, second = (mean_of(results, kind_of(rate, method, protocol), "last") for method in both)
        if first is not None and second is not None:
            found[rate] = second - first
    return found


def percent(number: Mapping[str, Any] | None) -> str:
    """`83.3 ± 0.2`, in percent; without a spread where there was one seed."""
    return shown(number, 1, 100)


def shown_accuracy(results: Mapping[str, Any], key: str, accuracy: str) -> str:
    """An accuracy of a kind of cell as `percent`; empty where it is not measured, `failed` where it cannot be."""
    number = number_of(results, key, accuracy)
    if number is None and any(name.rpartition(",seed=")[0] == key for name in results["failed"]):
        return "failed"
    return percent(number)


def shown_last_and_best(results: Mapping[str, Any], key: str) -> str:
    """`83.3 ± 0.2 (84.7 ± 0.1)`; – where it is not measured yet."""
    last, best = (shown_accuracy(results, key, one) for one in ("last", "best"))
    return "–" if not last else last if last == "failed" else f"{last} ({best})"


def several_seeds(results: Mapping[str, Any]) -> bool:
    """Whether any kind of cell has more than one seed: curves and counts of classes are of the first alone."""
    return any(len(of["last"]["values"]) > 1 for of in results["accuracies"].values() if "last" in of)


def classes_head(results: Mapping[str, Any]) -> str:
    """The head of a column of `shown_classes`."""
    return "classes learnt, first seed" if several_seeds(results) else "classes learnt"


def shown_classes(results: Mapping[str, Any], key: str) -> str:
    """`4 of 10`: classes that a kind of cell has learnt; empty where it was not measured."""
    learnt = results.get("classes_learnt", {}).get(key)
    return "" if learnt is None else f"{learnt[0]} of {learnt[1]}"


def first_of(found: Iterable[tuple[str, float | None]]) -> str | None:
    """The name with the largest number, of those that are measured."""
    known = [(value, name) for name, value in found if value is not None]
    return max(known)[1] if known else None
