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
    assert rows is not None
    assert rows.tolist() == [at for at in range(500) if all(mask[at] for mask in masks)]
    without = query.passing(failed, masks[1])
    assert without is not None
    assert without.tolist() == [at for at in range(500) if masks[0][at] and masks[2][at]]
    assert query.passing(query.failing([], 500)) is None


def test_counts_are_those_of_a_loop() -> None:
    random = np.random.default_rng(2)
    codes, others = random.integers(0, 4, 300).astype(np.uint8), random.integers(0, 4, 300).astype(np.uint8)
    bits = random.integers(0, 8, 300).astype(np.uint16)
    rows = np.flatnonzero(random.random(300) < 0.4)
    assert query.counted(codes, rows, 5).tolist() == [sum(codes[at] == one for at in rows) for one in range(5)]
    assert query.bits_counted(bits, rows, 3).tolist() == [sum(bits[at] >> one & 1 for at in rows) for one in range(3)]
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
def test_pages_in_order_are_the_sorted_selection_cut_into_pieces(descending: bool) -> None:
    random = np.random.default_rng(3)
    values = np.where(random.random(400) < 0.1, np.nan, random.random(400))
    failed = (random.random(400) < 0.6).astype(np.uint8)
    order, known = query.order_of(values)
    pages = [query.page_of(order, known, failed, at, 17, descending=descending) for at in range(0, 400, 17)]
    found = np.concatenate(pages)
    assert sorted(found.tolist()) == np.flatnonzero(failed == 0).tolist()
    steps = np.diff(values[found][~np.isnan(values[found])])
    assert (steps <= 0).all() if descending else (steps >= 0).all()
    assert not np.isnan(values[found][: int((~np.isnan(values[found])).sum())]).any(), "what has no value comes last"


def test_the_place_among_others_counts_ties_half() -> None:
    assert query.share_below(np.array([1.0, 2.0, 2.0, 3.0, np.nan]), 2.0) == pytest.approx(0.5)
    assert query.share_below(np.array([1.0, 2.0, 3.0]), 3.0) == 1.0
    assert np.isnan(query.share_below(np.array([np.nan]), np.nan))
