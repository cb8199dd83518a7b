"""Linear scaling reaches 0 and 1, keeps the order, and overflows nowhere; histograms lose no sample."""

import numpy as np
import pytest

from hardsight.alignment import correlate, scale_linearly, scale_within_groups
from hardsight.alignment.groups import joint_histogram


@pytest.mark.parametrize("values", [[3.0, 1.0, 2.0], [-1e308, 0.0, 1e308], [1e-310, 2e-310, 5e-310]])
def test_ends_and_order(values: list[float]) -> None:
    scaled = scale_linearly(values)
    assert (scaled.min(), scaled.max()) == (0, 1)
    assert np.argsort(scaled).tolist() == np.argsort(values).tolist()


def test_correlations_do_not_notice() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal(50), generator.standard_normal(50)
    assert correlate(scale_linearly(x), y, "pearson").coefficient == pytest.approx(
        correlate(x, y, "pearson").coefficient
    )


def test_constant_empty_and_bad() -> None:
    assert scale_linearly([2.0, 2.0]).tolist() == [0, 0]
    assert len(scale_linearly(np.zeros(0))) == 0
    with pytest.raises(ValueError, match="values must be finite; 1 of 2 are not"):
        scale_linearly([1.0, np.nan])
    with pytest.raises(ValueError, match="groups must name one group for each of 2 samples"):
        scale_within_groups([1.0, 2.0], [1])


def test_within_groups_each_group_has_its_own_ends() -> None:
    scaled = scale_within_groups([1, 3, 2, 10, 30, 30], ["a", "a", "a", "b", "b", "b"])
    assert scaled.tolist() == [0, 1, 0.5, 0, 1, 1]


def test_every_sample_is_counted_once() -> None:
    generator = np.random.default_rng(0)
    score, human = generator.standard_normal(500), generator.integers(0, 51, 500) / 50
    found = joint_histogram(score, human, bins=10)
    assert found["counts"].sum() == 500
    assert found["counts"].shape == (10, 10)
    assert found["counts"][-1].sum() == (human >= 0.9).sum()
    assert (found["human_edges"][0], found["human_edges"][-1]) == (0, 1)
    # A human column that is no frequency gets its own range.
    seconds = joint_histogram(score, 3 + human, bins=4)
    assert (seconds["human_edges"][0], seconds["human_edges"][-1]) == (3, 4)
