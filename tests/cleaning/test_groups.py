"""Hardness by group: counts and means by loops, intervals that cover, seeds, degenerate groups, refusals."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
import torch

from hardsight.cleaning import hardness_by_group
from hardsight.cleaning.columns import bootstrap_means


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_counts_means_and_differences_by_loops(make_table: Callable[..., pa.Table]) -> None:
    generator = np.random.default_rng(0)
    values, groups = generator.random(90), generator.choice(["a", "b", "c"], 90)
    table = make_table({"id": np.arange(90), "avh": values, "camera": groups})
    found = {row["group"]: row for row in hardness_by_group(table, "avh", "camera", generator=seeded()).to_pylist()}
    for name in "abc":
        own = [v for v, g in zip(values, groups, strict=True) if g == name]
        rest = [v for v, g in zip(values, groups, strict=True) if g != name]
        assert found[name]["count"] == len(own)
        assert found[name]["mean"] == pytest.approx(sum(own) / len(own))
        assert found[name]["difference"] == pytest.approx(sum(own) / len(own) - sum(rest) / len(rest))
        assert found[name]["low"] < found[name]["mean"] < found[name]["high"]


@pytest.mark.parametrize(("score", "first"), [("avh", "hard"), ("confidence", "hard")])
def test_hardest_group_first_whatever_the_direction(
    score: str, first: str, make_table: Callable[..., pa.Table]
) -> None:
    easy, hard = (0.1, 0.9) if score == "avh" else (0.9, 0.1)
    table = make_table({"id": [0, 1, 2, 3], score: [easy, hard, easy, hard], "slice": ["easy", "hard"] * 2})
    found = hardness_by_group(table, score, "slice", generator=seeded())
    assert found.column("group").to_pylist()[0] == first
    assert found.column("mean").to_pylist()[0] == pytest.approx(hard)


def test_intervals_cover_the_true_mean_about_as_often_as_they_say() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for seed in range(200):
        values = generator.exponential(1.0, 60)
        means = bootstrap_means(values, 300, seeded(seed))
        low, high = np.quantile(means, [0.05, 0.95])
        covered += low <= 1.0 <= high
    assert 0.78 <= covered / 200 <= 0.95


def test_bootstrap_spread_is_the_standard_error_and_ordinary_means_are_not() -> None:
    values = np.random.default_rng(2).normal(3, 2, 500)
    means = bootstrap_means(values, 4000, seeded())
    error = values.std() / np.sqrt(500)
    assert means.mean() == pytest.approx(values.mean(), abs=4 * error / np.sqrt(4000) + 1e-3)
    assert means.std() == pytest.approx(error, rel=0.08)
    # Without replacement every resample has the same mean: the law rejects it.
    shuffled = np.array([np.random.default_rng(at).permutation(values).mean() for at in range(50)])
    assert shuffled.std() != pytest.approx(error, rel=0.08)


def test_same_seed_same_bits_in_any_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).random(40)
    once = bootstrap_means(values, 100, seeded(7))
    np.testing.assert_array_equal(once, bootstrap_means(values, 100, seeded(7)))
    monkeypatch.setattr("hardsight.cleaning.columns._BLOCK", 40 * 9)
    np.testing.assert_array_equal(once, bootstrap_means(values, 100, seeded(7)))


def test_same_seed_same_bits_with_any_number_of_threads() -> None:
    values, threads = np.random.default_rng(3).random(200_000), torch.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(bootstrap_means(values, 1, seeded(7)))
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(*found)


def test_single_missing_and_unnamed_members(make_table: Callable[..., pa.Table]) -> None:
    table = make_table({"id": [0, 1, 2, 3], "avh": [0.5, float("nan"), 0.25, 0.75], "place": ["x", "y", None, None]})
    found = {row["group"]: row for row in hardness_by_group(table, "avh", "place", generator=seeded()).to_pylist()}
    assert (found["x"]["low"], found["x"]["high"]) == (None, None)
    assert (found["y"]["count"], found["y"]["missing"], found["y"]["mean"]) == (1, 1, None)
    assert (found[None]["count"], found[None]["mean"]) == (2, 0.5)


def test_groups_may_be_dictionary_encoded(make_table: Callable[..., pa.Table]) -> None:
    table = make_table({"id": [0, 1, 2], "avh": [0.5, 0.75, 0.25], "place": ["x", "y", "x"]})
    encoded = table.set_column(2, "place", table.column("place").dictionary_encode())
    plain = hardness_by_group(table, "avh", "place", generator=seeded())
    assert hardness_by_group(encoded, "avh", "place", generator=seeded()).equals(plain)


def test_one_group_has_no_others(make_table: Callable[..., pa.Table]) -> None:
    table = make_table({"id": [0, 1], "label": [4, 4], "avh": [0.1, 0.2]})
    (row,) = hardness_by_group(table, "avh", generator=seeded()).to_pylist()
    assert (row["group"], row["difference"]) == (4, None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"by": "nope"}, "column 'nope'"),
        ({"score": "label"}, "says its direction"),
    ],
)
def test_refusals(options: dict, sentence: str, make_table: Callable[..., pa.Table]) -> None:
    table = make_table({"id": [0], "label": [0], "avh": [0.1]})
    with pytest.raises(ValueError, match=sentence):
        hardness_by_group(table, **{"score": "avh", "generator": seeded(), **options})


def test_a_column_of_lists_makes_no_groups(make_table: Callable[..., pa.Table]) -> None:
    table = make_table({"id": [0, 1], "probabilities": [[0.5, 0.5], [0.1, 0.9]], "avh": [0.1, 0.2]})
    with pytest.raises(TypeError, match=r"^by must name a column of single values; 'probabilities' holds list<"):
        hardness_by_group(table, "avh", "probabilities", generator=seeded())


def test_infinite_scores_have_no_mean(make_table: Callable[..., pa.Table]) -> None:
    table = make_table({"id": range(4), "label": [0, 0, 1, 1], "loss": [0.1, float("inf"), 0.6, float("inf")]})
    with pytest.raises(ValueError, match=r"score must be finite or missing .*; 'loss' is infinite for 2 of 4 samples"):
        hardness_by_group(table, "loss", generator=seeded())


def test_the_others_are_those_whose_score_is_known(make_table: Callable[..., pa.Table]) -> None:
    table = make_table({"id": range(5), "label": [0, 0, 1, 1, 1], "avh": [0.1, 0.2, 0.6, None, None]})
    found = hardness_by_group(table, "avh", generator=seeded()).to_pylist()
    assert [(row["group"], row["missing"]) for row in found] == [(1, 2), (0, 0)]
    assert [row["difference"] for row in found] == pytest.approx([0.45, -0.45])


def test_the_order_of_the_rows_does_not_matter(make_table: Callable[..., pa.Table]) -> None:
    random = np.random.default_rng(4)
    # Two groups have the same scores: their order must not be that of their first rows.
    values, groups = np.r_[random.random(60), [0.25, 0.75] * 2], [*random.choice(["a", "b", None], 60), *"xxyy"]
    table = make_table({"avh": values, "camera": groups})
    once = hardness_by_group(table, "avh", "camera", generator=seeded())
    for _ in range(3):
        shuffled = table.take(pa.array(random.permutation(64)))
        again = hardness_by_group(shuffled, "avh", "camera", generator=seeded())
        for name in once.column_names[:3]:
            assert again[name].to_pylist() == once[name].to_pylist()
        for name in once.column_names[3:]:
            assert again[name].to_pylist() == pytest.approx(once[name].to_pylist(), rel=1e-12)
