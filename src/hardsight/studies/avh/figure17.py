"""AVH, Figures 17 and 18: AVH against the level of noise and of contrast that an image was degraded to.

Paper (ImageNet; scatter plots without numbers): AVH rises with noise and falls with contrast for four networks.
Ours, four public ResNets, all 10,000 test images of CIFAR-10, CPU: Spearman's ρ of AVH with noise +0.64 to +0.67, with
contrast -0.65 to -0.70.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hardsight.studies.avh.groups import CONTRAST, NOISE, Grouping, TestImages
from hardsight.studies.avh.levels import judge_levels
from hardsight.studies.avh.levels_figures import draw_levels
from hardsight.studies.avh.people import title_of
from hardsight.studies.avh.subjects import Subject, Subjects, digits, study_of
from hardsight.studies.framework import markdown_table, provenance
from hardsight.studies.wording import listed, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRESETS = {
    "smoke": digits(100),
    "cpu": Subjects(500, (20, 32, 44, 56)),
    "paper": Subjects(10_000, (20, 32, 44, 56)),
}

# What AVH's correlation is held against.
OTHERS = ("confidence", "norm")


def measure(subject: Subject) -> dict[str, Any]:
    """AVH, confidence and norm at every level of both degradations."""
    images = TestImages(subject.images, subject.labels, subject.scale)
    _, at_levels = images.looks(subject.model)
    return {one.name: judge_levels(at_levels[one.name], one.levels) for one in (NOISE, CONTRAST)}


def table(results: Mapping[str, Any]) -> str:
    """Means by level, correlations with the level, and a sentence for each figure."""
    parts = [provenance(results)]
    for number, grouping in (("17", NOISE), ("18", CONTRAST)):
        found = {key: one[grouping.name] for key, one in results["networks"].items()}
        parts += [f"Mean AVH by level of {grouping.title}:", _means(found, grouping), sentence(number, found, grouping)]
    return "\n\n".join(parts) + "\n"


def _means(found: Mapping[str, Any], grouping: Grouping) -> str:
    heads = ["network", *grouping.groups, "ρ", "r", "τ", "mean ρ of an image's own", "ρ of confidence", "ρ of norm"]
    rows = []
    for key, one in found.items():
        of = one["correlations"]
        numbers = [*(of["avh"][method] for method in ("spearman", "pearson", "kendall")), one["within"]["avh"]]
        numbers += [of["confidence"]["spearman"], of["norm"]["spearman"]]
        rows.append([title_of(key), *(f"{mean:.4f}" for mean in one["means"]["avh"]), *map(_signed, numbers)])
    return markdown_table(heads, rows)


def sentence(number: str, found: Mapping[str, Any], grouping: Grouping) -> str:
    """Whether AVH follows the level, in the direction of the paper's figure."""
    sign = 1 if grouping is NOISE else -1
    rho = {key: one["correlations"]["avh"]["spearman"] for key, one in found.items()}
    held = sum(value is not None and sign * value > 0 for value in rho.values())
    stronger = {other: sum(_stronger(one["correlations"], other) for one in found.values()) for other in OTHERS}
    way = "rises with the noise" if grouping is NOISE else "falls as contrast rises"
    texts = [f"{title_of(key)} {_signed(value)}" for key, value in rho.items()]
    images = next(iter(found.values()))["images"]
    return (
        f"**Figure {number}** (AVH {way}): over {images:,} images at five levels Spearman's ρ of AVH with the level is "
        f"{listed(texts)}; it has the paper's sign in {held} of {plural(len(found), 'network')}, and is stronger than "
        f"that of confidence in {stronger['confidence']} and than that of the norm in {stronger['norm']}."
    )


def _stronger(correlations: Mapping[str, Any], other: str) -> bool:
    """Whether the level moves AVH more closely than this, whichever way; what is constant does not move."""
    own, its = (abs(correlations[name]["spearman"] or 0) for name in ("avh", other))
    return own > its


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """One figure a degradation."""
    drawn = {}
    for name, grouping in (("figure17", NOISE), ("figure18", CONTRAST)):
        found = {title_of(key): one[grouping.name] for key, one in results["networks"].items()}
        drawn[name] = draw_levels(found, grouping)
    return drawn


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f}"


ABOUT = """The public ResNets look at CIFAR-10's test images at five levels of uniform noise (0 to 0.4 of a pixel's
range) and of contrast (1.0 to 0.1), the same images at every level. A correlation over all images and levels mixes what
a level does with how images differ; the mean of each image's own rank correlation with the level stands beside it. The
networks trained here are in `avh-figure4`."""

FIGURE_17 = study_of(
    PRESETS,
    measure,
    id="avh-figure17",
    title="AVH against noise and contrast",
    about=ABOUT,
    reference="AVH Figs. 17, 18",
    table=table,
    figures=figures,
)
