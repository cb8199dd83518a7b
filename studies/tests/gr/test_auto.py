"""The study of the knobs: what its smoke run leaves, and sentences made from the numbers alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from hardsight_studies import Options, read_results, run_study
from hardsight_studies.framework import spread
from hardsight_studies.gr.auto import AUTO_KNOBS, PAPER_BEST, cells, standing, table
from hardsight_studies.gr.choosing import AUTO, AUTO_AS_PRINTED, AUTO_BOUNDED, method_loss
from hardsight_studies.gr.trainings import gr

from hardsight.losses.automatic import BEST_SETTINGS


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("gr-auto")
    options = Options(say=lambda line: None)
    run_study(AUTO_KNOBS, "smoke", folder / "records", folder, only=["method=cce", f"method={AUTO}"], options=options)
    return read_results(AUTO_KNOBS, folder, "smoke")


def test_auto_estimates_and_chooses(smoke: dict[str, Any]) -> None:
    clean, noisy = (smoke["choices"][f"rate={rate},method={AUTO}"] for rate in (0.0, 0.4))
    assert clean["beta"] == [None]
    assert clean["rate"]["mean"] < 0.1
    assert noisy["rate"]["mean"] == pytest.approx(0.4, abs=0.12)
    assert (noisy["beta"], noisy["lam"]) == ([3.0], [0.5]), "nine epochs are too few for a larger emphasis"
    printed = table(smoke)
    assert "| 0 % noise | GR (auto) | 0.0 % | cross-entropy |" in printed
    assert "At 40 % noise auto ends at" in printed
    assert "`digits` (the first 400 training images), digits_cnn, 9 epochs." in printed
    assert AUTO_KNOBS.figures is not None
    figure = AUTO_KNOBS.figures(smoke)["rates"]
    _, beside, _ = figure.axes
    apart = {line.get_label(): [float(value) for value in line.get_ydata()] for line in beside.lines}
    assert apart["CCE"] == [0.0, 0.0]
    ends = [smoke["accuracies"][f"rate={rate},method={AUTO}"]["last"]["mean"] for rate in (0.0, 0.4)]
    cce = [smoke["accuracies"][f"rate={rate},method=cce"]["last"]["mean"] for rate in (0.0, 0.4)]
    assert apart["GR (auto)"] == pytest.approx([100 * (end - base) for end, base in zip(ends, cce, strict=True)])


def results(last: dict[tuple[float, str], float]) -> dict[str, Any]:
    accuracies = {
        f"rate={rate},method={method}": {
            key: {"mean": value, "sd": None, "values": [value]} for key in ("last", "best")
        }
        for (rate, method), value in last.items()
    }
    return {
        "preset": "paper", "cells": len(last), "cells_planned": 99, "seeds": [0], "hardware": ["H"], "date": "d",
        "versions": {"torch": "2"}, "accuracies": accuracies, "curves": {}, "failed": {}, "choices": {},
    }  # fmt: skip


def test_a_loss_to_cross_entropy_is_said(tmp_path: Path) -> None:
    printed = table(results({(0.4, "cce"): 0.8, (0.4, AUTO): 0.7, (0.4, "gce"): 0.6, (0.4, gr(8, 0.5)): 0.702}))
    assert (
        "At 40 % noise auto ends at 70.0: 10.0 points below CCE (80.0), 10.0 points above the best of GCE and SL, GCE "
        "(60.0), level (-0.2) with the best fixed setting (chosen by the test set), GR (β = 8, λ = 0.5) (70.2)."
    ) in printed
    assert "| CCE | – | – | 80.0 (80.0) | – | – |" in printed
    assert json.dumps(results({}))


def test_half_finished_results_have_a_table() -> None:
    printed = table(results({(0.4, "cce"): 0.8, (0.2, AUTO): 0.7}))
    assert "| GR (auto) | – | 70.0 (70.0) | – | – | – |" in printed
    assert "| SL | – | – | – | – | – |" in printed


def test_a_difference_within_the_seeds_is_none() -> None:
    def number(*values: float) -> dict[str, Any]:
        return spread(values)

    assert standing(number(0.501), number(0.5)) == "level (+0.1) with"
    assert standing(number(0.51), number(0.5)) == "1.0 points above"
    # Eight points between seeds: a mean difference of two says nothing, one of twenty does.
    assert standing(number(0.4, 0.48), number(0.42, 0.5)) == "level (-2.0) with"
    assert standing(number(0.2, 0.28), number(0.42, 0.5)) == "22.0 points below"


def test_the_fixed_settings_are_those_of_the_rule() -> None:
    assert {rate: gr(beta, lam) for rate, beta, lam in BEST_SETTINGS[10]} == PAPER_BEST


def test_paper_cells_come_in_order_of_value() -> None:
    names = [tuple(cell.settings.values()) for cell in cells("paper") if "protocol" not in cell.settings]
    assert names[:3] == [(0.4, "cce", 0), (0.4, AUTO, 0), (0.4, gr(16, 1), 0)]
    assert {rate for rate, _, _ in names[:15]} == {0.0, 0.2, 0.4, 0.6, 0.8}
    assert len(names) == len(set(names))
    assert {method for _, method, seed in names if seed == 0} >= {"gce", "sl", gr(8, 0.5)}


def test_long_trainings_have_a_table_and_a_result_of_their_own() -> None:
    longer = [cell for cell in cells("paper") if "protocol" in cell.settings]
    assert {cell.settings["method"] for cell in longer} >= {"cce", AUTO, "gce", "sl", gr(8, 0.5)}
    found = results({(0.4, "cce"): 0.8, (0.4, AUTO): 0.78})
    assert "The same in trainings of" not in table(found)
    own = results({(0.4, "cce"): 0.6, (0.4, AUTO): 0.85, (0.2, AUTO): 0.9})["accuracies"]
    found["accuracies"] |= {f"{name},protocol=long": one for name, one in own.items()}
    short, _, long = table(found).partition("The same in trainings of 154 epochs")
    assert "In trainings of 15 epochs auto ends -2.0 points from CCE at 40 % noise." in short
    assert "In trainings of 154 epochs auto ends +25.0 points from CCE at 40 % noise." in short
    assert "in the mean" not in short.lower(), "of one rate there is no mean"
    assert "| GR (auto) | – | – | 78.0 (78.0) | – | – |" in short
    assert "| GR (auto) | – | 90.0 (90.0) | 85.0 (85.0) | – | – |" in long
    assert "At 40 % noise auto ends at 85.0: 25.0 points above CCE (60.0)" in long


def test_the_result_names_the_best_in_the_mean_over_rates() -> None:
    ends = {(rate, one): end for rate in (0.2, 0.4) for one, end in (("cce", 0.6), ("gce", 0.9), (AUTO, 0.8))}
    said = "In the mean over these rates GCE ends best, at 90.0, auto 80.0."
    assert said in table(results(ends))
    assert said not in table(results(ends | {(0.6, "cce"): 0.1, (0.6, AUTO): 0.7})), "GCE is not measured at 60 %"
    ahead = {pair: 0.95 if pair[1] == AUTO else end for pair, end in ends.items()}
    assert "In the mean over these rates GR (auto) ends best, at 95.0." in table(results(ahead))


def test_records_of_former_rules_keep_their_name_and_their_training() -> None:
    """What was measured as `auto` had no bounds and did not let go of fitted samples; both can be trained again."""
    assert (AUTO_AS_PRINTED, AUTO_BOUNDED) == ("auto", "auto-limited")
    assert AUTO not in (AUTO_AS_PRINTED, AUTO_BOUNDED)
    given = {"beta": "auto", "lam": "auto"}
    assert method_loss(AUTO, 0.4, "mnist") == {"name": "gr", "options": given}
    assert method_loss(AUTO_BOUNDED, 0.4, "mnist") == {"name": "gr", "options": given | {"bounded": True}}
    first = method_loss(AUTO_AS_PRINTED, 0.4, "mnist")
    assert first == {"name": "gr", "options": given | {"as_printed": True, "epsilon": 0.0}}
    former = {(0.4, AUTO_AS_PRINTED): 0.6, (0.4, AUTO_BOUNDED): 0.65}
    printed = table(results({(0.4, "cce"): 0.8, (0.4, AUTO): 0.7} | former))
    assert "| GR (auto, settings within bounds) | – | – | 65.0 (65.0) | – | – |" in printed
    assert "| GR (auto, settings as printed) | – | – | 60.0 (60.0) | – | – |" in printed
    assert "| GR (auto) | – | – | 70.0 (70.0) | – | – |" in printed
