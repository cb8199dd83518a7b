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
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardsight.alignment import FIVE_BINS, bin_of, correlate, correlate_by_group, correlate_in_bins, partial_correlation
from hardsight_studies.avh import people
from hardsight_studies.avh.agreement import (
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
from hardsight_studies.avh.terms import AVH, CELLS, CLASS_NORM, CONFIDENCE, HSF, SCOPE, SPEARMAN, SPREADS, TURNED
from hardsight_studies.framework import markdown_table, provenance, spread
from hardsight_studies.wording import listed, plural, terms

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
    """What came out; Table 1 for every network beneath the paper's rows; then classes and correctness."""
    networks = results["networks"]
    parts = [
        result(networks),
        provenance(results),
        *seeds_sentence(results),
        _LEGEND,
        _bins_table(results),
        _CHECKS,
        _further_table(networks),
        _limits(networks),
    ]
    return "\n\n".join(parts) + "\n"


_LEGEND = """**How to read the table.** A number is Spearman's ρ between human selection frequency and the score of its
row; positive is agreement with people. Rows in italics are the numbers that the paper prints, without a sign.

- `z`: Fisher's transform of ρ (its inverse hyperbolic tangent), as the paper gives it.
- `in all [95 %]`: ρ over all images; ± is the standard deviation over seeds, the brackets are a 95 % bootstrap interval
  over images.
- `[0, 0.2)` and so on: ρ among the images whose human selection frequency lies in this range. The first range holds the
  images that people find hardest.
- Rows `images`: how many images each range holds."""
_CHECKS = """**Two checks of the numbers over all images.** `within a class` computes ρ in each class separately, so
that differences between classes cannot make it: the mean over the classes, and the lowest and highest of them.
`correctness held fixed` is the partial ρ given whether the network classifies the image as labelled: what agreement
is left beyond right and wrong."""


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


def result(networks: Mapping[str, Any]) -> str:
    """For how many networks AVH comes before confidence, in all and within the bins."""
    totals = {name: [one["scores"][name]["total"]["mean"] for one in networks.values()] for name in SCORES}
    pairs = [
        (avh["mean"], confidence["mean"])
        for network in networks.values()
        for avh, confidence in zip(
            network["scores"]["avh"]["bins"], network["scores"]["confidence"]["bins"], strict=True
        )
        if avh and confidence
    ]
    ahead = sum(avh > confidence for avh, confidence in pairs)
    total = sum(avh > confidence for avh, confidence in zip(totals["avh"], totals["confidence"], strict=True))
    spans = [f"{min(totals[name]):.3f} to {max(totals[name]):.3f} for {title}" for name, title in SCORES.items()]
    best = Counter(max(SCORES, key=lambda name: totals[name][at]) for at in range(len(networks)))
    favourite, times = best.most_common(1)[0]
    return (
        f"**Result.** Over all images {SCORES[favourite]} agrees with people most closely in {times} of "
        f"{plural(len(networks), 'network')}. AVH is ahead of confidence in {total}; in the paper it is ahead, over "
        f"all images and within every range. Spearman's ρ is {listed(spans)}. Within the ranges of human selection "
        f"frequency AVH is ahead of confidence in {ahead} of {len(pairs)} comparisons."
    ).replace(" -", " −")


def _limits(networks: Mapping[str, Any]) -> str:
    """How unevenly the images lie in the bins, and what else to keep in mind."""
    counts = next(iter(networks.values()))["counts"]
    return (
        f"**What one may conclude.** The last range holds {counts[-1] / sum(counts):.0%} of the images, and the "
        f"smallest one {plural(min(counts), 'image')}: a ρ within a range of few images is mostly chance. {SCOPE} "
        f"{SPREADS}"
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


ABOUT = f"""Are the images that people find hard also hard for a network, and which score of the network shows it best?
This study ranks images by three scores and by people's answers, and says how alike the rankings are: over all images,
and within five ranges from hard to easy for people.

{terms(AVH, CONFIDENCE, CLASS_NORM, HSF, SPEARMAN)}

{TURNED}

{CELLS}"""

TABLE_1 = people.study(
    id="avh-table1",
    title="how closely AVH, confidence and norm follow people, by bins of human frequency",
    about=ABOUT,
    reference="AVH Table 1",
    judge=judge,
    table=table,
)
