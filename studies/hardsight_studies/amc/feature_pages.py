"""The pages of Figures 1, 4 and 5 of AMC-Loss: tables, claims and scatter plots from the results files."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hardsight.datasets.cifar_classes import CIFAR10_CLASSES
from hardsight.report.canvas import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.amc.looking import Claim, claims_part, four
from hardsight_studies.amc.recipes import NAMES, TITLES, caveat, length_name
from hardsight_studies.amc.terms import FEATURE_COLUMNS
from hardsight_studies.framework import markdown_table, provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The digits of Figure 1; ten classes by colour and by marker.
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
# Which clusters tell the classes: those of directions, if the distribution is angular.
BY = {
    "cluster_v_measure": "clusters by direction",
    "euclidean_v_measure": "clusters of the features",
    "norm_v_measure": "clusters by length alone",
}
CLAIMS = {
    "within": Claim("two samples of a class are closer (mean angle)", -1),
    "between": Claim("two classes are farther apart (mean angle)", 1),
    "silhouette": Claim("classes are better separated (silhouette)", 1),
    "cluster_v_measure": Claim("clusters agree better with the classes (V-measure)", 1),
    "v_measure": Claim("predictions agree better with the classes (V-measure)", 1),
}


def table1(results: Mapping[str, Any]) -> str:
    """Figure 1: cluster quality as in Figure 4, and V-measure of clusters by direction, of the features, by length."""
    said, parts = [], []
    for data, losses in results["features"].items():
        row = next(iter(losses.values()))
        parts.append(f"{TITLES[data]}:")
        for names in (COLUMNS, BY):
            heads = names.values() if names is COLUMNS else [f"V-measure, {words}" for words in names.values()]
            parts.append(markdown_table(list(heads), [[four(row[name]) for name in names]]))
        by_direction, by_length = row["cluster_v_measure"], row["norm_v_measure"]
        more = by_direction["mean"] > by_length["mean"]
        said.append(
            f"On {TITLES[data]} the direction of the features tells the class {'better' if more else 'no better'} than "
            f"their length does (V-measure {four(by_direction)} against {four(by_length)}). So the paper's claim that "
            f"the distribution is angular {'holds' if more else 'does not hold'} here."
        )
    head = [f"**Result.** {' '.join(said)}", _head(results), f"**How to read the tables.**\n\n{FEATURE_COLUMNS} {_BY}"]
    return "\n\n".join([*head, *parts, _LIMITS_1]) + "\n"


_BY = """The second table gives the V-measure, against the labels, of three kinds of k-means clusters: by the
direction of the features, by the features as they are, and by their length alone. The larger it is, the better these
clusters tell the classes."""
_LIMITS_1 = """**What one may conclude.** Two features are a picture, not a network in use: with more of them length
and direction may share the work otherwise. The paper shows the picture without these numbers."""
_LIMITS_4 = """**What one may conclude.** The verdicts hold for this network, this length of training and these
weights. A standard error over few runs is itself rough, and the claims of one table are not independent:
homogeneity, silhouette and angles measure much the same."""


def table4(results: Mapping[str, Any]) -> str:
    """Figures 4 and 5: what AMC changes, and cluster quality of every loss."""
    said, parts = [], []
    for data, losses in results["features"].items():
        rows = [[_name(loss), *(four(row[name]) for name in COLUMNS)] for loss, row in losses.items()]
        claims = claims_part(CLAIMS, losses, _comparisons(losses))
        said += (
            [f"**Result.** How many claims about AMC-Loss (listed below) hold on {TITLES[data]}:", *claims[2:]]
            if claims
            else []
        )
        parts += [f"{TITLES[data]}:", markdown_table(["loss", *COLUMNS.values()], rows), *claims[:2]]
    if results["not_computed"]:
        names = ", ".join(TITLES[data] for data in results["not_computed"])
        parts.append(f"Not computed (the data were not at hand, or the time was over): {names}.")
    legend = f"**How to read the table.** One row for each loss.\n\n{FEATURE_COLUMNS}"
    return "\n\n".join([*said, _head(results), legend, *parts, _LIMITS_4]) + "\n"


def _head(results: Mapping[str, Any]) -> str:
    return f"{provenance(results)} Trained for {length_name(results['length'])}.{caveat(results['preset'])}"


def _name(loss: str) -> str:
    """`+ AMC`, and its weight where it is not the script's."""
    name, *weight = loss.split(" ")
    return NAMES[name] + (f", weight {weight[0]}" if weight else "")


def _comparisons(losses: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Each AMC against the Euclidean loss of the same weight, and against cross-entropy alone."""
    return {
        " against ".join(_name(loss).removeprefix("+ ") for loss in (ours, other)): (ours, other)
        for ours in losses
        if ours.startswith("amc")
        for other in (ours.replace("amc", "euclidean"), "cross-entropy")
    }


# ---------------------------------------------------------------------------------------------------------------------
# The figures.


class _Panel(NamedTuple):
    """Label and coordinates of each sample; where the panel stands."""

    title: str
    points: Sequence[Sequence[float | int]]
    row: int
    column: int


def figures_of(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """The points of the first seed: in the plane, on the sphere, or by t-SNE; a colour and marker a class."""
    drawn = {}
    for data, losses in results["features"].items():
        # Figure 1 alone shows the training set. The network of the digits has 64 features, so t-SNE shows them.
        figure1 = any(one["points"]["train"] for one in losses.values())
        panels = _by_split(losses) if figure1 else _by_loss(losses)
        shown = SHOWN_IN_FIGURE1 if figure1 else tuple(range(10))
        names = {label: CIFAR10_CLASSES[label] if data == "cifar10" else str(label) for label in shown}
        drawn[data] = _scatter(panels, names, in_plane=figure1 and data != "digits")
    return drawn


def _by_split(losses: Mapping[str, Any]) -> list[_Panel]:
    return [
        _Panel(f"{_name(loss)}, {words} images", one["points"][split], row, column)
        for row, (loss, one) in enumerate(losses.items())
        for column, (split, words) in enumerate((("train", "training"), ("test", "test")))
    ]


def _by_loss(losses: Mapping[str, Any]) -> list[_Panel]:
    """A column a loss, a row a weight; each with what the paper prints inside its pictures."""
    names = list(dict.fromkeys(loss.split(" ")[0] for loss in losses))
    weights = list(dict.fromkeys(loss.partition(" ")[2] for loss in losses))
    panels = []
    for loss, one in losses.items():
        name, _, weight = loss.partition(" ")
        quality = [f"{words} {one[key]['values'][0]:.3f}" for key, words in (
            ("cluster_homogeneity", "homogeneity"), ("cluster_completeness", "completeness"))]  # fmt: skip
        title = f"{_name(loss)}\n{', '.join(quality)}"
        panels.append(_Panel(title, one["points"]["test"], weights.index(weight), names.index(name)))
    return panels


def _scatter(panels: Sequence[_Panel], names: Mapping[int, str], *, in_plane: bool) -> "Figure":
    rows, columns = (1 + max(getattr(one, side) for one in panels) for side in ("row", "column"))
    on_sphere = len(panels[0].points[0]) == 4
    reach = max(abs(value) for one in panels for point in one.points for value in point[1:])
    with drawing(3.1 * columns, 3.2 * rows, 0) as figure:
        for panel in panels:
            place = panel.row * columns + panel.column + 1
            axes: Any = figure.add_subplot(rows, columns, place, projection="3d" if on_sphere else None)
            if on_sphere:
                _globe(axes)
            elif in_plane:
                _plane(axes, reach)
            else:
                axes.set(xticks=[], yticks=[], xlabel="t-SNE, no unit")
            for at, (label, name) in enumerate(names.items()):
                mine = [point[1:] for point in panel.points if point[0] == label]
                if mine:
                    style = {"color": COLOURS[at % 5], "marker": MARKERS[at // 5 % 2]}
                    axes.scatter(*zip(*mine, strict=True), s=9, alpha=0.7, linewidths=0, label=name, **style)
            axes.set_title(panel.title, fontsize=9)
        figure.legend(
            *figure.axes[-1].get_legend_handles_labels(),
            loc="outside right center",
            fontsize=8,
            title="class",
            markerscale=2,
        )
    return figure


def _plane(axes: Any, reach: float) -> None:
    """Two features around their origin, both to one scale: an angle looks like what it is."""
    axes.axhline(0, color=FAINT)
    axes.axvline(0, color=FAINT)
    sides = (-1.05 * reach, 1.05 * reach)
    axes.set(xlabel="first feature", ylabel="second feature", xlim=sides, ylim=sides, aspect="equal")


def _globe(axes: Any) -> None:
    """The whole unit sphere, so that features in a corner of it look like it; what lies behind is paler."""
    around, up = np.meshgrid(np.linspace(0, 2 * np.pi, 25), np.linspace(-np.pi / 2, np.pi / 2, 13))
    axes.plot_wireframe(
        np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up), color=FAINT, linewidth=0.4
    )
    axes.set(xlim=(-0.75, 0.75), ylim=(-0.75, 0.75), zlim=(-0.75, 0.75), box_aspect=(1, 1, 1))
    axes.set_axis_off()
