"""The page's statistics against slow loops, and the laws that tails, ties and missing values must keep."""

import math

import numpy as np
import pytest

from hardsight.report.view import detection, histogram, means_by_class, pair_counts, ranked


def _everyone(values: np.ndarray) -> dict[str, np.ndarray]:
    return {"all": np.ones(len(values), bool)}


def test_histogram_counts_like_a_loop() -> None:
    values = np.random.default_rng(0).normal(size=500)
    groups = {"flipped": values > 0.3, "intact": values <= 0.3}
    made = histogram(values, groups, bins=13)
    assert made is not None
    for name, mask in groups.items():
        counts = [0] * 13
        for value in values[mask]:
            inside = [at for at in range(13) if made.edges[at] <= value < made.edges[at + 1]]
            counts[inside[0] if inside else 12] += 1
        assert made.counts[name].tolist() == counts
        assert made.shares(name).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "values",
    [
        [3.0],
        [0.0, 0.0, 0.0],
        [1e308, -1e308, 0.0],
        [1.0, np.nextafter(1.0, 2.0)],
        [0.0, 5e-324],
        [1e300, 1e300],
        [math.nan, math.inf, -math.inf, 2.0],
        [*np.linspace(0, 1, 1000), 1e9],
        [*np.linspace(0, 1, 1000), -1e9, 1e9],
    ],
)
def test_every_finite_value_is_counted_once(values: list[float]) -> None:
    seen = np.array(values)
    made = histogram(seen, _everyone(seen))
    assert made is not None
    assert made.counts["all"].sum() == np.isfinite(seen).sum()
    assert np.isfinite(made.edges).all()
    assert (np.diff(made.edges) > 0).all()


def test_a_histogram_that_cuts_its_tails_breaks_that_law() -> None:
    seen = np.array([*np.linspace(0, 1, 1000), 1e9])
    cut = np.histogram(seen, 40, range=(0, 1))[0]
    assert cut.sum() != np.isfinite(seen).sum()


def test_a_long_tail_does_not_press_the_bulk_into_one_bin() -> None:
    seen = np.array([*np.linspace(0, 1, 1000), 1e9])
    made = histogram(seen, _everyone(seen))
    assert made is not None
    assert made.above
    assert not made.below
    assert (made.counts["all"] > 0).all()


def test_nothing_finite_has_no_histogram() -> None:
    seen = np.array([math.nan, math.inf])
    assert histogram(seen, _everyone(seen)) is None


def test_ranked_is_a_stable_sort_without_the_missing() -> None:
    hardness = np.array([0.5, math.nan, 0.9, 0.5, math.inf, -1.0])
    assert ranked(hardness).tolist() == [4, 2, 0, 3, 5]
    assert ranked(hardness, np.array([True, True, False, True, False, True])).tolist() == [0, 3, 5]


def test_detection_counts_the_pairs_in_order() -> None:
    generator = np.random.default_rng(1)
    hardness = generator.integers(0, 12, 80).astype(float)
    wrong = generator.random(80) < 0.3
    pairs = [(h > g) + 0.5 * (h == g) for h in hardness[wrong] for g in hardness[~wrong]]
    precisions = []
    for threshold in hardness[wrong]:
        above = hardness >= threshold
        precisions.append(wrong[above].mean())
    found = detection(hardness, wrong)
    assert found == pytest.approx((np.mean(pairs), np.mean(precisions)))
    flipped = detection(-hardness, wrong)
    assert flipped is not None
    assert flipped[0] == pytest.approx(1 - np.mean(pairs))


def test_detection_needs_both_groups() -> None:
    assert detection(np.array([1.0, 2.0]), np.array([False, False])) is None
    assert detection(np.array([1.0, 2.0]), np.array([True, True])) is None
    assert detection(np.array([math.nan, 2.0]), np.array([True, False])) is None


def test_detection_takes_infinity_as_the_hardest() -> None:
    assert detection(np.array([math.inf, 2.0, -math.inf]), np.array([True, False, False])) == (1.0, 1.0)


def test_means_and_pairs_agree_with_loops() -> None:
    generator = np.random.default_rng(2)
    given, predicted = generator.integers(-1, 5, 300), generator.integers(-1, 5, 300)
    values = generator.random(300)
    values[::17] = math.nan
    counts, means = means_by_class(given, values, 6)
    for at in range(6):
        mine = [v for v, code in zip(values, given, strict=True) if code == at and math.isfinite(v)]
        assert counts[at] == len(mine)
        assert means[at] == pytest.approx(math.fsum(mine) / len(mine) if mine else math.nan, nan_ok=True)
    expected: dict[tuple[int, int], int] = {}
    for row, column in zip(given.tolist(), predicted.tolist(), strict=True):
        if row >= 0 and column >= 0:
            expected[row, column] = expected.get((row, column), 0) + 1
    rows, columns, numbers = pair_counts(given, predicted, 6)
    assert dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), numbers.tolist(), strict=True)) == expected


def test_pairs_of_many_classes_do_not_overflow_small_codes() -> None:
    rows = np.array([2_000_000, 0], np.int32)
    found = pair_counts(rows, rows, 2_000_001)
    assert [part.tolist() for part in found] == [[0, 2_000_000], [0, 2_000_000], [1, 1]]
