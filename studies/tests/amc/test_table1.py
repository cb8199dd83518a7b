"""AMC's Table 1: both schedules as configurations, the t-test against the paper's own p-values, absent data."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hardsight_studies import Options, get_study
from hardsight_studies.amc.looking import p_value, shown_p
from hardsight_studies.amc.recipes import LOSSES, SCHEDULES, length_name, recipe
from hardsight_studies.amc.table1 import cells, compute, configure
from hardsight_studies.amc.table1_page import PAPER, PAPER_DEVIATION, PAPER_P, figures, table
from hardsight_studies.framework import run_details
from matplotlib.text import Text

from hardsight import datasets
from hardsight.training import Cell
from hardsight.training.assembly import make_plan
from hardsight.training.config import TrainingConfig
from hardsight.training.reading import build
from hardsight.training.schedules import Position


@pytest.fixture(scope="module")
def smoke(ran: Callable[..., Any]) -> Any:
    return ran("amc-table1")


def samples_of(mean: float, deviation: float, seed: int) -> list[float]:
    """Five numbers with exactly this mean and standard deviation."""
    drawn = np.random.default_rng(seed).normal(size=5)
    return (mean + deviation * (drawn - drawn.mean()) / drawn.std(ddof=1)).tolist()


@pytest.mark.parametrize("data", PAPER)
def test_the_test_gives_the_papers_p_values(data: str) -> None:
    """From the printed means and standard deviations: so these are copied rightly, and the test is the paper's."""
    _, euclidean, amc = (
        samples_of(*numbers, seed) for seed, numbers in enumerate(zip(PAPER[data], PAPER_DEVIATION[data], strict=True))
    )
    assert p_value(amc, euclidean) == pytest.approx(PAPER_P[data], abs=6e-5)
    assert p_value(amc, euclidean) == p_value(euclidean, amc)


def test_a_p_value_is_never_zero() -> None:
    p = p_value([90.0, 90.1, 90.2], [10.0, 10.1, 10.2])
    assert p is not None
    assert 0 < p < 1e-8
    assert shown_p(p) == f"{p:.2g}" != "0"


def test_a_row_holds_the_papers_numbers_and_both_p_values(smoke: Any) -> None:
    row = {loss: {"mean": 82.0 + at, "sd": 0.2, "values": [82.0 + at] * 5} for at, loss in enumerate(LOSSES)}
    row |= {"p_amc_euclidean": 0.2, "p_amc_cross_entropy": 0.01}
    page = table({**smoke.results, "accuracy": {"script 1.0": {"cifar10": row}}})
    assert "| 0.2 | 82.35 ± 0.17 / 82.60 ± 0.21 / 82.97 ± 0.20, p = 0.0214 |" in page
    assert (
        "CIFAR-10, 5 runs: AMC ends 1.00 points above + Euclidean (p = 0.2, not significant at 0.05) and 2.00 points "
        "above cross-entropy (p = 0.01, significant at 0.05). In the paper it ends 0.37 points above (p = 0.0214) and "
        "0.62 points above."
    ) in page
    assert (
        "above cross-entropy in 1 (significantly, p < 0.05, in 1) and above + Euclidean in 1 (significantly, p < 0.05, "
        "in 0)."
    ) in page


def test_a_title_stands_above_its_own_panel(smoke: Any) -> None:
    """The longest name of a data set, three panels beside each other."""
    row = smoke.results["accuracy"]["paper 0.01"]["digits"]
    keys = ("script 0.1", "paper 0.1", "script 1.0")
    drawn = figures({**smoke.results, "accuracy": {key: {"cifar100": row} for key in keys}})["differences"]
    drawn.draw_without_rendering()
    for axes in drawn.axes:
        title = next(
            text for text in axes.get_children() if isinstance(text, Text) and text.get_text() == axes.get_title("left")
        )
        assert title.get_window_extent().x1 <= axes.get_window_extent().x1


def test_too_few_or_equal_runs_have_no_p_value() -> None:
    assert p_value([1.0], [1.0, 2.0]) is None
    assert p_value([1.0, 1.0], [2.0, 2.0]) is None


def test_the_weights_of_the_two_schedules_differ_by_a_hundred() -> None:
    weights = {name: recipe("cifar10", "amc", name, seed=0)["feature_loss"]["weight"] for name in SCHEDULES}
    assert weights["script"] == pytest.approx(100 * weights["paper"])
    script, paper = (build(TrainingConfig, recipe("cifar10", "amc", name, seed=0)) for name in ("script", "paper"))
    assert (script.epochs, paper.epochs) == (200, 300)
    assert (script.average_decay, paper.average_decay) == (0.999, None)
    assert (script.data.shift, paper.data.shift) == (2, 0)
    assert not script.data.flip
    assert script.feature_loss is not None
    assert script.feature_loss.pairs == "predictions"


def test_the_euclidean_loss_is_printed_as_a_sum_and_run_as_a_mean_over_dimensions() -> None:
    options = {name: recipe("cifar10", "euclidean", name, seed=0)["feature_loss"]["options"] for name in SCHEDULES}
    assert options == {
        "script": {"margin": 1.0, "per_dimension": True},
        "paper": {"margin": 1.0, "per_dimension": False},
    }
    with pytest.raises(KeyError):
        recipe("cifar10", "triplet", "script", seed=0)


@pytest.mark.data
@pytest.mark.parametrize("data", ["mnist", "cifar10"])
def test_the_noise_is_a_share_of_full_brightness(data: str, data_root: Path) -> None:
    """Standardised inputs with this noise are standardised pixels with the script's."""
    options = recipe(data, "amc", "script", seed=0)["model"]["options"]
    images = datasets.load(data, root=data_root).images.float() / 255
    assert options["noise"] * float(images.std()) == pytest.approx(0.15, rel=0.01)


def test_a_shortened_training_is_shorter_in_everything() -> None:
    whole, tenth = (build(TrainingConfig, recipe("cifar10", "amc", "paper", seed=0, length=one)) for one in (1.0, 0.1))
    assert tenth.epochs == 30
    plans = [make_plan(one.schedule) for one in (whole, tenth)]
    for share in (0.1, 0.2, 0.5, 0.9):
        at = [Position(round(share * one.epochs) * 10, 10, one.epochs) for one in (whole, tenth)]
        long, short = (
            (plan.learning_rate(place), plan.feature_loss(place)) for plan, place in zip(plans, at, strict=True)
        )
        assert short == pytest.approx(long, abs=1e-9)
    decays = [recipe("cifar10", "amc", "script", seed=0, length=one)["average_decay"] for one in (1.0, 0.1)]
    # As long a memory, counted in shares of the training.
    assert (1 - decays[1]) == pytest.approx(10 * (1 - decays[0]))
    assert (length_name(1.0), length_name(0.1)) == ("full length", "1/10 of the length")


def test_every_cell_of_the_paper_is_a_configuration() -> None:
    planned = cells("paper")
    assert len({cell.name for cell in planned}) == len(planned)
    for cell in planned:
        build(TrainingConfig, configure("paper", cell))
    full = [cell for cell in planned if cell.settings["length"] == 1]
    assert len(full) == 4 * 2 * 3 * 5


def test_the_results_are_those_of_the_records(smoke: Any) -> None:
    row = smoke.results["accuracy"]["script 0.01"]["digits"]
    for loss in ("cross-entropy", "euclidean", "amc"):
        found = [
            100 * run_details(smoke.records / cell.name)["results"]["test_accuracy"]
            for cell in cells("smoke")
            if cell.settings["loss"] == loss and cell.settings["schedule"] == "script"
        ]
        assert row[loss]["values"] == pytest.approx(found, abs=1e-3)
    assert row["p_amc_euclidean"] is None or 0 <= row["p_amc_euclidean"] <= 1
    assert smoke.results["accuracy"]["paper 0.01"]["digits"]["p_amc_euclidean"] is None


def test_table_and_figure_cope_with_what_is_not_finished(smoke: Any) -> None:
    assert "Schedule of the authors' script (weight 10), 1/100 of the length" in table(smoke.results)
    assert "digits, 1 run: AMC ends" in table(smoke.results)
    assert table(smoke.results).count("(too few runs to tell)") == 2
    assert list(figures(smoke.results)) == ["differences"]
    partly = copy.deepcopy(smoke.results)
    del partly["accuracy"]["script 0.01"]["digits"]["amc"]
    partly["not_computed"] = ["svhn"]
    assert "digits: only cross-entropy, + Euclidean so far." in table(partly)
    assert "Not computed (the data were not at hand, or the time was over): SVHN." in table(partly)
    assert list(figures(partly)) == ["differences"]


def test_data_that_are_absent_are_named_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARDSIGHT_DATA", str(tmp_path))
    said: list[str] = []
    cell = Cell({"data": "svhn", "schedule": "script", "length": 0.1, "loss": "amc", "seed": 0})
    compute("paper", [(cell, tmp_path / "r" / cell.name)], Options(say=said.append))
    assert len(said) == 1
    assert said[0].startswith(f"skipped {cell.name}: svhn was looked for in")
    assert not (tmp_path / "r").exists()


def test_the_study_is_registered() -> None:
    assert get_study("amc-table1").at_once["paper"] > 1
