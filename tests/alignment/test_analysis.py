"""The whole analysis says what its parts say, turns scores as their direction asks, and is plain values."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hardsight.alignment import (
    Column,
    align_scores,
    analysis,
    compare_correlations,
    correlate,
    disagreements,
    partial_correlation,
)
from hardsight.alignment.analysis import notes

N = 200


@pytest.fixture
def data(make_columns: Callable) -> dict[str, Any]:
    score, human = make_columns(N, ties=False)
    generator = np.random.default_rng(1)
    return {
        "hardness": -score,
        "confidence": score + generator.standard_normal(N),
        "frequency": np.clip(human / 6 + 0.5, 0, 1).round(2),
        "labels": np.arange(N) % 4,
        "correct": (score + generator.standard_normal(N) > 0).astype(float),
    }


def _align(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    options = {"labels": data["labels"], "correct": data["correct"], "resamples": 60}
    scores = [Column("avh", data["hardness"], "harder", "AVH"), Column("confidence", data["confidence"], "easier")]
    human = Column("hsf", data["frequency"], "easier")
    return align_scores(scores, human, generator=np.random.default_rng(0), **(options | changes))


def test_the_whole_says_what_its_parts_say(data: dict[str, Any]) -> None:
    found = _align(data)
    avh, confidence = found["scores"]
    frequency = data["frequency"]
    for method in ("spearman", "pearson", "kendall"):
        assert avh["correlations"][method]["coefficient"] == correlate(-data["hardness"], frequency, method).coefficient
        assert avh["correlations"][method]["interval"]["low"] < avh["correlations"][method]["coefficient"]
    assert (avh["turned"], confidence["turned"]) == (True, False)
    held = partial_correlation(-data["hardness"], frequency, data["correct"])
    assert avh["given_correctness"]["coefficient"] == held.coefficient
    (pair,) = found["comparisons"]
    expected = compare_correlations(data["hardness"], data["confidence"], frequency)
    assert (pair["first"], pair["second"]) == ("avh", "confidence")
    assert pair["meng"]["statistic"] == pytest.approx(expected.meng.statistic)
    assert pair["meng_holm"] == pair["meng"]["p_value"]
    assert pair["interval"]["low"] < pair["difference"] < pair["interval"]["high"]
    assert [group["n"] for group in found["classes"]["avh"]] == [50] * 4
    assert sum(group["n"] for group in found["bins"]["groups"]["avh"]) == N
    assert found["agreement"]["matrix"][0][1] == pytest.approx(expected.between)
    assert np.sum(avh["histogram"]["counts"]) == N
    assert found["coarse"] is None


def test_pairs_of_scores_are_correlated_once(data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardsight.alignment.comparison.correlation_matrix", None)
    found = _align(data, resamples=0)
    assert found["agreement"]["matrix"][0][1] == found["comparisons"][0]["between"]


def test_the_scores_are_not_copied_for_every_class(data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand classes of a million samples would be copies of a hundred gigabytes."""
    drawn, bootstrap = [], analysis.bootstrap_correlations

    def watched(scores: np.ndarray, human: np.ndarray, *arguments: Any, **options: Any) -> Any:
        drawn.append(len(human))
        return bootstrap(scores, human, *arguments, **options)

    monkeypatch.setattr(analysis, "bootstrap_correlations", watched)
    _align(data, labels=np.arange(N) // 5, resamples=0)
    assert not drawn
    _align(data, labels=np.arange(N) // 5, resamples=20)
    whole = [size for size in drawn if size == N]
    assert len(whole) == 3
    # The bins are drawn by themselves, each with its own samples; so many classes are not drawn at all.
    # Each bin and each class is drawn once, with its own samples alone.
    assert sum(drawn) - sum(whole) <= 2 * N


def test_results_are_plain_and_repeatable(data: dict[str, Any]) -> None:
    first, again = json.dumps(_align(data)), json.dumps(_align(data))
    assert first == again


def test_a_turned_score_keeps_its_own_values(data: dict[str, Any]) -> None:
    """Also where its first and last values are zero, which have no sign to tell by."""
    values = data["hardness"].copy()
    values[[0, -1]] = 0
    found = align_scores([Column("x", values, "harder")], Column("hsf", data["frequency"]), resamples=0)["scores"][0]
    assert found["turned"]
    assert (found["low"], found["high"]) == (values.min(), values.max())
    in_last = data["frequency"] >= 0.8
    assert found["medians"][-1] == np.median(values[in_last])


def test_scores_of_a_group_share_its_resamples(data: dict[str, Any]) -> None:
    """Twins have the same interval in every bin and class; a score that is constant in one class has none there."""
    stuck = data["hardness"].copy()
    stuck[data["labels"] == 2] = 1
    scores = [Column(name, values, "harder") for name, values in (("a", data["hardness"]), ("b", 2 * data["hardness"]))]
    scores.append(Column("stuck", stuck, "harder"))
    human = Column("hsf", data["frequency"])
    found = align_scores(scores, human, labels=data["labels"], resamples=40, generator=np.random.default_rng(0))
    for part in (found["classes"], found["bins"]["groups"]):
        for first, second in zip(part["a"], part["b"], strict=True):
            assert first["correlation"]["interval"] == second["correlation"]["interval"]
            low, high = (first["correlation"]["interval"][side] for side in ("low", "high"))
            assert low <= first["correlation"]["coefficient"] <= high
    assert "score must vary" in found["classes"]["stuck"][2]["reason"]
    assert found["classes"]["stuck"][1]["correlation"]["interval"] is not None


def test_an_undescribed_score_is_turned_to_its_side(data: dict[str, Any]) -> None:
    scores = [Column("x", data["hardness"]), Column("y", data["hardness"], "easier")]
    found = align_scores(scores, Column("hsf", data["frequency"]), resamples=0)
    x, y = (score["correlations"]["spearman"]["coefficient"] for score in found["scores"])
    assert x == pytest.approx(-y)
    assert x > 0
    assert {score["name"]: score["direction"] for score in found["scores"]} == {"x": None, "y": "easier"}
    assert found["scores"][0]["correlations"]["spearman"]["interval"] is None


def test_a_human_column_where_larger_is_harder(data: dict[str, Any]) -> None:
    plain = _align(data, resamples=0)
    scores = [Column("avh", data["hardness"], "harder")]
    turned = align_scores(scores, Column("seconds", 9 - 3 * data["frequency"], "harder"), resamples=0)
    kept = turned["scores"][0]["correlations"]["spearman"]["coefficient"]
    assert kept == pytest.approx(plain["scores"][0]["correlations"]["spearman"]["coefficient"])
    # Not a frequency: five equal bins over its own range.
    seconds = 9 - 3 * data["frequency"]
    assert turned["bins"]["edges"] == pytest.approx(np.linspace(seconds.min(), seconds.max(), 6).tolist())
    assert turned["bins"]["outside"] == 0


def test_values_a_rounding_apart_share_fewer_bins() -> None:
    human = np.tile([2.0, np.nextafter(2.0, 3.0)], 10)
    score = Column("avh", np.arange(20) + 30 * (human > 2), "easier")
    found = align_scores([score], Column("ratings", human), resamples=0)
    assert found["bins"]["edges"] == [2.0, human[1]]
    assert found["bins"]["outside"] == 0


def test_a_perfect_score_has_correlations_but_no_test(data: dict[str, Any]) -> None:
    scores = [Column("same", data["frequency"], "easier"), Column("avh", data["hardness"], "harder")]
    found = align_scores(scores, Column("hsf", data["frequency"]), resamples=20, generator=np.random.default_rng(0))
    assert found["scores"][0]["correlations"]["spearman"]["coefficient"] == pytest.approx(1)
    (pair,) = found["comparisons"]
    assert "in (-1, 1)" in pair["reason"]
    assert "meng_holm" not in pair
    # What the bootstrap says of the difference does not need a finite z.
    assert pair["interval"]["low"] <= pair["difference"] <= pair["interval"]["high"]


def test_what_weakens_a_number_is_said(data: dict[str, Any]) -> None:
    rounded = np.minimum(data["confidence"], np.quantile(data["confidence"], 0.7))
    barely = np.minimum(data["confidence"], np.quantile(data["confidence"], 0.92))
    scores = [Column("avh", data["hardness"], "easier"), Column("rounded", rounded), Column("barely", barely, "easier")]
    found = align_scores(
        scores, Column("hsf", data["frequency"]), correct=np.ones(N), resamples=0, edges=(0.0, 0.4, 0.6)
    )
    outside = int((data["frequency"] > 0.6).sum())
    noted = notes(found)
    assert {name for name, note in noted if "not recorded" in note} == {"rounded"}
    assert {name for name, note in noted if note.startswith("against people")} == {"avh"}
    ((name, tied),) = [one for one in noted if "tied at" in one[1] and "covariate" not in one[1]]
    assert (name, tied.startswith("60 of 200"), tied.endswith(f" {rounded.max():g}")) == ("rounded", True, True)
    assert {name for name, note in noted if "covariate must vary" in note} == {"avh", "rounded", "barely"}
    assert [note.split()[0] for name, note in noted if name == "all"] == [str(outside)]
    assert notes(_align(data, resamples=0)) == []


def test_a_coefficient_near_nought_is_not_against_people() -> None:
    generator = np.random.default_rng(0)
    human, values = generator.random(400), generator.random(400)
    sign = -1 if np.corrcoef(human, values)[0, 1] > 0 else 1
    found = align_scores([Column("chance", sign * values, "easier")], Column("hsf", human), resamples=0)
    assert -0.1 < found["scores"][0]["correlations"]["spearman"]["coefficient"] < 0
    assert notes(found) == []


def test_of_few_samples_a_value_that_occurs_once_is_no_tie() -> None:
    for values, sentences in (([1, 2, 3, 4], 0), ([1, 1, 3, 4], 1)):
        found = align_scores([Column("avh", values, "harder")], Column("hsf", [0.4, 0.3, 0.2, 0.1]), resamples=0)
        assert len([note for _, note in notes(found) if "tied" in note]) == sentences


def test_an_unknown_direction_is_that_of_the_method() -> None:
    # Up but for one outlier: the ranks rise with people's answers, the values fall.
    values, human = [1, 2, 3, 4, 5, 6, 7, -90], Column("hsf", [1, 2, 3, 4, 5, 6, 7, 8])
    for method, turned in (("spearman", False), ("pearson", True), ("kendall", False)):
        found = align_scores([Column("mine", values)], human, method=method, resamples=0)
        (score,) = found["scores"]
        assert score["turned"] is turned
        assert score["correlations"][method]["coefficient"] > 0
        assert not any("against people" in note for _, note in notes(found))


def test_an_interval_that_many_resamples_have_no_part_in_is_named() -> None:
    # One image apart from all others: a third of the resamples miss it, and those that hold it know no other sign.
    human, generator = np.r_[0.5, np.ones(59)], np.random.default_rng(0)
    scores = [Column(name, generator.normal(size=60), "harder") for name in ("avh", "loss")]
    found = align_scores(scores, Column("hsf", human), resamples=200, generator=generator)
    missed = 200 - found["scores"][0]["correlations"]["spearman"]["interval"]["resamples"]
    assert 50 < missed < 100
    named = [(name, note) for name, note in notes(found) if "resamples" in note]
    assert {name for name, _ in named} == {"avh", "loss"}
    assert all(note.startswith(f"{missed} of 200 resamples") for _, note in named)


def test_human_values_from_one_end_of_the_floats_to_the_other() -> None:
    human = 2 * np.linspace(-0.85e308, 0.85e308, 20)
    found = align_scores([Column("avh", -np.arange(20.0), "harder")], Column("time", human), resamples=0)
    assert [group["n"] for group in found["bins"]["groups"]["avh"]] == [4] * 5
    assert np.sum(found["scores"][0]["histogram"]["counts"]) == 20


def test_correctness_that_never_varies_says_so(data: dict[str, Any]) -> None:
    found = _align(data, correct=np.ones(N), resamples=0)
    assert found["scores"][0]["given_correctness"]["coefficient"] is None
    assert "covariate must vary" in found["scores"][0]["given_correctness"]["reason"]


def test_coarse_classes_and_kendall(data: dict[str, Any]) -> None:
    found = _align(data, coarse_of={0: "a", 1: "a", 2: "a", 3: "b"}, method="kendall", resamples=10)
    assert [(group["group"], group["fine_classes"]) for group in found["coarse"]["avh"]] == [("a", 3), ("b", 1)]
    assert found["comparisons"][0]["meng"] is None
    assert found["bins"]["groups"]["avh"][3]["correlation"]["method"] == "kendall"


def test_refusals(data: dict[str, Any]) -> None:
    human = Column("hsf", data["frequency"])
    score = Column("avh", data["hardness"], "harder")
    with pytest.raises(ValueError, match="scores must hold at least one column"):
        align_scores([], human, resamples=0)
    with pytest.raises(ValueError, match="scores must have different names; got avh, avh"):
        align_scores([score, score], human, resamples=0)
    with pytest.raises(ValueError, match="direction must be harder, easier or None; for 'avh' got 'up'"):
        align_scores([Column("avh", data["hardness"], "up")], human, resamples=0)
    with pytest.raises(ValueError, match="score 'avh' must vary"):
        align_scores([Column("avh", np.ones(N))], human, resamples=0)
    with pytest.raises(ValueError, match="human column 'hsf' must have one value for each"):
        align_scores([score], Column("hsf", data["frequency"][:9]), resamples=0)
    with pytest.raises(ValueError, match="labels must be given where coarse_of"):
        align_scores([score], human, resamples=0, coarse_of={0: "a"})
    for wrong in ([1.0, 0.0], [np.nan] * N):
        with pytest.raises(ValueError, match="correct must be 1 or 0 for each of 200 samples"):
            align_scores([score], human, resamples=0, correct=wrong)
    with pytest.raises(ValueError, match="generator must be"):
        align_scores([score], human)


def test_disagreements_are_the_largest_differences_of_ranks(data: dict[str, Any]) -> None:
    """By a slow loop: the share of samples that are easier, half of those alike."""

    def rank(values: np.ndarray, at: int) -> float:
        return float(((values < values[at]).sum() + (values == values[at]).sum() / 2) / N)

    score, human = data["hardness"].round(2), data["frequency"]
    ids = [f"image {at}" for at in range(N)]
    found = disagreements([Column("avh", score, "harder")], Column("hsf", human), 7, ids=ids, labels=data["labels"])
    gaps = sorted((rank(-human, at) - rank(score, at) for at in range(N)), reverse=True)
    for side, expected in (("people", gaps[:7]), ("model", gaps[::-1][:7])):
        rows = found["avh"][side]
        assert [one["human_rank"] - one["model_rank"] for one in rows] == pytest.approx(expected)
        for one in rows:
            at = one["row"]
            assert (one["id"], one["label"]) == (ids[at], data["labels"][at])
            assert (one["score"], one["human"]) == (score[at], human[at])
            assert one["human_rank"] == pytest.approx(rank(-human, at))


def test_disagreements_do_not_depend_on_scale_or_direction(data: dict[str, Any]) -> None:
    score, human = data["hardness"], Column("hsf", data["frequency"])
    plain = disagreements([Column("a", score, "harder")], human)["a"]
    other = disagreements([Column("a", np.exp(-3 * score), "easier")], Column("t", -data["frequency"], "harder"))["a"]
    wrong = disagreements([Column("a", score, "easier")], human)["a"]
    for side in ("people", "model"):
        assert [one["row"] for one in plain[side]] == [one["row"] for one in other[side]]
        assert [one["row"] for one in plain[side]] != [one["row"] for one in wrong[side]]


def test_who_agrees_has_no_disagreements(data: dict[str, Any]) -> None:
    human = Column("hsf", data["frequency"])
    assert disagreements([Column("same", 2 * data["frequency"], "easier")], human)["same"] == {
        "people": [],
        "model": [],
    }
    for options, name in (({"count": 0}, "count"), ({"ids": [1]}, "ids"), ({"labels": [1]}, "labels")):
        with pytest.raises(ValueError, match=f"^{name} must be"):
            disagreements([Column("a", data["hardness"], "harder")], human, **options)
