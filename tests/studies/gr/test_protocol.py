"""Which part of the protocol carries GR's result: one factor at a time, and sentences from numbers alone."""

from typing import Any

import pytest

from hardsight.studies.gr.protocol import (
    _TITLES,
    ANCHOR,
    BASES,
    METHODS,
    PRINTED_AS_IT_IS,
    RATE,
    cells,
    changed,
    table,
)
from hardsight.studies.gr.trainings import gr


def differences(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key in {*one, *other}:
        mine, theirs = one.get(key), other.get(key)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            found |= differences(mine, theirs, f"{prefix}{key}.")
        elif mine != theirs:
            found.add(f"{prefix}{key}")
    return found


# What each change may touch, and must.
TOUCHES = {
    PRINTED_AS_IT_IS: set(),
    "released-falls": {"schedule.milestones"},
    "lr-tenth": {"optimizer.lr"},
    "decay-5e-4": {"optimizer.weight_decay"},
    "no-augmentation": {"data.shift", "data.flip"},
    "warm-up": {"schedule.warm_up"},
    "clip": {"clip"},
    "balanced": {"data.class_balanced"},
    "mean": {"loss.options.reduction"},
    "mean-lr-tenth": {"loss.options.reduction", "optimizer.lr"},
    "released": {"schedule.milestones", "optimizer.weight_decay", "data.class_balanced"},
    "float32": {"precision"},
    "twice-as-long": {"epochs", "schedule.milestones"},
    "late-falls": {"epochs", "schedule.milestones"},
    ANCHOR: {"epochs", "schedule.milestones"},
}


@pytest.mark.parametrize("change", _TITLES)
def test_a_change_touches_what_it_says_and_nothing_else(change: str) -> None:
    base = BASES["paper"]
    before, after = (one.tree(gr(16, 1), RATE, 0) for one in (base, changed(base, change)))
    assert differences(before, after) == TOUCHES[change]


def test_the_falls_stay_at_the_same_shares_when_it_is_longer() -> None:
    for change in ("twice-as-long", ANCHOR):
        tree = changed(BASES["paper"], change).tree("cce", RATE, 0)
        shares = [fall / tree["epochs"] for fall in tree["schedule"]["milestones"]]
        assert shares == pytest.approx([0.25, 0.5, 0.75], abs=0.02)


def test_paper_cells_begin_with_the_base_and_train_the_long_anchor_apart() -> None:
    pairs = [(cell.settings["change"], cell.settings["method"]) for cell in cells("paper")]
    assert {*pairs[:3]} == {(PRINTED_AS_IT_IS, method) for method in METHODS}
    assert pairs.index((ANCHOR, "cce")) >= 8
    assert {change for change, _ in pairs} == {*_TITLES}
    assert not any(change.startswith("mean") and method == "cce" for change, method in pairs)


def results_of(last: dict[tuple[str, str], float]) -> dict[str, Any]:
    def number(value: float) -> dict[str, Any]:
        return {"mean": value / 100, "sd": None, "values": [value / 100]}

    return {
        "preset": "paper", "cells": len(last), "cells_planned": 99, "seeds": [0], "hardware": ["H"],
        "date": "2026-01-01", "versions": {"torch": "2"}, "curves": {}, "failed": {},
        "protocol": {"model": "resnet20", "epochs": 30},
        "accuracies": {
            f"change={change},method={method}": dict.fromkeys(("last", "best", "corrupted"), number(value))
            for (change, method), value in last.items()
        },
    }  # fmt: skip


def test_sentences_follow_the_numbers() -> None:
    strong = gr(16, 1)
    printed = table(
        results_of(
            {
                (ANCHOR, "cce"): 91.1,
                (PRINTED_AS_IT_IS, "cce"): 75.0,
                (PRINTED_AS_IT_IS, strong): 20.0,
                ("decay-5e-4", strong): 80.0,
                ("decay-5e-4", "cce"): 60.0,
                ("warm-up", strong): 15.0,
                ("mean", strong): 70.0,
            }
        )
    )
    assert "Clean anchor, CCE on right labels: 91.1 (paper: 91.8)." in printed
    assert (
        "GR (β = 16, λ = 1) ends at 20.0 as printed. What moves it most, in points: weight decay 5e-4 +60.0" in printed
    )
    assert "warm-up over a tenth of the epochs -5.0" in printed
    # The divisor is GR's alone: its CCE is the base's.
    assert "ends above CCE in 1 of the 3 protocols measured with both" in printed
    assert "nearest to the paper's +22.4 points with: weight decay 5e-4 (+20.0)" in printed
    assert "| weight decay 5e-4 | 60.0 (60.0; 60.0) |  | 80.0 (80.0; 80.0) |" in printed


def test_nothing_is_claimed_of_what_is_not_measured() -> None:
    printed = table(results_of({(PRINTED_AS_IT_IS, "cce"): 75.0}))
    assert "anchor" not in printed
    assert "moves it most" not in printed
    assert "above CCE" not in printed
