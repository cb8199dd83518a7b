"""The page of `hardness-by-loss`: its tables, its sentences, its figures, all from the results file."""

import statistics
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hardsight.report.canvas import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
from hardsight.studies.framework import markdown_table, provenance, shown, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
# Below this many images the mean of a bin is that of a handful of them.
FEW_IMAGES = 10
# One colour a family; the same loss looks the same whatever else is finished.
_STYLES = {
    "cross-entropy": (INK, "-"),
    "amc": (BLUE, "-"),
    "amc-0.1": (BLUE, "--"),
    "avh": (RED, "-"),
    "gr": (GREEN, "-"),
    "gr-hard": (GREEN, "--"),
    "gr-equation": (GREEN, ":"),
    "cosface": (PURPLE, "-"),
    "arcface": (PURPLE, "--"),
    "normface": (PURPLE, ":"),
}


def table(results: Mapping[str, Any]) -> str:
    """Summary, hardness by human frequency, degradations; then the answers as sentences."""
    found = results["losses"]
    parts = [provenance(results), _summary(found)]
    if results["bins"]:
        parts += [
            "Mean AVH by the share of people who chose the true class (in brackets, how many images); last, the lowest "
            f"bin of {FEW_IMAGES} images or more over the highest:",
            _by_bin(results),
        ]
    parts += ["Accuracy under each degradation, mean over its levels:", _by_kind(found)]
    parts.append("\n".join(f"- {sentence}" for sentence in sentences(results)))
    return "\n\n".join(parts) + "\n"


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
        f"{_four(base)}: {told_apart(ours, base)}{_untrained(loss, found)}."
    )


def _untrained(loss: str, found: Mapping[str, Any]) -> str:
    """A network that hardly classifies has hard samples, whatever its loss."""
    if _learnt(loss, found):
        return ""
    ours, base = (100 * found[one]["accuracy"]["mean"] for one in (loss, BASE))
    return f"; but it classifies {ours:.1f} % against {base:.1f} %, and a network that did not learn says little"


def _learnt(loss: str, found: Mapping[str, Any]) -> bool:
    return found[loss]["accuracy"]["mean"] > 0.9 * found[BASE]["accuracy"]["mean"]


def told_apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Whether two means over seeds differ by more than twice the standard error of their difference."""
    runs = min(len(one["values"]), len(other["values"]))
    if one["sd"] is None or other["sd"] is None:
        return f"{runs} seed, so no spread to judge it by"
    error = (one["sd"] ** 2 / len(one["values"]) + other["sd"] ** 2 / len(other["values"])) ** 0.5
    apart = abs(one["mean"] - other["mean"]) > 2 * error
    return f"{'more' if apart else 'not more'} than twice the standard error over {runs} seeds"


def _contrast(results: Mapping[str, Any]) -> str:
    """Which of the losses that learnt tell images on which people disagree from those on which they agree."""
    found = results["losses"]
    ratios = {loss: _ratio(row) for loss, row in found.items() if _learnt(loss, found)}
    low, high = (results["bins"][at] for at in _filled(found[BASE]))
    among = "" if len(ratios) == len(found) else "of the losses that learnt, "
    most, least = (best(ratios, key=lambda loss: ratios[loss]) for best in (max, min))
    return (
        f"With cross-entropy, images that {100 * low[0]:g} to {100 * low[1]:g} % of people recognise have "
        f"{ratios[BASE]:.2f} times the AVH of those that {100 * high[0]:g} to {100 * high[1]:g} % do; {among}the "
        f"most with {most} ({ratios[most]:.2f}), the least with {least} ({ratios[least]:.2f})."
    )


# ---------------------------------------------------------------------------------------------------------------------
# The figures.


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Hardness by human frequency and by degradation; and accuracy, calibration, agreement side by side."""
    found = results["losses"]
    drawn = {}
    if results["bins"]:
        drawn["people"] = _people(results)
    names = [name for name in COLUMNS if name != "avh_of_wrong" and any(row.get(name) for row in found.values())]
    with drawing(9.0, 0.28 * len(found) * -(-len(names) // 3) + 1.6, len(names), 3) as figure:
        for axes, name in zip(figure.axes, names, strict=True):
            _dots(axes, found, name)
    drawn["summary"] = figure
    kinds = list(next(iter(found.values()))["degraded_by_level"])
    with drawing(9.0, 5.8, len(kinds), 3) as levels:
        for axes, kind in zip(levels.axes, kinds, strict=True):
            for loss, row in found.items():
                colour, line = _STYLES[loss]
                by_level = row["degraded_by_level"][kind]
                axes.plot(
                    range(len(by_level)), [one["mean"] for one in by_level.values()], line, color=colour, label=loss
                )
                axes.set_xticks(range(len(by_level)), list(by_level))
            axes.set_title(kind.replace("_", " "))
            axes.set_xlabel("level, hardest first")
            axes.set_ylabel("accuracy")
        _legend_below(levels)
    drawn["degradations"] = levels
    return drawn


def _people(results: Mapping[str, Any]) -> "Figure":
    found, edges = results["losses"], results["bins"]
    with drawing(9.0, 4.0, 2) as figure:
        for axes, name, words in zip(figure.axes, ("avh_by_bin", "accuracy_by_bin"), ("AVH", "accuracy"), strict=True):
            for loss, row in found.items():
                colour, line = _STYLES[loss]
                known = [(at, one) for at, one in enumerate(row[name]) if one is not None]
                places, means = [at for at, _ in known], [one["mean"] for _, one in known]
                axes.errorbar(places, means, [one["sd"] or 0 for _, one in known], fmt=line, color=colour, label=loss)
            axes.set_xticks(range(len(edges)), [f"{low:g}-{high:g}" for low, high in edges], rotation=30)
            axes.set_xlabel("share of people who chose the true class")
            axes.set_ylabel(f"mean {words}" if words == "AVH" else words)
        _legend_below(figure)
        chance = figure.axes[0].axhline(results["chance"], color=FAINT, linestyle="--")
        figure.axes[0].legend([chance], ["chance"], fontsize=8, loc="lower left")
    return figure


def _legend_below(figure: "Figure") -> None:
    """One legend for all panels, which lies on none of their lines."""
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5, fontsize=8)


def _dots(axes: "Axes", found: Mapping[str, Any], name: str) -> None:
    """One line a loss, at the scale of those that learnt; beyond it a number at the edge."""
    known = {loss: row for loss, row in found.items() if row.get(name)}
    fair = [row for loss, row in known.items() if BASE not in found or _learnt(loss, found)] or [*known.values()]
    learnt = [value for row in fair for value in row[name]["values"]]
    room = 0.06 * (max(learnt) - min(learnt) or 1.0)
    low, high = min(learnt) - room, max(learnt) + room
    axes.set_xlim(low, high)
    for place, loss in enumerate(found):
        if loss not in known:
            continue
        values, mean = known[loss][name]["values"], known[loss][name]["mean"]
        if low <= mean <= high:
            axes.plot(values, [place] * len(values), "o", color=BLUE, markersize=4, alpha=0.5)
            axes.plot(mean, place, "|", color=BLUE, markersize=14, markeredgewidth=2)
        elif mean < low:
            axes.text(low, place, f" ← {mean:.2f}", color=RED, va="center", fontsize=8)
        else:
            axes.text(high, place, f"{mean:.2f} → ", color=RED, va="center", ha="right", fontsize=8)
    if BASE in known:
        axes.axvline(known[BASE][name]["mean"], color=INK, linewidth=0.8)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_title(COLUMNS[name], fontsize=9)
