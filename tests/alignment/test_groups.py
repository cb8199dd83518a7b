"""Bins are half-open with the last one closed; a correlation within a group is that of its members."""

from collections.abc import Callable

import numpy as np
import pytest

from hardsight.alignment import (
    bin_of,
    correlate,
    correlate_by_granularity,
    correlate_by_group,
    correlate_in_bins,
    scale_within_groups,
)


def test_edges_belong_to_the_bin_above_and_the_last_to_the_last() -> None:
    values = [0.0, 0.19999, 0.2, 0.4, 0.6, 0.8, 1.0, -0.1, 1.0001, np.nan]
    assert bin_of(values).tolist() == [0, 0, 1, 2, 3, 4, 4, -1, -1, -1]
    # A bin with both edges closed, as the paper prints it, would count the sample at 0.2 twice.
    assert sum((bin_of([0.2]) == at).sum() for at in range(5)) == 1


def test_votes_of_fifty_people_fall_where_a_loop_puts_them() -> None:
    votes = np.arange(51) / 50
    edges = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    expected = [
        next(at for at in range(5) if edges[at] <= one < edges[at + 1] or (at == 4 and one == 1)) for one in votes
    ]
    assert bin_of(votes).tolist() == expected


def test_each_bin_is_the_correlation_of_its_members(make_columns: Callable) -> None:
    score, human = make_columns(400, ties=False)
    human = 1 / (1 + np.exp(-human))
    found = correlate_in_bins(score, human, method="kendall")
    assert [one.group for one in found] == [(0.0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0)]
    assert sum(one.n for one in found) == 400
    for one in found:
        low, high = one.group
        inside = (human >= low) & ((human < high) | (high == 1))
        assert one.n == inside.sum()
        assert one.correlation == correlate(score[inside], human[inside], "kendall")


def test_small_and_constant_groups_say_why(make_columns: Callable) -> None:
    score, human = make_columns(30, ties=False)
    groups = np.array([0] * 3 + [1] * 10 + [2] * 17)
    score[3:13] = 7
    found = correlate_by_group(score, human, groups)
    assert [(one.group, one.n) for one in found] == [(0, 3), (1, 10), (2, 17)]
    assert found[0].correlation is None
    assert "at least 4 pairs" in found[0].reason
    assert "score must vary" in found[1].reason
    assert found[2].reason is None
    assert found[2].correlation == correlate(score[13:], human[13:])


def test_wrong_options_are_refused_not_swallowed(make_columns: Callable) -> None:
    score, human = make_columns(30)
    with pytest.raises(ValueError, match="method must be one of"):
        correlate_by_group(score, human, [0] * 30, "cosine")
    with pytest.raises(ValueError, match="generator must be"):
        correlate_in_bins(score, human, (-9.0, 9.0), resamples=5)


def test_groups_carry_intervals(make_columns: Callable) -> None:
    score, human = make_columns(60, ties=False)
    names = np.array(["cat", "dog"])[np.arange(60) % 2]
    for one in correlate_by_group(score, human, names, resamples=50, generator=np.random.default_rng(0)):
        assert one.correlation.interval.low < one.correlation.coefficient < one.correlation.interval.high


def test_granularity_counts_fine_classes(make_columns: Callable) -> None:
    """AVH, Fig. 19: coarse classes of many and of few fine ones, those of most first."""
    score, human = make_columns(90, ties=False)
    labels = np.arange(90) % 9
    coarse = {**dict.fromkeys(range(2, 9), "dog"), 0: "bus", 1: "cup"}
    found = correlate_by_granularity(score, human, labels, coarse)
    assert [(one.group, one.fine_classes, one.n) for one in found] == [("dog", 7, 70), ("bus", 1, 10), ("cup", 1, 10)]
    assert found[0].correlation == correlate(score[labels >= 2], human[labels >= 2])


def test_refusals(make_columns: Callable) -> None:
    score, human = make_columns(20)
    with pytest.raises(
        ValueError, match="coarse_of must name a coarse class for every label; 2 of 3 are missing, first 1"
    ):
        correlate_by_granularity(score, human, np.arange(20) % 3, {0: "all"})
    with pytest.raises(ValueError, match=r"groups must name one group for each of 20 samples; got shape \[3\]"):
        correlate_by_group(score, human, [1, 2, 3])
    with pytest.raises(ValueError, match="edges must rise"):
        bin_of([0.5], (0.0, 0.0, 1.0))


def test_groups_without_a_name_are_refused() -> None:
    values = np.arange(6.0)
    for nameless in (["a", "a", None, "b", "b", "b"], [1.0, 1.0, np.nan, 2.0, 2.0, 2.0]):
        with pytest.raises(ValueError, match="groups must name one group for each of 6 samples; 1 have none"):
            correlate_by_group(values, values, nameless)
        with pytest.raises(ValueError, match="1 have none"):
            scale_within_groups(values, nameless)
    with pytest.raises(ValueError, match="groups must be all text or all numbers; got int and str"):
        correlate_by_group(values, values, np.array([1, "a", 1, "a", 1, "a"], dtype=object))
