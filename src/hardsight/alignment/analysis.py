"""Everything about scores and one human column at once, as plain values that go to JSON and onto a page."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from hardsight.alignment.agreement import rank_agreement
from hardsight.alignment.bootstrap import Bootstrap, bootstrap_correlations
from hardsight.alignment.coefficients import COEFFICIENTS
from hardsight.alignment.comparison import compared, holm
from hardsight.alignment.correlation import correlate
from hardsight.alignment.groups import (
    FIVE_BINS,
    GroupCorrelation,
    bin_of,
    correlate_by_granularity,
    correlate_by_group,
    correlate_in_bins,
)
from hardsight.alignment.histograms import human_range, joint_histogram
from hardsight.alignment.inputs import METHODS, as_pairs, check_choice, check_resampling
from hardsight.alignment.partial import partial_correlation

DIRECTIONS = ("harder", "easier")

# Kendall's coefficient is counted anew in each resample instead of by weights; its interval says how many it had.
_KENDALL_SHARE = 2
# With more groups than this a figure shows none of their intervals, and they would cost most of the time.
_MOST_INTERVALS = 60


@dataclass(frozen=True)
class Column:
    """A named column, and whether larger means "harder" or "easier"; None where nobody wrote it down."""

    name: str
    values: Any
    direction: str | None = None
    title: str | None = None


@dataclass(frozen=True)
class _Plan:
    method: str
    resamples: int
    level: float
    generator: np.random.Generator | None

    def options(self, groups: int) -> dict[str, Any]:
        resamples = self.resamples if groups <= _MOST_INTERVALS else 0
        return {"resamples": resamples, "level": self.level, "generator": self.generator}


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
    turned to the side it leans to. With `labels`, correlations per class (and per coarse class with `coarse_of`); with
    `correct`, partial correlations given correctness.
    """
    check_choice("method", method, METHODS)
    check_resampling(resamples, level, generator)
    plan = _Plan(method, resamples, level, generator)
    turned, y = _turn(scores, human)
    chosen = FIVE_BINS if human_range(y) == (0.0, 1.0) else tuple(np.linspace(y.min(), y.max(), 6).tolist())
    edges = tuple(edges) if edges is not None else chosen
    drawn = {each: _draw(turned, y, each, plan) for each in METHODS} if resamples else {}
    rows = [
        _describe(score, x, y, edges) | _correlations(x, y, at, drawn, plan) | _given_correctness(x, y, correct, plan)
        for at, (score, x) in enumerate(zip(scores, turned, strict=True))
    ]
    names = [score.name for score in scores]
    return {
        "n": len(y),
        "method": method,
        "level": level,
        "resamples": resamples,
        "human": {"name": human.name, "title": human.title or human.name, "direction": human.direction or "easier"},
        "scores": rows,
        "comparisons": _comparisons(names, turned, y, drawn.get(method), plan),
        "bins": {
            "edges": list(edges),
            "outside": int((bin_of(y, edges) < 0).sum()),
            "groups": {
                name: [_group(one) for one in correlate_in_bins(x, y, edges, method, **plan.options(len(edges) - 1))]
                for name, x in zip(names, turned, strict=True)
            },
        },
        "classes": _by_class(names, turned, y, labels, plan),
        "coarse": _by_coarse(names, turned, y, labels, coarse_of, plan),
        "agreement": _agreement(names, turned, method),
    }


def _turn(
    scores: Sequence[Column], human: Column
) -> tuple[Float[np.ndarray, "scores samples"], Float[np.ndarray, "samples"]]:
    if not scores:
        raise ValueError("scores must hold at least one column; got none")
    if len({score.name for score in scores}) < len(scores):
        raise ValueError(f"scores must have different names; got {', '.join(score.name for score in scores)}")
    for column in (*scores, human):
        if column.direction not in (None, *DIRECTIONS):
            raise ValueError(f"direction must be harder, easier or None; for {column.name!r} got {column.direction!r}")
    turned = []
    for score in scores:
        x, y = as_pairs(**{f"score {score.name!r}": score.values, f"human column {human.name!r}": human.values})
        if score.direction is None:
            against = COEFFICIENTS["spearman"](x, y) < 0
        else:
            against = score.direction != (human.direction or "easier")
        turned.append(-x if against else x)
    return np.stack(turned), y


def _draw(turned: np.ndarray, y: np.ndarray, method: str, plan: _Plan) -> Bootstrap:
    count = plan.resamples
    if method == "kendall" and plan.method != "kendall":
        count = max(1, count // _KENDALL_SHARE)
    assert plan.generator is not None
    return bootstrap_correlations(turned, y, method, resamples=count, generator=plan.generator)


def _describe(score: Column, x: np.ndarray, y: np.ndarray, edges: Sequence[float]) -> dict[str, Any]:
    values = np.asarray(as_pairs(score=score.values)[0])
    histogram, bins = joint_histogram(values, y), bin_of(y, edges)
    medians = [float(np.median(values[bins == at])) if (bins == at).any() else None for at in range(len(edges) - 1)]
    return {
        "name": score.name,
        "title": score.title or score.name,
        "direction": score.direction,
        "turned": bool(x[0] != values[0] or (x[-1] != values[-1])),
        "low": float(values.min()),
        "high": float(values.max()),
        "medians": medians,
        "histogram": {key: array.tolist() for key, array in vars(histogram).items()},
    }


def _correlations(
    x: np.ndarray, y: np.ndarray, at: int, drawn: Mapping[str, Bootstrap], plan: _Plan
) -> dict[str, dict[str, Any]]:
    found = {}
    for method in METHODS:
        correlation = correlate(x, y, method)
        if method in drawn:
            correlation = dataclasses.replace(correlation, interval=drawn[method].interval(at, level=plan.level))
        found[method] = dataclasses.asdict(correlation)
    return {"correlations": found}


def _given_correctness(x: np.ndarray, y: np.ndarray, correct: Any, plan: _Plan) -> dict[str, Any]:
    if correct is None:
        return {"given_correctness": None}
    try:
        held = partial_correlation(x, y, correct, method=plan.method)
    except ValueError as refusal:
        return {"given_correctness": {"coefficient": None, "reason": str(refusal)}}
    return {"given_correctness": dataclasses.asdict(held)}


def _comparisons(
    names: Sequence[str], turned: np.ndarray, y: np.ndarray, drawn: Bootstrap | None, plan: _Plan
) -> list[dict[str, Any]]:
    """Every pair of scores, stronger first, with p-values adjusted for the number of pairs."""
    coefficient = COEFFICIENTS[plan.method]
    strength = [coefficient(x, y) for x in turned]
    order = sorted(range(len(names)), key=lambda at: -strength[at])
    found: list[dict[str, Any]] = []
    for first, second in itertools.combinations(order, 2):
        pair: dict[str, Any] = {
            "first": names[first],
            "second": names[second],
            "difference": strength[first] - strength[second],
        }
        interval = drawn.difference(first, second, level=plan.level) if drawn else None
        between = coefficient(turned[first], turned[second])
        try:
            tested = compared(plan.method, strength[first], strength[second], between, len(y), interval=interval)
        except ValueError as refusal:
            found.append(pair | {"reason": str(refusal)})
            continue
        kept = {key: value for key, value in dataclasses.asdict(tested).items() if key not in ("first", "second")}
        found.append(pair | kept)
    tested_pairs = [pair for pair in found if pair.get("meng")]
    for pair, adjusted in zip(tested_pairs, holm([pair["meng"]["p_value"] for pair in tested_pairs]), strict=True):
        pair["meng_holm"] = adjusted
    return found


def _by_class(
    names: Sequence[str], turned: np.ndarray, y: np.ndarray, labels: Any, plan: _Plan
) -> dict[str, list[dict[str, Any]]] | None:
    if labels is None:
        return None
    options = plan.options(len(np.unique(np.asarray(labels))))
    return {
        name: [_group(one) for one in correlate_by_group(x, y, labels, plan.method, **options)]
        for name, x in zip(names, turned, strict=True)
    }


def _by_coarse(
    names: Sequence[str],
    turned: np.ndarray,
    y: np.ndarray,
    labels: Any,
    coarse_of: Mapping[Any, Any] | None,
    plan: _Plan,
) -> dict[str, list[dict[str, Any]]] | None:
    if coarse_of is None:
        return None
    if labels is None:
        raise ValueError("labels must be given where coarse_of says which coarse class each belongs to; got none")
    options = plan.options(len(set(coarse_of.values())))
    return {
        name: [_group(one) for one in correlate_by_granularity(x, y, labels, coarse_of, plan.method, **options)]
        for name, x in zip(names, turned, strict=True)
    }


def _agreement(names: Sequence[str], turned: np.ndarray, method: str) -> dict[str, Any] | None:
    if len(names) < 2:
        return None
    found = rank_agreement(dict(zip(names, turned, strict=True)), method)
    return dataclasses.asdict(found) | {"matrix": found.matrix.tolist(), "names": list(found.names)}


def _group(one: GroupCorrelation) -> dict[str, Any]:
    plain = dataclasses.asdict(one)
    return plain | {"group": list(one.group) if isinstance(one.group, tuple) else one.group}
