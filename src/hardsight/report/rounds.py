"""The section of a self-training's rounds: how the model did, and how much its predictions still change."""

from typing import Any

from hardsight.report.gallery import PageView
from hardsight.report.page import Block, Column, Section, Table

_SHARES = {
    "portion": "Asked for",
    "accuracy": "Accuracy",
    "test_accuracy": "Test accuracy",
    "agreement": "Predicted as before",
    "agreement_with_first": "As at first",
    "changed_labels": "Labels changed",
    "target_confidence": "Mean confidence",
    "true_positive_rate": "Rightly selected",
}
_COUNTS = {"classes_predicted": "Classes predicted", "selected": "Selected"}


def _rounds(view: PageView) -> list[dict[str, Any]]:
    return [] if view.run.rounds is None else view.run.rounds.to_pylist()


def _text(view: PageView, rows: list[dict[str, Any]]) -> str:
    text = (
        "One row for each pass over the target domain: before the first round, and after each. Where self-training "
        "goes well, nine tenths or more are soon predicted as before, most as at first, and few pseudo-labels change."
    )
    measured = any(row.get(name) is not None for row in rows for name in ("accuracy", "test_accuracy"))
    return text + (" Accuracies are measured with labels that are not used in training." if measured else "")


def _table(view: PageView, rows: list[dict[str, Any]]) -> list[Block]:
    columns = [Column("Round", [_count(row.get("round")) for row in rows])]
    columns += [Column(title, [_share(row.get(name)) for row in rows]) for name, title in _SHARES.items()]
    columns += [Column(title, [_count(row.get(name)) for row in rows]) for name, title in _COUNTS.items()]
    return [Table("Rounds of self-training", columns)]


def _share(value: Any) -> str:
    return f"{value:.1%}" if isinstance(value, int | float) else ""


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


ROUNDS: Section[PageView] = Section("rounds", "Rounds of self-training", _rounds, _text, _table)
