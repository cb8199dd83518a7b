"""Counts over selections, against loops over the rows."""

import numpy as np
import pytest

from hardsight.explorer import query
from hardsight.explorer.query import BINS, MISSING, View


def loop_bin(value: float, low: float, high: float) -> int:
    if np.isnan(value):
        return MISSING
    return int(min(BINS - 1, max(0, (value - low) / (high - low) * BINS)))


def test_every_value_is_in_the_bin_that_a_loop_gives_it() -> None:
    values = np.concatenate([np.random.default_rng(0).normal(size=1000), [np.nan, np.inf, -np.inf, -3.0, 3.0]])
    found = query.binned(values, -3.0, 3.0)
    assert found.tolist() == [loop_bin(one, -3.0, 3.0) for one in values]


def test_a_value_far_out_does_not_take_the_bins_of_the_others() -> None:
    values = np.append(np.random.default_rng(0).random(100_000), 1e6)
    low, high = query.bounds(values)
    assert 0.0 <= low < 0.01
    assert 0.99 < high < 1.01


@pytest.mark.parametrize("values", [[], [np.nan], [2.0], [-1.0, -1.0], [0.0, np.inf]])
def test_bounds_always_leave_a_width(values: list[float]) -> None:
    low, high = query.bounds(np.array(values))
    assert np.isfinite(low)
    assert low < high


def test_a_selection_is_what_passes_every_filter() -> None:
    random = np.random.default_rng(1)
    masks = [random.random(500) < share for share in (0.5, 0.7, 0.9)]
    failed = query.failing(masks, 500)
    rows = query.passing(failed)
    assert rows.numbers is not None
    assert rows.numbers.tolist() == [at for at in range(500) if all(mask[at] for mask in masks)]
    without = query.passing(failed, masks[1])
    assert without.numbers is not None
    assert without.numbers.tolist() == [at for at in range(500) if masks[0][at] and masks[2][at]]
    everything = query.passing(query.failing([], 500))
    assert (everything.numbers, everything.count) == (None, 500)


def test_counts_from_those_of_before_are_those_made_again() -> None:
    """A brush that moves, widens, jumps and is let go, over rows whose codes have nothing to do with it."""
    random = np.random.default_rng(5)
    hidden, codes = random.random(2000), random.integers(0, 9, 2000).astype(np.uint8)
    before = None
    for low, high in [(0.2, 0.5), (0.21, 0.52), (0.1, 0.9), (0.1, 0.9), (0.95, 0.96), (-1, 2), (0.05, 2), (3, 4)]:
        rows = query.Rows((hidden >= low) & (hidden <= high))
        found = query.recounted(codes, rows, 9, before)
        np.testing.assert_array_equal(found, np.bincount(codes[rows.passes], minlength=9))
        again = query.Rows((hidden >= low) & (hidden <= high))
        np.testing.assert_array_equal(query.recounted(codes, again, 9, (rows, found)), found)
        before = (rows, found)
    most = query.Rows(hidden > 0.1)
    assert query.recounted(codes, most, 9, (most, np.arange(9))).tolist() == list(range(9)), "only changes are counted"


def test_counts_are_those_of_a_loop() -> None:
    random = np.random.default_rng(2)
    codes, others = random.integers(0, 4, 300).astype(np.uint8), random.integers(0, 4, 300).astype(np.uint8)
    bits = random.integers(0, 8, 300).astype(np.uint16)
    rows = np.flatnonzero(random.random(300) < 0.4)
    assert query.counted(codes, rows, 5).tolist() == [sum(codes[at] == one for at in rows) for one in range(5)]
    patterns = query.counted(bits, rows, 8)
    assert query.bits_counted(patterns, 3).tolist() == [sum(bits[at] >> one & 1 for at in rows) for one in range(3)]
    pairs = query.pairs_counted(codes, others, rows, 4)
    assert pairs[2, 1] == sum(codes[at] == 2 and others[at] == 1 for at in rows)
    assert pairs.sum() == len(rows)


def test_a_map_puts_each_point_where_it_lies_and_leaves_out_what_is_outside() -> None:
    x, y = np.array([0.0, 0.99, 0.5, 1.5, np.nan, 1.0]), np.array([0.0, 0.99, 0.5, 0.5, 0.5, 1.0])
    assert query.places(x, y, View(0, 0, 1, 1), 4).tolist() == [12, 3, 10, 16, 16, 3]


def test_what_a_place_of_the_map_shows_is_of_its_own_points() -> None:
    place, bins = np.array([0, 0, 1, 4]), np.array([10, 20, MISSING, 30], np.uint8)
    assert query.mean_bin(place, bins, 4).tolist() == [15, MISSING, MISSING, MISSING]
    assert query.commonest(np.array([0, 0, 0, 3]), np.array([2, 2, 1, 9], np.uint8), 4, 4)[0] == 2
    assert query.density(np.array([100, 1, 0, 0])).tolist() == [255, 1, 0, 0]


def test_inside_a_polygon_is_what_a_ray_crosses_an_odd_number_of_times() -> None:
    corners = np.array([(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (2.0, 1.0), (0.0, 4.0)])  # a crown
    x, y = np.array([1.0, 2.0, 2.0, 5.0, np.nan]), np.array([1.0, 3.0, 0.5, 1.0, 1.0])
    assert query.inside(x, y, corners).tolist() == [True, False, True, False, False]


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("kind", ["spread", "tied", "far out", "constant", "nothing"])
def test_pages_in_order_are_the_sorted_selection_cut_into_pieces(kind: str, descending: bool) -> None:
    random = np.random.default_rng(3)
    values = {
        "spread": random.random(400), "tied": random.integers(0, 3, 400) / 2, "far out": random.standard_cauchy(400),
        "constant": np.ones(400), "nothing": np.full(400, np.nan),
    }[kind]  # fmt: skip
    values = np.where(random.random(400) < 0.1, np.nan, values)
    bins = query.binned(values, *query.bounds(values))
    for rows in (None, np.flatnonzero(random.random(400) < 0.6), np.zeros(0, np.int64)):
        pages = [query.page_of(bins, values, rows, at, 17, descending=descending) for at in range(0, 410, 17)]
        chosen = np.arange(400) if rows is None else rows
        keys = -values[chosen] if descending else values[chosen]
        expected = chosen[np.argsort(keys, kind="stable")]
        assert np.concatenate(pages).tolist() == expected.tolist()
    if kind == "spread":
        assert pages[0].tolist() != query.page_of(bins, -values, None, 0, 17, descending=descending).tolist()


def test_the_place_among_others_counts_ties_half() -> None:
    assert query.share_below(np.array([1.0, 2.0, 2.0, 3.0, np.nan]), 2.0) == pytest.approx(0.5)
    assert query.share_below(np.array([1.0, 2.0, 3.0]), 3.0) == 1.0
    assert np.isnan(query.share_below(np.array([np.nan]), np.nan))
