"""Which score to trust: chosen on one half of the images by people's answers, judged on the other half.

A score that is best of forty on some images is flattered by them. So images are split at random; one half picks the
best single score and the best mean of ranks (greedily, of at most three), the other half says how well they do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardsight.alignment import compare_correlations
from hardsight.alignment.correlation import COEFFICIENTS, ranks
from hardsight_studies.avh.agreement import Answers

TEMPERATURES = (2.0, 4.0, 8.0, 16.0)
SPLITS = 5
MOST_MEMBERS = 3
# A member that adds less than this to the half that chooses is not worth its place.
LEAST_GAIN = 0.002
REFERENCES = ("avh", "confidence")

_spearman = COEFFICIENTS["spearman"]


def candidates(answers: Answers) -> dict[str, np.ndarray]:
    """Every score, and what the outputs kept allow: confidence softened or without norm, entropy of the mean.

    Divided by a temperature, the logits of the other classes all count; at 1 the largest decides. Without norm, each
    image's logits are divided by its own feature norm instead of the set's mean. All larger is easier.
    """
    made = {f"confidence_t{one:g}": _log_confidence(answers, one) for one in TEMPERATURES}
    norms = np.maximum(answers.scores["norm"], np.finfo(np.float64).tiny)
    made["confidence_without_norm"] = _log_confidence(answers, norms[:, None] / norms.mean())
    if answers.averaged is not None:
        made["entropy_of_mean"] = (answers.averaged * np.log(np.maximum(answers.averaged, 1e-300))).sum(1)
    return {**answers.scores, **made}


def _log_confidence(answers: Answers, temperature: float | np.ndarray) -> np.ndarray:
    """Log-probability of the label at this temperature: in the order of the confidence, without its ties."""
    logits, rows = answers.logits / temperature, np.arange(len(answers.logits))
    own = logits[rows, answers.labels]
    logits[rows, answers.labels] = -np.inf
    # From the others' mass: the label's logit less that of all is 0 where the network is sure enough.
    return -np.logaddexp(0, np.logaddexp.reduce(logits, axis=1) - own)


@dataclass(frozen=True)
class Choice:
    """What one half chose, and the coefficients of it and of AVH and confidence on the other half."""

    single: str
    members: tuple[str, ...]
    coefficients: Mapping[str, float]
    # Meng's Z of the combination against confidence, on the other half.
    z: float
    p_value: float


def choose_and_judge(scores: Mapping[str, np.ndarray], people: np.ndarray, seed: int) -> list[Choice]:
    """Split the images by the seed; each half chooses once and judges once."""
    order = np.random.default_rng(seed).permutation(len(people))
    first, second = np.array_split(order, 2)
    return [_choose(scores, people, *halves) for halves in ((first, second), (second, first))]


def _choose(
    scores: Mapping[str, np.ndarray], people: np.ndarray, chosen_on: np.ndarray, judged_on: np.ndarray
) -> Choice:
    # What is the same for a whole half has no rank there.
    ranked = {
        name: ranks(values[chosen_on])
        for name, values in scores.items()
        if min(np.ptp(values[chosen_on]), np.ptp(values[judged_on])) > 0
    }
    members = choose(ranked, people[chosen_on])
    answers = people[judged_on]
    combined = mean_rank([scores[name][judged_on] for name in members])
    found = {
        "single": _spearman(scores[members[0]][judged_on], answers),
        "combination": _spearman(combined, answers),
        **{name: _spearman(scores[name][judged_on], answers) for name in REFERENCES},
    }
    test = compare_correlations(combined, scores["confidence"][judged_on], answers, signed=True).meng
    assert test is not None
    return Choice(members[0], tuple(members), found, test.statistic, test.p_value)


def choose(ranked: Mapping[str, np.ndarray], people: np.ndarray) -> list[str]:
    """The best single score by Spearman's coefficient, then those whose ranks improve its mean rank most."""
    members: list[str] = []
    total, best = np.zeros(len(people)), -np.inf
    while len(members) < min(MOST_MEMBERS, len(ranked)):
        tried = {name: _spearman(total + ranked[name], people) for name in ranked if name not in members}
        name = max(tried, key=lambda one: tried[one])
        if members and tried[name] < best + LEAST_GAIN:
            break
        members.append(name)
        total, best = total + ranked[name], tried[name]
    return members


def mean_rank(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Mean of the ranks, in (0, 1]; larger is easier where it is for all."""
    return np.mean([ranks(values) for values in scores], 0) / len(scores[0])


def people_with_people(votes: np.ndarray, splits: int = 20) -> float:
    """Spearman's coefficient between the frequencies of two random halves of the people.

    Drawn from the counts: of m people of whom b chose the class, the b fall into halves hypergeometrically.
    """
    generator = np.random.default_rng(0)
    chosen, people = votes
    half = people // 2
    found = []
    for _ in range(splits):
        first = generator.hypergeometric(chosen, people - chosen, half)
        found.append(_spearman(first / half, (chosen - first) / (people - half)))
    return float(np.mean(found))


def summary(choices: Sequence[Choice]) -> dict[str, Any]:
    """Mean coefficients of one training's choices on the halves that did not choose."""
    names = choices[0].coefficients
    return {name: float(np.mean([one.coefficients[name] for one in choices])) for name in names}
