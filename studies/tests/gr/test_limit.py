"""Settings beside their limit: the table's order, and what is not measured yet."""

from typing import Any

from hardsight_studies.gr.limit import limits
from hardsight_studies.gr.trainings import gr


def results(last: dict[str, float]) -> dict[str, Any]:
    return {
        "accuracies": {
            key(method): {"last": {"mean": value, "sd": None, "values": [value]}} for method, value in last.items()
        },
        "classes_learnt": {key(gr(16, 1)): [4, 10]},
        "failed": {},
    }


def key(method: str) -> str:
    return f"change=printed,method={method}"


def test_the_table_is_in_order_and_says_what_is_not_measured() -> None:
    methods = {method: key(method) for method in (gr(16, 1), gr(8, 1), gr(20, 2), gr(8, 0.5), gr(12, 0.5))}
    said = limits(results({gr(8, 1): 0.7, gr(20, 2): 0.2, gr(16, 1): 0.3, gr(8, 0.5): 0.8}), methods)
    rows = [line.strip("| ").split(" | ") for line in said.splitlines() if line.startswith("| GR")]
    assert [row[1] for row in rows] == ["1.00", "1.49", "0.72", "1.44", "0.38"]
    assert [row[2] for row in rows] == ["1.04", "1.56", "1.78", "3.56", "4.44"]
    assert rows[3][3:] == ["30.0", "4 of 10"]
    assert "| GR (β = 12, λ = 0.5) | 1.49 | 1.56 | – |  |" in said
    assert said.endswith("of β over its smallest limit with the last accuracy, over the 4 settings measured: -1.00.")
    assert "Rank correlation" not in limits(results({gr(8, 1): 0.7}), methods)


def test_settings_that_break_the_rule_are_named() -> None:
    methods = {method: key(method) for method in (gr(12, 0.5), gr(8, 1), gr(16, 1))}
    found = results({gr(12, 0.5): 0.75, gr(8, 1): 0.54, gr(16, 1): 0.35})
    found["classes_learnt"] |= {key(gr(12, 0.5)): [10, 10], key(gr(8, 1)): [6, 10]}
    said = limits(found, methods)
    assert "Above the limit at the start GR (β = 12, λ = 0.5) learnt all classes." in said
    assert "Below it GR (β = 8, λ = 1) lost classes." in said
    found["classes_learnt"] = {key(gr(8, 1)): [6, 10]}
    lost_alone = limits(found, methods)
    assert "Below the limit at the start GR (β = 8, λ = 1) lost classes. So the limit alone" in lost_alone
    found["classes_learnt"] = {key(gr(16, 1)): [4, 10]}
    assert "does not decide" not in limits(found, methods), "that one did what its limit says"
