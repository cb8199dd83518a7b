"""People's answers beside a network's scores, and which score to trust: chosen on one half, judged on the other.

A score that is best of forty on some images is flattered by them. So images are split at random; one half picks the
best single score and the best mean of ranks (greedily, of at most three), the other half says how well they do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hardsight.alignment import compare_correlations
from hardsight.alignment.correlation import COEFFICIENTS, ranks
from hardsight.hardness import SCORES
from hardsight_studies.avh.watching import PEOPLE

TEMPERATURES = (2.0, 4.0, 8.0, 16.0)
SPLITS, MOST_MEMBERS = 5, 3
# A member that adds less than this to the half that chooses is left out.
LEAST_GAIN = 0.002
# The last epoch of training is the trained network: said twice, it would win twice.
_DOUBLES = ("loss", "avh_last", "angular_margin_last", "margin_last", "loss_last")

_spearman = COEFFICIENTS["spearman"]


@dataclass(frozen=True)
class Answers:
    """What people and one network say of the same images. `scores` are float64, larger is easier.

    `people`: human selection frequency; `votes`: how many chose the class, and how many there were, [2, N].
    """

    people: np.ndarray
    votes: np.ndarray
    labels: np.ndarray
    correct: np.ndarray
    scores: Mapping[str, np.ndarray]
    logits: np.ndarray
    averaged: np.ndarray | None


def read_answers(folder: Path) -> Answers:
    """The answers of a run, from its record."""
    table, scores = pq.read_table(folder / PEOPLE), {}
    for one in table.schema:
        if (one.metadata or {}).get(b"kind") == b"score" and one.name not in _DOUBLES:
            values = -SCORES[one.name].hardness(table[one.name].to_numpy().astype(np.float64))
            # What was never measured, or is the same for all, ranks nothing.
            if np.isfinite(values).all() and np.ptp(values) > 0:
                scores[one.name] = values
    if "loss" in table.column_names:
        # In float32 many confidences are exactly 1 and tie; the loss still tells them apart.
        scores["confidence"] = np.exp(-table["loss"].to_numpy().astype(np.float64))
    labels = table["label"].to_numpy()
    votes = np.stack([table[name].to_numpy().astype(np.int64) for name in ("votes_chosen", "votes_people")])
    averaged = _matrix(table, "probabilities_mean") if "probabilities_mean" in table.column_names else None
    correct = table["predicted"].to_numpy() == labels
    return Answers(votes[0] / votes[1], votes, labels, correct, scores, _matrix(table, "logits"), averaged)


def _matrix(table: pa.Table, name: str) -> np.ndarray:
    flat = table[name].combine_chunks().flatten()
    values: np.ndarray = flat.to_numpy().astype(np.float64).reshape(len(table), -1)
    return values


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
    confidence: np.ndarray = -np.logaddexp(0, np.logaddexp.reduce(logits, axis=1) - own)
    return confidence


@dataclass(frozen=True)
class Choice:
    """What one half chose, and coefficients on the other half: of it, of AVH and of confidence.

    `z`, `p_value`: Meng's test of the combination against confidence, on the other half.
    """

    members: tuple[str, ...]
    coefficients: Mapping[str, float]
    z: float
    p_value: float


def choices_of(scores: Mapping[str, np.ndarray], people: np.ndarray, splits: int = SPLITS) -> list[Choice]:
    """Split the images so often; each half chooses once and judges once."""
    found = []
    for seed in range(splits):
        first, second = np.array_split(np.random.default_rng(seed).permutation(len(people)), 2)
        found += [_choose(scores, people, *halves) for halves in ((first, second), (second, first))]
    return found


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
    judged = {"single": scores[members[0]][judged_on], "combination": combined}
    judged |= {name: scores[name][judged_on] for name in ("avh", "confidence")}
    test = compare_correlations(combined, judged["confidence"], answers, signed=True).meng
    assert test is not None
    found = {name: _spearman(values, answers) for name, values in judged.items()}
    return Choice(tuple(members), found, test.statistic, test.p_value)


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
    mean: np.ndarray = np.mean([ranks(values) for values in scores], 0) / len(scores[0])
    return mean


def people_with_people(votes: np.ndarray, splits: int = 20) -> float:
    """Spearman's coefficient between the frequencies of two random halves of the people.

    Drawn from the counts: of m people of whom b chose the class, the b fall into halves hypergeometrically.
    """
    generator = np.random.default_rng(0)
    chosen, people = votes
    half, found = people // 2, []
    for _ in range(splits):
        first = generator.hypergeometric(chosen, people - chosen, half)
        found.append(_spearman(first / half, (chosen - first) / (people - half)))
    return float(np.mean(found))


def summary(choices: Sequence[Choice]) -> dict[str, float]:
    """Mean coefficients of one training's choices on the halves that did not choose."""
    names = choices[0].coefficients
    return {name: float(np.mean([one.coefficients[name] for one in choices])) for name in names}
