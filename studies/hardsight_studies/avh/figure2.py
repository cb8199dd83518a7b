"""AVH, Figures 2 and 8: MNIST in a network with two features.

Paper (a picture): each class fills a cone around its weights. Ours, LeNet, 20 epochs of all of MNIST, H200: right on
98.9 % of the test images; the weights nearest by angle alone are the label's for 70.9 %.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hardsight.geometry import angles_to_classes
from hardsight.report.canvas import FAINT, INK, drawing
from hardsight_studies.avh.figure22 import LENET
from hardsight_studies.avh.looking import features_of, look_at_features, short
from hardsight_studies.avh.subjects import Subject, Subjects, digits, study_of, trained_here
from hardsight_studies.avh.terms import AVH
from hardsight_studies.framework import markdown_table, provenance
from hardsight_studies.wording import terms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Ten classes need ten colours; neighbours differ in lightness too, and every cone carries its digit.
TEN = ("#332288", "#88ccee", "#117733", "#ddcc77", "#cc6677", "#aa4499", "#44aa99", "#999933", "#882255", "#777777")
POINTS = 100
PRESETS = {
    "smoke": digits(150, limit=600, epochs=2),
    "cpu": Subjects(2000, trainings={"lenet": LENET}),
    "paper": Subjects(10_000, trainings={"lenet": LENET | {"data": LENET["data"] | {"limit": 60_000}, "epochs": 20}}),
}


def measure(subject: Subject) -> dict[str, Any]:
    """Some images of each class in the plane of the first two features, the weights, and how narrow the cones are."""
    features = features_of(subject.model, subject.images, subject.scale)
    head: Any = subject.model.head
    seen = look_at_features(features, head, subject.labels)
    angles = angles_to_classes(features, head.weight.detach().float())
    own = torch.rad2deg(angles.gather(1, subject.labels[:, None]).squeeze(1)).cpu().numpy()
    labels, points = subject.labels.cpu().numpy(), features[:, :2].cpu().numpy()
    chosen = np.concatenate([(labels == name).nonzero()[0][:POINTS] for name in np.unique(labels)])
    by_class = {
        subject.class_names[name]: {
            "images": int((labels == name).sum()),
            "median_angle": short(float(np.median(own[labels == name]))),
            "ninth_decile": short(float(np.quantile(own[labels == name], 0.9))),
            "avh": short(float(seen.avh.cpu().numpy()[labels == name].mean())),
        }
        for name in np.unique(labels)
    }
    return {
        "images": len(labels),
        "features": features.shape[1],
        "accuracy": round(float(seen.correct.mean()), 4),
        "nearest_by_angle": round(float((angles.argmin(1) == subject.labels).double().mean()), 4),
        "classes": by_class,
        "x": [short(one) for one in points[chosen, 0].tolist()],
        "y": [short(one) for one in points[chosen, 1].tolist()],
        "label": labels[chosen].tolist(),
        "avh": [short(one) for one in seen.avh.cpu().numpy()[chosen].tolist()],
        "weight": [[short(one) for one in row[:2]] for row in head.weight.tolist()],
    }


def table(results: Mapping[str, Any]) -> str:
    """What came out, and the cones by class."""
    parts = [_result(one) for one in results["networks"].values()]
    parts += [provenance(results) + trained_here(results), _LEGEND]
    for one in results["networks"].values():
        heads = ("class", "images", "median angle to its weights", "nine in ten within", "mean AVH")
        rows = [
            [name, str(of["images"]), f"{of['median_angle']:.1f}°", f"{of['ninth_decile']:.1f}°", f"{of['avh']:.4f}"]
            for name, of in one["classes"].items()
        ]
        parts.append(markdown_table(heads, rows))
    return "\n\n".join([*parts, _LIMITS]) + "\n"


def _result(one: Mapping[str, Any]) -> str:
    """How wide the cones are, and how far the angle alone goes."""
    reach = {name: of["ninth_decile"] for name, of in one["classes"].items()}
    narrowest, widest = min(reach, key=lambda name: reach[name]), max(reach, key=lambda name: reach[name])
    said = (
        f"**Result.** With {one['features']} features the network classifies {one['accuracy']:.1%} of "
        f"{one['images']:,} test images right. The images of a class lie in a cone around the weights of their class: "
        f"nine in ten are within {reach[narrowest]:.1f}° (class {narrowest}) to {reach[widest]:.1f}° (class {widest}) "
        "of them."
    )
    if one["nearest_by_angle"] >= one["accuracy"]:
        return said
    return (
        f"{said} The angle alone does not decide the class: the weights nearest by angle are those of the label for "
        f"{one['nearest_by_angle']:.1%} of the images. The logits also contain the lengths of the weights and the "
        "biases."
    )


_LEGEND = """**How to read the table.** One row for each class, over its test images. `median angle to its weights`
is the angle between an image's features and the weights of its label; `nine in ten within` is the angle that nine
tenths of the images do not exceed, the half-width of the cone. `mean AVH` is the mean of the hardness defined above."""
_LIMITS = """**What one may conclude.** This is a picture of one training with one seed, as in the paper, which
prints no numbers. Two features make a picture possible; networks in use have hundreds, and this page says nothing
about them."""


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """The plane by class and by AVH."""
    drawn = {}
    for key, one in results["networks"].items():
        x, y, labels, avh = (np.array(one[name]) for name in ("x", "y", "label", "avh"))
        reach = 1.05 * float(np.hypot(x, y).max())
        with drawing(8.6, 4.2, panels=2) as figure:
            for axes, title in zip(figure.axes, ("by class; w: the classes' weights", "by AVH"), strict=True):
                axes.set_aspect("equal", adjustable="box")
                axes.set_xlim(-1.25 * reach, 1.25 * reach)
                axes.set_ylim(-1.25 * reach, 1.25 * reach)
                axes.set_xlabel("first feature")
                axes.set_ylabel("second feature")
                axes.set_title(title)
                for weight in np.array(one["weight"]):
                    end = reach * _direction(weight)
                    axes.plot([0, end[0]], [0, end[1]], color=FAINT, linewidth=1.2, zorder=0)
            for name in np.unique(labels):
                inside = labels == name
                figure.axes[0].scatter(x[inside], y[inside], s=7, color=TEN[name % 10], linewidths=0)
                _write_names(figure.axes[0], name, x[inside], y[inside], reach * _direction(one["weight"][name]))
            shown = figure.axes[1].scatter(x, y, c=avh, s=7, cmap="viridis", linewidths=0)
            figure.colorbar(shown, ax=figure.axes[1], label="AVH (light is hard)", shrink=0.8)
        drawn[f"figures2-8-{key}"] = figure
    return drawn


def _write_names(axes: "Axes", name: Any, x: np.ndarray, y: np.ndarray, end: np.ndarray) -> None:
    """The class at the end of its weights, and on its cone: colours alone tell ten classes apart badly."""
    centred: dict[str, Any] = {"color": INK, "ha": "center", "va": "center"}
    axes.text(1.12 * end[0], 1.12 * end[1], f"w{_lowered(str(name))}", fontsize=8, **centred)
    across, up = np.quantile(np.hypot(x, y), 0.67) * _direction([np.median(x), np.median(y)])
    box = {"boxstyle": "circle,pad=0.12", "facecolor": "white", "edgecolor": TEN[name % 10], "alpha": 0.85}
    axes.text(across, up, str(name), weight="bold", bbox=box, **centred)


def _direction(vector: Any) -> np.ndarray:
    return np.asarray(vector) / max(np.hypot(*vector), np.finfo(np.float64).tiny)


def _lowered(number: str) -> str:
    """The number as a subscript."""
    return number.translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


ABOUT = f"""What do the features of a classifier look like? If a network may describe an image by two numbers only, they
can be drawn: the paper's picture shows each class as a cone around the direction of its weights.

{terms(AVH)}

**How it was made.** A LeNet with two features is trained on MNIST with Adam. The same network's adversarial examples
are in [avh-figure22](avh-figure22.md).

**Figure.** A point is a test image; its coordinates are its two features. A grey line is the direction of a class's
weights. Left, colours are classes, and each digit stands on the cone of its class; right, colours are AVH."""

FIGURE_2 = study_of(
    PRESETS,
    measure,
    id="avh-figure2",
    title="MNIST in a network with two features",
    about=ABOUT,
    reference="AVH Figs. 2, 8",
    table=table,
    figures=figures,
)
