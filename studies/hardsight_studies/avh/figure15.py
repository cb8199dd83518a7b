"""AVH, Figure 15: norm and AVH of MNIST's test images after every iteration, from the first to the sixtieth.

Paper (curves): the norm rises steeply and flattens slightly after 10 iterations; the angle falls sharply and is almost
flat after 10. Ours, LeNet, batch 64, 3 seeds, CPU: AVH has settled at iteration 46 ± 8, the norm at 51 ± 9.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from hardsight import records
from hardsight.datasets.loader import DeviceLoader
from hardsight.models import Classifier
from hardsight.report.canvas import BLUE, GREEN, INK, RED, drawing
from hardsight.training import Cell
from hardsight.training.config import TrainingConfig
from hardsight.training.configured import session
from hardsight.training.reading import build
from hardsight_studies.avh.dynamics_figures import draw_band
from hardsight_studies.avh.groups import ALL
from hardsight_studies.avh.looking import curves_of, group_statistics, look, mean_curves
from hardsight_studies.avh.plateau import broken_stick, phases, settling_time
from hardsight_studies.avh.terms import AVH, NORM
from hardsight_studies.configured import Tree
from hardsight_studies.framework import Options, Study, finished_cells, markdown_table, provenance, shown, spread
from hardsight_studies.wording import plural, terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS_FILE = "steps.parquet"
# Twice what a guess among ten classes gets right: a training that ends below has learned nothing, or lost it.
GUESSING = 0.2
QUANTITIES = {"norm": ("feature norm", GREEN), "avh": ("AVH", BLUE), "correct": ("accuracy", RED)}


@dataclass(frozen=True)
class Iterations:
    """A preset: the configuration of one short epoch, seeds, and how many test images are looked at."""

    tree: Tree
    seeds: int
    images: int


def _one_epoch(
    data: str, network: str, batch_size: int, iterations: int, images: int, seeds: int, lr: float
) -> Iterations:
    limit = batch_size * iterations
    tree = {
        "data": {"name": data, "limit": limit, "batch_size": batch_size, "held_out": 0.4},
        "model": {"name": network, "options": {"feature_dim": 64} if network == "lenet" else {}},
        "optimizer": {"lr": lr},
        "epochs": 1,
        "record": {"dynamics": False, "scores": ["avh"]},
    }
    return Iterations(tree, seeds, images)


PRESETS = {
    "smoke": _one_epoch("digits", "digits_cnn", 32, 20, 150, 2, 0.05),
    "cpu": _one_epoch("mnist", "lenet", 64, 60, 1000, 3, 0.05),
    "paper": _one_epoch("mnist", "lenet", 64, 60, 3840, 10, 0.05),
}


def cells(preset: str) -> list[Cell]:
    """One cell a seed."""
    return [Cell({"seed": seed}) for seed in range(PRESETS[preset].seeds)]


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train step by step, and look at the test images after each."""
    device = options.torch_device
    for cell, folder in mine:
        options.clock.check()
        _train(PRESETS[preset], cell, folder, device)


def _train(of: Iterations, cell: Cell, folder: Path, device: torch.device) -> None:
    rows: list[dict[str, float]] = []

    def write(model: nn.Module) -> Mapping[str, Any]:
        records.write_table(folder / STEPS_FILE, pa.Table.from_pylist(rows))
        return {"iterations": len(rows)}

    tree = {**of.tree, "seed": cell.settings["seed"], "folder": str(folder), "name": cell.name}
    made = session(build(TrainingConfig, tree), device, progress=False, resume=False, measure=write)
    test = cast("DeviceLoader", made.training.test)
    images, labels = test.images[: of.images], test.labels[: of.images]
    for _ in made.stepwise():
        seen = look(cast("Classifier", made.training.model), images, labels, test.scale)
        rows.append(group_statistics(seen, torch.zeros_like(labels), 1, ALL))


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """The mean curves over the seeds that learn, and when each of them has settled."""
    places = [folder / cell.name for cell in finished_cells(folder, cells(preset))]
    every = [curves_of(pq.read_table(place / STEPS_FILE).to_pylist(), ALL, 1)[0] for place in places]
    # A network that has died has no angles to settle; where all have, they are what there is to see.
    runs = [curves for curves in every if curves["correct"][-1] > GUESSING] or every
    measures: dict[str, list[float]] = {}
    for curves in runs:
        for name in QUANTITIES:
            measures.setdefault(f"{name}_settled", []).append(float(settling_time(curves[name])))
            measures.setdefault(f"{name}_knot", []).append(float(broken_stick(curves[name]).knot))
            measures.setdefault(f"{name}_by_10", []).append(_made(curves[name], 10))
        measures.setdefault("norm_growth_after", []).append(float(phases(curves)["norm_growth_after"]))
    return {
        "settings": dataclasses.asdict(PRESETS[preset]),
        "trainings": len(every),
        "learned": len(runs),
        "curves": mean_curves(runs),
        "measures": {name: spread(values) for name, values in measures.items()},
    }


def _made(values: Sequence[float], time: int) -> float:
    """Share of a curve's whole change that is made by this time."""
    whole = values[-1] - values[0]
    return (values[min(time, len(values)) - 1] - values[0]) / whole if whole else 1.0


def table(results: Mapping[str, Any]) -> str:
    """What came out, and when norm, AVH and accuracy settle."""
    of = results["measures"]
    # The median: a seed that ends where it began has no change to share.
    made = {name: f"{statistics.median(of[f'{name}_by_10']['values']):.0%}" for name in QUANTITIES}
    rows = [
        [title, *(shown(of[f"{name}_{key}"], 1) for key in ("settled", "knot")), made[name]]
        for name, (title, _) in QUANTITIES.items()
    ]
    flat = "flat by then" if of["avh_settled"]["mean"] <= 10 else "not flat by then"
    pairs = list(zip(of["avh_settled"]["values"], of["norm_settled"]["values"], strict=True))
    result = (
        "**Result.** In the paper AVH is almost flat after 10 iterations, while the norm flattens only slightly. Here, "
        f"by iteration 10 AVH has made {made['avh']} of its change and the norm {made['norm']} (medians over seeds): "
        f"AVH is {flat}. AVH settles at iteration {shown(of['avh_settled'], 1)} and the norm at "
        f"{shown(of['norm_settled'], 1)}; AVH is first in {sum(avh < norm for avh, norm in pairs)} of "
        f"{plural(len(pairs), 'seed')}; from then on the norm changes by {of['norm_growth_after']['mean']:+.0%}."
    )
    heads = ("", "settled at iteration", "knot", "made by iteration 10 (median)")
    head = f"{provenance(results)} {_looked_at(results)}"
    return "\n\n".join([result, head, _LEGEND, markdown_table(heads, rows), _LIMITS]) + "\n"


_LEGEND = """**How to read the table.** Numbers are means ± standard deviations over seeds, counted in iterations.

- `settled at iteration`: the first iteration from which the curve stays within a tenth of its whole range of its last
  value.
- `knot`: where the two pieces meet of the broken line that fits the curve best.
- `made by iteration 10`: the share of the change from the first to the last iteration that is made by then; the
  median over seeds."""
_LIMITS = """**What one may conclude.** When a curve settles depends on the learning rate and the batch size, which
the paper does not print for this figure; here they are chosen. Sixty iterations are the very beginning of a
training, and a curve that has settled within them may move later."""


def _looked_at(results: Mapping[str, Any]) -> str:
    """How many test images, and the trainings that are left out."""
    text = f"The first {results['settings']['images']:,} test images are looked at."
    lost = results.get("trainings", 0) - results.get("learned", 0)
    if not lost:
        return text
    ends = "ends no better than a guess and is" if lost == 1 else "end no better than a guess and are"
    return f"{text} {lost} of {plural(results['trainings'], 'training')} {ends} left out."


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Norm, AVH and accuracy by iteration, with the iteration at which AVH has settled."""
    curves, settled = results["curves"], results["measures"]["avh_settled"]["mean"]
    with drawing(8.6, 2.9, panels=3, columns=3) as figure:
        for axes, (name, (title, colour)) in zip(figure.axes, QUANTITIES.items(), strict=True):
            values = np.array(curves[name], dtype=np.float64)
            times = np.arange(1, len(values) + 1)
            axes.plot(times, values, color=colour, linewidth=1.8)
            if name != "correct":
                draw_band(axes, times, curves, name, colour)
            axes.axvline(settled, color=INK, linestyle="--", linewidth=1.0, label="AVH has settled")
            axes.set_xlabel("iteration")
            axes.set_ylabel(title)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", fontsize=8)
    return {"figure15": figure}


ABOUT = f"""What do angular visual hardness (AVH) and the length of the features do in the first steps of a training?
The paper sees the angles settle within about ten iterations, while the norm flattens only slightly.

{terms(AVH, NORM)}

**How it was made.** A LeNet with 64 features is trained on MNIST by SGD with learning rate 0.05, momentum 0.9 and
batches of 64. After each of the first 60 iterations it looks at test images. A training that ends below an accuracy of
20 %, twice that of guessing, has not learned; it is left out and counted.

**Figure.** Lines are means over images and seeds. Bands are one standard deviation of the images, cut at 0, since
neither norm nor AVH can be negative."""

FIGURE_15 = Study(
    id="avh-figure15",
    title="norm and AVH on MNIST, iteration by iteration",
    about=ABOUT,
    reference="AVH Fig. 15",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    figures=figures,
    worth=lambda cell, file: 0 if file == STEPS_FILE else None,
)
