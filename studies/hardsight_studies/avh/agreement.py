"""Rows of the studies that compare scores with people: coefficients of every run, intervals over images.

Every score is turned so that larger is easier: a positive coefficient is agreement with people, a negative one says
that the score ranks against them. Coefficients have no sign in the paper's tables. A row of a run holds what one
network says; intervals are of the mean over seeds, so they are in rows of no seed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from hardsight.alignment import (
    Bootstrap,
    Interval,
    bin_of,
    bootstrap_correlations,
    compare_correlations,
    correlate,
    correlate_by_group,
    correlate_in_bins,
    fisher_z_test,
    partial_correlation,
    scale_linearly,
    scale_within_groups,
)
from hardsight_studies.avh.choice import (
    Answers,
    Choice,
    candidates,
    choices_of,
    people_with_people,
    read_answers,
    summary,
)  # fmt: skip
from hardsight_studies.avh.looking import counts
from hardsight_studies.avh.watching import FOLLOWED
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.rows import Row
from hardsight_studies.engine.running import points_of, row_of

SIGNIFICANT = 0.05
COMPARED = ("avh", "confidence", "class_norm")
METHODS = ("spearman", "pearson", "kendall")
# Resamples of an interval. Of 400, its ends are known to 0.002, and three digits of them are printed.
RESAMPLES = {"smoke": 50, "cpu": 400, "paper": 2000}
# Counting pairs again in each resample is what Kendall's interval costs.
_KENDALL_SHARE = 4

Seeds = list[tuple[Run, Answers]]


def by_network(runs: Iterable[Run]) -> dict[str, Seeds]:
    """The answers of these runs, the seeds of a network together."""
    found: dict[str, Seeds] = {}
    for run in runs:
        found.setdefault(run.settings["network"], []).append((run, read_answers(run.folder)))
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Rows, one function for each kind of study.


def score_rows(runs: Sequence[Run], preset: str) -> Iterator[Row]:
    """Table 1: each score's coefficient in all, in bins of human frequency, in classes, and given correctness."""
    for network, seeds in by_network(runs).items():
        for run, one in seeds:
            yield _about(run, one)
            for score in COMPARED:
                yield row_of(run, score_metrics(one.scores[score], one), settings={"score": score})
        drawn = _mean([resample(one, COMPARED, "spearman", RESAMPLES[preset]) for _, one in seeds])
        for at, score in enumerate(COMPARED):
            yield _aggregate({"network": network, "score": score}, rho_interval=_stored(drawn, at))


def score_metrics(values: np.ndarray, one: Answers) -> dict[str, float | None]:
    """One score's agreement with people in one run."""
    total = correlate(values, one.people)
    parts = {"bin": correlate_in_bins(values, one.people), "class": correlate_by_group(values, one.people, one.labels)}
    found: dict[str, float | None] = {"rho": total.coefficient, "p": total.p_value}
    for name, groups in parts.items():
        for at, group in enumerate(groups):
            found[f"{name}{at}"] = None if group.correlation is None else group.correlation.coefficient
    classes = [one.correlation.coefficient for one in parts["class"] if one.correlation]
    found["within_class"] = float(np.mean(classes)) if classes else None
    known = one.correct.any() and not one.correct.all()
    given = partial_correlation(values, one.people, one.correct.astype(np.float64)).coefficient if known else None
    return found | {"given_correctness": given}


def comparison_rows(runs: Sequence[Run], preset: str, methods: Sequence[str] = METHODS) -> Iterator[Row]:
    """Tables 2 and 6 to 9: AVH's coefficient against confidence's, and the tests of their difference."""
    for network, seeds in by_network(runs).items():
        for run, one in seeds:
            yield _about(run, one)
            for method in methods:
                yield row_of(run, comparison(one, method), settings={"method": method})
        for method in methods:
            count = max(2, RESAMPLES[preset] // (_KENDALL_SHARE if method == "kendall" else 1))
            drawn = _mean([resample(one, COMPARED[:2], method, count) for _, one in seeds])
            yield _aggregate({"network": network, "method": method}, ahead=_stored(drawn, 0, 1))


def comparison(one: Answers, method: str) -> dict[str, float]:
    """The coefficients of AVH and confidence in one run, and the tests of the difference.

    Fisher's is the paper's, for correlations of different samples, and one-sided: is AVH's the stronger one? Both
    scores rate the same images: Steiger's and Meng, Rosenthal and Rubin's tests are made for that. They are for normal
    values: of Pearson's coefficient on these data their Z is 1.3 times the bootstrap's, so that the interval decides.
    For Kendall's there are none.
    """
    found = compare_correlations(one.scores["avh"], one.scores["confidence"], one.people, method, signed=True)
    fisher = fisher_z_test(found.first, found.second, found.n, alternative="greater")
    metrics = {"avh": found.first, "confidence": found.second, "between": found.between}
    for name, test in {"fisher": fisher, "steiger": found.steiger, "meng": found.meng}.items():
        if test is not None:
            metrics |= {name: test.statistic, f"{name}_p": test.p_value}
    return metrics


def hypothesis_rows(runs: Sequence[Run], preset: str) -> list[Row]:
    """The four hypotheses: three scores, and AVH against confidence by ranks and by values."""
    return [*score_rows(runs, preset), *comparison_rows(runs, preset, METHODS[:2])]


def agreement_rows(runs: Sequence[Run], preset: str) -> Iterator[Row]:
    """Every score's coefficient, and what one half of the images chooses and the other half says of it."""
    for network, seeds in by_network(runs).items():
        with ThreadPoolExecutor() as pool:
            made = list(pool.map(lambda one: _every_score(one, RESAMPLES[preset] // 2), [one for _, one in seeds]))
        for (run, one), (names, drawn, choices) in zip(seeds, made, strict=True):
            about = {"images": len(one.people), "people_with_people": people_with_people(one.votes)}
            halves = {f"half_{name}": value for name, value in summary(choices).items()}
            rho = dict(zip(names, map(float, drawn.estimates), strict=True))
            yield row_of(run, {**_accuracy(one), **about, **rho, **halves})
        intervals: dict[str, Any] = {}
        for name in dict.fromkeys(name for names, _, _ in made for name in names):
            # One score over the seeds that have it, beside confidence over the same ones.
            pairs = (
                (drawn, [names.index(name), names.index("confidence")]) for names, drawn, _ in made if name in names
            )
            mean = _mean([Bootstrap(one.estimates[at], one.replicates[at], one.left_out[at]) for one, at in pairs])
            intervals |= {f"{name}_interval": _stored(mean, 0), f"{name}_ahead": _stored(mean, 0, 1)}
        yield _aggregate({"network": network}, **intervals, **_counted([one for _, _, of in made for one in of]))


def _every_score(one: Answers, resamples: int) -> tuple[list[str], Bootstrap, list[Choice]]:
    scores, generator = candidates(one), np.random.default_rng(0)
    drawn = bootstrap_correlations(
        np.stack(list(scores.values())), one.people, resamples=resamples, generator=generator
    )
    return list(scores), drawn, choices_of(scores, one.people)


def _counted(choices: Sequence[Choice]) -> dict[str, int]:
    """How often what was chosen, over all seeds of a network, and how often it is significantly ahead of confidence."""
    singles = Counter(f"single {one.members[0]}" for one in choices)
    combined = Counter(f"combined {' + '.join(sorted(one.members))}" for one in choices)
    ahead = sum(one.z > 0 and one.p_value < SIGNIFICANT for one in choices)
    most = dict([*singles.most_common(), *combined.most_common(5)])
    return {**most, "choices": len(choices), "combination_ahead": ahead}


def agreement_points(runs: Sequence[Run], preset: str) -> list[dict[str, Any]]:
    """Agreement with people after every epoch, of the networks trained here."""
    found = []
    for run in (one for one in runs if (one.folder / "epochs.parquet").is_file()):
        table = pq.read_table(run.folder / "epochs.parquet")
        for name in [*(f"{name}_agreement" for name in FOLLOWED), "test_accuracy"]:
            found += points_of(run, name, {"x": range(1, len(table) + 1), "y": table[name].to_pylist()})
    return found


def histogram_rows(runs: Sequence[Run], preset: str) -> Iterator[Row]:
    """Figure 5: medians by bin of human frequency of the three scores as the paper plots them, and their coefficients.

    Larger AVH is harder, larger confidence and norm are easier.
    """
    for run in runs:
        one = read_answers(run.folder)
        bins = bin_of(one.people)
        yield _about(run, one)
        for score, values in plotted(one).items():
            inside = {at: values[bins == at] for at in range(5)}
            medians = {f"median{at}": float(np.median(of)) if len(of) else None for at, of in inside.items()}
            rho = correlate(values, one.people).coefficient if np.ptp(values) > 0 else None
            yield row_of(run, {"rho": rho, **medians}, settings={"score": score})


def histogram_points(runs: Sequence[Run], preset: str) -> list[dict[str, Any]]:
    """Figure 5: how many images there are by human frequency (x) and score (y), of the first seed of a network."""
    found = []
    for run in (one for one in runs if one.seed == 0):
        one = read_answers(run.folder)
        for score, values in plotted(one).items():
            found += points_of(run, score, counts(values, one.people), {"score": score})
    return found


def plotted(one: Answers) -> dict[str, np.ndarray]:
    """The three scores in [0, 1], as the paper plots them."""
    norm = scale_within_groups(one.scores["norm"], one.labels)
    return {"avh": scale_linearly(-one.scores["avh"]), "confidence": one.scores["confidence"], "norm": norm}


def _accuracy(one: Answers) -> dict[str, float]:
    return {"accuracy": float(one.correct.mean())}


def _about(run: Run, one: Answers) -> Row:
    """What the run's rows share: accuracy, how many images there are, and how many in each bin of human frequency."""
    sizes = np.bincount(bin_of(one.people), minlength=5).tolist()
    return row_of(
        run, {**_accuracy(one), "images": len(one.people), **{f"images{at}": n for at, n in enumerate(sizes)}}
    )


def _aggregate(settings: Mapping[str, Any], **metrics: Any) -> Row:
    return Row("", "", settings, None, metrics)


# ---------------------------------------------------------------------------------------------------------------------
# Intervals. Every run is resampled by the same draws, so that means over seeds and differences have intervals too.


def resample(one: Answers, names: Sequence[str], method: str, resamples: int) -> Bootstrap:
    """These scores on draws of images that depend on their number alone."""
    scores = np.stack([one.scores[name] for name in names])
    return bootstrap_correlations(scores, one.people, method, resamples=resamples, generator=np.random.default_rng(0))


def _mean(drawn: Sequence[Bootstrap]) -> Bootstrap:
    """The mean over seeds of the coefficients on each draw of images: spread over images, not over trainings."""
    parts = ([getattr(one, name) for one in drawn] for name in ("estimates", "replicates", "left_out"))
    return Bootstrap(*(np.mean(part, 0) for part in parts))


def _stored(drawn: Bootstrap, first: int, second: int | None = None) -> dict[str, Any] | None:
    """The interval over images of a score or of its difference from a second, and the mean over seeds that it is of."""
    interval: Interval = drawn.interval(first) if second is None else drawn.difference(first, second)
    value = drawn.estimates[first] - (0 if second is None else drawn.estimates[second])
    known = np.isfinite([value, interval.low, interval.high]).all()
    return {"value": float(value), "low": interval.low, "high": interval.high, "over": "images"} if known else None
