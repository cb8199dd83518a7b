"""The table and the figure of AVH's Table 5: ours beside the paper's and the slides' numbers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hardsight_studies.framework import markdown_table, provenance, shown
from hardsight_studies.generalization.judging import AVERAGE, result
from hardsight_studies.wording import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Art painting, cartoon, photo, sketch, average; Table 5 of the paper, and the last row of the talk's slides.
PRINTED = {
    "AlexNet (Li et al. 2017)": (62.86, 66.97, 89.50, 57.51, 69.21),
    "MLDG, AlexNet (Li et al. 2018)": (66.23, 66.88, 88.00, 58.96, 70.01),
    "MetaReg, AlexNet (Balaji et al. 2018)": (69.82, 70.35, 91.07, 59.26, 72.62),
    "Feature-critic, AlexNet (Li et al. 2019)": (64.89, 71.72, 89.94, 61.85, 72.10),
    "CNN-10, ImageNet first": (66.46, 67.88, 89.70, 51.72, 68.94),
    "CNN-10 + AVH, ImageNet first": (72.02, 66.42, 90.12, 61.26, 72.46),
    "CNN-9 + AVH (slides)": (71.56, 69.25, 89.93, 60.86, 72.90),
}
PRINTED_DOMAINS = ("art_painting", "cartoon", "photo", "sketch", AVERAGE)
PAPER_GAP = 3.52
METHODS = {"cross_entropy": "cross-entropy", "avh": "AVH loss", "mldg": "MLDG"}


def print_table(results: Mapping[str, Any]) -> str:
    """What came out; accuracy (%) on the domain left out; then what the scales do."""
    accuracy: Mapping[str, Any] = results["accuracy"]
    domains = _domains(accuracy)
    rows = [
        [
            f"**{results['settings']['recipes'][begin].split(',')[0]}, {begin}, {METHODS[method]}**",
            *_numbers(of, domains),
        ]
        for begin, methods in accuracy.items()
        for method, of in methods.items()
    ]
    if tuple(domains) == PRINTED_DOMAINS:
        rows += [[f"paper: {name}", *(f"{value:.2f}" for value in values)] for name, values in PRINTED.items()]
    parts = [
        result(results["difference"], PAPER_GAP),
        provenance(results),
        _LEGEND,
        markdown_table(["accuracy (%) on", *(name.replace("_", " ") for name in domains)], rows),
    ]
    if any(results["scales"].values()):
        said = [f"- {one}" for begin in results["scales"] if (one := scale_sentence(results, begin))]
        parts += [_SCALES, _scales(results["scales"]), "\n".join(said)]
    return "\n\n".join(part for part in [*parts, _limits(results)] if part) + "\n"


_LEGEND = """**How to read the table.** A column is the domain that was left out of training and then tested on; the
last is the average of the four. Numbers are accuracies in %, mean ± standard deviation over seeds. A row names the
network, the setting and the method; the paper's rows are its printed numbers."""
_SCALES = """**What the scale does.** The scale `s` of the AVH loss is chosen by the accuracy on validation samples
of the training domains (`validation`), because the domain left out may not be looked at. The last column shows what
each scale would have given there. Numbers are means over domains and seeds."""


def _limits(results: Mapping[str, Any]) -> str:
    """How much is measured, and what the paper does otherwise."""
    left = results["cells_planned"] - results["cells"]
    partly = (
        f" {plural(left, 'planned training')} of {results['cells_planned']:,} are not computed yet." if left else ""
    )
    return (
        "**What one may conclude.** The paper's networks were trained on ImageNet first, and their weights are not "
        "public. So the accuracies here do not compare with the paper's; the differences between the methods do, with "
        f"care.{partly} The interval of a difference covers the randomness of training, paired by domain and seed; it "
        "does not cover the choice of the data set. A setting with one seed has no interval."
    )


def _scales(scales: Mapping[str, Any]) -> str:
    rows = [
        [begin, scale, f"{found['validation']:.2f}", f"{found['test']:.2f}"]
        for begin, by_scale in scales.items()
        for scale, found in by_scale.items()
    ]
    return markdown_table(["setting", "scale", "validation (%)", "domain left out (%)"], rows)


def scale_sentence(results: Mapping[str, Any], begin: str) -> str:
    """How many scales end above cross-entropy, and whether the choice was cut short by the scales that were tried."""
    tried, base = results["scales"][begin], results["accuracy"][begin].get("cross_entropy", {}).get(AVERAGE)
    chosen = [scale for scales in results["chosen_scales"][begin].values() for scale in scales]
    if base is None or not chosen:
        return ""
    above = sum(found["test"] > base["mean"] for found in tried.values())
    ends = {min(map(float, tried)), max(map(float, tried))}
    cut = sum(scale in ends for scale in chosen)
    edge = (
        f"; of {plural(len(chosen), 'choice')} {cut} fell on the smallest or the largest scale tried, beyond which a "
        "better one may lie"
    )
    return (
        f"{begin}: {above} of {plural(len(tried), 'scale')} {'ends' if above == 1 else 'end'} above cross-entropy on "
        f"average{edge if cut else ''}."
    )


def _domains(accuracy: Mapping[str, Any]) -> list[str]:
    seen = dict.fromkeys(domain for methods in accuracy.values() for of in methods.values() for domain in of)
    return [*(domain for domain in seen if domain != AVERAGE), AVERAGE]


def _numbers(of: Mapping[str, Any], domains: Sequence[str]) -> list[str]:
    return [shown(of.get(domain), 2) for domain in domains]


def draw(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Accuracy by domain left out, one panel a beginning: a dot a seed, a bar at the mean."""
    from hardsight.report.canvas import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing

    accuracy: Mapping[str, Any] = results["accuracy"]
    domains = _domains(accuracy)
    colours = dict(zip(METHODS, (INK, RED, BLUE), strict=True))
    with drawing(4.2 * len(accuracy), 3.0, panels=len(accuracy), columns=len(accuracy)) as figure:
        for axes, (begin, methods) in zip(figure.axes, accuracy.items(), strict=True):
            for at, (method, of) in enumerate(methods.items()):
                for place, domain in enumerate(domains):
                    if domain in of:
                        x = place + 0.22 * (at - (len(methods) - 1) / 2)
                        values = of[domain]["values"]
                        axes.plot([x] * len(values), values, ".", color=colours[method], markersize=4)
                        axes.plot([x - 0.09, x + 0.09], [of[domain]["mean"]] * 2, color=colours[method], linewidth=2)
                axes.plot([], [], color=colours[method], linewidth=2, label=METHODS[method])
            if tuple(domains) == PRINTED_DOMAINS:
                for name, colour in (("CNN-10", PURPLE), ("CNN-10 + AVH", GREEN)):
                    paper = PRINTED[f"{name}, ImageNet first"]
                    axes.plot(range(len(domains)), paper, "_", color=colour, markersize=14, label=f"paper, {name}")
            axes.set_xticks(range(len(domains)), [name.replace("_", "\n") for name in domains])
            axes.set_title(begin)
            axes.set_xlabel("domain left out")
            axes.set_ylabel("accuracy on it (%)")
            axes.tick_params(color=FAINT)
        # Below all panels: inside one it would lie on numbers.
        found = (zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes)
        named = {name: handle for pairs in found for handle, name in pairs}
        ours_first = sorted(named, key=lambda name: name.startswith("paper"))
        figure.legend([named[name] for name in ours_first], ours_first, loc="outside lower center", ncols=5, fontsize=7)
    return {"accuracy": figure}
