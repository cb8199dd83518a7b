"""The page of `hardness-by-loss`: its tables and its sentences, all from the results file."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from hardsight_studies.framework import markdown_table, provenance, shown, spread
from hardsight_studies.wording import listed

BASE = "cross-entropy"
COLUMNS = {
    "accuracy": "accuracy",
    "avh": "mean AVH",
    "avh_of_wrong": "AVH of the misclassified",
    "calibration_error": "calibration error",
    "agreement_avh": "agreement with people, AVH",
    "agreement_confidence": "agreement, confidence",
    "degraded_accuracy": "degraded accuracy",
}
DEGRADED_AVH = "AVH when degraded"
# A loss is compared where its accuracy is more than this share of cross-entropy's.
ENOUGH = 0.9
# Below this many images the mean of a bin is that of a handful of them.
FEW_IMAGES = 10


def table(results: Mapping[str, Any]) -> str:
    """What came out; summary, hardness by human frequency, degradations; then each answer as a sentence."""
    found = results["losses"]
    said = sentences(results)
    parts = [result(results), provenance(results), _LEGEND, _summary(found)]
    if results["bins"]:
        parts += [_BINS.format(few=FEW_IMAGES), _by_bin(results)]
    parts += ["**Accuracy under each degradation**, as a mean over its levels:", _by_kind(found)]
    parts += ["**In words.**\n\n" + "\n".join(f"- {one}" for one in said)] if said else []
    return "\n\n".join(part for part in [*parts, _limits(found)] if part) + "\n"


_LEGEND = """**How to read the table.** One row for each loss; all numbers are of the test images. ± is the standard
deviation over seeds, where there are several.

- `accuracy`: the share of images classified right.
- `mean AVH`, `AVH of the misclassified`: the hardness, over all images and over those that are classified wrong. An
  image equally far from all ten classes has 0.1.
- `calibration error`: how far the network's probabilities are from how often it is right (expected calibration error,
  15 bins); smaller is better.
- `agreement with people, AVH`, `agreement, confidence`: Spearman's ρ (correlation of ranks) with the share of people
  who chose the true class; positive is agreement. Confidence is the probability of the true class.
- `degraded accuracy`, `AVH when degraded`: means over six degradations of the images and all their levels."""
_BINS = """**Mean AVH by what people say.** A column is a range of the share of people who chose the true class; in
brackets, how many images it holds. `lowest / highest` divides the mean AVH of the first range with at least {few}
images by that of the last: how much harder the images are on which people disagree."""


def result(results: Mapping[str, Any]) -> str:
    """Which accurate losses lower the mean AVH, which raise it; whether it is high where people disagree."""
    found = results["losses"]
    others = [loss for loss in found if loss != BASE]
    if BASE not in found or not others:
        return ""
    base = found[BASE]["avh"]["mean"]
    fair = [loss for loss in others if accurate_enough(loss, found)]
    ways = {
        "lower": [_changed(loss, found) for loss in fair if found[loss]["avh"]["mean"] < base],
        "higher": [_changed(loss, found) for loss in fair if found[loss]["avh"]["mean"] >= base],
    }
    said = [f"{way} with {listed(texts)}" for way, texts in ways.items() if texts]
    parts = [f"Compared with cross-entropy, the mean AVH of the test images is {', and '.join(said)}."] if said else []
    behind = [f"`{loss}` ({_percent(found[loss])})" for loss in others if loss not in fair]
    if behind:
        parts.append(f"Left out here, because at most {_ENOUGH} accuracy remains: {listed(behind)}.")
    if results["bins"]:
        ratios = [_ratio(found[loss]) for loss in (BASE, *fair)]
        parts.append(
            f"Images on which people disagree have {min(ratios):.2f} to {max(ratios):.2f} times the AVH of those on "
            "which they agree."
        )
    best = max([BASE, *fair], key=lambda loss: found[loss]["accuracy"]["mean"])
    accurate, ordinary = (_percent(found[loss]) for loss in (best, BASE))
    parts.append(f"The most accurate network is that of `{best}` ({accurate}; cross-entropy {ordinary}).")
    return f"**Result.** {' '.join(parts)}"


_ENOUGH = f"{100 * ENOUGH:.0f} % of cross-entropy's"


def _percent(row: Mapping[str, Any]) -> str:
    return f"{100 * row['accuracy']['mean']:.1f} %"


def _changed(loss: str, found: Mapping[str, Any]) -> str:
    """`avh` (−25.6 %)."""
    change = f"{100 * (found[loss]['avh']['mean'] / found[BASE]['avh']['mean'] - 1):+.1f}".replace("-", "−")
    return f"`{loss}` ({change} %)"


def _limits(found: Mapping[str, Any]) -> str:
    """How many seeds there are, and what AVH does not say."""
    seeds = max(len(row["accuracy"]["values"]) for row in found.values())
    once = "Each loss is trained with one seed, so small differences may be chance." if seeds == 1 else ""
    return (
        f"**What one may conclude.** {once or f'Each loss has up to {seeds} seeds.'} The losses have fixed settings "
        "and were not tuned for this network; one that classifies badly here may do well with others. AVH is a share "
        "of angles: a loss can lower it by turning features closer to their own class, or by turning the other classes "
        "away, and a lower AVH alone does not make a network better."
    )


def _summary(found: Mapping[str, Any]) -> str:
    names = [name for name in COLUMNS if any(row.get(name) for row in found.values())]
    rows = [
        [loss, *(_four(row.get(name)) for name in names), _four(_degraded_avh(row["avh_by_level"]))]
        for loss, row in found.items()
    ]
    return markdown_table(["loss", *(COLUMNS[name] for name in names), DEGRADED_AVH], rows)


def _degraded_avh(by_level: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Mean over each degradation's levels, then over the degradations, as with accuracy; over seeds."""
    by_kind = [zip(*(level["values"] for level in levels.values()), strict=True) for levels in by_level.values()]
    by_seed = zip(*([statistics.fmean(values) for values in seeds] for seeds in by_kind), strict=True)
    return spread([statistics.fmean(kinds) for kinds in by_seed])


def _four(number: Mapping[str, Any] | None) -> str:
    """Four digits: AVH of ten classes lives between 0 and 0.2."""
    return shown(number, 4)


def _by_bin(results: Mapping[str, Any]) -> str:
    found = results["losses"]
    counts = next(iter(found.values()))["images_by_bin"]
    heads = [
        f"{low:g} to {high:g} ({count['mean']:.0f})" for (low, high), count in zip(results["bins"], counts, strict=True)
    ]
    rows = [
        [loss, *(_four(number) for number in row["avh_by_bin"]), f"{_ratio(row):.2f}"] for loss, row in found.items()
    ]
    return markdown_table(["loss", *heads, "lowest / highest"], rows)


def _filled(row: Mapping[str, Any]) -> tuple[int, int]:
    """The lowest and the highest bin with more than a handful of images."""
    filled = [at for at, count in enumerate(row["images_by_bin"]) if count["mean"] >= FEW_IMAGES]
    return filled[0], filled[-1]


def _ratio(row: Mapping[str, Any]) -> float:
    """How much harder the images are on which people disagree, against those on which they agree."""
    low, high = (row["avh_by_bin"][at]["mean"] for at in _filled(row))
    return low / high


def _by_kind(found: Mapping[str, Any]) -> str:
    kinds = list(next(iter(found.values()))["degraded_by_kind"])
    rows = [[loss, *(shown(row["degraded_by_kind"][kind]) for kind in kinds)] for loss, row in found.items()]
    return markdown_table(["loss", *(kind.replace("_", " ") for kind in kinds)], rows)


# ---------------------------------------------------------------------------------------------------------------------
# The answers.


def sentences(results: Mapping[str, Any]) -> list[str]:
    """Does AMC lower AVH? does GR? and which loss is best at what: made from the numbers."""
    found = results["losses"]
    said = []
    if BASE in found:
        said = [_hardness(loss, found) for loss in found if loss != BASE]
        if results["bins"] and len(found) > 1:
            said.append(_contrast(results))
    better: dict[str, tuple[str, Callable[..., Any]]] = {
        "accuracy": ("Most accurate", max),
        "calibration_error": ("Best calibrated", min),
        "agreement_avh": ("Closest to people by AVH", max),
        "agreement_confidence": ("Closest to people by confidence", max),
        "degraded_accuracy": ("Most accurate on degraded images", max),
    }
    for name, (words, best) in better.items():
        ranked = {loss: row[name]["mean"] for loss, row in found.items() if row.get(name)}
        if len(ranked) < 2:
            continue
        first = best(ranked, key=lambda loss: ranked[loss])
        beside = ""
        if BASE in ranked and first != BASE:
            ours, base = found[first][name], found[BASE][name]
            beside = f", cross-entropy {_four(base)}: {told_apart(ours, base)}"
        said.append(f"{words}: {first}, {_four(found[first][name])}{beside}.")
    return said


def _hardness(loss: str, found: Mapping[str, Any]) -> str:
    ours, base = found[loss]["avh"], found[BASE]["avh"]
    change = ours["mean"] / base["mean"] - 1
    return (
        f"{loss} {'lowers' if change < 0 else 'raises'} mean AVH by {abs(100 * change):.1f} %, to {_four(ours)} from "
        f"{_four(base)}: {told_apart(ours, base)}{_less_accurate(loss, found)}."
    )


def _less_accurate(loss: str, found: Mapping[str, Any]) -> str:
    """Hardness at another accuracy is no comparison of losses."""
    if accurate_enough(loss, found):
        return ""
    ours, base = (_percent(found[one]) for one in (loss, BASE))
    return f"; but it classifies {ours} right against {base}, so this says little about the loss"


def accurate_enough(loss: str, found: Mapping[str, Any]) -> bool:
    """Whether a loss is nearly as accurate as cross-entropy, or better: then hardness is compared."""
    return found[loss]["accuracy"]["mean"] > ENOUGH * found[BASE]["accuracy"]["mean"]


def told_apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Whether two means over seeds differ by more than twice the standard error of their difference."""
    runs = min(len(one["values"]), len(other["values"]))
    if one["sd"] is None or other["sd"] is None:
        return f"{runs} seed, so no spread to judge it by"
    error = (one["sd"] ** 2 / len(one["values"]) + other["sd"] ** 2 / len(other["values"])) ** 0.5
    apart = abs(one["mean"] - other["mean"]) > 2 * error
    return f"{'more' if apart else 'not more'} than twice the standard error over {runs} seeds"


def _contrast(results: Mapping[str, Any]) -> str:
    """Which of the accurate losses tell images on which people disagree from those on which they agree."""
    found = results["losses"]
    ratios = {loss: _ratio(row) for loss, row in found.items() if accurate_enough(loss, found)}
    low, high = (results["bins"][at] for at in _filled(found[BASE]))
    among = "" if len(ratios) == len(found) else f"of the losses that keep more than {_ENOUGH} accuracy, "
    most, least = (best(ratios, key=lambda loss: ratios[loss]) for best in (max, min))
    return (
        f"With cross-entropy, images that {100 * low[0]:g} to {100 * low[1]:g} % of people recognise have "
        f"{ratios[BASE]:.2f} times the AVH of those that {100 * high[0]:g} to {100 * high[1]:g} % do; {among}the "
        f"most with {most} ({ratios[most]:.2f}), the least with {least} ({ratios[least]:.2f})."
    )
