"""The page of `hardness-by-loss`: its tables, its sentences, its figures, all from the results file."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hardsight.report.canvas import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
from hardsight.studies.framework import markdown_table, provenance, shown

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
        parts += ["Mean AVH by the share of people who chose the true class:", _by_bin(results)]
    parts += ["Accuracy under each degradation, mean over its levels:", _by_kind(found)]
    parts.append("\n".join(f"- {sentence}" for sentence in sentences(results)))
    return "\n\n".join(parts) + "\n"


def _summary(found: Mapping[str, Any]) -> str:
    names = [name for name in COLUMNS if any(row.get(name) for row in found.values())]
    rows = [[loss, *(_four(row.get(name)) for name in names)] for loss, row in found.items()]
    return markdown_table(["loss", *(COLUMNS[name] for name in names)], rows)


def _four(number: Mapping[str, Any] | None) -> str:
    """Four digits: AVH of ten classes lives between 0 and 0.2."""
    if number is None:
        return ""
    return f"{number['mean']:.4f}" + (f" ± {number['sd']:.4f}" if number["sd"] is not None else "")


def _by_bin(results: Mapping[str, Any]) -> str:
    found = results["losses"]
    counts = next(iter(found.values()))["images_by_bin"]
    heads = [
        f"{low:g} to {high:g} ({count['mean']:.0f})" for (low, high), count in zip(results["bins"], counts, strict=True)
    ]
    rows = [[loss, *(_four(number) for number in row["avh_by_bin"])] for loss, row in found.items()]
    return markdown_table(["loss", *heads], rows)


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
        if results["bins"]:
            said += [_contrast(results, loss) for loss in found if loss != BASE]
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
        beside = f", cross-entropy {_four(found[BASE][name])}" if BASE in ranked and first != BASE else ""
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
    ours, base = (100 * found[one]["accuracy"]["mean"] for one in (loss, BASE))
    if ours > 0.9 * base:
        return ""
    return f"; but it classifies {ours:.1f} % against {base:.1f} %, and a network that did not learn says little"


def told_apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Whether two means over seeds differ by more than twice the standard error of their difference."""
    runs = min(len(one["values"]), len(other["values"]))
    if one["sd"] is None or other["sd"] is None:
        return f"{runs} seed, so no spread to judge it by"
    error = (one["sd"] ** 2 / len(one["values"]) + other["sd"] ** 2 / len(other["values"])) ** 0.5
    apart = abs(one["mean"] - other["mean"]) > 2 * error
    return f"{'more' if apart else 'not more'} than twice the standard error over {runs} seeds"


def _contrast(results: Mapping[str, Any], loss: str) -> str:
    """How much harder the images are on which people disagree, against those on which they agree."""
    counts = results["losses"][loss]["images_by_bin"]
    # Below this the mean of a bin is that of a handful of images.
    filled = [at for at, count in enumerate(counts) if count["mean"] >= 10]
    low, high = filled[0], filled[-1]
    ratios = {}
    for name in (loss, BASE):
        by_bin = results["losses"][name]["avh_by_bin"]
        ratios[name] = by_bin[low]["mean"] / by_bin[high]["mean"]
    edges = results["bins"]
    return (
        f"{loss}: images that {100 * edges[low][0]:g} to {100 * edges[low][1]:g} % of people recognise have "
        f"{ratios[loss]:.2f} times the AVH of those that {100 * edges[high][0]:g} to {100 * edges[high][1]:g} % do; "
        f"cross-entropy: {ratios[BASE]:.2f} times."
    )


# ---------------------------------------------------------------------------------------------------------------------
# The figures.


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Hardness by human frequency and by degradation; and accuracy, calibration, agreement side by side."""
    found = results["losses"]
    drawn = {}
    if results["bins"]:
        drawn["people"] = _people(results)
    names = [name for name in COLUMNS if name != "avh_of_wrong" and all(row.get(name) for row in found.values())]
    with drawing(9.0, 0.28 * len(found) * -(-len(names) // 3) + 1.6, len(names), 3) as figure:
        for axes, name in zip(figure.axes, names, strict=True):
            _dots(axes, found, name)
    drawn["summary"] = figure
    kinds = list(next(iter(found.values()))["degraded_by_level"])
    with drawing(9.0, 5.4, len(kinds), 3) as levels:
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
        levels.axes[0].legend(fontsize=7, ncols=2)
    drawn["degradations"] = levels
    return drawn


def _people(results: Mapping[str, Any]) -> "Figure":
    found, edges = results["losses"], results["bins"]
    with drawing(9.0, 3.6, 2) as figure:
        for axes, name, words in zip(figure.axes, ("avh_by_bin", "accuracy_by_bin"), ("AVH", "accuracy"), strict=True):
            for loss, row in found.items():
                colour, line = _STYLES[loss]
                known = [(at, one) for at, one in enumerate(row[name]) if one is not None]
                places, means = [at for at, _ in known], [one["mean"] for _, one in known]
                axes.errorbar(places, means, [one["sd"] or 0 for _, one in known], fmt=line, color=colour, label=loss)
            axes.set_xticks(range(len(edges)), [f"{low:g}-{high:g}" for low, high in edges], rotation=30)
            axes.set_xlabel("share of people who chose the true class")
            axes.set_ylabel(f"mean {words}" if words == "AVH" else words)
        figure.axes[0].axhline(results["chance"], color=FAINT, linestyle="--")
        chance = figure.axes[0].lines[-1]
        figure.axes[0].legend([chance], ["chance"], fontsize=7, loc="lower left")
        figure.axes[1].legend(fontsize=7)
    return figure


def _dots(axes: "Axes", found: Mapping[str, Any], name: str) -> None:
    for place, row in enumerate(found.values()):
        values = row[name]["values"]
        axes.plot(values, [place] * len(values), "o", color=BLUE, markersize=4, alpha=0.5)
        axes.plot(row[name]["mean"], place, "|", color=BLUE, markersize=14, markeredgewidth=2)
    if BASE in found:
        axes.axvline(found[BASE][name]["mean"], color=INK, linewidth=0.8)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_title(COLUMNS[name], fontsize=9)
