"""Everything about scores and one human column at once, as plain values for JSON and pages, and what weakens them."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardsight.alignment.bootstrap import Bootstrap, bootstrap_correlations, correlate
from hardsight.alignment.comparison import compared, holm, rank_agreement
from hardsight.alignment.correlation import Column, Turned, correlation_matrix, partial_correlation, turn
from hardsight.alignment.groups import (
    FIVE_BINS,
    bin_of,
    bins_as_groups,
    coarse_groups,
    correlate_within,
    equal_edges,
    human_range,
    joint_histogram,
)
from hardsight.alignment.inputs import METHODS, Group, as_groups, as_values, check_resampling
from hardsight.names import check_name

# Kendall's coefficient is counted again in each resample instead of by weights; its interval says how many it had.
_KENDALL_SHARE = 2
# With more groups than this a figure shows none of their intervals, and they would cost most of the time.
_MOST_INTERVALS = 60

Grouped = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class _Plan:
    method: str
    resamples: int
    level: float
    generator: np.random.Generator | None

    def draw(self, scores: np.ndarray, human: np.ndarray, method: str) -> Bootstrap | None:
        """Resamples of all scores; None where no interval is asked for."""
        if not self.resamples or self.generator is None:
            return None
        count = self.resamples
        if method == "kendall" and self.method != "kendall":
            count = max(1, count // _KENDALL_SHARE)
        return bootstrap_correlations(scores, human, method, resamples=count, generator=self.generator)


def align_scores(
    scores: Sequence[Column],
    human: Column,
    *,
    labels: Any = None,
    correct: Any = None,
    coarse_of: Mapping[Any, Any] | None = None,
    method: str = "spearman",
    resamples: int = 2000,
    level: float = 0.95,
    edges: Sequence[float] | None = None,
    generator: np.random.Generator | None = None,
) -> dict[str, Any]:
    """Correlations, tests between the scores, bins, classes, correctness held fixed, and rank agreement.

    Every score is turned so that a positive coefficient means agreement with people; a score of unknown direction is
    turned to the side it leans to by `method`. With `labels`, correlations per class (and per coarse class with
    `coarse_of`); with `correct`, partial correlations given correctness.
    """
    check_name("method", method, METHODS)
    check_resampling(resamples, level, generator)
    plan, data = _Plan(method, resamples, level, generator), turn(scores, human, method)
    if correct is not None:
        correct = as_values("correct", correct)
        if len(correct) != len(data.human) or not np.isfinite(correct).all():
            raise ValueError(f"correct must be 1 or 0 for each of {len(data.human)} samples; got {len(correct)} values")
    edges = _edges(data.human) if edges is None else tuple(edges)
    drawn = {each: plan.draw(data.scores, data.human, each) for each in METHODS}
    matrix = correlation_matrix([*data.scores, data.human], method)
    rows = [
        _describe(score, data, at, edges)
        | {"correlations": _correlations(data, at, drawn, plan)}
        | {"given_correctness": None if correct is None else _given_correctness(data, at, correct, plan)}
        for at, score in enumerate(scores)
    ]
    return {
        "n": len(data.human),
        "method": method,
        "level": level,
        "resamples": resamples,
        "human": {"name": human.name, "title": human.title or human.name, "direction": human.direction or "easier"},
        "scores": rows,
        "comparisons": _comparisons(data, matrix, drawn[method], plan),
        "bins": {
            "edges": list(edges),
            "outside": int((bin_of(data.human, edges) < 0).sum()),
            "groups": _grouped(data, bins_as_groups(data.human, edges), plan),
        },
        "classes": None if labels is None else _grouped(data, as_groups(labels, len(data.human)), plan),
        "coarse": None if coarse_of is None else _by_coarse(data, labels, coarse_of, plan),
        "agreement": _agreement(data, method, matrix[:-1, :-1]) if len(scores) > 1 else None,
    }


def _edges(human: np.ndarray) -> tuple[float, ...]:
    """The paper's five bins for a frequency, five equal ones over the range for anything else."""
    if human_range(human) == (0.0, 1.0):
        return FIVE_BINS
    # Values that differ by a few roundings have fewer edges between them.
    return tuple(np.unique(equal_edges(human.min(), human.max(), len(FIVE_BINS) - 1)).tolist())


def _describe(score: Column, data: Turned, at: int, edges: Sequence[float]) -> dict[str, Any]:
    values, bins = data.given(at), bin_of(data.human, edges)
    distinct, times = np.unique(values, return_counts=True)
    medians = [float(np.median(values[bins == one])) if (bins == one).any() else None for one in range(len(edges) - 1)]
    return {
        "name": score.name,
        "title": score.title or score.name,
        "direction": score.direction,
        "turned": bool(data.around[at]),
        "low": float(values.min()),
        "high": float(values.max()),
        "tied": {"value": float(distinct[times.argmax()]), "count": int(times.max())},
        "medians": medians,
        "histogram": {key: array.tolist() for key, array in vars(joint_histogram(values, data.human)).items()},
    }


def _correlations(data: Turned, at: int, drawn: Mapping[str, Bootstrap | None], plan: _Plan) -> dict[str, Any]:
    found = {}
    for method, resampled in drawn.items():
        interval = resampled.interval(at, level=plan.level) if resampled else None
        correlation = correlate(data.scores[at], data.human, method)
        found[method] = dataclasses.asdict(dataclasses.replace(correlation, interval=interval))
    return found


def _given_correctness(data: Turned, at: int, correct: Any, plan: _Plan) -> dict[str, Any]:
    try:
        return dataclasses.asdict(partial_correlation(data.scores[at], data.human, correct, method=plan.method))
    except ValueError as problem:
        return {"coefficient": None, "reason": str(problem)}


def _comparisons(data: Turned, matrix: np.ndarray, drawn: Bootstrap | None, plan: _Plan) -> list[dict[str, Any]]:
    """Every pair of scores, stronger first, with p-values adjusted for the number of pairs.

    `matrix` holds the coefficients of all scores and, last, the human column.
    """
    strength = matrix[-1, :-1].tolist()
    order = sorted(range(len(strength)), key=lambda at: -strength[at])
    found: list[dict[str, Any]] = []
    for first, second in itertools.combinations(order, 2):
        interval = drawn.difference(first, second, level=plan.level) if drawn else None
        between = float(matrix[first, second])
        try:
            tested = compared(
                plan.method, strength[first], strength[second], between, len(data.human), interval=interval
            )
            pair = dataclasses.asdict(tested)
        except ValueError as problem:
            # The interval needs no finite z, so it is kept without a test.
            pair = {"reason": str(problem), "interval": dataclasses.asdict(interval) if interval else None}
        named = {"first": data.names[first], "second": data.names[second]}
        found.append(pair | named | {"difference": strength[first] - strength[second]})
    tested_pairs = [pair for pair in found if pair.get("meng")]
    for pair, adjusted in zip(tested_pairs, holm([pair["meng"]["p_value"] for pair in tested_pairs]), strict=True):
        pair["meng_holm"] = adjusted
    return found


def _by_coarse(data: Turned, labels: Any, coarse_of: Mapping[Any, Any], plan: _Plan) -> Grouped:
    if labels is None:
        raise ValueError("labels must be given where coarse_of says which coarse class each belongs to; got none")
    coarse = coarse_groups(as_groups(labels, len(data.human)), coarse_of)
    grouped = _grouped(data, [group for group, _ in coarse], plan)
    return {
        name: [one | {"fine_classes": fine} for one, (_, fine) in zip(found, coarse, strict=True)]
        for name, found in grouped.items()
    }


def _grouped(data: Turned, groups: Sequence[Group], plan: _Plan) -> Grouped:
    """The correlations of every score within each group; all scores share a group's resamples."""
    with_intervals = plan.resamples > 0 and len(groups) <= _MOST_INTERVALS
    grouped: Grouped = {name: [] for name in data.names}
    for group in groups:
        found = [correlate_within(group, x, data.human, plan.method) for x in data.scores]
        usable = [at for at, one in enumerate(found) if one.correlation is not None]
        drawn = None
        if usable and with_intervals:
            part = data.scores[np.array(usable)[:, None], group.rows]
            drawn = plan.draw(part, data.human[group.rows], plan.method)
        for at, (name, one) in enumerate(zip(data.names, found, strict=True)):
            plain = dataclasses.asdict(one)
            if drawn is not None and at in usable:
                interval = drawn.interval(usable.index(at), level=plan.level)
                plain["correlation"]["interval"] = dataclasses.asdict(interval)
            grouped[name].append(plain | {"group": list(one.group) if isinstance(one.group, tuple) else one.group})
    return grouped


def _agreement(data: Turned, method: str, matrix: np.ndarray) -> dict[str, Any]:
    found = rank_agreement(dict(zip(data.names, data.scores, strict=True)), method, matrix=matrix)
    return dataclasses.asdict(found) | {"matrix": found.matrix.tolist(), "names": list(found.names)}
