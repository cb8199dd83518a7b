"""AVH's Table 5: scales chosen by validation, averages over domains, domains of digits, a backbone that is missing."""

import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from hardsight_studies.avh import generalization
from hardsight_studies.avh.generalization import accuracy, average, differences, digit_domains, load_domains, printed
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import plan
from hardsight_studies.engine.rows import Row, Rows, read
from hardsight_studies.engine.running import run_study
from hardsight_studies.engine.study import get

STUDY = get("avh-table5")


def test_the_scale_is_that_of_best_validation_accuracy(tmp_path: Path) -> None:
    options = Options(say=lambda line: None)
    run_study(STUDY, "smoke", tmp_path, output=tmp_path / "runs", only=["method=avh,held_out=plain,seed=0"],
              options=options)  # fmt: skip
    (row,) = read("avh-table5", tmp_path)
    of = row.metrics
    best = max((5, 10), key=lambda scale: of[f"validation_at_{scale}"])
    assert (of["scale"], of["validation_accuracy"]) == (best, of[f"validation_at_{best}"])
    assert of["test_accuracy"] == of[f"test_at_{best}"]


def test_the_papers_runs_are_four_domains_three_methods_three_seeds() -> None:
    scratch = [run for run in plan(STUDY, "paper") if run.settings["begin"] == "scratch"]
    assert len(scratch) == 4 * 3 * 3
    # All of one seed come before the next one's.
    assert [run.seed for run in scratch] == sorted(run.seed for run in scratch)


def test_runs_of_a_backbone_that_is_not_installed_are_left_out_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(generalization, "missing_packages", lambda: ["efficientnet_lite_pytorch"])
    said: list[str] = []
    run = plan(STUDY, "cpu", tmp_path)[0]
    generalization.compute([run], "cpu", Options(say=said.append))
    assert len(said) == 1
    assert run.name in said[0]
    assert not run.folder.exists()


def test_printed_averages_are_the_means_of_the_printed_rows() -> None:
    for name, row in printed().items():
        assert row[4] == pytest.approx(statistics.fmean(row[:4]), abs=0.0101), name


def made(**methods: dict[str, list[float]]) -> Rows:
    rows = [
        Row("avh-table5", "paper", {"begin": "frozen", "method": method, "held_out": domain}, seed,
            {"test_accuracy": value})
        for method, domains in methods.items() for domain, values in domains.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip
    return Rows("avh-table5", "paper", rows)


def test_the_average_is_over_seeds_that_have_every_domain() -> None:
    rows = made(avh={"photo": [0.5, 0.6, 0.9], "sketch": [0.3, 0.2]})
    found: Any = average(rows, "frozen", "avh")
    assert found.values == pytest.approx((0.4, 0.4))
    assert accuracy(rows)[1] == [["frozen, AVH loss", "66.67 ± 20.82", "25.00 ± 7.07", "40.00 ± 0.00"]]


def test_differences_are_paired_by_seed_and_need_every_domain() -> None:
    base = {"photo": [0.5, 0.9], "sketch": [0.3, 0.1]}
    ahead = {"photo": [0.52, 0.92], "sketch": [0.32, 0.14]}
    (line,) = differences(made(cross_entropy=base, avh=ahead))[1]
    # Over seeds one domain varies alone; over domains: 2 and 3 points, t = 12.7 of one degree of freedom.
    assert line[:3] == ["frozen", "+2.00", "+3.00"]
    assert line[3].startswith("+2.50 [-3.85, +8.85")
    assert line[4].startswith("+2.50 [-3.85, +8.85")
    assert differences(made(cross_entropy=base, avh={"photo": [0.6]}))[1] == []


def test_digits_have_three_domains_that_look_different() -> None:
    data = digit_domains(300)
    assert data.domains is not None
    brightness = [float(data.images[data.domains == at].float().std()) for at in range(3)]
    assert brightness[1] < 0.5 * brightness[0]
    assert torch.equal(torch.bincount(data.domains), torch.full((3,), 100))
    assert torch.equal(digit_domains(300).images, data.images)


@pytest.mark.data
def test_pacs_trains_and_validates_by_its_authors_lists(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARDSIGHT_DATA", str(data_root))
    data, validation = load_domains("pacs", 8, 450)
    assert len(data) == 450
    assert not isinstance(validation, float)
    assert len(validation) == 50
    assert data.domain_names == ("art_painting", "cartoon", "photo", "sketch")
