"""Everything about scores and one human column at once, as plain values for JSON and pages, and numbers as text."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hardsight.alignment.bootstrap import Bootstrap, bootstrap_correlations, correlate
from hardsight.alignment.comparison import compared, holm, rank_agreement
from hardsight.alignment.correlation import Column, Turned, correlation_matrix, partial_correlation, ranks, turn
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
from hardsight.alignment.inputs import METHODS, Group, as_groups, as_values, check_options

# Kendall's coefficient is counted again in each resample instead of by weights; its interval says how many it had.
_KENDALL_SHARE = 2
# With more groups than this a figure shows none of their intervals, and they would cost most of the time.
_MOST_INTERVALS = 60


METHOD_NAMES = {"spearman": "Spearman's ρ", "pearson": "Pearson's r", "kendall": "Kendall's τ"}

# From this share of equal values on, a rank correlation is about the others.
_MANY_TIED = 0.1
# From this p-value on, a coefficient below zero is taken for chance.
_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class _Plan:
    """The scores turned towards people, and how their coefficients are resampled."""

    data: Turned
    method: str
    resamples: int
    level: float
    generator: np.random.Generator | None

    def draw(self, method: str, scores: list[int] | None = None, samples: Any = None) -> Bootstrap | None:
        """Resamples of these scores and samples, or of all; None where no interval is asked for."""
        if not self.resamples or self.generator is None:
            return None
        fewer = method == "kendall" and self.method != "kendall"
        count = max(1, self.resamples // _KENDALL_SHARE) if fewer else self.resamples
        columns, human = self.data.scores, self.data.human
        if scores is not None:
            columns, human = columns[np.ix_(scores, samples)], human[samples]
        return bootstrap_correlations(columns, human, method, resamples=count, generator=self.generator)


def align_scores(
    scores: Sequence[Column], human: Column, *, labels: Any = None, correct: Any = None,
    coarse_of: Mapping[Any, Any] | None = None, method: str = "spearman", resamples: int = 2000, level: float = 0.95,
    edges: Sequence[float] | None = None, generator: np.random.Generator | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Correlations, tests between the scores, bins, classes, correctness held fixed, and rank agreement.

    Every score is turned so that a positive coefficient means agreement with people; a score of unknown direction is
    turned to the side it leans to by `method`. The strongest score is the first. With `labels`, correlations per class
    (and per coarse class with `coarse_of`); with `correct`, partial correlations given correctness.
    """
    check_options(method, resamples, generator, level)
    if coarse_of is not None and labels is None:
        raise ValueError("labels must be given where coarse_of says which coarse class each belongs to; got none")
    data = turn(scores, human, method)
    plan, people = _Plan(data, method, resamples, level, generator), data.human
    if correct is not None:
        correct = as_values("correct", correct)
        if len(correct) != len(people) or not np.isfinite(correct).all():
            raise ValueError(f"correct must be 1 or 0 for each of {len(people)} samples; got {len(correct)} values")
    if edges is None:
        # The paper's five bins for a frequency, five equal ones for anything else; of values a rounding apart fewer.
        equal = tuple(np.unique(equal_edges(people.min(), people.max(), len(FIVE_BINS) - 1)).tolist())
        edges = FIVE_BINS if human_range(people) == (0.0, 1.0) else equal
    classes = None if labels is None else as_groups(labels, len(people))
    drawn = {each: plan.draw(each) for each in METHODS}
    matrix = correlation_matrix([*data.scores, people], method)
    strongest = sorted(range(len(scores)), key=lambda at: -matrix[-1, at])
    agreement = None
    if len(scores) > 1:
        found = rank_agreement(dict(zip(data.names, data.scores, strict=True)), method, matrix=matrix[:-1, :-1])
        agreement = asdict(found) | {"matrix": found.matrix.tolist(), "names": list(found.names)}
    return {
        "n": len(people),
        "method": method,
        "level": level,
        "resamples": resamples,
        "human": {"name": human.name, "title": human.title or human.name, "direction": human.direction or "easier"},
        "scores": [_of_score(scores[at], plan, at, edges, drawn, correct) for at in strongest],
        "comparisons": _comparisons(plan, matrix, strongest, drawn[method]),
        "bins": {
            "edges": list(edges),
            "outside": int((bin_of(people, edges) < 0).sum()),
            "groups": _grouped(plan, bins_as_groups(people, edges)),
        },
        "classes": None if classes is None else _grouped(plan, classes),
        "coarse": None if classes is None or coarse_of is None else _grouped(plan, coarse_groups(classes, coarse_of)),
        "agreement": agreement,
    }


def disagreements(
    scores: Sequence[Column], human: Column, count: int = 12, *, ids: Any = None, labels: Any = None
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The samples on which people and each score disagree most: `people` find these harder, `model` those.

    A sample's rank is the share of samples that are easier, in [0, 1] with ties at their mean; disagreement is the
    difference between people's rank and the score's. Directions are those of `align_scores`.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"count must be a whole number of samples, 1 or more; got {count!r}")
    data = turn(scores, human)
    samples, sign = len(data.human), 1 if human.direction == "harder" else -1
    for name, values in (("ids", ids), ("labels", labels)):
        if values is not None and len(values) != samples:
            raise ValueError(f"{name} must be one for each of {samples} samples; got {len(values)}")
    people, found = (ranks(sign * data.human) - 0.5) / samples, {}
    for at, name in enumerate(data.names):
        model, given = (ranks(sign * data.scores[at]) - 0.5) / samples, data.given(at)
        order, sides = np.argsort(model - people, kind="stable"), {}
        for side, rows in (("people", order), ("model", order[::-1])):
            sides[side] = [
                {
                    "row": row,
                    "id": row if ids is None else ids[row],
                    "label": None if labels is None else labels[row],
                    "score": float(given[row]),
                    "human": float(data.human[row]),
                    "model_rank": float(model[row]),
                    "human_rank": float(people[row]),
                }
                for row in rows[:count].tolist()
                if (people[row] > model[row] if side == "people" else model[row] > people[row])
            ]
        found[name] = sides
    return found


def _of_score(
    score: Column, plan: _Plan, at: int, edges: Sequence[float], drawn: Mapping[str, Bootstrap | None], correct: Any
) -> dict[str, Any]:
    data, values = plan.data, plan.data.given(at)
    bins, (distinct, times) = bin_of(data.human, edges), np.unique(values, return_counts=True)
    correlations = {method: asdict(correlate(data.scores[at], data.human, method)) for method in METHODS}
    for method, resampled in drawn.items():
        if resampled is not None:
            correlations[method]["interval"] = asdict(resampled.interval(at, level=plan.level))
    held = None
    if correct is not None:
        try:
            held = asdict(partial_correlation(data.scores[at], data.human, correct, method=plan.method))
        except ValueError as problem:
            held = {"coefficient": None, "reason": str(problem)}
    return {
        "name": score.name,
        "title": score.title or score.name,
        "direction": score.direction,
        "turned": bool(data.around[at]),
        "low": float(values.min()),
        "high": float(values.max()),
        "tied": {"value": float(distinct[times.argmax()]), "count": int(times.max())},
        "medians": [
            float(np.median(values[bins == one])) if (bins == one).any() else None for one in range(len(edges) - 1)
        ],
        "histogram": {key: array.tolist() for key, array in joint_histogram(values, data.human).items()},
        "correlations": correlations,
        "given_correctness": held,
    }


def _comparisons(
    plan: _Plan, matrix: np.ndarray, strongest: Sequence[int], drawn: Bootstrap | None
) -> list[dict[str, Any]]:
    """Every pair of scores, stronger first, with p-values adjusted for the number of pairs.

    `matrix` holds the coefficients of all scores and, last, the human column.
    """
    strength, names = matrix[-1, :-1].tolist(), plan.data.names
    found: list[dict[str, Any]] = []
    for first, second in itertools.combinations(strongest, 2):
        interval = drawn.difference(first, second, level=plan.level) if drawn else None
        coefficients = strength[first], strength[second], float(matrix[first, second])
        try:
            pair = asdict(compared(plan.method, *coefficients, len(plan.data.human), interval=interval))
        except ValueError as problem:
            # The interval needs no finite z, so it is kept without a test.
            pair = {"reason": str(problem), "interval": asdict(interval) if interval else None}
        named = {"first": names[first], "second": names[second]}
        found.append(pair | named | {"difference": strength[first] - strength[second]})
    tested = [pair for pair in found if pair.get("meng")]
    for pair, adjusted in zip(tested, holm([pair["meng"]["p_value"] for pair in tested]), strict=True):
        pair["meng_holm"] = adjusted
    return found


def _grouped(plan: _Plan, groups: Sequence[Group]) -> dict[str, list[dict[str, Any]]]:
    """The correlations of every score within each group; all scores share a group's resamples."""
    data = plan.data
    grouped: dict[str, list[dict[str, Any]]] = {name: [] for name in data.names}
    for group in groups:
        found = [asdict(correlate_within(group, x, data.human, plan.method)) for x in data.scores]
        usable = [at for at, one in enumerate(found) if one["correlation"] is not None]
        drawn = plan.draw(plan.method, usable, group.rows) if usable and len(groups) <= _MOST_INTERVALS else None
        if drawn is not None:
            for place, at in enumerate(usable):
                found[at]["correlation"]["interval"] = asdict(drawn.interval(place, level=plan.level))
        name_of = {"group": list(group.name) if isinstance(group.name, tuple) else group.name}
        for name, one in zip(data.names, found, strict=True):
            grouped[name].append(one | name_of)
    return grouped


def notes(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What to know before the numbers of `align_scores` are believed, each with the score it is about."""
    found = [("all", results["join"])] if results.get("join_incomplete") else []
    for score in results["scores"]:
        correlation, tied = score["correlations"][results["method"]], score["tied"]
        held, interval = score["given_correctness"] or {}, correlation["interval"]
        constant = results["resamples"] - interval["resamples"] if interval else 0
        about = {
            "larger is harder or easier? not recorded: turned to the side it leans to": score["direction"] is None,
            "against people, by its recorded direction": correlation["coefficient"] < 0
            and correlation["p_value"] < _SIGNIFICANT,
            f"{tied['count']:,} of {results['n']:,} values are tied at {tied['value']:g}": tied["count"]
            >= max(2, _MANY_TIED * results["n"]),
            f"{constant:,} of {results['resamples']:,} resamples do not vary: believe no interval": constant
            and results["method"] != "kendall",
            f"given correctness: {held.get('reason')}": held.get("reason"),
        }
        found += [(score["name"], note) for note, holds in about.items() if holds]
    for pair in results["comparisons"]:
        if pair.get("reason"):
            found.append((f"{pair['first']}, {pair['second']}", f"no test: {pair['reason']}"))
    if results["bins"]["outside"]:
        found.append(("all", f"{results['bins']['outside']:,} samples are outside the bins"))
    return found + [(name, f"left out: {reason}") for name, reason in results.get("left_out", {}).items()]


def decimals(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals; nothing for what is missing. Similar scores differ in the fourth."""
    return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def p_text(value: float | None) -> str:
    """Two significant digits; a bound below the range of double precision."""
    if value is None:
        return ""
    return "< 1e-300" if value < 1e-300 else f"{value:.2g}"


def interval_text(interval: Mapping[str, Any] | None, digits: int = 3) -> str:
    """low to high; nothing where there is none."""
    if not interval or interval["low"] is None:
        return ""
    return f"{decimals(interval['low'], digits)} to {decimals(interval['high'], digits)}"
