"""The tables and figures of AVH's section 5.1, from results alone: ours beside the paper's numbers."""

import base64
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hardsight.report.canvas import BLUE, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.adaptation.runs import METHODS, TABLE_4
from hardsight_studies.framework import markdown_table, provenance, shown
from hardsight_studies.wording import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VISDA = "visda17"
# Mean of the class accuracies on VisDA-17, percent (AVH, Table 3); the source model is that of Zou et al.
PAPER = {
    "source": 51.6, "cbst": 76.4, "crst": 78.1, "avh": 81.5, "mmd": 61.1, "dann": 57.4, "entropy": 57.0, "mcd": 71.9,
    "adr": 74.8,
}  # fmt: skip
# True-positive rate, mean AVH, mean confidence, mean norm of the first selection (AVH, Table 4).
PAPER_TABLE_4 = {"avh": (0.844, 0.118, 0.961, 20.84), "cbst": (0.848, 0.117, 0.976, 21.28)}
# The paper's order, from best to worst.
HOPED = ("avh", "crst", "cbst", "source")


def print_table(results: Mapping[str, Any]) -> str:
    """What came out; average over pairs beside the paper's column, each family by pair, Table 4."""
    tests = [f"- {_test_sentence(name, test)}" for name, test in results["tests"].items() if test]
    parts = [_order_sentence(results["average"]), "\n".join(tests), provenance(results), _average_table(results)]
    parts += [_FAMILIES] if results["pairs"] else []
    parts += [_family_table(name, rows) for name, rows in results["pairs"].items()]
    parts += [_near_hard(results["pairs"]), _table_4(results["table4"]), _limits(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


_AVERAGE = """**The average.** `ours` is the accuracy on the target domain in %, as a mean over {pairs} of
domains{apart}; ± is the standard deviation over seeds. Every method is averaged over the same pairs, by those of its
seeds that have all of them (`seeds`). The last column is what the paper prints for VisDA-17, another data set:
compare the order of the methods, not the numbers."""
_FAMILIES = """**Each pair of domains.** Accuracy on the target in %, mean ± standard deviation over seeds.
`amazon-webcam` means: labels from amazon, none from webcam. Read a column from `source` downwards: what a method
gains over the model it starts from."""
_TABLE_4 = """**What each method selects first.** The paper's Table 4: the samples that a method selects from the source
model, before any retraining, as means over the {runs} pairs and seeds that all methods have.

- `right`: the share of their pseudo-labels that are right.
- `AVH`, `confidence`, `norm`: means over the selected samples; the norm is the length of the feature vector.
- `beyond CBST`: how many of the selected samples CBST does not select, of how many."""

_NEAR_HARD = """**Why `crst-lrent` is so close to `cbst`.** They end at the same accuracy in {same} of {runs} (on the
pairs that have as many seeds of both). LRENT's soft label is proportional to (p / threshold)⁴, where p is the softmax
probability and 4 is 1 / α: for a sure prediction, the fourth power leaves next to nothing to the other classes. In the
60 runs on Office-Caltech10, computed once more, all other classes together get at most 0.0018 of a label, in the
median 1e-13. So the two methods' weights differ, but after the first round by no more than 0.4 % of what the round
changes, and in 57 of the 60 runs both select the same samples to the end. On `photo-sketch`, where predictions are less
sure, the other classes get up to 0.19, and the methods part in all five runs."""


def _near_hard(families: Mapping[str, Any]) -> str:
    """Why two methods have the same numbers: how often they do, and what was seen of their labels."""
    rows = [row for pairs in families.values() for row in pairs.values() if {"cbst", "crst-lrent"} <= set(row)]
    columns = [[row[method]["accuracy"]["values"] for method in ("cbst", "crst-lrent")] for row in rows]
    both = [pair for hard, soft in columns if len(hard) == len(soft) for pair in zip(hard, soft, strict=True)]
    same = sum(hard == soft for hard, soft in both)
    return _NEAR_HARD.format(same=same, runs=plural(len(both), "run")) if same else ""


def _limits(results: Mapping[str, Any]) -> str:
    """What is measured of what is planned, and what the paper does otherwise."""
    left = results["cells_planned"] - results["cells"]
    said = [
        "The paper adapts a whole ResNet-101 from synthetic to real images (VisDA-17). Here most pairs train two "
        "layers on frozen features."
    ]
    if VISDA not in results["pairs"]:
        said.append("VisDA-17 is not measured, so the paper's claim is neither confirmed nor refuted for its own data.")
    if left:
        said.append(f"{left:,} of {results['cells_planned']:,} planned runs are not computed yet.")
    said += [
        "A method with fewer seeds is not compared on equal terms with one that has more. Seeds of one pair are not "
        "independent trials: trust the p-value over the pairs more than the one over all runs."
    ]
    return f"**What one may conclude.** {' '.join(said)}"


def _average_table(results: Mapping[str, Any]) -> str:
    average = results["average"]
    names = [method for method in METHODS if method in average]
    if not names:
        return ""
    rows = [
        (
            f"`{name}`",
            shown(average[name], 1, 100),
            str(len(average[name]["values"])),
            f"{PAPER[name]:.1f}" if name in PAPER else "",
        )
        for name in names
    ]
    pairs = average["pairs"]
    apart = "" if VISDA in pairs else "; VisDA-17 is not among them"
    legend = _AVERAGE.format(pairs=plural(len(pairs), "pair"), apart=apart)
    return f"{legend}\n\n" + markdown_table(("method", "ours (%)", "seeds", "paper, VisDA-17 (%)"), rows)


def _order_sentence(average: Mapping[str, Any]) -> str:
    """Whether the means stand in the paper's order."""
    if not all(name in average for name in HOPED):
        return ""
    means = [average[name]["mean"] for name in HOPED]
    best, middle, low, source = means
    kept = best >= middle >= low > source
    order = ", ".join(
        f"{name} {100 * mean:.1f} %" for name, mean in sorted(zip(HOPED, means, strict=True), key=lambda of: -of[1])
    )
    gained = sum(mean > source for mean in means[:3])
    return (
        f"**Result.** On average {gained} of the 3 self-training methods end above the model that they start from "
        f"(`source`). The paper's order, avh ≥ crst ≥ cbst > source, is {'kept' if kept else 'not kept'} on average: "
        f"{order}."
    )


def _test_sentence(name: str, test: Mapping[str, Any]) -> str:
    p = [f"p = {test[key]:.2g} {words}" for key, words in _P_WORDS.items() if test[key] is not None]
    tested = f" (paired t-test: {', '.join(p)})" if p else ""
    return (
        f"{name}: {100 * test['mean_difference']:+.2f} points on average, better on {test['pairs_won']} of "
        f"{test['pairs']} pairs of domains{tested}."
    )


_P_WORDS = {"p_over_pairs": "over the pairs", "p_over_runs": "over all runs"}


def _family_table(family: str, rows: Mapping[str, Any]) -> str:
    methods = [method for method in METHODS if any(method in row for row in rows.values())]
    lines = [
        [f"`{method}`", *(shown(row[method]["accuracy"], 1, 100) if method in row else "" for row in rows.values())]
        for method in methods
    ]
    heads = ["method", *rows]
    if family == VISDA:
        # What the paper prints of it is the mean of the class accuracies.
        heads += ["mean of its classes", "paper's mean of classes"]
        means = [rows[VISDA].get(method, {}).get("class_mean_accuracy") for method in methods]
        printed = [f"{PAPER[method]:.1f}" if method in PAPER else "" for method in methods]
        lines = [[*line, shown(mean, 1, 100), paper] for line, mean, paper in zip(lines, means, printed, strict=True)]
    return f"{family}:\n\n" + markdown_table(heads, lines)


def _table_4(found: Mapping[str, Any]) -> str:
    if not found:
        return ""
    heads = ("method", "right", "AVH", "confidence", "norm", "beyond CBST", "paper (right / AVH / confidence / norm)")
    lines = []
    for method, row in found.items():
        numbers = [f"{row[key]:.3f}" if key in row else "" for key in TABLE_4[:4]]
        beyond = f"{row['beyond_cbst']:.0f} of {row['selected']:.0f}" if "beyond_cbst" in row else ""
        paper = " / ".join(f"{value:g}" for value in PAPER_TABLE_4.get(method, ()))
        lines.append([f"`{method}`", *numbers, beyond, paper])
    runs = next(iter(found.values()))["runs"]
    return f"{_TABLE_4.format(runs=runs)}\n\n{markdown_table(heads, lines)}{_selected_sentence(found)}"


def _selected_sentence(found: Mapping[str, Any]) -> str:
    """The paper reads its Table 4 so: AVH's selection is as often right as CBST's, less confident, and shorter."""
    if not {"avh", "cbst"} <= set(found) or not all(set(TABLE_4[:4]) <= set(found[how]) for how in ("avh", "cbst")):
        return ""
    parts = []
    for at, (key, word) in enumerate(zip(TABLE_4[:4], ("right", "AVH", "confidence", "norm"), strict=True)):
        ours = found["avh"][key] - found["cbst"][key]
        theirs = PAPER_TABLE_4["avh"][at] - PAPER_TABLE_4["cbst"][at]
        parts.append(f"{word} {ours:+.3f} ({theirs:+.3f})")
    return f"\n\nThe selection of avh minus that of cbst, in brackets the paper's difference: {', '.join(parts)}."


_STYLES = {"cbst": (RED, "-"), "crst": (GREEN, "-"), "avh": (BLUE, "-"), "avh-slides": (BLUE, "--"),
           "confidence": (PURPLE, "--"), "argmax": (INK, ":")}  # fmt: skip


def draw(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Figure 6, accuracy by round; and Figure 21, what AVH selects beyond CBST, where pictures were kept."""
    drawn = {"rounds": _draw_rounds(results["pairs"])}
    if results.get("figure21"):
        drawn["figure21"] = _draw_examples(results["figure21"])
    return drawn


def _draw_rounds(families: Mapping[str, Any]) -> "Figure":
    """Mean over a family's pairs; a thin line where the source model stands."""
    with drawing(4.6 * min(2, len(families)), 3.2 * -(-len(families) // 2), len(families)) as figure:
        for axes, (family, rows) in zip(figure.axes, families.items(), strict=True):
            for method, (colour, line) in _STYLES.items():
                curves = [row[method]["by_round"] for row in rows.values() if "by_round" in row.get(method, {})]
                if curves:
                    mean = [sum(column) / len(column) for column in zip(*curves, strict=False)]
                    axes.plot(range(len(mean)), mean, line, color=colour, label=method)
            before = [row["source"]["accuracy"]["mean"] for row in rows.values() if "source" in row]
            if before:
                axes.axhline(sum(before) / len(before), color=INK, linewidth=0.8, zorder=0, label="source")
            axes.set_title(family)
            axes.set_xlabel("rounds")
            axes.set_ylabel("accuracy on the target")
        # Of all panels: not every family has every method yet.
        found = (zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes)
        named = {name: handle for pairs in found for handle, name in pairs}
        if named:
            figure.axes[0].legend(named.values(), named, fontsize=7)
    return figure


def _draw_examples(pairs: Mapping[str, Any]) -> "Figure":
    """A row of pictures for each pair, each under its label and the softmax confidence in it."""
    from PIL import Image

    columns = max(map(len, pairs.values()))
    with drawing(1.25 * columns, 1.45 * len(pairs), columns * len(pairs), columns) as figure:
        for axes in figure.axes:
            axes.set_axis_off()
        for at, (pair, pictures) in enumerate(pairs.items()):
            for axes, one in zip(figure.axes[at * columns :], pictures, strict=False):
                with Image.open(io.BytesIO(base64.b64decode(one["picture"]))) as picture:
                    axes.imshow(picture, cmap="gray", vmin=0, vmax=255)
                axes.set_title(f"{one['class']}, {one['confidence']:.2f}", fontsize=6.5)
            figure.axes[at * columns].text(
                -0.06, 0.5, pair, fontsize=7, rotation=90, ha="right", va="center",
                transform=figure.axes[at * columns].transAxes,
            )  # fmt: skip
    return figure
