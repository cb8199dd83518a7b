"""Detection of wrong labels against loops and by hand, and the upper reference that was told half the truth."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hardsight_studies.together.detection import METRICS, average_precisions, detect, suspicions, taught, wrong_labels

Detect = Callable[[np.ndarray, np.ndarray], dict[str, float]]


def make(seed: int, levels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    wrong = generator.random(300) < 0.2
    values = generator.normal(size=300) + wrong
    return wrong, values if levels is None else np.round(values * levels)


def precision_by_loop(wrong: np.ndarray, values: np.ndarray) -> float:
    """The expected precision of the first `count` samples, over random orders of ties."""
    generator = np.random.default_rng(0)
    count, found = int(wrong.sum()), []
    for _ in range(3000):
        shuffled = generator.permutation(len(wrong))
        first = sorted(shuffled.tolist(), key=lambda one: -values[one])[:count]
        found.append(sum(bool(wrong[one]) for one in first) / count)
    return float(np.mean(found))


def auroc_by_pairs(wrong: np.ndarray, values: np.ndarray) -> float:
    apart = values[wrong][:, None] - values[~wrong][None]
    return float(((apart > 0) + (apart == 0) / 2).mean())


@pytest.mark.parametrize("levels", [None, 1, 3])
def test_it_equals_the_loops_with_and_without_ties(levels: int | None) -> None:
    wrong, values = make(2, levels)
    found = detect(wrong, values)
    assert found["auroc"] == pytest.approx(auroc_by_pairs(wrong, values), abs=1e-12)
    assert found["precision_at_count"] == pytest.approx(precision_by_loop(wrong, values), abs=5e-3)


@pytest.mark.parametrize("levels", [None, 1, 3])
def test_samples_that_count_twice_are_there_twice(levels: int | None) -> None:
    wrong, values = make(4, levels)
    counts = np.random.default_rng(0).integers(0, 4, len(wrong))
    again = np.repeat(np.arange(len(wrong)), counts)
    whole, drawn = average_precisions(wrong, values, [np.ones(len(wrong)), counts])
    assert whole == pytest.approx(detect(wrong, values)["average_precision"], abs=1e-12)
    assert drawn == pytest.approx(detect(wrong[again], values[again])["average_precision"], abs=1e-12)


def test_by_hand() -> None:
    wrong = np.array([True, False, True, False])

    def found(*values: float) -> tuple[float, ...]:
        return tuple(detect(wrong, np.array(values))[name] for name in METRICS)

    assert found(4.0, 3.0, 2.0, 1.0) == pytest.approx(((1 + 2 / 3) / 2, 0.75, 0.5))
    assert found(0, 0, 0, 0) == pytest.approx((0.5, 0.5, 0.5))
    assert found(np.inf, -1.0, 8.0, -np.inf) == (1.0, 1.0, 1.0)
    # A missing score is the least suspicious.
    assert found(2.0, 1.0, np.nan, 0.0) == found(2.0, 1.0, -5.0, 0.0)


def ignores_direction(wrong: np.ndarray, values: np.ndarray) -> dict[str, float]:
    return max(detect(wrong, values), detect(wrong, -values), key=lambda one: one["auroc"])


def turned_around(measure: Detect) -> bool:
    """The law: what finds wrong labels, turned around, finds right ones; and the AUROCs sum to one."""
    wrong, values = make(3)
    return bool(np.isclose(measure(wrong, values)["auroc"] + measure(wrong, -values)["auroc"], 1))


def test_a_score_turned_around_is_the_worst() -> None:
    assert turned_around(detect)
    assert not turned_around(ignores_direction)


@pytest.mark.parametrize("wrong", [np.zeros(3, bool), np.ones(3, bool)])
def test_nothing_or_everything_wrong_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"wrong.*of 3"):
        detect(wrong, np.arange(3.0))


def test_columns_are_turned_by_their_direction() -> None:
    about = {"kind": "score"}
    fields = [
        pa.field("label", pa.int64()),
        pa.field("confidence", pa.float32(), metadata=about),
        pa.field("smoothed_doubt", pa.float32(), metadata=about),
        pa.field("mine", pa.float32(), metadata={**about, "direction": "larger is easier"}),
    ]
    columns = [[0, 1], [0.5, 0.25], [0.5, 0.25], [0.5, 0.25]]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
    found = suspicions(pa.table(arrays, schema=pa.schema(fields)))
    assert {name: values.tolist() for name, values in found.items()} == {
        "confidence": [-0.5, -0.25], "smoothed_doubt": [0.5, 0.25], "mine": [-0.5, -0.25],
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"clean_label.*1 of 2"):
        wrong_labels(pa.table({"label": [0, 1], "clean_label": [0, None]}))


def samples_of(wrong: np.ndarray, **columns: np.ndarray) -> pa.Table:
    """Samples all labelled and predicted 1, of which the wrong ones are truly 0, with these scores."""
    ones = np.ones(len(wrong), np.int64)
    fields = [pa.field(name, pa.float64(), metadata={"kind": "score"}) for name in columns]
    fields += [pa.field(name, pa.int64()) for name in ("label", "predicted", "clean_label")]
    values = [*columns.values(), ones, ones, np.where(wrong, 0, 1)]
    return pa.table([pa.array(one) for one in values], schema=pa.schema(fields))


def test_told_half_the_truth_it_finds_what_no_single_score_says_and_nothing_in_noise() -> None:
    one, two, three = np.random.default_rng(0).normal(size=(3, 1200))
    wrong = (one > 0) ^ (two > 0)
    assert taught(samples_of(wrong, one=one, two=two))["auroc"] > 0.97
    assert all(0.4 < detect(wrong, values)["auroc"] < 0.6 for values in (one, two))
    # Judged on what it was trained on it would find them here too.
    assert 0.4 < taught(samples_of(wrong, three=three))["auroc"] < 0.6
