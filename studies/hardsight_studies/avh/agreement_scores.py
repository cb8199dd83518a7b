"""AVH, section 4, for every score: which one of one training run agrees best with people?

The paper holds AVH against model confidence and finds AVH ahead (0.360 to 0.325, ResNet-50 on ImageNet). First
measurement here (CIFAR-10H, public networks): AVH 0.359 (ResNet-20) and 0.302 (ResNet-56), confidence 0.369 and 0.331.
Ours (CIFAR-10H, four public ResNets and six networks trained here, one H200, 2026-11-16): confidence at temperature 2
is best on average, a little before confidence itself; AVH is behind both, and averaging it over training does not help
but for VGG-19. The numbers: docs/studies/avh-agreement.md, made from the results files.

Intervals are over images, of the mean over seeds. The best score is chosen on one half of the images and judged on the
other (`agreement_choice`), ten times a run. Halves of the people themselves say how much agreement there is to have.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from hardsight.alignment import Bootstrap, bootstrap_correlations
from hardsight_studies.avh import people
from hardsight_studies.avh.agreement import (
    Answers,
    answers_by_network,
    at_once,
    ends,
    mean_bootstrap,
    network_name,
    rows_of,
    seeds_planned,
    seeds_sentence,
    signed,
)
from hardsight_studies.avh.agreement_choice import (
    SPLITS,
    candidates,
    choose_and_judge,
    people_with_people,
    summary,
)
from hardsight_studies.avh.agreement_figures import by_origin, figures, mean_coefficients
from hardsight_studies.avh.people_looks import FOLLOWED
from hardsight_studies.avh.terms import AVH, CELLS, CONFIDENCE, HSF, SCOPE, SPEARMAN, SPREADS, TURNED
from hardsight_studies.framework import finished_cells, markdown_table, provenance, spread
from hardsight_studies.wording import listed, plural, terms

SIGNIFICANT = 0.05


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Each network: every score's coefficient, choices on halves, and the agreement from epoch to epoch."""
    found = answers_by_network(people.cells(preset), folder)
    resamples = people.PRESETS[preset].resamples // 2
    judged = at_once(lambda seeds: judge_network(seeds, resamples), list(found.values()))
    networks = dict(zip(found, judged, strict=True))
    first = next(iter(found.values()))[0]
    curves = _curves(preset, folder)
    return {
        "images": len(first.people),
        "seeds_planned": seeds_planned(people.cells(preset)),
        "people_with_people": round(people_with_people(first.votes), 4),
        "networks": {key: network | {"epochs": curves.get(key)} for key, network in networks.items()},
    }


def judge_network(seeds: Sequence[Answers], resamples: int) -> dict[str, Any]:
    """The scores of one network's seeds, and what halves of the images choose among them."""
    tables = [candidates(one) for one in seeds]
    drawn = [
        bootstrap_correlations(
            np.stack(list(table.values())), one.people, resamples=resamples, generator=np.random.default_rng(0)
        )
        for table, one in zip(tables, seeds, strict=True)
    ]
    choices = [
        [choice for split in range(SPLITS) for choice in choose_and_judge(table, one.people, split)]
        for table, one in zip(tables, seeds, strict=True)
    ]
    every = [choice for run in choices for choice in run]
    summaries = [summary(run) for run in choices]
    return {
        "seeds": len(seeds),
        "accuracy": spread([one.accuracy for one in seeds]),
        "scores": {
            name: _judge_score(name, [list(table) for table in tables], drawn)
            for name in dict.fromkeys(name for table in tables for name in table)
        },
        "halves": {name: spread([one[name] for one in summaries]) for name in summaries[0]},
        "singles": dict(Counter(one.single for one in every).most_common()),
        "combinations": dict(Counter(" + ".join(sorted(one.members)) for one in every).most_common(5)),
        "choices": len(every),
        "combination_ahead": sum(one.z > 0 and one.p_value < SIGNIFICANT for one in every),
    }


def _judge_score(name: str, names: Sequence[list[str]], drawn: Sequence[Bootstrap]) -> dict[str, Any]:
    """One score over the seeds that have it, beside confidence over the same ones."""
    pairs = [
        rows_of(one, (known.index(name), known.index("confidence")))
        for known, one in zip(names, drawn, strict=True)
        if name in known
    ]
    mean = mean_bootstrap(pairs)
    return {
        "coefficient": spread([float(one.estimates[0]) for one in pairs]),
        "interval": ends(mean.interval(0)),
        "against_confidence": ends(mean.difference(0, 1)),
    }


def _curves(preset: str, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Agreement after every epoch, the mean over seeds, of the networks trained here."""
    rows: dict[str, list[np.ndarray]] = {}
    names = [*(f"{name}_agreement" for name in FOLLOWED), "test_accuracy"]
    for cell in finished_cells(folder, people.trained_cells(preset)):
        table = pq.read_table(folder / cell.name / "epochs.parquet")
        rows.setdefault(people.key_of(cell), []).append(np.array([table[name].to_pylist() for name in names], float))
    return {
        key: {name: np.round(curve, 4).tolist() for name, curve in zip(names, np.mean(found, 0), strict=True)}
        for key, found in rows.items()
    }


# ---------------------------------------------------------------------------------------------------------------------
# The table.


def table(results: Mapping[str, Any]) -> str:
    """What was found in words, the halves, and every score by network."""
    networks: Mapping[str, Any] = results["networks"]
    parts = [
        *sentences(results),
        provenance(results),
        *seeds_sentence(results),
        _halves_table(networks),
        _scores_table(networks),
        f"**What one may conclude.** {SCOPE} {SPREADS}",
    ]
    return "\n\n".join(parts) + "\n"


def sentences(results: Mapping[str, Any]) -> list[str]:
    """The best score of the public networks and of the trained ones, AVH's place, and the ceiling."""
    said = [f"- {_best(group, title)}" for title, group in by_origin(results["networks"]).items() if group]
    halves = results["people_with_people"]
    # Spearman and Brown: from two halves to the whole crowd, and from the crowd to what it is a sample of.
    ceiling = math.sqrt(2 * halves / (1 + halves))
    possible = (
        "**How much agreement is possible.** Two random halves of the people agree with each other by ρ = "
        f"{halves:.3f} on the {results['images']:,} images. Most images are easy, so much of their order is chance. By "
        "the Spearman-Brown formula, even a score that knew what endlessly many people would say could reach only "
        f"about {ceiling:.2f}."
    )
    return [
        "**Result.** The score that agrees best with people, of those that every network of a group has:",
        "\n".join(said),
        possible,
    ]


def _best(networks: Mapping[str, Any], title: str) -> str:
    means = mean_coefficients(networks)
    order = sorted(means, key=lambda name: -means[name])
    ahead = sum(one["scores"][order[0]]["against_confidence"][0] > 0 for one in networks.values())
    beside = (
        f" The best is ahead of confidence by more than chance (95 % interval) for {ahead} of "
        f"{plural(len(networks), 'network')}."
    )
    # What is first or second is said once.
    places = [
        f"`{name}` has {means[name]:.3f} (place {order.index(name) + 1} of {len(order)})"
        for name in ("confidence", "avh")
        if name not in order[:2]
    ]
    behind = f"; {listed(places)}" if places else ""
    return (
        f"Of the {title} ({len(networks)}): `{order[0]}` (mean ρ {means[order[0]]:.3f}), followed by `{order[1]}` "
        f"({means[order[1]]:.3f}){behind}.{'' if order[0] == 'confidence' else beside}"
    )


def _chosen(networks: Mapping[str, Any], title: str) -> str:
    """What halves of the images choose, and how often it is ahead on the other half."""
    choices = sum(one["choices"] for one in networks.values())
    combined = sum(one["combination_ahead"] for one in networks.values())
    picked = Counter[str]()
    for one in networks.values():
        picked.update(one["singles"])
    favourite, times = picked.most_common(1)[0]
    return (
        f"Of the {title} ({len(networks)}), halves of the images choose `{favourite}` most often, in {times} of "
        f"{choices} cases. On the other half, what they combine is significantly ahead of confidence in {combined} of "
        "them."
    )


_HALVES = """**Chosen on one half, judged on the other.** The best of many scores on some images is flattered by these
images. So a random half of the images chooses the scores, and the table gives Spearman's ρ on the other half, as a mean
over all choices; ± is the standard deviation over seeds.

- `AVH`, `confidence`: these two scores, for comparison.
- `single score chosen`: the score with the largest ρ on the half that chooses.
- `combination chosen`: the mean of the ranks of up to three scores, chosen there too.
- The last two columns: what was chosen, and how often."""
_SCORES = """**Every score on all images.** A number is Spearman's ρ with human selection frequency; positive is
agreement. ± is the standard deviation over seeds, the brackets are a 95 % bootstrap interval over images. Scores are
sorted by how far they are ahead of confidence on average. An empty cell is a score that was not measured for this
network; where only some of its seeds have a score, their number stands beside it. Public networks have no scores of
training."""


def _halves_table(networks: Mapping[str, Any]) -> str:
    rows = []
    for key, one in networks.items():
        halves = one["halves"]
        combination = next(iter(one["combinations"]))
        rows.append(
            [
                network_name(key, one["seeds"]),
                *(signed(halves[name]) for name in ("avh", "confidence", "single", "combination")),
                ", ".join(f"`{name}` {count}" for name, count in list(one["singles"].items())[:3]),
                f"`{combination}` {one['combinations'][combination]}",
            ]
        )
    heads = [
        "network", "AVH", "confidence", "single score chosen", "combination chosen", "single scores, times chosen",
        "combination chosen most",
    ]  # fmt: skip
    said = [f"- {_chosen(group, title)}" for title, group in by_origin(networks).items() if group]
    return "\n\n".join((_HALVES, markdown_table(heads, rows), "\n".join(said)))


def _scores_table(networks: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(name for one in networks.values() for name in one["scores"]))

    def mean(name: str) -> float:
        # Networks differ in how well anything agrees: a score is ranked by how far it is ahead of confidence.
        return float(
            np.mean(
                [
                    one["scores"][name]["coefficient"]["mean"] - one["scores"]["confidence"]["coefficient"]["mean"]
                    for one in networks.values()
                    if name in one["scores"]
                ]
            )
        )

    rows = [
        [f"`{name}`", *(_cell(one["scores"].get(name), one["seeds"]) for one in networks.values())]
        for name in sorted(names, key=lambda name: -mean(name))
    ]
    heads = ["score", *(network_name(key, one["seeds"]) for key, one in networks.items())]
    return f"{_SCORES}\n\n{markdown_table(heads, rows)}"


def _cell(score: Mapping[str, Any] | None, seeds: int) -> str:
    if score is None:
        return ""
    low, high = score["interval"]
    measured = len(score["coefficient"]["values"])
    fewer = f" ({plural(measured, 'seed')})" if measured < seeds else ""
    return f"{signed(score['coefficient'])} [{low:.3f}, {high:.3f}]{fewer}".replace("-", "−")


ABOUT = f"""Which score that one training run gives is closest to what people find hard? This study compares every score
of the [list of scores](../scores.md) with people's answers: the scores of a trained network, and those that follow an
image over the training.

{terms(AVH, CONFIDENCE, HSF, SPEARMAN)}

{TURNED}

Scores that this study adds to the list, or treats in its own way:

- `confidence_t2`, `_t4`, `_t8`, `_t16`: confidence with the logits divided by 2, 4, 8 or 16 (a softer softmax).
- `confidence_without_norm`: confidence with each image's logits divided by the norm (length) of its features, relative
  to the mean norm.
- `entropy_of_mean`: entropy of the probabilities averaged over all epochs.
- `allsh`: looks at four copies of each image (preset `cpu`: one), shifted by up to 4 pixels and mirrored at random.
- `vog`: looks at the gradients with respect to the image at five epochs.

Left out are `loss` (same ranking as confidence), the scores `..._last` (those of the trained network),
`second_split_forgetting` (needs a second training) and `detector` (made from known label errors). Scores of training
come from looking at the test images after every epoch.

{CELLS} The images are split into halves {SPLITS} times, and each half chooses once.

**Figures.** The ρ of every score for the public networks and for those trained here, then ρ after every epoch. The
dashed line is how well two random halves of the people agree with each other."""

AGREEMENT = people.study(
    id="avh-agreement",
    title="which score of one training run agrees best with people",
    about=ABOUT,
    reference="first measurement (AVH Section 4)",
    judge=judge,
    table=table,
    figures=figures,
)
