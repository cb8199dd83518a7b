"""The four hypotheses end in sentences that say what the numbers say."""

import dataclasses
from typing import Any

import pytest
from hardsight_studies.avh.agreement import Answers
from hardsight_studies.avh.hypotheses import judge_network, result, sentences

from hardsight.alignment import compare_correlations, correlate


def swapped(answers: Answers, **scores: str) -> Answers:
    """The answers with one score's values under another's name."""
    return dataclasses.replace(
        answers, scores={**answers.scores, **{name: answers.scores[other] for name, other in scores.items()}}
    )


@pytest.fixture
def judged(made_up: Answers) -> dict[str, Any]:
    return judge_network([made_up], 20)


def test_the_numbers_are_those_of_alignment(made_up: Answers, judged: dict[str, Any]) -> None:
    for name in ("avh", "confidence", "class_norm"):
        expected = correlate(made_up.scores[name], made_up.people)
        assert judged["scores"][name]["coefficient"]["mean"] == pytest.approx(expected.coefficient, abs=1e-4)
        assert judged["scores"][name]["p_values"][0] == pytest.approx(expected.p_value, rel=1e-2)
    for method in ("spearman", "pearson"):
        compared = compare_correlations(made_up.scores["avh"], made_up.scores["confidence"], made_up.people, method)
        assert compared.meng is not None
        assert judged["tests"][method]["meng"][0] == pytest.approx(compared.meng.statistic, abs=1e-3)
        assert judged["tests"][method]["fisher"][0] == pytest.approx(compared.fisher.statistic, abs=1e-3)
    low, high = judged["pearson_difference"]
    assert low < compared.first - compared.second < high


def test_what_the_paper_claims_is_said_to_hold_where_it_does(judged: dict[str, Any]) -> None:
    first, second, third, fourth = sentences({"resnet20": judged})
    assert "holds" in first
    assert "holds" in second
    assert "holds: AVH's is significantly the larger in 1 of 1 run" in third
    # As in the paper: the norm says nothing about people.
    assert "does not hold: ρ from" in fourth
    assert result({"resnet20": judged}).startswith("**Result.** H1 holds, H2 holds, H3 holds and H4 does not hold.")


def test_the_contrary_is_said_plainly(made_up: Answers, judged: dict[str, Any]) -> None:
    turned = judge_network([swapped(made_up, avh="confidence", confidence="avh", class_norm="avh")], 20)
    sentence = sentences({"resnet20": turned})[2]
    assert "is contradicted: AVH's is significantly the larger in 0 of 1 run, confidence's in 1" in sentence
    assert "Z from −" in sentence
    assert "H3 is contradicted and H4 holds." in result({"resnet20": turned})
    assert "holds: ρ from" in sentences({"resnet20": turned})[3]
    assert (
        "By Pearson's coefficient, which compares values instead of ranks, AVH's is the larger for 0 and confidence's "
        "for 1 of 1 network (95 % bootstrap intervals over images, which do not assume normal values)."
    ) in sentence
    mixed = sentences({"resnet20": judged, "cnn13": turned})[2]
    assert "does not hold throughout: AVH's is significantly the larger in 1 of 2 runs, confidence's in 1" in mixed
    tied = {**judged, "tests": {**judged["tests"], "spearman": {**judged["tests"]["spearman"], "meng_p_values": [0.5]}}}
    undecided = sentences({"a": tied, "b": tied, "c": turned})[2]
    assert "does not hold: AVH's is significantly the larger in 0 of 3 runs, confidence's in 1, and 2" in undecided


def test_pearsons_difference_is_judged_by_its_interval_and_not_by_a_test_for_normal_values(
    judged: dict[str, Any],
) -> None:
    # Meng's test says significant here; the interval does not.
    assert judged["tests"]["pearson"]["meng_p_values"][0] < 0.05
    unsure = {**judged, "pearson_difference": [-0.001, 0.02]}
    assert "AVH's is the larger for 1 and confidence's for 0 of 2 networks" in sentences({"a": judged, "b": unsure})[2]
    without = {key: value for key, value in judged.items() if key != "pearson_difference"}
    assert "Pearson" not in sentences({"a": judged, "b": without})[2]


def test_a_score_that_ranks_against_people_is_no_support(made_up: Answers) -> None:
    scores = {**made_up.scores, "class_norm": -made_up.scores["avh"]}
    judged = judge_network([dataclasses.replace(made_up, scores=scores)], 20)
    sentence = sentences({"resnet20": judged})[3]
    assert "does not hold" in sentence
    assert "in 1 significantly against people" in sentence


def test_better_networks_are_asked_about_once_there_are_enough(judged: dict[str, Any]) -> None:
    def network(accuracy: float, coefficient: float) -> dict[str, Any]:
        scores = {
            **judged["scores"],
            "avh": {**judged["scores"]["avh"], "coefficient": {"mean": coefficient, "values": [coefficient]}},
        }
        return {**judged, "accuracy": {"mean": accuracy}, "scores": scores}

    falling = {str(at): network(0.9 + at / 100, 0.5 - at / 10) for at in range(5)}
    assert "Better networks agree with people less: over the 5 networks" in sentences(falling)[0]
    assert "is −1.00" in sentences(falling)[0]
    rising = {str(at): network(0.9 + at / 100, 0.1 + at / 10) for at in range(5)}
    assert "Better networks agree with people more" in sentences(rising)[0]
    # Four in a row happen by chance once in twelve.
    assert "neither more nor less" in sentences(dict(list(rising.items())[:4]))[0]
    assert "Better networks" not in sentences({"resnet20": judged})[0]
