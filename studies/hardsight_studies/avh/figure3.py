"""AVH, Figures 3 and 7: two Gaussians on the sphere, coloured by AVH and by norm.

Paper (a picture): AVH is high where the classes overlap, the norm also elsewhere. Ours, 10 seeds, CPU: the rank
correlation with how much the classes overlap at a point is 0.68 ± 0.08 for AVH and -0.71 ± 0.17 for the norm.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Float
from torch import Tensor

from hardsight import datasets, models
from hardsight.alignment import correlate
from hardsight.report.canvas import BLUE, FAINT, RED, drawing
from hardsight.training import Cell
from hardsight.training.record import RunRecord, device_name
from hardsight.training.sweeps import FINISHED, status_of
from hardsight_studies.avh.looking import Look, look_at_features, short
from hardsight_studies.avh.terms import AVH, CONFIDENCE, NORM, SPEARMAN
from hardsight_studies.framework import Options, Study, markdown_table, provenance, shown, spread
from hardsight_studies.wording import plural, terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEEDS = {"smoke": 2, "cpu": 10, "paper": 50}
STEPS = {"smoke": 100, "cpu": 500, "paper": 500}
ANGLE, POINTS = math.pi / 3, 400
TRIALS = "trials.parquet"


def cells(preset: str) -> list[Cell]:
    """One cell: all seeds."""
    return [Cell({"seeds": SEEDS[preset]})]


def ambiguity(points: Float[Tensor, "samples 3"]) -> Float[Tensor, "samples"]:
    """How alike the two classes are at a point: minus the difference of its angles to the two means, in radians.

    The Gaussians have one spread, so the classes are equally likely where the angles are equal: there it is 0.
    """
    half = ANGLE / 2
    means = points.new_tensor([[math.cos(half), -math.sin(half), 0.0], [math.cos(half), math.sin(half), 0.0]])
    angles = torch.atan2(torch.linalg.cross(points[:, None], means[None], dim=-1).norm(dim=-1), points @ means.T)
    return -(angles[:, 0] - angles[:, 1]).abs()


def train_toy(seed: int, steps: int) -> tuple[datasets.ArrayDataset, Look]:
    """The paper's toy: 1,000 points a class, one hidden layer of two, trained by Adam on all points at once."""
    data = datasets.two_gaussians_on_sphere(angle_radians=ANGLE, generator=torch.Generator().manual_seed(seed))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = models.create("mlp_2d")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data.images), data.labels).backward()
        optimizer.step()
    with torch.no_grad():
        features = model.forward_features(data.images)
    return data, look_at_features(features, model.head, data.labels)


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train every seed; the record holds a row a point."""
    for cell, folder in mine:
        record = RunRecord(folder)
        record.begin(name=cell.name, seed=0, config=dict(cell.settings), device=device_name(torch.device("cpu")))
        parts = []
        for seed in range(SEEDS[preset]):
            data, seen = train_toy(seed, STEPS[preset])
            columns = {"label": data.labels, "avh": seen.avh, "norm": seen.norm, "correct": seen.correct}
            columns |= {"confidence": seen.confidence, "ambiguity": ambiguity(data.images)}
            columns |= {axis: data.images[:, at] for at, axis in enumerate("xyz")}
            arrays = {name: pa.array(values.detach().numpy()) for name, values in columns.items()}
            parts.append(pa.table({"seed": pa.array(np.full(len(data), seed)), **arrays}))
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.concat_tables(parts), folder / TRIALS, compression="zstd")
        record.finish({})


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Rank correlation of AVH, norm and confidence with the overlap, over seeds; some points of the first seed."""
    (cell,) = cells(preset)
    assert status_of(folder / cell.name) == FINISHED
    rows = pq.read_table(folder / cell.name / TRIALS)
    columns = {name: rows[name].to_numpy() for name in rows.column_names}
    trials: dict[str, list[float]] = {}
    for seed in range(SEEDS[preset]):
        inside = columns["seed"] == seed
        for name in ("avh", "norm", "confidence"):
            found = correlate(columns[name][inside], columns["ambiguity"][inside]).coefficient
            trials.setdefault(f"{name}_rho", []).append(found)
        trials.setdefault("accuracy", []).append(float(columns["correct"][inside].mean()))
    first = (columns["seed"] == 0).nonzero()[0]
    chosen = first[:: max(1, len(first) // POINTS)]
    points = {name: [short(float(one)) for one in columns[name][chosen]] for name in ("x", "y", "z", "avh", "norm")}
    points["label"] = columns["label"][chosen].tolist()
    return {"trials": {name: spread(values) for name, values in trials.items()}, "points": points}


def table(results: Mapping[str, Any]) -> str:
    """What came out, and the correlations."""
    trials = results["trials"]
    count = len(trials["accuracy"]["values"])
    titles = {"avh_rho": "AVH", "norm_rho": "norm", "confidence_rho": "confidence"}
    rows = [[title, shown(trials[key])] for key, title in titles.items()]
    pairs = zip(trials["norm_rho"]["values"], trials["avh_rho"]["values"], strict=True)
    weaker = sum(abs(norm) < abs(avh) for norm, avh in pairs)
    less = "the norm shows it less" if weaker > count / 2 else "the norm shows it no less"
    result = (
        f"**Result.** AVH follows the overlap of the classes with Spearman's ρ = {shown(trials['avh_rho'])}, the norm "
        f"with {shown(trials['norm_rho'])} and confidence with {shown(trials['confidence_rho'])} (mean ± standard "
        f"deviation over {plural(count, 'seed')}). In the paper's picture the norm shows the overlap less than AVH. "
        f"Here the norm's ρ is the weaker of the two in {weaker} of {plural(count, 'seed')}: {less}."
    )
    limits = (
        "**What one may conclude.** This is a toy problem with known answers, not a statement about images. The paper "
        "does not print the means, the spread and the activation; with others the numbers change. The network "
        f"classifies a share of {shown(trials['accuracy'])} of the points right. All seeds are trained in one cell."
    )
    heads = ("score", f"rank correlation with the overlap, mean ± sd over {count} seeds")
    made = provenance({**results, "seeds": range(count)})
    return "\n\n".join([result, made, _LEGEND, markdown_table(heads, rows), limits]) + "\n"


_LEGEND = """**How to read the table.** Spearman's ρ between a score and the overlap of the classes at a point. It is
positive for AVH (large where the classes overlap) and negative for norm and confidence (small where they overlap);
the distance from zero counts."""


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """The points seen from between the classes: by class, by AVH, by norm."""
    points = {name: np.array(values) for name, values in results["points"].items()}
    with drawing(8.6, 2.6, panels=3, columns=3) as figure:
        for axes in figure.axes:
            axes.add_artist(_circle())
            axes.set_aspect("equal")
            axes.set_xlim(-1.05, 1.05)
            axes.set_ylim(-1.05, 1.05)
            axes.set_xlabel("across")
            axes.set_ylabel("up")
        for label, colour, mark in ((0, BLUE, "o"), (1, RED, "^")):
            inside = points["label"] == label
            across, up = points["y"][inside], points["z"][inside]
            figure.axes[0].scatter(across, up, s=8, color=colour, marker=mark, linewidths=0)
        figure.axes[0].set_title("by class", fontsize=9)
        for axes, name, title in zip(figure.axes[1:], ("avh", "norm"), ("AVH", "feature norm"), strict=True):
            coloured = axes.scatter(points["y"], points["z"], c=points[name], s=8, cmap="viridis", linewidths=0)
            axes.set_title(f"by {title}", fontsize=9)
            figure.colorbar(coloured, ax=axes, shrink=0.75, label=title)
    return {"figures3-7": figure}


def _circle() -> Any:
    from matplotlib.patches import Circle

    return Circle((0, 0), 1, fill=False, color=FAINT, linewidth=0.8)


ABOUT = f"""Does angular visual hardness (AVH) show where two classes overlap, and does the length of the features show
it as well? In real data nobody knows how much classes overlap at a point; in this toy problem it is known.

{terms(AVH, CONFIDENCE, NORM, SPEARMAN)}

**How it was made.** Points are drawn from two Gaussians in space, 60° apart, and pushed onto the unit sphere, 1,000
points each. A network with one hidden layer of two units classifies them. So far this is the paper's appendix; the
means, the spread (0.35) and the activation (tanh) are chosen here. The overlap at a point is minus the difference of
its angles to the two means: it is largest, 0, where both classes are equally likely.

**Figure.** The points seen from between the two classes, coloured by class, by AVH and by norm."""

FIGURE_3 = Study(
    id="avh-figure3",
    title="two Gaussians on the sphere, by AVH and by norm",
    about=ABOUT,
    reference="AVH Figs. 3, 7",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    figures=figures,
    worth=lambda cell, file: 0 if file == TRIALS else None,
)
