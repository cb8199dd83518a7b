"""Expressions of pages and claims: what they give, and that nothing but the allowed part of Python is computed."""

import math
import statistics
from typing import Any

import pytest
from hardsight_studies.engine.expressions import FUNCTIONS, difference, evaluate, interval
from hardsight_studies.engine.rows import Number

OURS = Number.of({0: 0.5, 1: 0.7, 2: 0.6})
THEIRS = Number.of({1: 0.4, 2: 0.5, 3: 0.9})
NAMES: dict[str, Any] = {**FUNCTIONS, "ours": OURS, "theirs": THEIRS, "rates": [0.2, 0.4]}


def value(text: str) -> Any:
    return evaluate(text, NAMES)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ours > theirs", 0.6 > 0.6),
        ("ours", OURS),
        ("ours - theirs", 0.0),
        ("100 * ours / 2", 30.0),
        ("-ours < 0 <= ours < 1", True),
        ("count(ours) == 3 and not sd(ours) > 1", True),
        ("[rate for rate in rates if rate > 0.3]", [0.4]),
        ("sum(rate * one for rate in rates for one in [1, 2])", 1.8),
        ("'above' if ours >= theirs else 'below'", "above"),
        ("max([ours, 2]) + min(ours, 2)", 2.6),
        ("all([ours > 0, 0.2 in rates]) or any([False])", True),
        ("len(rates) == 2", True),
        ("round(ours, 0)", 1.0),
    ],
)
def test_what_an_expression_gives(text: str, wanted: Any) -> None:
    found = value(text)
    assert found == pytest.approx(wanted) if isinstance(wanted, float) else found == wanted


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "ours.__class__",
        "().__class__.__bases__",
        "rates[0]",
        "lambda: 1",
        "open('file')",
        "eval('1')",
        "f'{ours}'",
        "{1: 2}",
        "2 ** 10 ** 10",
        "'a' * 1000000000",
        "[0] * 10",
        "1 << 99",
        "(x := 1)",
        "b'bytes'",
        "ours is theirs",
        "max(*rates)",
        "max(**{})",
        "[a for a, b in rates]",
        "import os",
        "ours;theirs",
        "rates.append(1)",
        "(" * 500,
    ],
)
def test_what_is_not_allowed_is_never_computed(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        value(text)


def test_a_name_nobody_knows_comes_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="'theirs'"):
        value("ours > theris")


def test_a_difference_is_paired_over_the_seeds_that_both_have() -> None:
    found = difference(OURS, THEIRS)
    assert found.seeds == (1, 2)
    assert found.values == pytest.approx((0.3, 0.1))
    # Pairing is what makes the deviation that of the differences, not of either.
    assert found.sd == pytest.approx(statistics.stdev([0.3, 0.1]))
    assert difference(OURS, Number(0.5)).mean == pytest.approx(0.1)


def test_an_interval_over_seeds_is_students() -> None:
    found = interval(OURS)
    # t(0.975, 2 degrees of freedom) = 4.302653 by the tables.
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert (found.low, found.high) == (pytest.approx(0.6 - half), pytest.approx(0.6 + half))
    with pytest.raises(ValueError, match="seeds"):
        interval(Number(0.5))
