"""GR's Table 3: the paper's numbers and claims, the order of the cells, and a run of the smallest preset."""

from pathlib import Path
from typing import Any

import pytest
from hardsight_studies.framework import Options, run_details
from hardsight_studies.gr.table3 import TABLE3, figures
from hardsight_studies.gr.table3_numbers import COLUMNS, PAPER, RATES, SPREADS, best_in_paper, ends
from hardsight_studies.gr.table3_page import table
from hardsight_studies.gr.table3_trainings import OTHERS, cells
from hardsight_studies.gr.trainings import gr, knobs
from hardsight_studies.results_file import read_results
from hardsight_studies.running import run_study


def test_the_paper_says_what_it_says() -> None:
    assert len(PAPER) == 24
    assert [PAPER[rate, "cce"][1] for rate in RATES] == [76.8, 60.9, 37.2, 16.1]
    assert [PAPER[rate, best_in_paper(rate)][1] for rate in RATES] == [87.8, 83.3, 72.5, 32.8]
    assert [knobs(best_in_paper(rate))[1] for rate in RATES] == [0.5, 1.0, 2.0, 2.0]
    for (rate, method), (best, last, corrupted, intact) in PAPER.items():
        assert best >= last, (rate, method)
        # CCE fits the corrupted labels best at every rate, as the paper observes.
        assert corrupted <= PAPER[rate, "cce"][2]
        assert 0 < intact < 100


def test_paper_cells_come_in_order_of_value() -> None:
    pairs = [(cell.settings["rate"], cell.settings["method"]) for cell in cells("paper")]
    assert pairs[:3] == [(0.4, "cce"), (0.4, gr(16, 1)), (0.4, gr(12, 0.5))]
    assert pairs[3:9] == [(rate, one) for rate in (0.2, 0.6, 0.8) for one in ("cce", best_in_paper(rate))]
    assert {*pairs[:24]} == {*PAPER}
    assert {*pairs} == {*PAPER} | {
        (r, gr(beta, lam)) for r in RATES for lam, betas in SPREADS.items() for beta in betas
    }
    assert len({cell.name for cell in cells("paper")}) == len(pairs)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gr-table3")
    run_study(TABLE3, "smoke", folder / "records", folder / "results", options=Options(say=lambda line: None))
    return folder


def test_the_table_shows_what_the_records_say(smoke: Path) -> None:
    results = read_results(TABLE3, smoke / "results", "smoke")
    assert (results["cells"], results["cells_planned"]) == (4, 4)
    cell = cells("smoke")[3]
    said = run_details(smoke / "records" / cell.name)["results"]
    shown = (said["test_accuracy_best"], said["test_accuracy"], said["corrupted_accuracy"], said["intact_accuracy"])
    row = " | ".join(
        f"{100 * value:.1f} ({paper})" for value, paper in zip(shown, PAPER[0.4, gr(12, 0.5)], strict=True)
    )
    printed = table(results)
    assert len(said["recalls"]) == 10
    learnt = sum(share > 0.5 for share in said["recalls"])
    assert f"| 40 % | GR (β = 12, λ = 0.5) | {row} | {learnt} of 10 |" in printed
    # Recall weighted by how often a class comes is the accuracy.
    assert sum(said["recalls"]) / 10 == pytest.approx(said["test_accuracy"], abs=0.03)
    assert "do not compare" in printed
    assert [*figures(results)] == ["curves"]
    assert len(figures(results)["curves"].axes) == 4


def results_of(last: dict[tuple[float, str], float]) -> dict[str, Any]:
    def number(value: float) -> dict[str, Any]:
        return {"mean": value / 100, "sd": None, "values": [value / 100]}

    return {
        "preset": "paper", "cells": len(last), "cells_planned": 99, "seeds": [0], "hardware": ["H"],
        "date": "2026-01-01", "versions": {"torch": "2"}, "curves": {}, "failed": {},
        "accuracies": {
            f"rate={rate},method={method}": dict.fromkeys(COLUMNS, number(value))
            for (rate, method), value in last.items()
        },
    }  # fmt: skip


def test_sentences_follow_the_numbers() -> None:
    as_printed = table(results_of({pair: numbers[1] for pair, numbers in PAPER.items()}))
    assert (
        "never falls with the noise: 0.5 at 20 %, 1 at 40 %, 2 at 60 %, 2 at 80 % (paper: 0.5, 1, 2, 2)" in as_printed
    )
    two = {pair: numbers[1] for pair, numbers in PAPER.items() if pair[0] in (0.2, 0.6)}
    assert "0.5 at 20 %, 2 at 60 % (paper: 0.5, 2)" in table(results_of(two)), "the paper's of the same rates"
    assert (
        "At 40 % noise the best of 5 GR settings measured (chosen by the test set, as in the paper), "
        "GR (β = 16, λ = 1), ends 22.4 points above CCE (83.3 against 60.9); the paper's best ends 22.4 points above "
        "it."
    ) in as_printed
    swapped = dict(PAPER)
    swapped[0.6, gr(12, 2)], swapped[0.6, gr(0.5, 0)] = swapped[0.6, gr(0.5, 0)], (90.0, 90.0, 0.0, 0.0)
    assert "does not rise steadily" in table(results_of({pair: numbers[1] for pair, numbers in swapped.items()}))


def test_what_is_not_measured_yet_is_named() -> None:
    alone = table(results_of({(0.4, "cce"): 60.9, (0.4, gr(4, 0.5)): 70.0}))
    assert sum("| – (" in line for line in alone.splitlines()) == 23, "one of the paper's 24 rows is measured"
    assert "| 80 % | GR (β = 12, λ = 2) | – (33.0) | – (32.8) | – (14.2) | – (32.6) |  |" in alone
    assert "| 40 % | GR (β = 4, λ = 0.5) | 70.0 | 70.0 | 70.0 | 70.0 |  |" in alone
    assert "At 40 % noise the one GR setting measured, GR (β = 4, λ = 0.5), ends 9.1 points above CCE" in alone
    assert "other spreads of the paper's Figures 7 to 10, 1 is measured." in alone


def test_labels_learnt_by_heart_are_those_fitted_beyond_the_right_ones() -> None:
    as_printed = table(results_of({pair: numbers[2] for pair, numbers in PAPER.items()}))
    both = "by +15.7/+23.0/+44.1/+34.3 points beyond the share of them that is right, the paper's by +15.7/+23.0/+44.1"
    assert f"at 20/40/60/80 % noise CCE fits the given labels {both}" in as_printed
    half = table(results_of({(0.4, "cce"): 52.2, (0.6, gr(12, 2)): 30.0}))
    assert "at 40 % noise CCE fits the given labels by -7.8 points" in half


def test_cells_without_augmentation_have_a_table_of_their_own() -> None:
    bare = [cell for cell in cells("paper") if "protocol" in cell.settings]
    assert [(cell.settings["rate"], cell.settings["method"]) for cell in bare[:3]] == [
        (0.4, "cce"), (0.4, gr(16, 1)), (0.4, gr(12, 0.5)),
    ]  # fmt: skip
    results = results_of({(0.4, "cce"): 60.9, (0.4, gr(16, 1)): 70.0})
    assert "Without crops" not in table(results)
    own = results_of({(0.4, "cce"): 50.0, (0.4, gr(16, 1)): 75.0})["accuracies"]
    results["accuracies"] |= {f"{name},protocol=no-augmentation": one for name, one in own.items()}
    results["failed"] = {"rate=0.6,method=cce,protocol=no-augmentation,seed=0": "the loss is NaN"}
    printed, without = table(results).split("Without crops")
    assert "| 40 % | CCE | 60.9 (82.8)" in printed
    assert "ends 9.1 points above CCE (70.0 against 60.9)" in printed
    assert "| 40 % | CCE | 50.0 (82.8)" in without
    assert "ends 25.0 points above CCE (75.0 against 50.0)" in without
    assert "| 60 % | CCE | failed (69.5)" in without
    assert "| 60 % | CCE | – (69.5)" in printed
    assert "| 80 %" not in without, "what was not measured has no row there"


def test_cells_as_the_authors_code_trains_have_a_table_of_their_own() -> None:
    planned = [cell for cell in cells("paper") if cell.settings.get("protocol") == "released"]
    assert {(0.4, "cce"), (0.4, gr(16, 1)), (0.4, gr(12, 0.5))} <= {
        (cell.settings["rate"], cell.settings["method"]) for cell in planned
    }
    tree = OTHERS["released"].protocol.tree_of(planned[0])
    assert (tree["epochs"], tree["schedule"]["milestones"]) == (154, [77, 113])
    assert (tree["data"]["batch_size"], tree["optimizer"]["weight_decay"]) == (256, 5e-4)
    results = results_of({(0.4, "cce"): 60.9})
    own = results_of({(0.4, "cce"): 50.0, (0.4, gr(16, 1)): 75.0})["accuracies"]
    results["accuracies"] |= {f"{name},protocol=released": one for name, one in own.items()}
    printed, theirs = table(results).split("As the authors' code trains")
    assert "75.0" not in printed
    assert "| 40 % | GR (β = 16, λ = 1) | 75.0 (84.7)" in theirs
    assert "ends 25.0 points above CCE (75.0 against 50.0)" in theirs


def test_what_length_brings_is_said_where_both_lengths_are_measured() -> None:
    ours = {(0.2, "cce"): 86.0, (0.2, gr(12, 0.5)): 82.0, (0.4, "cce"): 80.0, (0.4, gr(16, 1)): 35.0}
    results = results_of(ours)
    assert table(results).startswith("**Result.** At 20 % noise the one GR setting measured")
    # `best` is what `last` is in these results: stopped at its best epoch CCE stands as it ends.
    longer = results_of({(0.4, "cce"): 66.0, (0.4, gr(16, 1)): 84.0})["accuracies"]
    results["accuracies"] |= {f"{name},protocol=long": one for name, one in longer.items()}
    said = table(results)
    assert said.startswith("**Result.** The paper's gain comes out in long trainings and not in those of the printed")
    assert (
        "At 40 % noise the paper's best settings, GR (β = 16, λ = 1), end +18.0 points from CCE in 154 epochs, half of "
        "them at the first learning rate; in the paper +22.4."
    ) in said
    assert "In the 51 epochs in which the printed schedule comes to rest, they end -45.0 points from it." in said
    assert "the long trainings of GR are ahead by +18.0." in said
    assert "not measured yet at 20 %, 60 % and 80 % noise." in said
    assert "of the wrong labels, in the short one" not in said
    assert "cropped" not in said.partition("Preset")[0]
    tree = OTHERS["long"].protocol.tree_of(cells("paper")[0])
    assert (tree["epochs"], tree["optimizer"]["weight_decay"], tree["data"]["flip"]) == (154, 1e-4, True)


def test_nothing_is_said_of_one_method_alone() -> None:
    alone = table(results_of({(0.4, "cce"): 60.9}))
    assert "setting measured" not in alone
    assert "lambda" not in alone


def test_where_trainings_end_is_said_of_rates_with_both() -> None:
    results = results_of({(0.2, "cce"): 60.0, (0.4, "cce"): 50.0, (0.4, gr(16, 1)): 70.0, (0.4, gr(12, 0.5)): 65.0})
    assert ends(results, 0.2) is None
    assert ends(results, 0.6) is None
    found = ends(results, 0.4)
    assert found is not None
    assert (found.cce, found.gr, found.best, found.settings) == (50.0, 70.0, gr(16, 1), 2)


def test_what_is_learnt_goes_with_the_length() -> None:
    pairs = {(0.4, "cce"): 66.0, (0.4, gr(16, 1)): 84.0}
    results = results_of(pairs)
    for protocol in ("long", "no-augmentation"):
        results["accuracies"] |= {
            f"{name},protocol={protocol}": one for name, one in results_of(pairs)["accuracies"].items()
        }
    # As printed the gap is there too: length then carries nothing.
    assert "comes out in long trainings" not in table(results)
    cce, strong = "rate=0.4,method=cce", f"rate=0.4,method={gr(16, 1)}"
    for name, fit in ((cce, 0.039), (f"{cce},protocol=long", 0.397)):
        results["accuracies"][name] = results["accuracies"][name] | {
            "noisy": {"mean": fit, "sd": None, "values": [fit]}
        }
    results["classes_learnt"] = {strong: [4, 10], f"{strong},protocol=long": [10, 10]}
    said = table(results)
    assert "In the long training CCE fits 39.7 % of the wrong labels, in the short one 3.9 %; a blind guess" in said
    assert "In the long training GR learns 10 of the 10 classes, in the short one 4." in said
    assert (
        "flipped, GR ends +18.0 points from CCE in the short training. But GR ends at 84.0 %; the paper prints" in said
    )


def test_a_small_preset_with_one_seed_says_nothing_of_gains() -> None:
    results = results_of({(0.4, "cce"): 60.9, (0.4, gr(12, 0.5)): 70.0}) | {"preset": "cpu"}
    assert "ends 9.1 points above" not in table(results)
    assert "ends 9.1 points above" in table(results | {"seeds": [0, 1]})
