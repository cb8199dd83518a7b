"""Remake the pages that are made from the code: `make docs`. A test fails when they are out of date."""

import csv
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import hardsight.dynamics  # noqa: F401 (registers the scores of training)
from hardsight.hardness import SCORES, Score
from hardsight.report.canvas import BLUE, GREEN, INK, RED, drawing, save_png
from hardsight.studies.page import write_pages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parent
HEAD = """# Scores

One number a sample. `hs.score(features, weight, labels, bias, scores=(...))` and `hs.score_model(model, loader,
scores=(...))` compute those of a model; a `Recorder` those of a training run ([how](dynamics.md)). Each is registered
with its range, its direction and its source, and is a pure function in `hardsight.hardness` or `hardsight.dynamics`.

```python
import torch
import hardsight as hs
from hardsight.hardness import SCORES

scores = hs.score(torch.randn(50, 8), torch.randn(4, 8), torch.randint(0, 4, (50,)), scores=("avh", "el2n"))
assert SCORES["avh"].larger_is_harder and scores["avh"].shape == (50,)
```

"""
AT_ONCE = """`prototype_angle` needs all samples at once, so it is no column of `hs.score`: call
`hardsight.hardness.prototype_angle(features, labels)`.

"""
COSTS = """## What scoring costs

Times the matrix product alone in float32, both measured in turn in one run (median, 20th to 80th percentile;
`benchmarks/scoring.py`). A score needs a dozen passes over samples x classes, a product does 2 x dim operations for
each entry: where dim is large the product is what one pays for. All samples x all classes never exists: a million
samples x 1,000 classes take no more memory than the features and the scores.

On a GPU half precision goes through the fused kernel of [kernels.md](kernels.md); float32 goes chunk by chunk, and it
shows where dim is small: on an H200 an earlier version took 1.6 times the product at dim 2,048 (written plainly: 2.2)
but 8.0 times at dim 128 (written plainly: 3.6).

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


VARIANTS = {"ours": (BLUE, "o"), "compiled": (GREEN, "^"), "plain": (RED, "s")}


def kernels_figure() -> "Figure":
    """Every op and shape: time over that of the floor, for ours, plain PyTorch and `torch.compile` of it."""
    rows = newest_rows(DOCS.parent / "benchmarks" / "results.csv")
    with drawing(8.0, 0.36 * len(rows) + 1.2) as figure:
        axes = figure.axes[0]
        for place, times in enumerate(rows.values()):
            floor = next(time for variant, time in times.items() if variant.startswith("floor"))
            for variant, (colour, marker) in VARIANTS.items():
                named = [time for name, time in times.items() if name.split(" (")[0] == variant]
                axes.plot([time / floor for time in named], [place] * len(named), marker, color=colour)
        for variant, (colour, marker) in VARIANTS.items():
            axes.plot([], [], marker, color=colour, label=variant)
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


def main() -> None:
    (DOCS / "scores.md").write_text(scores_page())
    save_png(kernels_figure(), DOCS / "pictures" / "kernels.png")
    for path in write_pages(DOCS.parent / "results", DOCS):
        print(path)


if __name__ == "__main__":
    main()
