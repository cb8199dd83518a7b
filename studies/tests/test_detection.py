"""Detection of wrong labels against scikit-learn, against loops, and with ties."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hardsight_studies.detection import Detection, detect, detect_all, suspicions, taught, wrong_labels
from sklearn.metrics import average_precision_score, roc_auc_score


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


@pytest.mark.parametrize("levels", [None, 1, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_equals_scikit_learn_with_and_without_ties(seed: int, levels: int | None) -> None:
    wrong, values = make(seed, levels)
    found = detect(wrong, values)
    assert found.auroc == pytest.approx(roc_auc_score(wrong, values), abs=1e-12)
    assert found.average_precision == pytest.approx(average_precision_score(wrong, values), abs=1e-12)


def test_precision_at_the_count_is_expected_over_random_orders_of_ties() -> None:
    wrong, values = make(2, 1)
    assert detect(wrong, values).precision_at_count == pytest.approx(precision_by_loop(wrong, values), abs=5e-3)


def test_by_hand() -> None:
    wrong = np.array([True, False, True, False])
    assert detect(wrong, np.array([4.0, 3.0, 2.0, 1.0])) == pytest.approx((0.75, (1 + 2 / 3) / 2, 0.5))
    assert detect(wrong, np.zeros(4)) == pytest.approx((0.5, 0.5, 0.5))
    assert detect(wrong, np.array([9.0, -1.0, 8.0, -2.0])) == Detection(1.0, 1.0, 1.0)


def ignores_direction(wrong: np.ndarray, values: np.ndarray) -> Detection:
    return max(detect(wrong, values), detect(wrong, -values))


def turned_around(measure: Callable[..., Detection]) -> bool:
    """The law: what finds wrong labels, turned around, finds right ones; and the AUROCs sum to one."""
    wrong, values = make(3)
    return bool(np.isclose(measure(wrong, values).auroc + measure(wrong, -values).auroc, 1))


def test_a_score_turned_around_is_the_worst() -> None:
    assert turned_around(detect)
    assert not turned_around(ignores_direction)


def test_a_missing_score_is_the_least_suspicious() -> None:
    wrong = np.array([True, False, False, True])
    assert detect(wrong, np.array([2.0, 1.0, 0.0, np.nan])) == detect(wrong, np.array([2.0, 1.0, 0.0, -5.0]))


@pytest.mark.parametrize("wrong", [np.zeros(3, bool), np.ones(3, bool)])
def test_nothing_or_everything_wrong_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="must mark some samples and leave some"):
        detect(wrong, np.arange(3.0))


def test_columns_are_turned_by_their_direction() -> None:
    about = {"kind": "score"}
    fields = [
        pa.field("label", pa.int64()),
        pa.field("clean_label", pa.int64()),
        pa.field("confidence", pa.float32(), metadata=about),
        pa.field("smoothed_doubt", pa.float32(), metadata=about),
    ]
    columns = [[0, 1], [0, 0], [0.9, 0.1], [0.1, 0.9]]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
    table = pa.table(arrays, schema=pa.schema(fields))
    assert list(suspicions(table)) == ["confidence", "smoothed_doubt"]
    assert all(found == Detection(1.0, 1.0, 1.0) for found in detect_all(table).values())


def samples_of(wrong: np.ndarray, **columns: np.ndarray) -> pa.Table:
    """Samples all labelled and predicted 1, of which the wrong ones are truly 0, with these scores."""
    ones = np.ones(len(wrong), np.int64)
    fields = [pa.field(name, pa.float64(), metadata={"kind": "score"}) for name in columns]
    fields += [pa.field(name, pa.int64()) for name in ("label", "predicted", "clean_label")]
    values = [*columns.values(), ones, ones, np.where(wrong, 0, 1)]
    return pa.table([pa.array(one) for one in values], schema=pa.schema(fields))


def test_told_half_the_truth_it_finds_what_no_single_score_says_and_nothing_in_noise() -> None:
    one, two, three = np.random.default_rng(0).normal(size=(3, 1200))
    samples = samples_of((one > 0) ^ (two > 0), one=one, two=two)
    assert taught(samples).auroc > 0.97
    assert all(0.4 < found.auroc < 0.6 for found in detect_all(samples).values())
    # Judged on what it was trained on it would find them here too.
    assert 0.4 < taught(samples_of((one > 0) ^ (two > 0), three=three)).auroc < 0.6


def test_a_columns_own_direction_counts_and_an_unknown_truth_is_refused() -> None:
    easier = pa.field("mine", pa.float64(), metadata={"kind": "score", "direction": "larger is easier"})
    table = pa.table([pa.array([0.25, 0.5])], schema=pa.schema([easier]))
    assert suspicions(table)["mine"].tolist() == [-0.25, -0.5]
    with pytest.raises(ValueError, match="clean_label must be known for every sample; 1 of 2 are null"):
        wrong_labels(pa.table({"label": [0, 1], "clean_label": [0, None]}))
