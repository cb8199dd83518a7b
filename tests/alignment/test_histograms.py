"""Joint histograms: every sample in one cell, and which range a human column gets."""

import numpy as np
import pytest

from hardsight.alignment.groups import human_range, joint_histogram


def test_counts_equal_a_loop_over_the_samples() -> None:
    generator = np.random.default_rng(0)
    score, human = generator.normal(size=200), generator.integers(0, 6, 200) / 5
    found = joint_histogram(score, human, bins=5)
    expected = np.zeros((5, 5), int)
    scaled = (score - score.min()) / (score.max() - score.min())
    for x, y in zip(scaled, human, strict=True):
        cell = [
            max(at for at in range(5) if edges[at] <= value)
            for value, edges in ((y, found["human_edges"]), (x, found["score_edges"]))
        ]
        expected[tuple(cell)] += 1
    np.testing.assert_array_equal(found["counts"], expected)
    assert found["counts"].sum() == 200


@pytest.mark.parametrize(
    ("human", "expected"),
    [
        ([0.2, 0.6], (0.0, 1.0)),
        ([0.2, 1.0], (0.0, 1.0)),
        ([0.0, 0.5], (0.0, 1.0)),
        ([-0.1, 1.0], (-0.1, 1.0)),
        ([0.2, 7.0], (0.2, 7.0)),
    ],
)
def test_what_may_be_a_frequency_gets_the_range_of_one(human: list[float], expected: tuple[float, float]) -> None:
    assert human_range(np.array(human)) == expected
