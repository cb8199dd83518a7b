"""AVH, Figures 5 and 16: human selection frequency against AVH, confidence and norm, as two-dimensional histograms.

Paper (ImageNet): a band for AVH, mass in the upper right corner for confidence, no shape for the norm (which is scaled
within each class). Ours, on CIFAR-10H: the norm has a shape too (docs/studies/avh-figure5.md, made from the results
files). The cells are those of the tables of section 4.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hardsight.alignment import FIVE_BINS, bin_of, correlate, scale_linearly, scale_within_groups
from hardsight.alignment.groups import joint_histogram
from hardsight.report.canvas import RED, drawing
from hardsight_studies.avh.agreement import Answers, answers_by_network
from hardsight_studies.avh.people import cells, study, title_of
from hardsight_studies.avh.terms import AVH, CONFIDENCE, HSF, NORM, SCOPE, SPEARMAN
from hardsight_studies.framework import markdown_table, provenance
from hardsight_studies.wording import listed, plural, terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 20
SCORES = {"avh": "AVH, scaled", "confidence": "confidence", "norm": "norm, scaled within its class"}


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """The histograms of every network's first seed."""
    found = answers_by_network(cells(preset), folder)
    return {"networks": {key: {"seeds": len(seeds), **judge_network(seeds[0])} for key, seeds in found.items()}}


def judge_network(answers: Answers) -> dict[str, Any]:
    """Of each score: counts by people's frequency and score in [0, 1], medians by fifth of frequency, and ρ."""
    columns = scaled_scores(answers)
    fifths = bin_of(answers.people)
    return {
        "images": len(answers.people),
        "accuracy": round(answers.accuracy, 4),
        "scores": {
            name: {
                "counts": joint_histogram(values, answers.people, BINS).counts.tolist(),
                "medians": [_median(values[fifths == at]) for at in range(len(FIVE_BINS) - 1)],
                "spearman": round(correlate(values, answers.people).coefficient, 4) if np.ptp(values) > 0 else None,
            }
            for name, values in columns.items()
        },
    }


def scaled_scores(answers: Answers) -> dict[str, np.ndarray]:
    """The three scores in [0, 1], as the paper plots them: larger AVH is harder, larger confidence and norm easier."""
    avh, norm = -answers.scores["avh"], answers.scores["norm"]
    return {
        "avh": scale_linearly(avh),
        "confidence": answers.scores["confidence"],
        "norm": scale_within_groups(norm, answers.labels),
    }


def _median(values: np.ndarray) -> float | None:
    return round(float(np.median(values)), 4) if len(values) else None


def table(results: Mapping[str, Any]) -> str:
    """What came out, and the medians by fifth of human frequency."""
    heads = ["network", "score", *(f"{low:.1f} to {low + 0.2:.1f}" for low in FIVE_BINS[:-1]), "Spearman's ρ"]
    rows = []
    for key, one in results["networks"].items():
        for name, title in SCORES.items():
            of = one["scores"][name]
            medians = ["" if value is None else f"{value:.3f}" for value in of["medians"]]
            rows.append([title_of(key), title, *medians, _signed(of["spearman"])])
    made = provenance(results) + _first_seeds(results)
    parts = [sentence(results["networks"]), made, _LEGEND, markdown_table(heads, rows), _LIMITS]
    return "\n\n".join(parts) + "\n"


_LEGEND = """**How to read the table.** The first five columns are ranges of human selection frequency, from the
images that people find hard to the easy ones; a cell is the median of the score over the images of that range (the
dots in the figures). The last column is Spearman's ρ between the score and human selection frequency over all
images. AVH falls where images get easier, so its ρ is negative; confidence and norm rise."""
_LIMITS = f"""**What one may conclude.** The table has no spread over seeds; [avh-table1](avh-table1.md) has it.
{SCOPE}"""


def _first_seeds(results: Mapping[str, Any]) -> str:
    """How many of the cells are shown, where there are more."""
    networks = len(results["networks"])
    if networks == results["cells"]:
        return ""
    return f" Of each network only the first seed is shown, here and in the figures: {networks} of these cells."


def sentence(networks: Mapping[str, Any]) -> str:
    """Which of the three follows people, in all networks together."""
    texts = []
    for name, title in SCORES.items():
        rho = [abs(one["scores"][name]["spearman"] or 0.0) for one in networks.values()]
        texts.append(f"{title.split(',')[0]} {min(rho):.3f} to {max(rho):.3f}")
    norm = [one["scores"]["norm"]["spearman"] or 0.0 for one in networks.values()]
    seen = "here the norm follows people, too" if min(map(abs, norm)) > 0.05 else "here it hardly does, either"
    return (
        "**Result.** How closely a score follows people, as the absolute value of Spearman's ρ, lies over "
        f"{plural(len(networks), 'network')} at {listed(texts)}. In the paper's figures AVH follows people and the "
        f"norm does not; {seen}."
    )


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Three panels a network: counts on a logarithmic scale, and the median of each fifth."""
    drawn = {}
    centres = [low + 0.1 for low in FIVE_BINS[:-1]]
    for key, one in results["networks"].items():
        with drawing(8.6, 3.3, panels=3, columns=3) as figure:
            panels, found = list(figure.axes), [one["scores"][name] for name in SCORES]
            titles = [f"{title_of(key)}, ρ = {_signed(of['spearman'])}" for of in found]
            draw_counts(figure, [of["counts"] for of in found], titles)
            for axes, of, title in zip(panels, found, SCORES.values(), strict=True):
                medians = np.array(of["medians"], dtype=np.float64)
                # A median of 0 or 1 lies on the frame: the whole dot is drawn.
                (line,) = axes.plot(centres, medians, "--o", color=RED, markersize=4.5, linewidth=1.5, clip_on=False)
                axes.set_ylabel(title)
            figure.legend([line], ["median in each fifth"], loc="outside lower center", fontsize=8)
        drawn[f"figures5-16-{key}"] = figure
    return drawn


def draw_counts(figure: "Figure", counts: Sequence[Sequence[Sequence[int]]], titles: Sequence[str]) -> None:
    """A panel of counts by human frequency and a score in [0, 1] in each axes, dark for many, on one scale."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    # One hue, which the red line stands out from for every eye; a single image is pale, and not yet white.
    blues = ListedColormap(colormaps["Blues"](np.linspace(0.2, 1.0, 256)))
    panels, largest = list(figure.axes), max(2, *(int(np.max(one)) for one in counts))
    for axes, one, title in zip(panels, counts, titles, strict=True):
        edges = np.linspace(0, 1, len(one) + 1)
        found = np.ma.masked_equal(np.array(one).T, 0)
        shown = axes.pcolormesh(edges, edges, found, cmap=blues, norm=LogNorm(1, largest))
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xlabel("human selection frequency")
        axes.set_title(title, fontsize=9)
    ticks = [10**power for power in range(int(np.log10(largest)) + 1)]
    bar = figure.colorbar(shown, ax=panels[-1], label="images (log)")
    bar.set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks])


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f}"


ABOUT = f"""Do angular visual hardness (AVH), confidence and the norm of the features rise or fall with how easily
people recognise an image? The paper answers with pictures; here they are drawn for CIFAR-10, with the numbers beside
them.

{terms(AVH, CONFIDENCE, NORM, HSF, SPEARMAN)}

**How it was made.** The networks and images are those of [avh-table1](avh-table1.md): the 10,000 test images of
CIFAR-10, with the answers of CIFAR-10H. As in the paper, AVH is scaled linearly to [0, 1] and the norm is scaled to [0,
1] within each class.

**Figures.** A panel counts the images by human selection frequency (across) and by a score (up); dark is many. Most
people agree on most images, so most of them lie at the right edge, and the scale of the counts is logarithmic. The
red dots are the medians of the table."""

FIGURE_5 = study(
    id="avh-figure5",
    title="human frequency against AVH, confidence and norm",
    about=ABOUT,
    reference="AVH Figs. 5, 16",
    judge=judge,
    table=table,
    figures=figures,
)
