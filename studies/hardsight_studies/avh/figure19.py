"""AVH, Figure 19: does the norm follow people where classes are gathered into coarser ones?

Paper (ImageNet's classes under 45 of WordNet's; scatter plots of three, with 58, 7 and 1 classes): at no granularity
does the norm follow human selection frequency, which is counted at that granularity too.
Ours (CIFAR-10H's 10,000 images, public ResNet-20 and ResNet-56, CPU, 2026-11-15): the norm follows people at every
granularity, less among coarse classes: Spearman's ρ 0.07 to 0.19 within animals and vehicles, 0.07 to 0.29 within their
families, 0.09 to 0.41 within single classes.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int
from torch import Tensor

from hardsight.alignment import correlate_by_granularity
from hardsight.alignment.groups import joint_histogram
from hardsight.datasets.hierarchy import Hierarchy, human_selection_frequency
from hardsight.report.canvas import drawing
from hardsight_studies.avh.agreement import p_text
from hardsight_studies.avh.figure5 import draw_counts
from hardsight_studies.avh.looking import look, short
from hardsight_studies.avh.people import title_of, voted_images
from hardsight_studies.avh.subjects import Subject, Subjects, digits, study_of
from hardsight_studies.avh.terms import AVH, CONFIDENCE, HSF, NORM, SPEARMAN
from hardsight_studies.framework import markdown_table, provenance
from hardsight_studies.wording import listed, plural, terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 20
SIGNIFICANT = 0.05
PRESETS = {
    "smoke": digits(400),
    "cpu": Subjects(10_000, (20, 56)),
    "paper": Subjects(10_000, (20, 32, 44, 56)),
}
# From coarse to fine, after WordNet's hypernyms; every level holds every class once. Digits only try the code.
LEVELS: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {
    "cifar10h": {
        "kind": {
            "animal": ("bird", "cat", "deer", "dog", "frog", "horse"),
            "vehicle": ("airplane", "automobile", "ship", "truck"),
        },
        "family": {
            "carnivore": ("cat", "dog"),
            "hoofed animal": ("deer", "horse"),
            "motor vehicle": ("automobile", "truck"),
            "bird": ("bird",),
            "frog": ("frog",),
            "airplane": ("airplane",),
            "ship": ("ship",),
        },
    },
    "digits": {
        "kind": {"even": ("0", "2", "4", "6", "8"), "odd": ("1", "3", "5", "7", "9")},
        "family": {f"{first} or {first + 2}": (str(first), str(first + 2)) for first in (0, 1, 4, 5)}
        | {"8": ("8",), "9": ("9",)},
    },
}
# The same images at three granularities.
SHOWN = {"cifar10h": ("animal", "carnivore", "cat"), "digits": ("odd", "1 or 3", "1")}


def measure(subject: Subject) -> dict[str, Any]:
    """At each granularity: how norm, AVH and confidence follow people within every class."""
    data = "digits" if subject.images.shape[1] == 1 else "cifar10h"
    seen = look(subject.model, subject.images, subject.labels, subject.scale)
    scores = {name: getattr(seen, name).double().cpu().numpy() for name in ("norm", "avh", "confidence")}
    votes, labels = voted_images(data).columns["human_votes"][subject.ids.cpu()], subject.labels.cpu()
    groups = [
        of
        for level, gathered in levels_of(data, subject.class_names).items()
        for of in judge_level(level, gathered, votes, labels, scores, SHOWN[data])
        # A class that no other joins is listed once, among the classes.
        if of["classes"] > 1 or level == "class"
    ]
    return {"images": len(labels), "groups": groups}


def levels_of(data: str, names: Sequence[str]) -> dict[str, Hierarchy]:
    """Every granularity, the coarsest first; the last are the classes themselves."""
    levels = LEVELS[data] | {"class": {name: (name,) for name in names}}
    return {level: Hierarchy.from_groups(names, groups) for level, groups in levels.items()}


def judge_level(
    level: str,
    gathered: Hierarchy,
    votes: Int[Tensor, "samples classes"],
    labels: Int[Tensor, "samples"],
    scores: Mapping[str, np.ndarray],
    shown: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """The classes of one granularity, those of many fine classes first; those `shown` with their counts of images."""
    frequency = human_selection_frequency(votes, labels, gathered).numpy()
    parent = [gathered.coarse_names[at] for at in gathered.parents]
    coarse = np.array(parent)[labels.numpy()]
    within = {
        name: correlate_by_granularity(values, frequency, labels.numpy(), dict(enumerate(parent)))
        for name, values in scores.items()
    }
    found = []
    for at, one in enumerate(within["norm"]):
        inside = coarse == one.group
        of: dict[str, Any] = {
            "level": level,
            "name": one.group,
            "classes": one.fine_classes,
            "images": one.n,
            "unanimous": short(float((frequency[inside] == 1).mean())),
        }
        for name, groups in within.items():
            known = groups[at].correlation
            of[name] = None if known is None else [round(known.coefficient, 4), float(f"{known.p_value:.3g}")]
        if one.group in shown:
            counts = joint_histogram(scores["norm"][inside], frequency[inside], BINS).counts
            of["counts"] = counts.tolist()
        found.append(of)
    return found


def table(results: Mapping[str, Any]) -> str:
    """What came out, then each class of each granularity, and a sentence a network."""
    parts = [result(results["networks"]), provenance(results), _LEGEND]
    heads = (
        "granularity",
        "class",
        "classes in it",
        "images",
        "all people agree",
        "ρ of norm (p)",
        "ρ of AVH",
        "ρ of confidence",
    )
    for key, one in results["networks"].items():
        rows = [
            [
                of["level"], of["name"], str(of["classes"]), f"{of['images']:,}", f"{of['unanimous']:.0%}",
                _with_p(of["norm"]), _rho(of["avh"]), _rho(of["confidence"]),
            ]
            for of in one["groups"]
        ]  # fmt: skip
        parts += [f"**{title_of(key)}**", markdown_table(heads, rows), sentence(title_of(key), one["groups"])]
    return "\n\n".join([*parts, _LIMITS]) + "\n"


_LEGEND = """**How to read the tables.** One table for each network, one row for each class.

- `granularity`, `class`, `classes in it`: a kind or family gathers several of CIFAR-10's classes; a `class` is one of
  them.
- `all people agree`: the share of images that everyone assigned to this class. Where nearly all people agree, little is
  left to follow.
- `ρ of norm (p)`: Spearman's ρ between human selection frequency and the norm, within the class, with its p-value.
- `ρ of AVH`, `ρ of confidence`: the same for these scores. A negative ρ of AVH is agreement with people, since a
  large AVH is hard."""
_LIMITS = """**What one may conclude.** The paper gathers ImageNet's 1,000 classes into 45 and shows scatter plots of
three of them, without numbers; ten classes leave little to gather. Each network is one training. A small p says that
ρ is not zero, not that it is large."""


def result(networks: Mapping[str, Any]) -> str:
    """In how many classes the norm follows people, over all networks."""
    known = [of["norm"] for one in networks.values() for of in one["groups"] if of["norm"]]
    if not known:
        return "**Result.** Nobody disagrees, or too few people do: nothing can be compared."
    follows = [rho for rho, p in known if p < SIGNIFICANT and rho > 0]
    rho = [one for one, _ in known]
    return (
        "**Result.** In the paper's Figure 19 the norm follows people at no granularity. Here its ρ with human "
        f"selection frequency is positive and significant (p < {SIGNIFICANT}) in {len(follows)} of {len(known)} "
        f"classes of {plural(len(networks), 'network')}, and lies between {min(rho):+.3f} and {max(rho):+.3f}."
    ).replace("-", "−")


def sentence(title: str, groups: Sequence[Mapping[str, Any]]) -> str:
    """Whether the norm follows people at any granularity."""
    texts, follows, known = [], 0, 0
    for level in dict.fromkeys(of["level"] for of in groups):
        rho = [of["norm"][0] for of in groups if of["level"] == level and of["norm"]]
        if rho:
            texts.append(f"{min(rho):+.3f} to {max(rho):+.3f} by {level}".replace("-", "−"))
    for of in groups:
        if of["norm"]:
            known += 1
            follows += of["norm"][1] < SIGNIFICANT and of["norm"][0] > 0
    if not known:
        return f"{title}: nobody disagrees, or too few do."
    verdict = {0: "here it does not either", known: "here it does in all of them"}.get(follows, "here it does in some")
    return (
        f"{title}: Spearman's ρ of the norm with human selection frequency is {listed(texts)}. It is positive and "
        f"significant in {follows} of {known} classes (p < {SIGNIFICANT}). In the paper the norm follows people "
        f"nowhere; {verdict}."
    )


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """The same images at three granularities: frequency against norm, counts on a logarithmic scale."""
    drawn = {}
    for key, one in results["networks"].items():
        shown = [of for of in one["groups"] if "counts" in of]
        if not shown:
            continue
        with drawing(8.6, 3.1, panels=len(shown), columns=3) as figure:
            titles = [
                f"{of['name']}: {of['classes']} {'class' if of['classes'] == 1 else 'classes'}, ρ = {_rho(of['norm'])}"
                for of in shown
            ]
            draw_counts(figure, [of["counts"] for of in shown], titles)
            for axes in figure.axes[: len(shown)]:
                axes.set_ylabel("norm, scaled within these images")
            figure.suptitle(title_of(key), fontsize=10)
        drawn[f"figure19-{key}"] = figure
    return drawn


def _rho(found: Sequence[float] | None) -> str:
    return "" if found is None else f"{found[0]:+.3f}".replace("-", "−")


def _with_p(found: Sequence[float] | None) -> str:
    return "" if found is None else f"{_rho(found)} ({p_text(found[1])})"


ABOUT = f"""Does the length of the features follow what people find hard, if classes are gathered into coarser ones? The
paper says that it follows people at no granularity, from single classes to groups of 58.

{terms(AVH, CONFIDENCE, NORM, HSF, SPEARMAN)}

**How it was made.** CIFAR-10's ten classes are gathered into families (such as carnivores) and kinds (animals and
vehicles), after WordNet. Human selection frequency is counted at the same granularity, from CIFAR-10H: for a cat among
the animals, everyone counts who chose any animal. The networks are public ResNets. Spearman's ρ is computed within each
class, family and kind.

**Figures.** The same images at three granularities, counted by human selection frequency (across) and norm (up)."""

FIGURE_19 = study_of(
    PRESETS,
    measure,
    id="avh-figure19",
    title="the norm against human frequency, by class granularity",
    about=ABOUT,
    reference="AVH Fig. 19",
    table=table,
    figures=figures,
)
