"""Remake the pages that are made from the code: `make docs`. A test fails when they are out of date."""

import argparse
import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight_studies.gr.auto import RATES as RATES_OF_AUTO
from hardsight_studies.gr.auto import means_over
from hardsight_studies.gr.choosing import AUTO
from hardsight_studies.gr.human_noise_trainings import LONG_METHODS, UNKNOWN_NOISE
from hardsight_studies.gr.judged import kind_of, under
from hardsight_studies.gr.protocol_page import compared_with_cce
from hardsight_studies.gr.table3_numbers import PAPER, RATES, best_in_paper, ends
from hardsight_studies.gr.table3_trainings import OTHERS, PROTOCOLS
from hardsight_studies.gr.table5 import LOGS
from hardsight_studies.gr.trainings import LONG, RELEASED, RELEASED_TRAINING
from hardsight_studies.page import write_pages

import hardsight.dynamics  # noqa: F401 (registers the scores of training)
from hardsight.hardness import SCORES, Score
from hardsight.report.canvas import BLUE, GREEN, INK, RED, drawing, save_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parent
# What automatic rescaling stands beside.
COMPARED = {"cce": "cross-entropy", "gce": "GCE", "sl": "SL"}
# Between these two comments a page holds what the function of that name makes from the results.
BLOCK = re.compile(r"(<!-- made: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
HEAD = """# Scores

A score is one number per sample. `hs.score_model(model, loader, scores=(...))` and `hs.score(features, weight, labels,
bias, scores=(...))` compute the scores of a model; a `Recorder` computes those of a training run
([how](dynamics.md)). Each score is registered with its range, its direction and its source, and is a pure function in
`hardsight.hardness` or `hardsight.dynamics`.

```python
import torch
import hardsight as hs
from hardsight.hardness import SCORES

scores = hs.score(torch.randn(50, 8), torch.randn(4, 8), torch.randint(0, 4, (50,)), scores=("avh", "el2n"))
assert SCORES["avh"].larger_is_harder and scores["avh"].shape == (50,)
```

Which one should you use?

| you look for | use |
|---|---|
| wrong labels | [`find_label_issues`](cleaning.md#which-labels-are-wrong), which chooses among the scores you have |
| hard samples with a right label | `avh`, where the model agrees with the label (chance is 1/C, for C classes) |
| ambiguous samples | `variability` of a training run, `entropy` of a model |
| what people find hard | see [what was measured](studies/avh-agreement.md) |

"""
AT_ONCE = """`prototype_angle` needs all samples at once, so `hs.score` does not compute it: call
`hardsight.hardness.prototype_angle(features, labels)`.

"""
COSTS = """## What scoring costs

The table gives the time of scoring divided by that of the matrix product features x weights alone, in float32, both
measured in turn in one run (median, 20th to 80th percentile; `benchmarks/scoring.py`). A score needs a dozen passes
over samples x classes, while the product does 2 x dim operations for each entry: where dim is large, nearly all of the
time is the product.

The matrix of all samples x all classes is never stored: a million samples x 1,000 classes take no more memory than the
features and the scores. Features may stay on disk, `torch.from_numpy(np.load("features.npy", mmap_mode="c"))`: for
2,000,000 x 512 of them, scoring took 105 MB of memory of its own, with 10 and with 1,000 classes. They are read twice,
the first time to check that all are finite.

On a GPU, half precision goes through the fused kernel, [measured separately](kernels.md#measured); float32 goes chunk
by chunk and has not been measured there in this form.

"""


def number(value: float) -> str:
    for exact, text in ((math.pi, "π"), (math.sqrt(2), "√2"), (math.inf, "∞")):
        if abs(value) == exact:
            return ("−" if value < 0 else "") + text
    return f"{value:g}".replace("-", "−")


def range_of(score: Score) -> str:
    high = "log C" if score.high is math.log else number(score.bounds(10)[1])
    return f"{number(score.low)} … {high}"


def table(scores: list[Score]) -> str:
    rows = ["| name | what it is | range | direction | source |", "|---|---|---|---|---|"]
    rows += [f"| `{one.name}` | {one.title} | {range_of(one)} | {one.direction} | {one.source} |" for one in scores]
    return "\n".join(rows) + "\n"


def costs() -> str:
    """What scoring costs against the matrix product alone, from the benchmark's results."""
    rows = ["| device | samples x dim x classes | `avh` | default scores | written plainly |", "|---|---|---|---|---|"]
    for path in sorted((DOCS.parent / "benchmarks" / "results").glob("scoring-*.json")):
        measured = json.loads(path.read_text())
        for shape in measured["shapes"]:
            sizes = f"{shape['samples']:,} x {shape['dim']:,} x {shape['classes']:,}"
            ratios = (
                f"{one['median']:.2f} ({one['p20']:.2f} to {one['p80']:.2f})"
                for one in (shape["ratio to the product"][name] for name in ("avh", "default scores", "plain"))
            )
            rows.append(f"| {measured['hardware']} | {sizes} | {' | '.join(ratios)} |")
    return "\n".join(rows) + "\n"


def newest_rows(path: Path) -> dict[tuple[str, str], dict[str, float]]:
    """Milliseconds by (op, shape) and variant: of each, the row that was appended last."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["op"], row["shape"]), {})[row["variant"]] = float(row["median_ms"])
    return found


VARIANTS: dict[str, dict[str, Any]] = {
    "ours": {"color": BLUE, "marker": "o", "linestyle": ""},
    "ours (AVH alone)": {"color": BLUE, "marker": "o", "linestyle": "", "markerfacecolor": "none"},
    "compiled": {"color": GREEN, "marker": "^", "linestyle": ""},
    "plain": {"color": RED, "marker": "s", "linestyle": ""},
}


def kernels_figure() -> "Figure":
    """Every op and shape: time over that of the floor, for ours, plain PyTorch and `torch.compile` of it."""
    rows = newest_rows(DOCS.parent / "benchmarks" / "results.csv")
    with drawing(8.0, 0.36 * len(rows) + 1.2) as figure:
        axes = figure.axes[0]
        for place, times in enumerate(rows.values()):
            floor = next(time for variant, time in times.items() if variant.startswith("floor"))
            for variant, look in VARIANTS.items():
                # Plain and compiled make AVH alone where ours makes all scores.
                time = times.get(variant, times.get(f"{variant} (AVH alone)"))
                if time is not None:
                    axes.plot([time / floor], [place], **look)
        for variant, look in VARIANTS.items():
            axes.plot([], [], label=variant, **look)
        axes.axvline(1.0, color=INK, linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
        axes.set_yticks(range(len(rows)), [f"{op}, {shape}" for op, shape in rows])
        axes.invert_yaxis()
        axes.set_xlabel("time over that of the floor (matrix products, or a copy of the logits)")
        axes.legend(loc="upper right")
    return figure


def scores_page() -> str:
    """The page of all registered scores."""
    of_model = [one for one in SCORES.values() if {"features", "weight", "logits", "labels"}.issuperset(one.needs)]
    of_training = [one for one in SCORES.values() if one not in of_model]
    tables = f"## Of a model\n\n{table(of_model)}\n{AT_ONCE}## Of a training run\n\n{table(of_training)}"
    return f"{HEAD}{tables}\n{COSTS}{costs()}"


def results_of(name: str) -> dict[str, Any]:
    return json.loads((DOCS.parent / "studies" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def people() -> str:
    networks = results_of("avh-hypotheses-paper")["networks"].values()
    strengths = [one for of in networks for one in of["scores"]["avh"]["coefficient"]["values"]]
    tests = [of["tests"]["spearman"] for of in networks]
    signs = [z for of in tests for z, p in zip(of["meng"], of["meng_p_values"], strict=True) if p < 0.05]
    return (
        f"AVH follows people on CIFAR-10H, with rank correlations of {min(strengths):.2f} to {max(strengths):.2f} in "
        f"{len(strengths)} runs of {len(networks)} networks. Plain confidence follows them significantly more closely "
        f"in {sum(z < 0 for z in signs)} of these runs, AVH in {sum(z > 0 for z in signs)}; the paper found AVH the "
        "closer one ([avh-hypotheses](docs/studies/avh-hypotheses.md))."
    )


def precisions(score: str) -> str:
    noises = results_of("label-errors-paper")["noises"]
    return " / ".join(f"{noises[of][score]['average_precision']['mean']:.2f}" for of in ("aggre", "random1", "worse"))


def errors() -> str:
    return (
        "One ResNet-20 run ranks people's label errors in CIFAR-10N (9, 17, 40 % wrong) with an average precision of "
        f"{precisions('training_and_margin')}, AVH alone with {precisions('avh')}, cleanlab's ranking from two runs on "
        f"halves with {precisions('cleanlab_label_quality')} ([label-errors](docs/studies/label-errors.md))."
    )


def adaptation() -> str:
    found = results_of("avh-table3-paper")["average"]
    share = {name: f"{100 * found[name]['mean']:.1f} %" for name in ("source", "cbst", "crst", "avh")}
    return (
        f"Adapting to a domain without labels, mean of {len(found['pairs'])} pairs of domains: {share['source']} as it "
        f"came, {share['cbst']} by CBST, {share['crst']} by CRST, {share['avh']} by AVH, which the paper found best of "
        "the three ([avh-table3](docs/studies/avh-table3.md))."
    )


def generalization() -> str:
    gap = results_of("avh-table5-cpu")["difference"]["frozen"]
    return (
        f"On a domain of PACS never seen, the AVH loss against cross-entropy: {gap['mean']:+.2f} points "
        f"[{gap['low']:.2f}, {gap['high']:.2f}] on frozen ImageNet features; the paper's gap is 3.52 "
        "([avh-table5](docs/studies/avh-table5.md))."
    )


def rescaling() -> Iterator[str]:
    noise = results_of("gr-table3-paper")
    yield _in_long_trainings(noise)
    yield _in_short_trainings(noise)
    yield _as_the_authors_train()
    yield _peoples_errors()
    yield _own_knobs()


def _in_long_trainings(noise: Mapping[str, Any]) -> str:
    """CCE and the paper's best setting, wherever both are measured as long as the authors' code trains."""
    found = under(noise, LONG)["accuracies"]
    pairs = {rate: (kind_of(rate, "cce"), kind_of(rate, best_in_paper(rate))) for rate in RATES}
    rates = [rate for rate, both in pairs.items() if all(one in found for one in both)]
    cce, best = ([100 * found[pairs[rate][place]]["last"]["mean"] for rate in rates] for place in (0, 1))
    printed = [PAPER[rate, "cce"][1] for rate in rates], [PAPER[rate, best_in_paper(rate)][1] for rate in rates]
    return (
        "Gradient rescaling does what its paper says where training is long enough for wrong labels to be learnt by "
        f"heart. On CIFAR-10 with {shown((100 * rate for rate in rates), 0)} % wrong labels (ResNet-56, "
        f"{OTHERS[LONG].protocol.epochs} epochs of batch 256, half of them at the first learning rate, "
        f"{_seeds(found, pairs, rates)}) cross-entropy ends at {shown(cce)}, the paper's settings at "
        f"{shown(best)}; the paper prints {shown(printed[0])} and {shown(printed[1])} "
        "([gr-table3](docs/studies/gr-table3.md))."
    )


def _seeds(found: Mapping[str, Any], pairs: Mapping[float, Iterable[str]], rates: Iterable[float]) -> str:
    """`one seed`, `1 to 2 seeds`: of all these kinds of cells."""
    counts = sorted({len(found[one]["last"]["values"]) for rate in rates for one in pairs[rate]})
    return "one seed" if counts == [1] else f"{' to '.join(map(str, counts))} seeds"


def _as_the_authors_train() -> str:
    """CIFAR-100 by the training of the authors' released code, wherever both methods are measured."""
    found = results_of("gr-table5-paper")["accuracies"]

    def end(rate: float, method: str) -> float | None:
        one = found.get(kind_of(rate, method, RELEASED))
        return None if one is None else 100 * one["last"]["mean"]

    # Of each rate CCE's and GR's: ours, then that of their logs.
    rows = [
        (rate, *(end(rate, method) for method in [*logged][:2]), *[*logged.values()][:2])
        for rate, logged in sorted(LOGS.items())
    ]
    rates, cce, rescaled, *theirs = zip(*(row for row in rows if None not in row), strict=True)
    return (
        f"On CIFAR-100 with {shown((100 * rate for rate in rates), 0)} % wrong labels, trained as the authors' "
        "released code does, for three times as many epochs, their result comes out: cross-entropy ends at "
        f"{shown(cce)}, rescaling at {shown(rescaled)} (one seed); their logs end at {shown(theirs[0])} and "
        f"{shown(theirs[1])} ([gr-table5](docs/studies/gr-table5.md))."
    )


def _peoples_errors() -> str:
    found = results_of("gr-human-noise-paper")["accuracies"]
    kinds = ("worse", "random1", "aggre", "cifar100n")
    ends = [
        [100 * found[f"labels={kind},method={method}"]["last"]["mean"] for kind in kinds]
        for method in ("cce", UNKNOWN_NOISE)
    ]
    long = {method: found[f"labels=worse,method={method},protocol={RELEASED}"] for method in LONG_METHODS}
    last = {method: f"{100 * one['last']['mean']:.1f}" for method, one in long.items()}
    return (
        "Under people's errors in CIFAR-10N (40 / 17 / 9 % wrong) and CIFAR-100N (40 %), in trainings of 20 epochs, "
        f"which learn few of them by heart, cross-entropy ends at {shown(ends[0])}, rescaling at {shown(ends[1])}. In "
        f"{RELEASED_TRAINING['epochs']} epochs with 40 % wrong cross-entropy learns "
        f"{100 * long['cce']['noisy']['mean']:.0f} % of the errors by heart and ends at {last['cce']}, rescaling at "
        f"{last[UNKNOWN_NOISE]}, GCE at {last['gce']}, and rescaling that chooses its own knobs at {last[AUTO]} "
        "(ResNet-20, one seed; [gr-human-noise](docs/studies/gr-human-noise.md))."
    )


def _own_knobs() -> str:
    """Means over the rates of noise, of short and of long trainings."""
    said = []
    for preset, protocol in (("paper", ""), ("cpu", LONG)):
        means = means_over(under(results_of(f"gr-auto-{preset}"), protocol), RATES_OF_AUTO)
        others = ", ".join(f"{title} {means[one]:.1f}" for one, title in COMPARED.items())
        said.append(f"{means[AUTO]:.1f} ({others}; ")
    return (
        'Rescaling that chooses its own knobs (`beta = "auto", lam = "auto"`) needs no clean label. In the mean over '
        f"{shown((100 * rate for rate in RATES_OF_AUTO), 0)} % noise it ends, after 15 epochs on CIFAR-10, at {said[0]}"
        "ResNet-20, one seed); after 120 epochs on 3,000 images of MNIST, where wrong labels are learnt by heart, at "
        f"{said[1]}three seeds) ([gr-auto](docs/studies/gr-auto.md))."
    )


def _in_short_trainings(noise: Mapping[str, Any]) -> str:
    """The printed schedule, and one change of it at a time."""
    protocols = results_of("gr-protocol-paper")
    rates, cce, best = last_accuracies(under(noise, ""))

    def above(method: str) -> str:
        sides = [side for _, side in compared_with_cce(protocols, method).values()]
        return f"{sides.count(1)} of {len(sides)}"

    return (
        f"In shorter trainings it is no sure gain. After {PROTOCOLS['paper'].epochs} epochs, where the printed "
        f"schedule comes to rest, cross-entropy ends at {shown(cce)} with {shown((100 * rate for rate in rates), 0)} % "
        f"wrong labels, the best setting measured at {shown(best)}. In 30 epochs at 40 %, one change of the protocol "
        f"at a time, β 8, λ 0.5 ends above cross-entropy in {above('gr-8-0.5')} trainings and the paper's β 16, λ 1 in "
        f"{above('gr-16-1')} ([why](docs/studies/gr-protocol.md))."
    )


def shown(numbers: Iterable[float], digits: int = 1) -> str:
    return " / ".join(f"{one:.{digits}f}" for one in numbers)


def last_accuracies(results: Mapping[str, Any]) -> tuple[list[float], list[float], list[float]]:
    """Rates of noise at which both were measured, where cross-entropy ends there, and where the best GR setting."""
    found = {rate: end for rate in RATES if (end := ends(results, rate))}
    return [*found], [end.cce for end in found.values()], [end.gr for end in found.values()]


def findings() -> str:
    """What the studies say so far, in one sentence or two each."""
    return "".join(f"- {one}\n" for one in (people(), errors(), adaptation(), generalization(), *rescaling()))


def label_errors() -> str:
    """The scores that `find_label_issues` ranks by, alone and together, beside what they are measured against."""
    noises = results_of("label-errors-paper")["noises"]
    named = {
        "aggre": "aggre",
        "random1": "random1",
        "worse": "worse",
        "symmetric40": "symmetric 40 %",
        "asymmetric40": "asymmetric 40 %",
    }
    wanted = {
        "el2n_mean": "`el2n_mean`",
        "angular_margin": "`angular_margin`",
        "training_and_margin": "both (`training_and_margin`)",
        "training_margin_and_neighbours": "and `smoothed_last_posterior`",
        "cleanlab_label_quality": "cleanlab's ranking, two runs on halves",
        "taught_half_the_truth": "boosted trees that were told half the truth",
    }
    rows = [f"| | {' | '.join(named.values())} |", "|---" * (1 + len(named)) + "|"]
    for score, title in wanted.items():
        found = [noises[one].get(score) for one in named]
        cells = (f"{of['average_precision']['mean']:.3f}" if of else "" for of in found)
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


MADE = {"findings": findings, "label-errors": label_errors}
PAGES_WITH_BLOCKS = (DOCS.parent / "README.md", DOCS / "cleaning.md")


def made_anew(page: str) -> str:
    """A page with every made block made again."""
    return BLOCK.sub(lambda block: f"{block[1]}{MADE[block[2]]()}{block[3]}", page)


def main() -> None:
    (DOCS / "scores.md").write_text(scores_page())
    for page in PAGES_WITH_BLOCKS:
        page.write_text(made_anew(page.read_text()))
    save_png(kernels_figure(), DOCS / "pictures" / "kernels.png")
    for path in write_pages(DOCS.parent / "studies" / "results", DOCS):
        print(path)


if __name__ == "__main__":
    # Whoever asks for help, or for one page, should not get all of them written.
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
