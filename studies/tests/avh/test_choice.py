"""Choosing a score on one half and judging it on the other; people with people; what is made from logits."""

import dataclasses

import numpy as np
import pytest
import torch
from hardsight_studies.avh.choice import (
    TEMPERATURES,
    Answers,
    candidates,
    choices_of,
    choose,
    mean_rank,
    people_with_people,
)
from scipy import stats


def test_the_better_score_is_chosen_and_two_kinds_of_evidence_are_combined() -> None:
    generator = np.random.default_rng(0)
    truth, noise = generator.normal(size=(2, 2000))
    scores = {
        "avh": truth + noise,
        "confidence": truth + 1.2 * generator.normal(size=2000),
        "same": truth + noise + 1e-6 * generator.normal(size=2000),
        "nothing": generator.normal(size=2000),
    }
    for choice in choices_of(scores, truth, 1):
        assert choice.members[0] in ("avh", "same")
        # The twin of what is there already adds nothing; other evidence does.
        assert set(choice.members) in ({"avh", "confidence"}, {"same", "confidence"})
        assert choice.coefficients["combination"] > choice.coefficients["single"] + 0.05
        assert choice.z > 0
        assert choice.p_value < 0.001


def test_the_half_that_chose_does_not_judge() -> None:
    generator = np.random.default_rng(0)
    people = generator.uniform(size=100)
    scores = {name: generator.normal(size=100) for name in ("avh", "confidence", *map(str, range(30)))}
    flattered = []
    judged = [choice.coefficients["single"] for choice in choices_of(scores, people, 4)]
    for seed in range(4):
        # The wrong way, on the images that chose, sees agreement where there is none.
        halves = np.array_split(np.random.default_rng(seed).permutation(100), 2)
        flattered += [max(stats.spearmanr(one[half], people[half])[0] for one in scores.values()) for half in halves]
    assert np.mean(flattered) > 0.2
    assert np.mean(judged) < 0.1


def test_what_is_the_same_for_a_whole_half_is_no_candidate() -> None:
    generator = np.random.default_rng(0)
    truth = generator.normal(size=200)
    rare = np.zeros(200)
    # The one image it tells apart is in one half only, whichever that is.
    rare[0] = 1.0
    scores = {"rare": rare, **{name: truth + generator.normal(size=200) for name in ("avh", "confidence")}}
    for choice in choices_of(scores, truth, 1):
        assert "rare" not in choice.members
        assert all(np.isfinite(value) for value in choice.coefficients.values())


def test_one_candidate_is_chosen_alone() -> None:
    values = np.arange(10.0)
    assert choose({"only": values}, values) == ["only"]


def test_mean_ranks_see_order_alone() -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 50))
    expected = (stats.rankdata(first) + stats.rankdata(second)) / 2 / 50
    np.testing.assert_allclose(mean_rank([first, second]), expected)
    np.testing.assert_array_equal(mean_rank([np.exp(first), 3 * second]), mean_rank([first, second]))


def test_candidates_from_logits_are_what_torch_says(made_up: Answers) -> None:
    labelled = dataclasses.replace(made_up, labels=np.arange(600) % 4, averaged=np.full((600, 4), 0.25))
    found = candidates(labelled)
    logits, labels = torch.from_numpy(labelled.logits), torch.from_numpy(labelled.labels)
    for temperature in TEMPERATURES:
        expected = (logits / temperature).log_softmax(1).gather(1, labels[:, None])[:, 0]
        np.testing.assert_allclose(found[f"confidence_t{temperature:g}"], expected, atol=1e-12)
    assert found["entropy_of_mean"] == pytest.approx(np.full(600, -np.log(4)))
    # Longer features, larger logits: what has no norm does not change.
    longer = np.random.default_rng(0).uniform(1, 3, 600)
    scores = {**labelled.scores, "norm": labelled.scores["norm"] * longer}
    scaled = candidates(dataclasses.replace(labelled, scores=scores, logits=labelled.logits * longer[:, None]))
    ratio = scores["norm"].mean() / labelled.scores["norm"].mean()
    unscaled = candidates(dataclasses.replace(labelled, logits=labelled.logits * ratio))
    np.testing.assert_allclose(scaled["confidence_without_norm"], unscaled["confidence_without_norm"], atol=1e-9)
    assert not np.allclose(scaled["confidence_t2"], unscaled["confidence_t2"])


def test_a_network_however_sure_ties_no_images(made_up: Answers) -> None:
    # At temperature 2 the label leads by 50 to 200: all its probabilities are 1 in float64.
    logits = np.zeros((600, 4))
    logits[:, 0] = np.linspace(100, 400, 600)
    found = candidates(dataclasses.replace(made_up, logits=logits))["confidence_t2"]
    assert (np.diff(found) > 0).all()
    expected = -np.log1p(3 * np.exp(-logits[:, 0] / 2))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_people_agree_with_people_as_halves_of_them_do() -> None:
    generator = np.random.default_rng(0)
    answers = generator.random((300, 40)) < generator.beta(4, 1, 300)[:, None]
    votes = np.stack([answers.sum(1), np.full(300, 40)])
    found = []
    for _ in range(20):
        shuffled = generator.permuted(answers, axis=1)
        found.append(stats.spearmanr(shuffled[:, :20].mean(1), shuffled[:, 20:].mean(1))[0])
    assert people_with_people(votes) == pytest.approx(np.mean(found), abs=0.02)


def test_people_who_are_of_one_mind_agree_perfectly() -> None:
    votes = np.array([[0, 50, 51, 0], [50, 50, 51, 49]])
    assert people_with_people(votes) == 1.0
