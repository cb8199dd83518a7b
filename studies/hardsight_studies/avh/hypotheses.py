"""AVH, section 4: the four hypotheses, each a sentence with numbers.

Paper (ImageNet, ResNet-50): H1, AVH correlates with human selection frequency (0.360): accepted. H2, so does model
confidence (0.325): accepted. H3, AVH's correlation is the stronger one (Z 4.85): accepted, more so for better models.
H4, the class-normalised norm correlates too (0.0017): not accepted.
Ours, on CIFAR-10H (34 runs of ten networks, one H200, 2026-11-16): H1, H2 and H4 hold, H3 is contradicted. The
numbers: docs/studies/avh-hypotheses.md, made from the results files.

A hypothesis is said to hold where it does in every run, at 5 %: H1, H2 and H4 by the p-value of Spearman's coefficient,
H3 by Meng, Rosenthal and Rubin's test for correlations of the same images, with the paper's Fisher Z beside it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hardsight.alignment import compare_correlations, correlate
from hardsight_studies.avh import people
from hardsight_studies.avh.agreement import (
    Answers,
    answers_by_network,
    at_once,
    ends,
    mean_bootstrap,
    network_name,
    p_text,
    resample,
    seeds_planned,
    seeds_sentence,
    with_interval,
)
from hardsight_studies.avh.terms import AVH, CELLS, CLASS_NORM, CONFIDENCE, HSF, SCOPE, SPEARMAN, SPREADS, TURNED
from hardsight_studies.framework import markdown_table, provenance, spread
from hardsight_studies.wording import plural, terms

SCORES = {"avh": "AVH", "confidence": "model confidence", "class_norm": "norm within class"}
PAPER = {"avh": 0.360, "confidence": 0.325, "class_norm": 0.0017}
METHODS = ("spearman", "pearson")
SIGNIFICANT = 0.05
# So many networks must be there before their order by accuracy says anything.
FEWEST_NETWORKS = 4


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Each network: the three coefficients, and AVH's against confidence's."""
    found = answers_by_network(people.cells(preset), folder)
    judged = at_once(lambda seeds: judge_network(seeds, people.PRESETS[preset].resamples), list(found.values()))
    return {"seeds_planned": seeds_planned(people.cells(preset)), "networks": dict(zip(found, judged, strict=True))}


def judge_network(seeds: Sequence[Answers], resamples: int) -> dict[str, Any]:
    """The coefficients of one network's seeds, intervals of their means, and the tests of each seed."""
    drawn = mean_bootstrap([resample(one, list(SCORES), "spearman", resamples) for one in seeds])
    linear = mean_bootstrap([resample(one, ("avh", "confidence"), "pearson", resamples) for one in seeds])
    scores = {}
    for at, name in enumerate(SCORES):
        found = [correlate(one.scores[name], one.people) for one in seeds]
        scores[name] = {
            "coefficient": spread([one.coefficient for one in found]),
            "interval": ends(drawn.interval(at)),
            "p_values": [float(f"{one.p_value:.3g}") for one in found],
        }
    return {
        "seeds": len(seeds),
        "accuracy": spread([one.accuracy for one in seeds]),
        "scores": scores,
        "difference": ends(drawn.difference(0, 1)),
        "pearson_difference": ends(linear.difference(0, 1)),
        "tests": {method: _tests(seeds, method) for method in METHODS},
    }


def _tests(seeds: Sequence[Answers], method: str) -> dict[str, list[float]]:
    """AVH's coefficient against confidence's, by the paper's test and by Meng's."""
    compared = [
        compare_correlations(one.scores["avh"], one.scores["confidence"], one.people, method, signed=True)
        for one in seeds
    ]
    return {
        "fisher": [round(one.fisher.statistic, 3) for one in compared],
        "meng": [round(one.meng.statistic, 3) for one in compared if one.meng],
        "meng_p_values": [float(f"{one.meng.p_value:.3g}") for one in compared if one.meng],
    }


# ---------------------------------------------------------------------------------------------------------------------
# The sentences.


def table(results: Mapping[str, Any]) -> str:
    """The coefficients of every network, and the four sentences."""
    networks: Mapping[str, Any] = results["networks"]
    rows = [["*paper: ResNet-50, ImageNet*", "", *(f"*{value:g}*" for value in PAPER.values()), ""]]
    for key, network in networks.items():
        low, high = network["difference"]
        rows.append(
            [
                network_name(key, network["seeds"]),
                f"{100 * network['accuracy']['mean']:.1f} %",
                *(with_interval(of["coefficient"], of["interval"]) for of in network["scores"].values()),
                f"{low:+.3f} to {high:+.3f}".replace("-", "−"),
            ]
        )
    heads = ["network", "accuracy", *(f"{title} [95 %]" for title in SCORES.values()), "AVH − confidence, 95 %"]
    parts = [
        result(networks),
        *sentences(networks),
        provenance(results),
        *seeds_sentence(results),
        _LEGEND,
        markdown_table(heads, rows),
        f"**What one may conclude.** {SCOPE} {SPREADS}",
    ]
    return "\n\n".join(parts) + "\n"


_LEGEND = """**How to read the table.** A number is Spearman's ρ between human selection frequency and the score
above it; positive is agreement with people. ± is the standard deviation over seeds, the brackets are a 95 %
bootstrap interval over images. `accuracy` is the share of test images that the network classifies as labelled. `AVH
− confidence, 95 %` is the bootstrap interval of the difference of the two ρ: below zero, confidence follows people
more closely. The row in italics is what the paper prints."""


def result(networks: Mapping[str, Any]) -> str:
    """Which of the four hold."""
    h1, h2, h4 = (_correlation(networks, score)[0] for score in ("avh", "confidence", "class_norm"))
    return (
        f"**Result.** H1 {h1}, H2 {h2}, H3 {_comparison(networks)} and H4 {h4}. In the paper H1, H2 and H3 hold and H4 "
        "does not."
    )


def sentences(networks: Mapping[str, Any]) -> list[str]:
    """H1 to H4, each with its numbers."""
    return [
        _correlates("H1", "AVH", networks, "avh") + _better_models(networks),
        _correlates("H2", "model confidence", networks, "confidence"),
        _stronger(networks),
        _correlates("H4", "the norm within class", networks, "class_norm")
        + f" The paper finds no correlation: its |ρ| is {PAPER['class_norm']:g}.",
    ]


def _correlation(networks: Mapping[str, Any], score: str) -> tuple[str, int, int]:
    """Whether a score's correlation holds in every run; the runs in which it does, and those with the contrary."""
    found = [network["scores"][score] for network in networks.values()]
    pairs = [pair for one in found for pair in zip(one["coefficient"]["values"], one["p_values"], strict=True)]
    agree = sum(value > 0 and p < SIGNIFICANT for value, p in pairs)
    against = sum(value < 0 and p < SIGNIFICANT for value, p in pairs)
    return _outcome(agree, len(pairs)), agree, against


def _outcome(held: int, runs: int) -> str:
    return "holds" if held == runs else "does not hold throughout" if held else "does not hold"


def _correlates(number: str, title: str, networks: Mapping[str, Any], score: str) -> str:
    found = [network["scores"][score] for network in networks.values()]
    coefficients = [value for one in found for value in one["coefficient"]["values"]]
    p_values = [value for one in found for value in one["p_values"]]
    outcome, agree, against = _correlation(networks, score)
    contrary = f", and in {against} significantly against people" if against else ""
    return (
        f"**{number}** ({title} correlates with human selection frequency) {outcome}: ρ from {min(coefficients):.3f} "
        f"to {max(coefficients):.3f} over {plural(len(coefficients), 'run')} of {plural(len(found), 'network')}. It is "
        f"positive and significant in {agree} of them{contrary} (largest p {p_text(max(p_values))})."
    ).replace("from -", "from −")


def _better_models(networks: Mapping[str, Any]) -> str:
    """The paper: better models tend to have higher coefficients."""
    if len(networks) < FEWEST_NETWORKS:
        return ""
    accuracies = [one["accuracy"]["mean"] for one in networks.values()]
    found = correlate(accuracies, [one["scores"]["avh"]["coefficient"]["mean"] for one in networks.values()])
    if found.p_value >= SIGNIFICANT:
        claim = "neither more nor less, as far as these tell"
    else:
        claim = "more" if found.coefficient > 0 else "less"
    return (
        f" Better networks agree with people {claim}: over the {len(networks)} networks the rank correlation between "
        f"accuracy and AVH's ρ is {found.coefficient:.2f} (p {p_text(found.p_value)}). In the paper better networks "
        "agree more."
    ).replace("is -", "is −")


def _stronger(networks: Mapping[str, Any]) -> str:
    """H3 is about ranks, as the paper's headline is; what Pearson's coefficient says stands beside it."""
    stronger, weaker, runs = _count(networks)
    meng, fisher = (
        [z for one in networks.values() for z in one["tests"]["spearman"][test]] for test in ("meng", "fisher")
    )
    return (
        "**H3** (AVH correlates with human selection frequency more strongly than model confidence does) "
        f"{_comparison(networks)}: AVH's is significantly the larger in {stronger} of {plural(runs, 'run')}, "
        f"confidence's in {weaker}, and {runs - stronger - weaker} are undecided. The test is that of Meng, Rosenthal "
        f"and Rubin on Spearman's ρ, two-sided, p < {SIGNIFICANT}, with Z from {min(meng):.2f} to {max(meng):.2f}. The "
        f"paper's own test, Fisher's, gives Z from {min(fisher):.2f} to {max(fisher):.2f}; the paper prints "
        f"4.85.{_by_values(networks)}"
    ).replace(" -", " −")


def _comparison(networks: Mapping[str, Any]) -> str:
    """Whether AVH is ahead of confidence in every run; contradicted, where confidence is in more than half of them."""
    stronger, weaker, runs = _count(networks)
    return "is contradicted" if weaker > runs / 2 else _outcome(stronger, runs)


def _by_values(networks: Mapping[str, Any]) -> str:
    """Pearson's coefficient, by intervals: the tests are for normal values, and confidence is anything but."""
    if not all("pearson_difference" in one for one in networks.values()):
        return ""
    intervals = [one["pearson_difference"] for one in networks.values()]
    larger, smaller = sum(low > 0 for low, _ in intervals), sum(high < 0 for _, high in intervals)
    return (
        f" By Pearson's coefficient, which compares values instead of ranks, AVH's is the larger for {larger} and "
        f"confidence's for {smaller} of {plural(len(intervals), 'network')} (95 % bootstrap intervals over images, "
        "which do not assume normal values)."
    )


def _count(networks: Mapping[str, Any]) -> tuple[int, int, int]:
    """Runs in which AVH's coefficient is significantly the larger, the smaller, and all of them."""
    tests = [one["tests"]["spearman"] for one in networks.values()]
    pairs = [pair for one in tests for pair in zip(one["meng"], one["meng_p_values"], strict=True)]
    stronger = sum(z > 0 and p < SIGNIFICANT for z, p in pairs)
    weaker = sum(z < 0 and p < SIGNIFICANT for z, p in pairs)
    return stronger, weaker, len(pairs)


ABOUT = f"""The paper on angular visual hardness (AVH) states four hypotheses about how a network's scores relate to
people, and tests them on ImageNet. Which of them hold on CIFAR-10?

- **H1**: AVH correlates with human selection frequency.
- **H2**: model confidence correlates with it, too.
- **H3**: AVH's correlation is the stronger one.
- **H4**: the norm within class correlates with it, too.

{terms(AVH, CONFIDENCE, CLASS_NORM, HSF, SPEARMAN)}

{TURNED}

**When a hypothesis holds.** A run is one training of one network. A hypothesis holds if it does in every run, at the 5
% level. H1, H2 and H4 ask for a positive ρ with p < 0.05. H3 asks for a significant difference by the test of Meng,
Rosenthal and Rubin, made for two correlations over the same images. H3 is contradicted if confidence is significantly
ahead in more than half of the runs.

{CELLS}"""

HYPOTHESES = people.study(
    id="avh-hypotheses",
    title="the four hypotheses about AVH, confidence, norm and people",
    about=ABOUT,
    reference="AVH Section 4, Hypotheses 1 to 4",
    judge=judge,
    table=table,
)
