"""Table 12: a grid that is half measured still names every line."""

from typing import Any

from hardsight_studies.gr.table12 import cells, figures, table
from hardsight_studies.gr.trainings import gr


def results(last: dict[tuple[float, str], float]) -> dict[str, Any]:
    def number(value: float) -> dict[str, Any]:
        return {"mean": value, "sd": None, "values": [value]}

    return {
        "preset": "paper", "cells": len(last), "cells_planned": 99, "seeds": [0], "hardware": ["H"], "date": "d",
        "versions": {"torch": "2"}, "curves": {}, "failed": {},
        "accuracies": {
            f"rate={rate},method={method}": {"last": number(value), "best": number(value + 0.01)}
            for (rate, method), value in last.items()
        },
    }  # fmt: skip


def test_last_and_best_stand_in_the_grid() -> None:
    printed = table(results({(0.4, gr(6, 0.4)): 0.58, (0.4, gr(4, 0.1)): 0.5}))
    assert "| 0.4 | – | – | 58.0 (59.0) | – | – | 60.0 (6) |" in printed
    assert printed.startswith(
        "**Result.** At 40 % noise the best of 2 of 30 pairs measured is λ = 0.4, β = 6 (58.0); in the paper λ = 0.4, "
        "β = 6 (60.0)."
    )


def test_the_paper_has_two_best_pairs_at_60_percent() -> None:
    printed = table(results({(0.6, gr(6, 0.4)): 0.4, (0.6, gr(4, 0.1)): 0.3}))
    assert "in the paper λ = 0.4, β = 6 and λ = 0.5, β = 8 (49.9)." in printed


def test_the_legend_names_lines_of_every_panel() -> None:
    figure = figures(results({(0.2, gr(4, 0.1)): 0.5, (0.2, gr(6, 0.1)): 0.6, (0.4, gr(8, 0.5)): 0.58}))["grid"]
    assert len(figure.axes) == 2
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    assert {text.get_text() for text in legend.get_texts()} == {"β = 4", "β = 6", "β = 8", "paper, its best β"}


def test_the_papers_pairs_come_first() -> None:
    assert [cell.settings["method"] for cell in cells("paper")[:6]] == [
        gr(4, 0.1), gr(4, 0.2), gr(6, 0.3), gr(6, 0.4), gr(8, 0.5), gr(8, 0.6),
    ]  # fmt: skip
