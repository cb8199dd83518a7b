"""AVH, Figures 17 and 18: AVH against the level of noise and of contrast that an image was degraded to.

Paper (ImageNet; scatter plots without numbers): AVH rises with noise and falls with contrast for four networks.
Ours, four public ResNets, all 10,000 test images of CIFAR-10, CPU: Spearman's ρ of AVH with noise +0.64 to +0.67, with
contrast -0.65 to -0.70.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hardsight_studies.avh.groups import CONTRAST, NOISE, Grouping, TestImages
from hardsight_studies.avh.levels import judge_levels
from hardsight_studies.avh.levels_figures import draw_levels
from hardsight_studies.avh.people import title_of
from hardsight_studies.avh.subjects import Subject, Subjects, digits, study_of
from hardsight_studies.avh.terms import AVH, CONFIDENCE, NORM, SPEARMAN
from hardsight_studies.framework import markdown_table, provenance
from hardsight_studies.wording import plural, terms

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
    """What came out for each figure, then means by level and correlations with the level."""
    groupings = {"17": NOISE, "18": CONTRAST}
    found = {
        number: {key: one[grouping.name] for key, one in results["networks"].items()}
        for number, grouping in groupings.items()
    }
    said = [sentence(number, found[number], grouping) for number, grouping in groupings.items()]
    parts = [f"**Result.** {said[0]}", *said[1:], provenance(results), _LEGEND]
    for number, grouping in groupings.items():
        parts += [f"Mean AVH by level of {grouping.title}:", _means(found[number], grouping)]
    return "\n\n".join([*parts, _LIMITS]) + "\n"


_LEGEND = """**How to read the tables.** One table for noise, one for contrast; the hardest level stands first.

- Columns with a level: the mean AVH of the images at this level.
- `ρ`, `r`, `τ`: Spearman's, Pearson's and Kendall's correlation of AVH with the level, over all images at all levels.
- `mean ρ of an image's own`: Spearman's ρ over the five levels of one image, averaged over images. The correlation over
  all images mixes what the level does with how images differ; this one does not.
- `ρ of confidence`, `ρ of norm`: the same as `ρ`, for these two scores."""
_LIMITS = """**What one may conclude.** The paper shows these figures for ImageNet, as scatter plots without numbers.
Here are CIFAR-10's images and public networks, each one training. Five levels of two degradations are not the same
as what people find hard."""


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
    known = [value for value in rho.values() if value is not None]
    span = f"lies between {_signed(min(known))} and {_signed(max(known))}" if known else "is not defined"
    images = next(iter(found.values()))["images"]
    return (
        f"In the paper's Figure {number} AVH {way}. Here, over {images:,} images at five levels, Spearman's ρ of AVH "
        f"with the level {span}. It has the paper's sign in {held} of {plural(len(found), 'network')}, and is stronger "
        f"than that of confidence in {stronger['confidence']} and than that of the norm in {stronger['norm']}."
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


ABOUT = f"""Does an image become harder by angular visual hardness (AVH) when noise is added or contrast is taken away?
If AVH measures visual hardness, it must.

{terms(AVH, CONFIDENCE, NORM, SPEARMAN)}

**How it was made.** Public ResNets look at CIFAR-10's test images at five levels of uniform noise (0 to 0.4 of a
pixel's range) and at five levels of contrast (1.0 to 0.1), the same images at every level. The networks trained here
are measured in the same way in [avh-figure4](avh-figure4.md).

**Figures.** At each level, the share of images by AVH, with median and quartiles."""

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
