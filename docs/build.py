"""Make the pages that come from code and rows: a part of `make docs`.

A test fails when a made page in git is out of date.
"""

import argparse
import csv
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hardsight.geometry import angle_between
from hardsight.hardness import SCORES, Score, score
from hardsight.losses.emphasis import Transform, weight_curve
from hardsight.plotting import BLUE, GREEN, INK, RED, as_png, drawing
from hardsight.records import write_bytes
from hardsight.training.config import TrainingConfig
from hardsight.training.reading import keys_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parent
# What `hardsight advise` knows of the studies.
ADVICE = DOCS.parent / "src" / "hardsight" / "cleaning" / "advice.json"
PAGES_WITH_BLOCKS = (DOCS.parent / "README.md", DOCS / "cleaning.md", DOCS / "findings.md")
# Between these two comments a page holds what is filled in from the studies' rows.
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
| what people find hard | see [what was measured](results.md) |

"""
CONFIGURATION = """# Keys of a configuration

What `hardsight train FILE.toml` reads ([examples](training.md#from-a-configuration)); `hardsight train --show-config`
prints the same list. `data.name` is `name` in the table `[data]`; of a table that has a name, the name alone is enough:
`model = "resnet20"`. A key without a default may be left out unless it is required.

| key | type | default | meaning |
|---|---|---|---|
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


def angles_figure() -> "Figure":
    """Two Gaussians in the plane with one sample's angles, and what AVH and confidence say as its features grow."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.tensor([[2.0, 0.5], [0.3, 2.0]])
    labels = torch.arange(80) % 2
    features = 2 * weight[labels] + torch.randn(80, 2, generator=generator)
    sample, own = torch.tensor([[2.4, 2.0]]), torch.tensor([0])
    with drawing(8.0, 3.4, panels=2) as figure:
        plane, lengths = figure.axes
        for label, (colour, name) in enumerate(((BLUE, "class 0"), (GREEN, "class 1"))):
            plane.scatter(*features[labels == label].T, s=8, color=colour, label=name)
            end = (2.5 * weight[label]).tolist()
            plane.annotate("", end, (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.8})
        plane.annotate("", sample[0].tolist(), (0, 0), arrowprops={"arrowstyle": "->", "color": RED, "linewidth": 1.8})
        angles = torch.rad2deg(angle_between(sample, weight)).tolist()
        plane.scatter(*sample.T, s=30, color=RED, label=f"labelled 0: {angles[0]:.0f}° and {angles[1]:.0f}°")
        plane.set_aspect("equal")
        plane.set_xlabel("feature 1")
        plane.set_ylabel("feature 2")
        plane.set_title("Features, and the weights of two classes")
        plane.set_xlim(-2, 11)
        plane.legend(loc="upper right", fontsize=8)
        grown = torch.linspace(0.02, 3, 100).unsqueeze(1)
        found = score(grown * sample, weight, own.expand(100), scores=("avh", "confidence"))
        for name, colour, words in (("avh", BLUE, "AVH"), ("confidence", RED, "confidence of the label")):
            lengths.plot(grown.squeeze(1) * sample.norm(), found[name], color=colour, label=words)
        lengths.axhline(0.5, color=INK, linewidth=0.8, linestyle=":")
        lengths.set_ylim(0, 1)
        lengths.set_xlabel("length of the sample's features")
        lengths.set_title("The same direction, longer and longer")
        lengths.legend(loc="lower right")
    return figure


def rescaling_figure() -> "Figure":
    """The pull of a sample by the probability of its label, under four losses, each over its own largest."""
    probability = torch.linspace(0, 1, 400, dtype=torch.float64)
    settings: tuple[tuple[str, str, str, float, float, Transform], ...] = (
        ("cross-entropy", INK, ":", 2.0, 0.0, "identity"),
        ("MAE", GREEN, "--", 4.0, 1.0, "identity"),
        ("gradient rescaling, β = 6, λ = 1/2", RED, "-", 6.0, 0.5, "exp"),
        ("auto, while the noise is unknown (λ = 1/2)", BLUE, "-", 3.0, 0.5, "identity"),
    )
    with drawing(5.6, 3.2) as figure:
        axes = figure.axes[0]
        for name, colour, line, beta, lam, transform in settings:
            weights = weight_curve(probability, beta, lam, transform)
            axes.plot(probability, weights / weights.max(), color=colour, linestyle=line, label=name)
        axes.set_xlabel("probability of the label")
        axes.set_ylabel("weight, largest = 1")
        axes.legend(loc="lower center", fontsize=8)
    return figure


def configuration_page() -> str:
    lines = []
    for key, kind, default, meaning in keys_of(TrainingConfig):
        shown = default if default in ("", "required") else f"`{default}`"
        lines.append(f"| `{key}` | {kind} | {shown} | {meaning} |")
    return CONFIGURATION + "\n".join(lines) + "\n"


def scores_page() -> str:
    """The page of all registered scores."""
    of_model = [one for one in SCORES.values() if {"features", "weight", "logits", "labels"}.issuperset(one.needs)]
    of_training = [one for one in SCORES.values() if one not in of_model]
    tables = f"## Of a model\n\n{table(of_model)}\n{AT_ONCE}## Of a training run\n\n{table(of_training)}"
    return f"{HEAD}{tables}\n{COSTS}{costs()}"


def made_blocks() -> dict[str, str]:
    """The blocks of README and docs by name: text by people with numbers filled in and claims checked."""
    from hardsight_studies.engine.pages import PAGES, Scope, filled

    of_pages = {
        name: filled((PAGES / f"{name}.md").read_text(encoding="utf-8"), Scope(None), f"{name}.md")
        for name in ("findings", "measured")
    }
    return {
        **of_pages,
        "label-errors": filled('{{ table("summary", study="label-errors") }}\n', Scope(None), "cleaning.md"),
    }


def made_again(page: str, blocks: Mapping[str, str]) -> str:
    """A page with every made block made again."""
    return BLOCK.sub(lambda block: f"{block[1]}{blocks[block[2]]}{block[3]}", page)


def main() -> None:
    from hardsight_studies.engine.summary import results_page
    from hardsight_studies.together.advice import advice_table

    blocks = made_blocks()
    ADVICE.write_text(advice_table())
    (DOCS / "scores.md").write_text(scores_page())
    (DOCS / "configuration.md").write_text(configuration_page())
    (DOCS / "results.md").write_text(results_page())
    for page in PAGES_WITH_BLOCKS:
        page.write_text(made_again(page.read_text(), blocks))
    for name, drawn in (("kernels", kernels_figure), ("angles", angles_figure), ("rescaling", rescaling_figure)):
        write_bytes(DOCS / "pictures" / f"{name}.png", as_png(drawn()))


if __name__ == "__main__":
    # Whoever asks for help, or for one page, should not get all of them written.
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
