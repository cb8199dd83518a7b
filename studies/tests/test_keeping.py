"""Results whose records are not at hand stay when others are judged, where the settings are the same."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hardsight_studies import Study, get_study, judge_study, studies
from hardsight_studies.framework import finished_cells, run_details, spread
from hardsight_studies.keeping import Entries, Keys, _by_subject, _nested, _told, joined, seeds_told, staying

from hardsight.training.sweeps import FAILED, FINISHED, Cell, grid, status_of

ROOT = Path(__file__).parents[2]
# Their numbers are over all cells: curves and tests over all seeds and pairs, or one cell is all there is.
OVER_ALL_CELLS = {"avh-figure3", "avh-figure15", "avh-table3"}


def cells(preset: str) -> list[Cell]:
    return grid(method=["plain", "fast", "slow"], seed=[0, 1, 2])


def judge(preset: str, folder: Path) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    for cell in finished_cells(folder, cells(preset)):
        found.setdefault(cell.settings["method"], []).append(run_details(folder / cell.name)["value"])
    failed = {cell.name: "no number" for cell in cells(preset) if status_of(folder / cell.name) == FAILED}
    return {
        "settings": {"epochs": (3, 4)},
        "accuracies": {method: {"last": spread(values)} for method, values in found.items()},
        "firsts": {method: values[0] for method, values in found.items()},
        "failed": failed,
    }


STUDY = Study(
    id="tiny",
    title="",
    about="",
    reference="",
    cells=cells,
    compute=lambda preset, mine, options: None,
    judge=judge,
    table=lambda results: "",
    entries=Entries(("accuracies", "firsts", "failed"), lambda cell: cell.settings["method"]),
)


def record(folder: Path, method: str, seed: int, value: float = 0.5, status: str = FINISHED, **about: Any) -> None:
    details = {"status": status, "seed": seed, "device": "cpu", "versions": {"torch": "2.0"}, "value": value, **about}
    place = folder / f"method={method},seed={seed}"
    place.mkdir(parents=True)
    (place / "run.json").write_text(json.dumps(details))


class Judged:
    """The results folder, one folder of records a judgement, and what was said."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said, self.count = folder, list[str](), 0
        self.path = folder / "tiny-smoke.json"

    def judge(self, *rows: Mapping[str, Any], study: Study = STUDY) -> dict[str, Any]:
        self.count += 1
        self.said.clear()
        place = self.folder / f"records{self.count}"
        for row in rows:
            record(place, **row)
        judge_study(study, "smoke", place, self.folder, say=self.said.append)
        return json.loads(self.path.read_text())


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    return Judged(tmp_path)


def seeds(method: str, *chosen: int, **about: Any) -> list[dict[str, Any]]:
    return [{"method": method, "seed": seed, **about} for seed in chosen]


def test_what_the_records_do_not_hold_stays_as_if_all_were_judged_together(judged: Judged) -> None:
    rows = {method: seeds(method, 0, 1, value=at / 10) for at, method in enumerate(("plain", "fast", "slow"))}
    together = judged.judge(*(row for several in rows.values() for row in several))
    assert judged.said == []
    judged.path.unlink()
    for method in ("slow", "plain", "fast"):
        found = judged.judge(*rows[method])
    assert judged.said == [f"kept 2 entries of {judged.path} whose records are not here"]
    assert json.dumps(found) == json.dumps(together)


def test_an_entry_that_both_have_is_the_new_one(judged: Judged) -> None:
    judged.judge(*seeds("plain", 0, 1, value=0.1), *seeds("fast", 0))
    found = judged.judge(*seeds("plain", 0, 1, value=0.2))
    assert found["accuracies"]["plain"]["last"]["values"] == [0.2, 0.2]
    assert found["firsts"] == {"plain": 0.2, "fast": 0.5}
    assert found["cells"] == 3


def test_fewer_seeds_do_not_replace_more(judged: Judged) -> None:
    judged.judge(*seeds("plain", 0, 1, value=0.1), *seeds("fast", 0))
    found = judged.judge(*seeds("plain", 2, value=0.2, device="gpu"), *seeds("slow", 0))
    assert found["firsts"] == {"plain": 0.1, "fast": 0.5, "slow": 0.5}
    assert found["accuracies"]["plain"]["last"]["values"] == [0.1, 0.1]
    assert judged.said == [
        f"kept 1 entry of {judged.path} whose records are not here, and 1 of more cells than are here"
    ]
    # Neither the seed nor the device of what did not come in.
    assert (found["cells"], found["seeds"], found["hardware"]) == (4, [0, 1], ["cpu"])


def test_a_file_that_rests_on_more_everywhere_is_left_as_it_is(judged: Judged) -> None:
    judged.judge(*seeds("plain", 0, 1))
    marked = judged.path.read_text().replace('"date": "', '"date": "of old, ')
    judged.path.write_text(marked)
    judged.judge(*seeds("plain", 2))
    assert judged.path.read_text() == marked
    assert judged.said == [f"kept 1 entry of {judged.path} of more cells than are here"]


def test_the_header_is_of_both(judged: Judged) -> None:
    judged.judge(*seeds("fast", 0, 1, device="gpu", versions={"torch": "2.0", "triton": "3"}))
    judged.path.write_text(judged.path.read_text().replace('"date": "', '"date": "of old, '))
    judged.judge(*seeds("slow", 0, versions={"torch": "1.9"}))
    found = judged.judge(*seeds("plain", 2, versions={"torch": "2.1"}))
    assert found["versions"] == {"torch": "1.9, 2.0, 2.1", "triton": "3"}
    assert (found["hardware"], found["seeds"]) == (["cpu", "gpu"], [0, 1, 2])
    assert (found["cells"], found["cells_planned"]) == (4, 9)
    assert "of old" not in found["date"]


def test_cells_that_failed_go_with_their_subject(judged: Judged) -> None:
    judged.judge(*seeds("plain", 0), *seeds("fast", 0, 1, 2, status=FAILED), *seeds("slow", 0, status=FAILED))
    found = judged.judge(*seeds("slow", 0), *seeds("plain", 0), *seeds("plain", 1, status=FAILED))
    assert list(found["failed"]) == ["method=plain,seed=1", *(f"method=fast,seed={seed}" for seed in range(3))]
    assert list(found["accuracies"]) == ["plain", "slow"]
    assert found["cells"] == 2


def test_other_settings_replace_all(judged: Judged) -> None:
    judged.judge(*seeds("plain", 0), *seeds("fast", 0))
    other = dataclasses.replace(STUDY, judge=lambda preset, folder: judge(preset, folder) | {"settings": 4})
    found = judged.judge(*seeds("slow", 0), study=other)
    assert list(found["accuracies"]) == ["slow"]
    assert (found["cells"], found["settings"]) == (1, 4)
    assert judged.said == [f"replaced {judged.path}, of 2 cells, by the results of 1: the two do not mix"]


def test_a_study_over_all_cells_replaces_its_file(judged: Judged) -> None:
    judged.judge(*seeds("plain", 0), *seeds("fast", 0))
    found = judged.judge(*seeds("slow", 0), study=dataclasses.replace(STUDY, entries=None))
    assert list(found["accuracies"]) == ["slow"]
    assert len(judged.said) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda found: "{",
        lambda found: "[]",
        lambda found: json.dumps(found | {"study": "gr-figure1"}),
        lambda found: json.dumps(found | {"preset": "paper"}),
        lambda found: json.dumps({name: value for name, value in found.items() if name != "seeds"}),
        lambda found: json.dumps(found | {"seeds": [[0]]}),
        lambda found: json.dumps(found | {"accuracies": [1, 2]}),
        lambda found: json.dumps(found | {"accuracies": {"plain": {"last": {"values": None}}}}),
    ],
)
def test_a_file_that_is_damaged_or_another_is_replaced(damage: Any, judged: Judged) -> None:
    found = judged.judge(*seeds("plain", 0))
    judged.path.write_text(damage(found))
    assert list(judged.judge(*seeds("slow", 0))["accuracies"]) == ["slow"]


def test_entries_within_nested_mappings_and_what_follows_from_all(tmp_path: Path) -> None:
    study = get_study("amc-table1")
    assert study.entries is not None
    old = json.loads((ROOT / "studies" / "results" / "amc-table1-paper.json").read_text())
    assert old["not_computed"] == ["cifar100", "svhn"]
    row = old["accuracy"]["script 0.1"]["cifar10"]
    judged = {"accuracy": {"script 0.1": {"svhn": row}}, "not_computed": ["mnist", "cifar10", "cifar100"]}
    planned = study.cells("paper")
    stays = staying(study.entries, "paper", planned, old, judged, [])
    assert stays is not None
    found = joined(study.entries, planned, old, old | judged | {"cells": 15}, stays)
    assert [*found["accuracy"]["script 0.1"]] == [*old["accuracy"]["script 0.1"], "svhn"]
    assert (found["not_computed"], found["cells"]) == (["cifar100"], old["cells"] + 15)
    assert "SVHN" in study.table(found)


# ---------------------------------------------------------------------------------------------------------------------
# The studies and their committed results.


def test_every_study_says_what_stands_for_itself() -> None:
    assert {study.id for study in studies() if study.entries is None} == OVER_ALL_CELLS


def committed() -> list[Any]:
    found = [(study, preset) for study in studies() if study.entries for preset in ("cpu", "paper")]
    places = {f"{study.id}-{preset}": (study, preset) for study, preset in found}
    return [
        pytest.param(*one, id=name) for name, one in places.items() if (ROOT / f"studies/results/{name}.json").is_file()
    ]


def told_by(study: Study, preset: str, results: Mapping[str, Any]) -> dict[Keys, int]:
    assert study.entries is not None
    by_subject = _by_subject(study.entries, study.cells(preset), results)
    return {subject: _told(study.entries, subject, found) for subject, found in by_subject.items()}


def part_of(study: Study, preset: str, results: Mapping[str, Any], subjects: Sequence[Keys]) -> dict[str, Any]:
    """The results as they would be judged from the cells of these subjects alone."""
    assert study.entries is not None
    found, told = _by_subject(study.entries, study.cells(preset), results), told_by(study, preset, results)
    part = {**results, "cells": sum(told[subject] for subject in subjects)}
    for name in study.entries.names:
        mine = {keys: entry for subject in subjects for keys, entry in found[subject].get(name, {}).items()}
        part[name] = _nested(mine)
    return part if study.entries.derived is None else part | study.entries.derived(preset, part)


@pytest.mark.parametrize(("study", "preset"), committed())
def test_committed_entries_tell_how_many_cells_they_rest_on(study: Study, preset: str) -> None:
    results = json.loads((ROOT / f"studies/results/{study.id}-{preset}.json").read_text())
    told = told_by(study, preset, results)
    assert study.entries is not None
    assert told.keys() <= {study.entries.subject(cell) for cell in study.cells(preset)}
    # Some cells are behind no number until the others of their group are finished.
    alone = study.entries.cells is seeds_told
    assert sum(told.values()) == results["cells"] if alone else sum(told.values()) <= results["cells"]


@pytest.mark.parametrize(("study", "preset"), committed())
def test_committed_results_split_in_two_and_merged_are_the_same(study: Study, preset: str, tmp_path: Path) -> None:
    results, planned = json.loads((ROOT / f"studies/results/{study.id}-{preset}.json").read_text()), study.cells(preset)
    assert study.entries is not None
    told = told_by(study, preset, results)
    results["cells"] = sum(told.values())
    halves = [part_of(study, preset, results, list(told)[at::2]) for at in (0, 1)]
    for old, new in (halves, halves[::-1]):
        stays = staying(study.entries, preset, planned, old, new, [])
        assert stays is not None
        assert stays.cells == told_by(study, preset, old)
        merged = joined(study.entries, planned, old, new, stays)
        assert json.dumps({name: merged[name] for name in results}) == json.dumps(results)
