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
from hardsight.studies.avh import people
from hardsight.studies.avh.agreement import (
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
from hardsight.studies.avh.agreement_choice import (
    SPLITS,
    candidates,
    choose_and_judge,
    people_with_people,
    summary,
)
from hardsight.studies.avh.agreement_figures import by_origin, figures, mean_coefficients
from hardsight.studies.avh.people_looks import FOLLOWED
from hardsight.studies.framework import finished_cells, markdown_table, provenance, spread
from hardsight.studies.wording import listed, plural

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
    """What was found in words, every score by network, and the halves."""
    networks: Mapping[str, Any] = results["networks"]
    parts = [
        provenance(results),
        *seeds_sentence(results),
        *sentences(results),
        _halves_table(networks),
        _scores_table(networks),
    ]
    return "\n\n".join(parts) + "\n"


def sentences(results: Mapping[str, Any]) -> list[str]:
    """The ceiling, the best score of the trained networks and of the public ones, and AVH's place."""
    networks: Mapping[str, Any] = results["networks"]
    halves = results["people_with_people"]
    # Spearman and Brown: from two halves to the whole crowd, and from the crowd to what it is a sample of.
    ceiling = math.sqrt(2 * halves / (1 + halves))
    said = [
        f"Two random halves of the people agree with each other by ρ = {halves:.3f} on the {results['images']:,} "
        f"images: so many are easy that much of their order is chance. A score that knew what an endless crowd would "
        f"say could reach about {ceiling:.2f} with this one (Spearman and Brown's formula)."
    ]
    groups = by_origin(networks)
    return said + [_best(group, title) for title, group in groups.items() if group]


def _best(networks: Mapping[str, Any], title: str) -> str:
    means = mean_coefficients(networks)
    order = sorted(means, key=lambda name: -means[name])
    ahead = sum(one["scores"][order[0]]["against_confidence"][0] > 0 for one in networks.values())
    choices = sum(one["choices"] for one in networks.values())
    combined = sum(one["combination_ahead"] for one in networks.values())
    picked = Counter[str]()
    for one in networks.values():
        picked.update(one["singles"])
    favourite, times = picked.most_common(1)[0]
    beside = (
        f" The best score's difference to confidence has an interval above zero for {ahead} of "
        f"{plural(len(networks), 'network')}."
    )
    # What is first or second is said once.
    places = [
        f"`{name}` has {means[name]:.3f} (place {order.index(name) + 1} of {len(order)})"
        for name in ("confidence", "avh")
        if name not in order[:2]
    ]
    return (
        f"Of the {title} ({len(networks)}), the score that agrees best is `{order[0]}` (mean ρ "
        f"{means[order[0]]:.3f}), before `{order[1]}` ({means[order[1]]:.3f}){'; ' if places else ''}"
        f"{listed(places) if places else ''}."
        f"{'' if order[0] == 'confidence' else beside} Halves of the images choose `{favourite}` in {times} of "
        f"{choices} cases, and what they combine is significantly ahead of confidence on the other half in {combined}."
    )


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
    return "On the half of the images that did not choose:\n\n" + markdown_table(heads, rows)


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
    return "Spearman's ρ with human selection frequency [95 %], all images:\n\n" + markdown_table(heads, rows)


def _cell(score: Mapping[str, Any] | None, seeds: int) -> str:
    if score is None:
        return ""
    low, high = score["interval"]
    measured = len(score["coefficient"]["values"])
    fewer = f" ({plural(measured, 'seed')})" if measured < seeds else ""
    return f"{signed(score['coefficient'])} [{low:.3f}, {high:.3f}]{fewer}".replace("-", "−")


ABOUT = f"""Spearman's coefficient with human selection frequency of every registered score: those of one look at a
network, and those of its training, recorded on the test images. `confidence_t4` is the confidence of the label with
the logits divided by 4; `entropy_of_mean` the entropy of the probabilities averaged over all epochs. Positive is
agreement with people. Halves: a random half of the images picks the single score, and the mean of the ranks of up to
three scores, that agree best with people there; the other half judges them. {SPLITS} splits, both ways. The dashed line
is how well two random halves of the people agree with each other. `allsh` looks at four copies of each image (`cpu`:
one), moved by up to 4 pixels and mirrored by chance; `vog` at the gradients in the image at five epochs. Left out are
`loss`, which ranks as confidence does, the `..._last`, which are the scores of the trained network,
`second_split_forgetting`, which needs a second training, and `detector`, which is made from known label errors. Where
fewer seeds have a score than the network has, their number stands beside it; where none has, nothing does.

{people.CELLS}"""

AGREEMENT = people.study(
    id="avh-agreement",
    title="which score of one training run agrees best with people",
    about=ABOUT,
    reference="first measurement (AVH Section 4)",
    judge=judge,
    table=table,
    figures=figures,
)
