"""AVH, Figure 20: confidence follows the feature's norm, AVH does not.

Paper (drawn from a formula: two classes, angles of pi/4 -+ 0.05): as the norm grows, confidence goes to 1 on the right
side of the boundary and to 0 on the wrong one, while AVH stays.
Ours, the same formula, and the features of the public ResNet-20 made 32 times as long (500 images, CPU): confidence of
right predictions goes from 0.985 to 0.999, of wrong ones from 0.150 to 0.062; AVH stays to the last bit.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hardsight.report.canvas import BLUE, GREEN, INK, RED, drawing
from hardsight_studies.avh.looking import features_of, look_at_features
from hardsight_studies.avh.people import title_of
from hardsight_studies.avh.subjects import Subject, Subjects, digits, study_of
from hardsight_studies.avh.terms import AVH, CONFIDENCE, NORM
from hardsight_studies.framework import markdown_table, provenance
from hardsight_studies.wording import plural, terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper's angles on either side of the boundary, and how often the network's features are lengthened.
NARROW, WIDE = math.pi / 4 - 0.05, math.pi / 4 + 0.05
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
PRESETS = {
    "smoke": digits(150, epochs=2),
    "cpu": Subjects(500, (20,)),
    "paper": Subjects(10_000, (20, 32, 44, 56)),
}


def binary_case(norms: np.ndarray, label_angle: float, other_angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and AVH of two classes with unit weights at these angles from a feature of each norm."""
    gap = norms * (math.cos(label_angle) - math.cos(other_angle))
    return 1 / (1 + np.exp(-gap)), np.full_like(norms, label_angle / (label_angle + other_angle))


def measure(subject: Subject) -> dict[str, Any]:
    """The network's features lengthened by each factor: AVH and confidence of right and of wrong predictions."""
    features = features_of(subject.model, subject.images, subject.scale)
    head: Any = subject.model.head
    first = look_at_features(features, head, subject.labels)
    right = first.correct.bool()
    rows: dict[str, list[float]] = {"right_confidence": [], "wrong_confidence": [], "right_avh": [], "wrong_avh": []}
    moved = 0.0
    for factor in FACTORS:
        seen = look_at_features(factor * features, head, subject.labels)
        moved = max(moved, float((seen.avh - first.avh).abs().max()))
        for name, chosen in (("right", right), ("wrong", ~right)):
            for score in ("confidence", "avh"):
                values = getattr(seen, score)[chosen].double()
                rows[f"{name}_{score}"].append(round(float(values.mean()), 5) if len(values) else math.nan)
    return {
        "factors": list(FACTORS),
        "images": len(right),
        "wrong": int((~right).sum()),
        "norm": round(float(torch.linalg.vector_norm(features, dim=1).mean()), 4),
        "largest_change_of_avh": moved,
        **rows,
    }


def table(results: Mapping[str, Any]) -> str:
    """What came out, the formula's numbers, and a sentence a network."""
    rows = []
    for norm in (1.0, 5.0, 10.0, 20.0, 50.0):
        right, wrong = (binary_case(np.array([norm]), *pair) for pair in ((NARROW, WIDE), (WIDE, NARROW)))
        rows.append([f"{norm:g}", *(f"{value[0]:.3f}" for value in (*right, *wrong))])
    heads = ("norm", "confidence, right side", "AVH, right side", "confidence, wrong side", "AVH, wrong side")
    parts = [result(results["networks"]), provenance(results), _LEGEND, markdown_table(heads, rows)]
    for key, one in results["networks"].items():
        at = one["factors"].index(1.0)
        parts.append(
            f"**{title_of(key)}**, {one['images']:,} images, features made {one['factors'][-1]:g} times as long. Mean "
            f"confidence in the label goes from {one['right_confidence'][at]:.3f} to {one['right_confidence'][-1]:.3f} "
            f"where the label was predicted, and from {_number(one['wrong_confidence'][at])} to "
            f"{_number(one['wrong_confidence'][-1])} where another class was ({plural(one['wrong'], 'image')}). "
            f"Meanwhile {_moved(one['largest_change_of_avh'])}."
        )
    return "\n\n".join([*parts, _LIMITS]) + "\n"


def result(networks: Mapping[str, Any]) -> str:
    """Whether confidence goes to its ends where features are lengthened, and AVH stays."""
    apart = sum(_goes_to_its_ends(one) for one in networks.values())
    moved = max(one["largest_change_of_avh"] for one in networks.values())
    factor = next(iter(networks.values()))["factors"][-1]
    return (
        f"**Result.** With all features made {factor:g} times as long, mean confidence rises where the network was "
        f"right and falls where it was wrong in {apart} of {plural(len(networks), 'network')}, while {_moved(moved)}. "
        "The formula says the same: confidence depends on the norm, AVH does not."
    )


def _goes_to_its_ends(one: Mapping[str, Any]) -> bool:
    """Up where it was right, down where it was wrong; of no wrong prediction the first decides."""
    at = one["factors"].index(1.0)
    right, wrong = (one[f"{side}_confidence"] for side in ("right", "wrong"))
    return right[-1] > right[at] and (not one["wrong"] or wrong[-1] < wrong[at])


_LEGEND = """**How to read the table.** By the formula, for two classes. `right side`: the features lie nearer to the
weights of the label; `wrong side`: nearer to those of the other class. Down the rows the features become longer;
confidence moves, AVH does not."""
_LIMITS = """**What one may conclude.** That AVH does not depend on the norm follows from its definition; the
networks show that the computation keeps it. The page does not say which of the two is the better measure of
hardness: for that see [avh-table1](avh-table1.md)."""


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """The paper's two panels, and one of each network."""
    drawn = {"figure20": _draw_formula()}
    for key, one in results["networks"].items():
        with drawing(4.6, 3.0) as figure:
            axes = figure.axes[0]
            marks = (
                ("confidence", "right", BLUE, "-o"),
                ("confidence", "wrong", RED, "--s"),
                ("avh", "right", GREEN, ":^"),
                ("avh", "wrong", INK, "-.v"),
            )
            for score, side, colour, mark in marks:
                values = np.array(one[f"{side}_{score}"], dtype=np.float64)
                title = f"{'AVH' if score == 'avh' else score}, predicted {side}"
                axes.plot(one["factors"], values, mark, color=colour, label=title, markersize=4)
            axes.set_xscale("log", base=2)
            axes.set_xticks(one["factors"], [f"{factor:g}" for factor in one["factors"]])
            axes.set_xlabel("features made so many times as long")
            axes.set_ylabel("confidence, AVH: mean over images")
            axes.set_title(title_of(key))
            axes.legend(fontsize=7)
        drawn[f"figure20-{key}"] = figure
    return drawn


def _draw_formula() -> "Figure":
    norms = np.linspace(0, 60, 121)
    with drawing(8.6, 2.8, panels=2) as figure:
        sides = (("label nearer", NARROW, WIDE), ("other class nearer", WIDE, NARROW))
        for axes, (title, own, other) in zip(figure.axes, sides, strict=True):
            confidence, avh = binary_case(norms, own, other)
            axes.plot(norms, confidence, color=BLUE, linewidth=1.8, label="confidence")
            axes.plot(norms, avh, "--", color=RED, linewidth=1.8, label="AVH")
            axes.set_ylim(-0.03, 1.03)
            axes.set_title(f"{title}: {math.degrees(own):.1f}° against {math.degrees(other):.1f}°", fontsize=9)
            axes.set_xlabel("feature norm, weights of length 1")
            axes.set_ylabel("confidence, AVH")
            axes.legend(fontsize=8, loc="lower right" if own < other else "upper right")
    return figure


def _moved(largest: float) -> str:
    return f"no image's AVH moves by more than {largest:.1e}" if largest else "no image's AVH moves at all"


def _number(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.3f}"


ABOUT = f"""What happens to angular visual hardness (AVH) and to confidence if the features of an image become longer,
but keep their direction? The paper draws it from a formula; here the same is done with real networks, too.

{terms(AVH, CONFIDENCE, NORM)}

**How it was made.** The formula has two classes with weights of length 1 and features at 45° ∓ 2.9° from them, as in
the paper. For the networks, the features of CIFAR-10's test images in public ResNets are made longer and shorter. This
changes no prediction, apart from the bias, which matters less the longer the features are.

**Figures.** First the formula, then each network: mean confidence and mean AVH of the images that it classified
right and wrong."""

FIGURE_20 = study_of(
    PRESETS,
    measure,
    id="avh-figure20",
    title="AVH and confidence as the norm grows",
    about=ABOUT,
    reference="AVH Fig. 20",
    table=table,
    figures=figures,
)
