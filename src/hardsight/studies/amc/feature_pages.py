"""The pages of Figures 1, 4 and 5 of AMC-Loss: tables, sentences and scatter plots from the results files."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hardsight.report.canvas import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
from hardsight.studies.amc.looking import compared, four
from hardsight.studies.amc.recipes import NAMES, TITLES, caveat, length_name
from hardsight.studies.framework import markdown_table, provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The digits of Figure 1, told apart by colour; ten classes by colour and by marker.
SHOWN_IN_FIGURE1 = (0, 1, 2, 3, 6)
COLOURS, MARKERS = (BLUE, RED, GREEN, PURPLE, INK), ("o", "^")
COLUMNS = {
    "test_accuracy": "accuracy",
    "homogeneity": "homogeneity of predictions",
    "completeness": "completeness of predictions",
    "cluster_homogeneity": "homogeneity of clusters",
    "cluster_completeness": "completeness of clusters",
    "within": "within (rad)",
    "between": "between (rad)",
    "silhouette": "silhouette",
}


def table1(results: Mapping[str, Any]) -> str:
    """Figure 1: V-measure of clusters by direction, of the features, by length."""
    parts = [_head(results)]
    for data, losses in results["features"].items():
        row = next(iter(losses.values()))
        names = {
            "cluster_v_measure": "clusters by direction",
            "euclidean_v_measure": "clusters of the features",
            "norm_v_measure": "clusters by length alone",
            "within": "within (rad)",
            "between": "between (rad)",
            "test_accuracy": "accuracy",
        }
        parts.append(markdown_table(["data", *names.values()], [[TITLES[data], *(four(row[name]) for name in names)]]))
        by_direction, by_length = row["cluster_v_measure"], row["norm_v_measure"]
        more = by_direction["mean"] > by_length["mean"]
        parts.append(
            f"- {TITLES[data]}: the direction of a feature tells the class (V-measure {four(by_direction)}) "
            f"{'better' if more else 'no better'} than its length ({four(by_length)}): the paper's claim that the "
            f"distribution is angular {'holds' if more else 'does not hold'}."
        )
    return "\n\n".join(parts) + "\n"


def table4(results: Mapping[str, Any]) -> str:
    """Figures 4 and 5: cluster quality of every loss, and what AMC changes."""
    parts = [_head(results)]
    for data, losses in results["features"].items():
        rows = [[_name(loss), *(four(row[name]) for name in COLUMNS)] for loss, row in losses.items()]
        parts += [f"{TITLES[data]}:", markdown_table(["loss", *COLUMNS.values()], rows)]
        parts.append("\n".join(f"- {sentence}" for sentence in _sentences(losses)))
    if results["not_computed"]:
        names = ", ".join(TITLES[data] for data in results["not_computed"])
        parts.append(f"Not computed (the data were not at hand, or the time was over): {names}.")
    return "\n\n".join(parts) + "\n"


def _head(results: Mapping[str, Any]) -> str:
    return f"{provenance(results)} Trained for {length_name(results['length'])}.{caveat(results['preset'])}"


def _name(loss: str) -> str:
    """`+ AMC`, and its weight where it is not the script's."""
    name, *weight = loss.split(" ")
    return NAMES[name] + (f", weight {weight[0]}" if weight else "")


def _sentences(losses: Mapping[str, Any]) -> list[str]:
    said = []
    questions = {
        "within": "mean angle within a class",
        "between": "mean angle between classes",
        "silhouette": "silhouette",
        "cluster_v_measure": "V-measure of clusters",
        "v_measure": "V-measure of predictions",
    }
    # The losses on features with the same weight, and each against cross-entropy alone.
    for ours in (loss for loss in losses if loss.startswith("amc")):
        for other in (ours.replace("amc", "euclidean"), "cross-entropy"):
            if other in losses:
                said += _versus(ours, other, losses, questions)
    return said


def _versus(ours: str, other: str, losses: Mapping[str, Any], questions: Mapping[str, str]) -> list[str]:
    names = [_name(loss).removeprefix("+ ") for loss in (ours, other)]
    pairs = {name: (losses[ours][name], losses[other][name]) for name in questions}
    changes = [f"{questions[name]} {compared(*pair)}" for name, pair in pairs.items()]
    tighter = pairs["within"][0]["mean"] < pairs["within"][1]["mean"]
    apart = pairs["silhouette"][0]["mean"] > pairs["silhouette"][1]["mean"]
    return [
        f"{names[0]} against {names[1]}: {'; '.join(changes)}. So here it is {'' if tighter else 'not '}more compact "
        f"by angle, and it does {'' if apart else 'not '}separate the classes better by silhouette."
    ]


def figures_of(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """The points of the first seed: in the plane, or on the sphere; a colour and marker a class."""
    drawn = {}
    for data, losses in results["features"].items():
        panels = [
            (f"{_name(loss)}, {split} set", rows)
            for loss, one in losses.items()
            for split, rows in sorted(one["points"].items(), reverse=True)
            if rows
        ]
        # Figure 1 alone shows the training set.
        few = any(one["points"]["train"] for one in losses.values())
        shown = SHOWN_IN_FIGURE1 if few else tuple(range(10))
        drawn[data] = _scatter(panels, shown, few)
    return drawn


def _scatter(
    panels: Sequence[tuple[str, Sequence[Sequence[float | int]]]], shown: Sequence[int], few: bool
) -> "Figure":
    columns = min(3, len(panels))
    on_sphere = len(panels[0][1][0]) == 4
    with drawing(3.1 * columns, 3.0 * -(-len(panels) // columns), 0 if on_sphere else len(panels), columns) as figure:
        for at, (title, rows) in enumerate(panels):
            if on_sphere:
                axes: Any = figure.add_subplot(-(-len(panels) // columns), columns, at + 1, projection="3d")
                # The whole sphere in every panel: features in a corner of it must look like it.
                axes.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1), box_aspect=(1, 1, 1))
                axes.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1), zticks=(-1, 0, 1))
                axes.tick_params(labelsize=6)
            else:
                axes = figure.axes[at]
                _frame(axes, features=few)
            for place, label in enumerate(shown):
                mine = [row[1:] for row in rows if row[0] == label]
                if mine:
                    style = {"color": COLOURS[place % 5], "marker": MARKERS[place // 5 % 2]}
                    axes.scatter(*zip(*mine, strict=True), s=7, alpha=0.6, linewidths=0, label=str(label), **style)
            axes.set_title(title, fontsize=9)
        handles, names = figure.axes[-1].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right center", fontsize=8, title="class", markerscale=2)
    return figure


def _frame(axes: Any, *, features: bool) -> None:
    """Two features around their origin; or a view by t-SNE, whose axes have no unit."""
    if not features:
        axes.set(xticks=[], yticks=[], xlabel="t-SNE, no unit")
        return
    axes.axhline(0, color=FAINT)
    axes.axvline(0, color=FAINT)
    axes.set(xlabel="first feature", ylabel="second feature")
