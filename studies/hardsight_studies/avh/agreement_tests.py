"""AVH, Tables 2 and 6 to 9: is AVH's correlation with people stronger than confidence's? Tests of the difference.

Paper (ImageNet, n = 29,987), Spearman's coefficient of AVH against confidence: ResNet-50 0.360 / 0.325 (Z 4.85),
AlexNet 0.339 / 0.325 (1.92), VGG-19 0.349 / 0.335 (1.94), DenseNet-121 0.367 / 0.329 (Z printed 6.2; by its own formula
5.30). First measurement here (CIFAR-10H, public networks): ResNet-20 0.359 / 0.369, ResNet-56 0.302 / 0.331.
Ours (34 runs of ten networks, one H200, 2026-11-16): by ranks no run has AVH significantly
ahead and most have it behind; by values (Pearson) AVH is ahead for the four public ResNets alone. The numbers:
docs/studies/avh-table2.md and avh-tables6-9.md, made from the results files.

The paper's Z is Fisher's, for correlations of different samples. Both scores here rate the same images: Steiger's and
Meng, Rosenthal and Rubin's tests are made for that, and stand beside it. They are for normal values: of Pearson's
coefficient on these data their Z is 1.1 to 1.4 times the bootstrap's, of ranks 0.9 to 1.0 times, so that of Pearson's
the interval decides. Kendall's coefficient has nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardsight.alignment import ZTest, compare_correlations, fisher_z_test
from hardsight.training import Cell
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
    signed,
)
from hardsight_studies.avh.terms import AVH, CELLS, CONFIDENCE, HSF, SCOPE, SPEARMAN, SPREADS, TURNED
from hardsight_studies.framework import Study, markdown_table, provenance, spread
from hardsight_studies.wording import plural, terms

METHODS = {"spearman": "Spearman", "pearson": "Pearson", "kendall": "Kendall"}
# Coefficients with AVH and with confidence, Z and p as printed, by method; our network beside the paper's.
PAPER: dict[str, tuple[str, dict[str, tuple[float, float, float, str]]]] = {
    "resnet": (
        "Tables 2 and 8, ResNet-50",
        {
            "spearman": (0.360, 0.325, 4.85, "< 0.00001"),
            "pearson": (0.385, 0.341, 6.2, "< 0.00001"),
            "kendall": (0.257, 0.231, 3.38, "0.0003"),
        },
    ),
    "alexnet": (
        "Table 6, AlexNet",
        {
            "spearman": (0.339, 0.325, 1.92, "0.027"),
            "pearson": (0.324, 0.31, 1.90, "0.028"),
            "kendall": (0.244, 0.23, 1.81, "0.035"),
        },
    ),
    "vgg": (
        "Table 7, VGG-19",
        {
            "spearman": (0.349, 0.335, 1.94, "0.026"),
            "pearson": (0.358, 0.343, 2.09, "0.018"),
            "kendall": (0.244, 0.229, 1.94, "0.026"),
        },
    ),
    "densenet": (
        "Table 9, DenseNet-121",
        {
            "spearman": (0.367, 0.329, 6.2, "< 0.00001"),
            "pearson": (0.390, 0.347, 6.09, "< 0.00001"),
            "kendall": (0.262, 0.234, 3.65, "0.0001"),
        },
    ),
}
SIGNIFICANT = 0.05
# Counting pairs anew in each resample is what Kendall's interval costs.
_KENDALL_SHARE = 4


def judged_by(cells: Callable[[str], list[Cell]]) -> Callable[[str, Path], dict[str, Any]]:
    """Judge the networks of these cells, each by all three coefficients."""

    def judge(preset: str, folder: Path) -> dict[str, Any]:
        found = answers_by_network(cells(preset), folder)
        judged = at_once(lambda seeds: judge_network(seeds, people.PRESETS[preset].resamples), list(found.values()))
        return {"seeds_planned": seeds_planned(cells(preset)), "networks": dict(zip(found, judged, strict=True))}

    return judge


def judge_network(seeds: Sequence[Answers], resamples: int) -> dict[str, Any]:
    """All three coefficients and the tests between AVH's and confidence's, for the seeds of one network."""
    methods = {method: _judge_method(seeds, method, resamples) for method in METHODS}
    return {"seeds": len(seeds), "accuracy": spread([one.accuracy for one in seeds]), "methods": methods}


def _judge_method(seeds: Sequence[Answers], method: str, resamples: int) -> dict[str, Any]:
    count = max(2, resamples // _KENDALL_SHARE) if method == "kendall" else resamples
    drawn = mean_bootstrap([resample(one, ("avh", "confidence"), method, count) for one in seeds])
    compared = [
        compare_correlations(one.scores["avh"], one.scores["confidence"], one.people, method, signed=True)
        for one in seeds
    ]
    # One-sided, as in the paper: is AVH's the stronger one?
    fisher = [fisher_z_test(one.first, one.second, one.n, alternative="greater") for one in compared]
    return {
        "n": compared[0].n,
        "avh": spread([one.first for one in compared]),
        "confidence": spread([one.second for one in compared]),
        "between": spread([one.between for one in compared]),
        "difference": ends(drawn.difference(0, 1)),
        "fisher": _tests(fisher),
        "steiger": _tests([one.steiger for one in compared]),
        "meng": _tests([one.meng for one in compared]),
    }


def _tests(tests: Sequence[ZTest | None]) -> dict[str, Any] | None:
    known = [one for one in tests if one is not None]
    if not known:
        return None
    return {"z": spread([one.statistic for one in known]), "p_values": [float(f"{one.p_value:.3g}") for one in known]}


# ---------------------------------------------------------------------------------------------------------------------
# The table.


def table(results: Mapping[str, Any]) -> str:
    """Each network's rows beneath the paper's of its kind, and what they say together."""
    networks: Mapping[str, Any] = results["networks"]
    rows: list[list[str]] = []
    shown_papers: set[str] = set()
    for key, network in networks.items():
        kind = next((one for one in PAPER if key.startswith(one)), None)
        if kind and kind not in shown_papers:
            rows += _paper_rows(kind)
            shown_papers.add(kind)
        rows += _rows(key, network)
    heads = [
        "network", "coefficient", "AVH", "confidence", "Fisher Z (one-sided p)", "Steiger Z (p)", "Meng Z (p)",
        "AVH − confidence, 95 %",
    ]  # fmt: skip
    parts = [
        verdict(networks),
        provenance(results),
        *seeds_sentence(results),
        _LEGEND,
        markdown_table(heads, rows),
        f"**What one may conclude.** {SCOPE} {SPREADS}",
    ]
    return "\n\n".join(parts) + "\n"


_LEGEND = """**How to read the table.** Each network has three rows, one for each coefficient: Spearman's and Kendall's
compare ranks, Pearson's compares values. Rows in italics are the numbers that the paper prints. Its Z of 6.2 for
DenseNet-121 and Spearman is a misprint: by the paper's own formula it is 5.30.

- `AVH`, `confidence`: the coefficient of each with human selection frequency; ± is the standard deviation over seeds.
- `Fisher Z`: the paper's test, which treats the two coefficients as if they came from different images. One-sided: a
  small p says that AVH's is larger.
- `Steiger Z`, `Meng Z`: two tests that take into account that both scores rate the same images. Two-sided. A negative Z
  says that confidence follows people more closely. There are none for Kendall's coefficient.
- In brackets stands the p-value; with several seeds Z is the mean ± standard deviation over them, and the brackets say
  in how many seeds p is below 0.05.
- `AVH − confidence, 95 %`: bootstrap interval, over images, of the difference of the two coefficients (of its mean
  over seeds). Steiger's and Meng's tests assume normal values, and confidences are far from normal: for Pearson's
  coefficient trust this interval."""


def _paper_rows(kind: str) -> list[list[str]]:
    title, methods = PAPER[kind]
    return [
        [
            f"*paper, {title}*" if at == 0 else "",
            METHODS[method],
            f"*{avh:.3f}*",
            f"*{other:.3f}*",
            f"*{z:g} ({p})*",
            "",
            "",
            "",
        ]
        for at, (method, (avh, other, z, p)) in enumerate(methods.items())
    ]


def _rows(key: str, network: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for at, (method, of) in enumerate(network["methods"].items()):
        name = network_name(key, network["seeds"]) if at == 0 else ""
        low, high = of["difference"]
        tests = (_test_text(of[test]) for test in ("fisher", "steiger", "meng"))
        interval = f"{low:+.3f} to {high:+.3f}".replace("-", "−")
        rows.append([name, METHODS[method], signed(of["avh"]), signed(of["confidence"]), *tests, interval])
    return rows


def _test_text(test: Mapping[str, Any] | None) -> str:
    if test is None:
        return "–"
    z = f"{test['z']['mean']:.2f}".replace("-", "−")
    if len(test["p_values"]) > 1:
        significant = sum(p_value < SIGNIFICANT for p_value in test["p_values"])
        return f"{z} ± {test['z']['sd']:.2f} ({significant} of {len(test['p_values'])})"
    return f"{z} ({p_text(test['p_values'][0])})"


def verdicts(networks: Mapping[str, Any]) -> tuple[int, int, int]:
    """Runs in which AVH is significantly the stronger, the weaker, or neither, by Meng's test of the ranks."""
    stronger = weaker = neither = 0
    for network in networks.values():
        test = network["methods"]["spearman"]["meng"]
        for z, p_value in zip(test["z"]["values"], test["p_values"], strict=True):
            if p_value >= SIGNIFICANT:
                neither += 1
            elif z > 0:
                stronger += 1
            else:
                weaker += 1
    return stronger, weaker, neither


def verdict(networks: Mapping[str, Any]) -> str:
    """The sentence: how many runs bear the paper out, and how many the contrary; by values, how many networks."""
    stronger, weaker, neither = verdicts(networks)
    intervals = [one["methods"]["pearson"]["difference"] for one in networks.values()]
    above, below = sum(low > 0 for low, _ in intervals), sum(high < 0 for _, high in intervals)
    return (
        f"**Result.** By ranks (Spearman) AVH follows people significantly more closely than confidence in {stronger} "
        f"of {plural(stronger + weaker + neither, 'run')}, less closely in {weaker}, and {neither} are undecided (test "
        f"of Meng, Rosenthal and Rubin, two-sided, p < {SIGNIFICANT}). By values (Pearson) the interval of the "
        f"difference lies above zero for {above} of {plural(len(intervals), 'network')}, below for {below}. In the "
        "paper AVH is ahead for every network and by every coefficient."
    )


_ABOUT = f"""Does angular visual hardness (AVH) follow people's answers more closely than the network's confidence does,
and is the difference more than chance? {{networks}}

{terms(AVH, CONFIDENCE, HSF, SPEARMAN)}

{TURNED} Of each network the coefficient of AVH with human selection frequency is compared with that of confidence.

{CELLS}"""


def _study(id: str, title: str, reference: str, networks: str, cells: Callable[[str], list[Cell]]) -> Study:
    about = _ABOUT.format(networks=networks)
    return people.study(
        id=id, title=title, about=about, reference=reference, cells=cells, judge=judged_by(cells), table=table
    )


def _pretrained(preset: str) -> list[Cell]:
    """The public networks; for digits there are none, and those trained here stand in."""
    return people.public_cells(preset) or people.trained_cells(preset)


TABLE_2 = _study(
    "avh-table2",
    "AVH against confidence, public ResNets: tests of the difference",
    "AVH Table 2",
    "This page tests the public ResNets; [avh-tables6-9](avh-tables6-9.md) tests the networks trained here.",
    _pretrained,
)
TABLES_6_TO_9 = _study(
    "avh-tables6-9",
    "AVH against confidence, by architecture, over seeds: tests of the difference",
    "AVH Tables 6, 7, 8 and 9",
    "This page tests the networks trained here; [avh-table2](avh-table2.md) tests the public ResNets.",
    people.trained_cells,
)
