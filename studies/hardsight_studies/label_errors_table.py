"""The page of the study of label errors: what holds of its claim, and every score on every noise."""

from collections.abc import Mapping
from typing import Any

from hardsight_studies.detection import METRICS
from hardsight_studies.framework import markdown_table, provenance, shown
from hardsight_studies.noisy_runs import HUMAN
from hardsight_studies.wording import listed

# Two runs of halves, beside the scores of one run of the whole: by our own code, and by cleanlab where it is there.
OUT_OF_FOLD, CLEANLAB = "out_of_fold_doubt", "cleanlab_label_quality"
# What `find_label_issues` ranks by where nothing else is asked for.
DEFAULT = "training_and_margin"
# What all scores of the run know together: trees that were told the truth about half of the samples.
TAUGHT = "taught_half_the_truth"
# Average precision on aggre / random1 / worse; ResNet-20, 30 epochs, one seed.
FIRST_MEASUREMENT = {
    "el2n_mean": (0.782, 0.890, 0.937),
    "aum": (0.772, 0.883, 0.935),
    "angular_margin_last": (0.764, 0.892, 0.938),
    "avh_last": (0.648, 0.832, 0.909),
    "avh_mean": (0.606, 0.787, 0.886),
    OUT_OF_FOLD: (0.686, 0.828, 0.902),
}
TITLES = {
    "average_precision": "Average precision",
    "auroc": "AUROC",
    "precision_at_count": "Precision at the true count",
}


def table(results: Mapping[str, Any]) -> str:
    """What holds of the claim; then all scores, best on people's errors first, mean ± standard deviation over seeds."""
    noises = results["noises"]
    said = [
        _ahead(noises, DEFAULT, OUT_OF_FOLD, _HALVES),
        _ahead(noises, "el2n_mean", OUT_OF_FOLD, _HALVES),
        _ahead(noises, DEFAULT, TAUGHT, "trees that were told half the truth about the scores of the run"),
        _alike(noises),
    ]
    parts = [
        _best(noises) or "**Result.**",
        "\n".join(f"- {one}" for one in said if one),
        provenance(results),
        f"{_LEGEND} {_seeds(noises)}",
    ]
    for metric, title in TITLES.items():
        parts.append(f"{title}:\n\n{_metric_table(results, noises, metric)}")
    if results.get("stronger"):
        network = f"One run of a stronger network, `{results['settings']['stronger']}`, all else alike"
        parts.append(f"{network}. Average precision:\n\n{_metric_table(results, results['stronger'], METRICS[1])}")
    return "\n\n".join(part for part in [*parts, _limits(results)] if part) + "\n"


_HALVES = "the self-confidence of two runs on halves"
_LEGEND = """**How to read the tables.** One row for each score, one column for each kind of noise (in brackets, how
many labels are wrong). All three measures are 1 for a perfect ranking; scores stand in the order of their mean on
people's errors.

- *Average precision*: the precision of the ranking, averaged over the wrong labels. A random ranking gets the share of
  wrong labels.
- *AUROC*: the probability that a wrong label is ranked above a right one. A random ranking gets 0.5; below 0.5, the
  score ranks the wrong way round.
- *Precision at the true count*: if one looks at as many of the most suspicious samples as there are wrong labels, the
  share of them that are wrong.

The column `first measurement`, where it is shown, holds an earlier measurement of a few scores, with one seed."""


def _best(noises: Mapping[str, Any]) -> str:
    """The score of one run that ranks people's errors best, or all noises' where there are none, and AVH's number."""
    judged = [scores for noise, scores in noises.items() if noise in HUMAN] or list(noises.values())
    where = "on people's label errors" if any(noise in HUMAN for noise in noises) else "on these label errors"
    means = {
        name: sum(scores[name]["average_precision"]["mean"] for scores in judged) / len(judged)
        for name in judged[0]
        if name not in (TAUGHT, OUT_OF_FOLD, CLEANLAB) and all(name in scores for scores in judged)
    }
    if len(means) < 2:
        return ""
    best = max(means, key=lambda name: means[name])
    others = [f"`{name}` has {means[name]:.3f}" for name in (DEFAULT, "avh") if name in means and name != best]
    beside = f"; {listed(others)}" if others else ""
    return (
        f"**Result.** Of the {len(means)} scores of one run, `{best}` finds wrong labels best {where}, with a mean "
        f"average precision of {means[best]:.3f}{beside}."
    )


def _limits(results: Mapping[str, Any]) -> str:
    """How much is measured, and what it was measured on."""
    left = results["cells_planned"] - results["cells"]
    partly = f" {left:,} of {results['cells_planned']:,} planned trainings are not computed yet." if left else ""
    return (
        "**What one may conclude.** The ranking of the scores holds for this data set and network; other data may "
        f"order them otherwise.{partly} ± is over seeds and says nothing about other data. Scores that lie closer than "
        "their ± are not told apart. Combinations that were chosen on one kind of noise are flattered there, as said "
        "above."
    )


def _gaps(noises: Mapping[str, Any], one: str, other: str) -> dict[str, float]:
    """Mean average precision of one score minus another's, on the noises that have both."""
    return {
        noise: scores[one]["average_precision"]["mean"] - scores[other]["average_precision"]["mean"]
        for noise, scores in noises.items()
        if one in scores and other in scores
    }


def _ahead(noises: Mapping[str, Any], one: str, other: str, title: str) -> str:
    gaps = _gaps(noises, one, other)
    if not gaps:
        return ""
    by_noise = ", ".join(f"{noise} {gap:+.3f}" for noise, gap in gaps.items())
    count = f"{sum(gap > 0 for gap in gaps.values())} of {len(gaps)} noises"
    return (
        f"`{one}` is ahead of {title} on {count}, in average precision "
        f"(means over the seeds that each has): {by_noise}."
    )


def _alike(noises: Mapping[str, Any]) -> str:
    gaps = _gaps(noises, CLEANLAB, OUT_OF_FOLD)
    if not gaps:
        return ""
    most = max(map(abs, gaps.values()))
    return (
        f"cleanlab's label quality of the two runs on halves differs from their self-confidence by {most:.4f} at most."
    )


def _seeds(noises: Mapping[str, Any]) -> str:
    counts = {len(one["average_precision"]["values"]) for scores in noises.values() for one in scores.values()}
    if max(counts, default=1) == 1:
        return "All numbers are of one seed."
    return (
        f"A number is the mean over up to {max(counts)} seeds ± the standard deviation over them; without ± it is of "
        "one seed. Scores that were thought of after a run have only the seeds whose samples were kept."
    )


def _metric_table(results: Mapping[str, Any], noises: Mapping[str, Any], metric: str) -> str:
    shares = results["wrong_labels"]
    names = {name for scores in noises.values() for name in scores}

    # People's errors are what it is about; and a score judged on them alone stands where it belongs.
    ranked_by = [one for one in noises if one in HUMAN] or list(noises)

    def mean(name: str) -> float:
        known = [noises[one][name][metric]["mean"] if name in noises[one] else 0.0 for one in ranked_by]
        return sum(known) / len(known)

    beside = noises is results["noises"] and metric == METRICS[1] and all(one in noises for one in HUMAN)
    heads = ["score", *(f"{one} ({100 * shares[one]:.0f} % wrong)" if one in shares else one for one in noises)]
    heads += ["first measurement (aggre / random1 / worse)"] if beside else []
    rows = []
    for name in sorted(names, key=lambda name: (-mean(name), name)):
        entries = [
            f"`{name}`",
            *(shown(scores[name][metric] if name in scores else None) for scores in noises.values()),
        ]
        if beside:
            entries.append(" / ".join(f"{value:.3f}" for value in FIRST_MEASUREMENT.get(name, ())))
        rows.append(entries)
    return markdown_table(heads, rows)
