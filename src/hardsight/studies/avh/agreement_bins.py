"""AVH, Table 1: rank correlation with human selection frequency, in all and within five bins of it.

Paper (ResNet-50, ImageNet, n = 29,987): AVH 0.360, model confidence 0.325, class-normalised norm 0.0017; within bins,
from the hardest: AVH 0.228, 0.125, 0.124, 0.103, 0.094.
Ours (CIFAR-10H, n = 10,000, ten networks, one H200, 2026-11-16): AVH 0.23 to 0.36, confidence 0.26 to 0.38 and ahead
for each of them, norm 0.10 to 0.34. The numbers: docs/studies/avh-table1.md, made from the results files.

Here on CIFAR-10H, beside it the correlation within each class and with the network's correctness held fixed. All
cells: `people`. Intervals are over images, the spread is over seeds.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardsight.alignment import FIVE_BINS, bin_of, correlate, correlate_by_group, correlate_in_bins, partial_correlation
from hardsight.studies.avh import people
from hardsight.studies.avh.agreement import (
    Answers,
    answers_by_network,
    at_once,
    ends,
    maybe_spread,
    mean_bootstrap,
    network_name,
    resample,
    seeds_planned,
    seeds_sentence,
    signed,
    with_interval,
)
from hardsight.studies.framework import markdown_table, provenance, spread
from hardsight.studies.wording import plural

SCORES = {"avh": "AVH", "confidence": "model confidence", "class_norm": "norm within class"}
# Total, then the five bins from the hardest.
PAPER = {
    "avh": (0.36, 0.228, 0.125, 0.124, 0.103, 0.094),
    "confidence": (0.325, 0.192, 0.122, 0.102, 0.078, 0.056),
    "class_norm": (0.0017, 0.0013, 0.0007, 0.0005, 0.0004, 0.0003),
}
PAPER_COUNTS = (29_987, 837, 2_732, 6_541, 11_066, 8_811)


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Each network: coefficients in all, in bins, in classes and given correctness."""
    found = answers_by_network(people.cells(preset), folder)
    judged = at_once(lambda seeds: judge_network(seeds, people.PRESETS[preset].resamples), list(found.values()))
    return {
        "bins": list(FIVE_BINS),
        "seeds_planned": seeds_planned(people.cells(preset)),
        "networks": dict(zip(found, judged, strict=True)),
    }


def judge_network(seeds: Sequence[Answers], resamples: int) -> dict[str, Any]:
    """The scores of Table 1 for the seeds of one network."""
    drawn = mean_bootstrap([resample(one, list(SCORES), "spearman", resamples) for one in seeds])
    bins = bin_of(seeds[0].people)
    return {
        "seeds": len(seeds),
        "n": len(bins),
        "counts": [int((bins == at).sum()) for at in range(len(FIVE_BINS) - 1)],
        "accuracy": spread([one.accuracy for one in seeds]),
        "scores": {
            name: {
                "total": spread([correlate(one.scores[name], one.people).coefficient for one in seeds]),
                "interval": ends(drawn.interval(at)),
                "p_values": [correlate(one.scores[name], one.people).p_value for one in seeds],
                "bins": _groups([correlate_in_bins(one.scores[name], one.people) for one in seeds]),
                "classes": _groups([correlate_by_group(one.scores[name], one.people, one.labels) for one in seeds]),
                "given_correctness": maybe_spread([_given_correctness(one, name) for one in seeds]),
            }
            for at, name in enumerate(SCORES)
        },
    }


def _groups(by_seed: Sequence[Sequence[Any]]) -> list[dict[str, Any] | None]:
    """The coefficient in each group, over the seeds; None where a group is too small or constant."""
    return [
        maybe_spread([None if one.correlation is None else one.correlation.coefficient for one in group])
        for group in zip(*by_seed, strict=True)
    ]


def _given_correctness(answers: Answers, name: str) -> float | None:
    if answers.correct.all() or not answers.correct.any():
        return None
    return partial_correlation(answers.scores[name], answers.people, answers.correct.astype(np.float64)).coefficient


# ---------------------------------------------------------------------------------------------------------------------
# The table.


def table(results: Mapping[str, Any]) -> str:
    """Table 1 for every network beneath the paper's rows; then classes and correctness; then what it says."""
    networks = results["networks"]
    parts = [
        provenance(results),
        *seeds_sentence(results),
        _bins_table(results),
        _sentence(networks),
        _further_table(networks),
    ]
    return "\n\n".join(parts) + "\n"


def _bins_table(results: Mapping[str, Any]) -> str:
    bounds = list(itertools.pairwise(results["bins"]))
    heads = [
        "network",
        "",
        "z",
        "in all [95 %]",
        *(f"[{low:g}, {high:g}{']' if high == 1 else ')'}" for low, high in bounds),
    ]
    rows = [["*paper: ResNet-50, ImageNet*", "images", "", *(f"*{count:,}*" for count in PAPER_COUNTS)]]
    for name, title in SCORES.items():
        z = "" if name == "class_norm" else f"*{math.atanh(PAPER[name][0]):.3f}*"
        digits = 4 if name == "class_norm" else 3
        rows.append(["", title, z, *(f"*{value:.{digits}f}*" for value in PAPER[name])])
    for key, network in results["networks"].items():
        name = network_name(key, network["seeds"])
        rows.append([name, "images", "", f"{network['n']:,}", *(f"{count:,}" for count in network["counts"])])
        for score, title in SCORES.items():
            of = network["scores"][score]
            z = f"{math.atanh(of['total']['mean']):.3f}".replace("-", "−")
            rows.append(["", title, z, with_interval(of["total"], of["interval"]), *map(signed, of["bins"])])
    return markdown_table(heads, rows)


def _sentence(networks: Mapping[str, Any]) -> str:
    """For how many networks AVH comes before confidence, in all and within the bins."""
    pairs = [
        (avh["mean"], confidence["mean"])
        for network in networks.values()
        for avh, confidence in zip(
            network["scores"]["avh"]["bins"], network["scores"]["confidence"]["bins"], strict=True
        )
        if avh and confidence
    ]
    ahead = sum(avh > confidence for avh, confidence in pairs)
    total = sum(
        one["scores"]["avh"]["total"]["mean"] > one["scores"]["confidence"]["total"]["mean"]
        for one in networks.values()
    )
    return (
        f"In the paper AVH is ahead of confidence in all and in every bin. Here it is ahead in all for {total} of "
        f"{plural(len(networks), 'network')}, and in {ahead} of the {len(pairs)} bins of all of them; the "
        f"smallest bin holds {plural(min(min(one['counts']) for one in networks.values()), 'image')}."
    )


def _further_table(networks: Mapping[str, Any]) -> str:
    rows = []
    for key, network in networks.items():
        for score, title in SCORES.items():
            of = network["scores"][score]
            known = [one["mean"] for one in of["classes"] if one]
            within = f"{np.mean(known):.3f} ({min(known):.3f} to {max(known):.3f})".replace("-", "−") if known else "–"
            rows.append(
                [
                    network_name(key, network["seeds"]),
                    title,
                    signed(of["total"]),
                    within,
                    signed(of["given_correctness"]),
                ]
            )
    heads = ["network", "score", "in all", "within a class: mean (least to most)", "correctness held fixed"]
    return markdown_table(heads, rows)


ABOUT = f"""Spearman's coefficient between human selection frequency and AVH, model confidence and the norm scaled
within each class, in all and within the paper's five bins; positive is agreement, and `z` is Fisher's transform of it.
Below it, the mean over the classes of the coefficient within a class, and the partial coefficient given whether the
network is right.

{people.CELLS}"""

TABLE_1 = people.study(
    id="avh-table1",
    title="how closely AVH, confidence and norm follow people, by bins of human frequency",
    about=ABOUT,
    reference="AVH Table 1",
    judge=judge,
    table=table,
)
