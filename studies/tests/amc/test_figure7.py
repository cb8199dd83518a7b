"""AMC's Figure 7: λ and margins reach the loss, the best setting is the best, the baseline is cross-entropy."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hardsight_studies.amc.figure7 import cells, configure, figures, table

from hardsight.training.config import TrainingConfig
from hardsight.training.reading import build


def test_balance_and_margin_reach_the_loss() -> None:
    for cell in cells("paper"):
        config, chosen = build(TrainingConfig, configure("paper", cell)), cell.settings
        if chosen["balance"] == 0:
            assert config.feature_loss is None
            continue
        factor = 100 if chosen["schedule"] == "script" else 1
        assert config.feature_loss is not None
        assert config.feature_loss.weight == pytest.approx(factor * chosen["balance"])
        assert config.feature_loss.options == {"margin_radians": chosen["margin"]}


def number(mean: float) -> dict[str, Any]:
    return {"mean": mean, "sd": 0.01, "values": [mean - 0.01 / math.sqrt(2), mean + 0.01 / math.sqrt(2)]}


def test_the_sentence_names_the_best_setting(ran: Callable[..., Any]) -> None:
    results = ran("amc-figure7", "balance=0.0,", "margin=1.5").results
    assert [row["balance"] for row in results["settings"]["script"]] == [0.0, 0.1]
    assert "of 1 setting lie" in table(results)
    assert list(figures(results)) == ["script"]
    made = [(0.0, 0.5, 0.8), (0.1, 0.5, 0.81), (1.0, 0.5, 0.5), (0.1, 1.0, 0.83)]
    rows = [{"balance": one, "margin": other, "accuracy": number(mean)} for one, other, mean in made]
    results["settings"] = {"paper": rows}
    assert "2 of 3 settings lie above cross-entropy alone (80.00 ± 1.00); the best is λ = 0.1, m_g = 1" in table(
        results
    )
    # Two runs of sd 0.01 each and means 0.03 apart: t = 3 with 2 degrees of freedom.
    assert "with 83.00 ± 1.00 (+3.00 points, p = 0.095)" in table(results)
    lines = [line for line in table(results).splitlines() if line.startswith("| 0") or line.startswith("| 1")]
    assert [line.split(" | ")[0:2] for line in lines] == [
        ["| 0", ""],
        ["| 0.1", "0.5"],
        ["| 0.1", "1"],
        ["| 1", "0.5"],
    ]
    assert lines[0].endswith("|  |  |")
    by_balance, by_margin = figures(results)["paper"].axes
    assert by_balance.get_ylim() == by_margin.get_ylim()
    results["settings"] = {"paper": rows[1:]}
    assert "is not measured yet" in table(results)
    assert list(figures(results)) == ["paper"]
