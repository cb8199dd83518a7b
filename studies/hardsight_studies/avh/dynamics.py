"""What norm, AVH, confidence and accuracy of test images do while a network trains (AVH, Figures 4 and 9 to 15).

After every epoch (Figure 15: every iteration) the row in the record holds means and standard deviations of all groups
of test images (`levels`).
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from hardsight import records, training
from hardsight.datasets.loader import DeviceLoader
from hardsight.models import Classifier
from hardsight.training.from_config import loop_of
from hardsight.training.record import Row as EpochRow
from hardsight_studies.avh import looking
from hardsight_studies.avh.levels import STATISTICS, GroupedImages, found_at, group_statistics
from hardsight_studies.avh.people import human_votes
from hardsight_studies.avh.phases import knot, ordered_share, phases, settling_time
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.rows import Row, Rows, path_of, read
from hardsight_studies.engine.running import points_of, row_of
from hardsight_studies.engine.trainings import Hooks, Training, config_of, train

# How many test images are degraded.
DEGRADED = {"smoke": 60, "cpu": 200, "paper": 2000}
_WITH_PEOPLE = ("cifar10", "digits")
STEPS = "steps.parquet"
# How many test images are looked at after every iteration.
ITERATED = {"smoke": 150, "cpu": 1000, "paper": 3840}
# Twice what a guess among ten classes gets right: a training that ends below has learned nothing, or lost it.
GUESSING = 0.2


def compute(runs: Sequence[Run], preset: str, options: Options) -> None:
    """Train these runs together and follow the test images, as they are and degraded, after every epoch."""
    watched: dict[Path, GroupedImages] = {}

    def begin(training: Training) -> None:
        # Now, not after the first epoch: people's answers may be missing.
        name, test = training.config.data.name, training.test
        people = human_votes(name).frequency[test.ids.cpu()] if name in _WITH_PEOPLE else None
        watched[training.folder] = GroupedImages(test.images, test.labels, test.scale, people, DEGRADED[preset])

    def after_epoch(training: Training, epoch: int, row: EpochRow) -> None:
        row |= watched[training.folder].statistics(cast("Classifier", training.model))

    def measure(training: Training, model: nn.Module) -> Mapping[str, Any]:
        images = watched[training.folder]
        _, at_levels = images.looks(cast("Classifier", model))
        sizes = {f"images{at}": size for at, size in enumerate(images.sizes)}
        looking.write_found(training.run, [looking.Found(sizes), *found_at(at_levels)])
        return {}

    train(runs, options, Hooks(after_epoch, measure, begin))


def rows(runs: Sequence[Run], preset: str) -> Iterator[Row]:
    """The phases of each training, how its groups compare, and AVH at each level of degradation at the end."""
    for run in runs:
        sizes, *levels = looking.rows([run], preset)
        epochs = pq.read_table(run.folder / "epochs.parquet").to_pylist()
        yield row_of(run, {**finite(measures(epochs)), **sizes.metrics})
        yield from levels


def points(runs: Sequence[Run], preset: str) -> list[dict[str, Any]]:
    """The curves of all groups and of the losses, and the distributions of AVH at each level."""
    found = looking.points(runs, preset)
    for run in runs:
        table = pq.read_table(run.folder / "epochs.parquet")
        kept = [name for name in table.column_names if name.endswith((*STATISTICS, "_rho", "_loss"))]
        found += _curves(run, table.select(kept).to_pydict())
    return found


def measures(epochs: Sequence[Mapping[str, Any]]) -> dict[str, float | int]:
    """The phases of one training, and how its groups compare with each other."""
    found: dict[str, float | int] = {"epochs": len(epochs), **phases(_of(epochs, "all0"))}
    for name in (one for one in ("human", "noise", "contrast") if f"{one}0_avh" in epochs[0]):
        groups = [_of(epochs, f"{name}{at}") for at in range(5)]
        found[f"{name}_avh_ordered"] = ordered_share([one["avh"] for one in groups], falling=True)
        found[f"{name}_norm_ordered"] = ordered_share([one["norm"] for one in groups], falling=False)
        first, last = (one["norm"][-1] for one in (groups[0], groups[-1]))
        found[f"{name}_norm_gap"] = math.nan if first is None or last is None else last / first - 1
    for name in (one for one in ("avh", "confidence", "norm") if f"{one}_rho" in epochs[0]):
        rho = np.array([row[f"{name}_rho"] for row in epochs], dtype=np.float64)
        found |= {f"{name}_rho_first": rho[0], f"{name}_rho_last": rho[-1], f"{name}_rho_mean": float(rho.mean())}
        found |= {f"{name}_rho_least": rho.min(), f"{name}_rho_most": rho.max()}
    return found


def better_networks(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Observation 4: accuracy and mean AVH of every network that was measured, trained here or public, the best first.

    The last line counts the pairs of networks in which the more accurate one has the lower AVH.
    """
    unchanged = {"degradation": "noise", "level": 0.0}
    numbers = [(network, rows.number("last_accuracy", network=network), rows.number("avh_last", network=network))
               for network in rows.options("network")]  # fmt: skip
    if path_of("avh-figure17", rows.folder).is_file():
        public = read("avh-figure17", rows.folder, rows.preset)
        numbers += [(network, *(public.number(name, network=network, **unchanged) for name in ("correct", "avh")))
                    for network in public.options("network")]  # fmt: skip
    found = sorted(((one.mean, avh.mean, name) for name, one, avh in numbers if one and avh), reverse=True)
    pairs = [better[1] < worse[1] for better, worse in itertools.combinations(found, 2)]
    lines = [[name, f"{accuracy:.1%}", f"{avh:.4f}"] for accuracy, avh, name in found]
    return ["network", "accuracy", "mean AVH"], [
        *lines,
        ["pairs in the paper's order", f"{sum(pairs)}", f"of {len(pairs)}"],
    ]


def finite(numbers: Mapping[str, float | int]) -> dict[str, float | int | None]:
    """What is no number as None: a row holds none."""
    return {name: (value if isinstance(value, int) else float(value)) if math.isfinite(value) else None
            for name, value in numbers.items()}  # fmt: skip


def _of(epochs: Sequence[Mapping[str, Any]], group: str) -> dict[str, list[Any]]:
    return {name: [row[f"{group}_{name}"] for row in epochs] for name in STATISTICS}


def _curves(run: Run, columns: Mapping[str, Sequence[float | None]]) -> list[dict[str, Any]]:
    found = []
    for name, values in columns.items():
        known = [(at, y) for at, y in enumerate(values, 1) if y is not None and math.isfinite(y)]
        found += points_of(run, name, {"x": [x for x, _ in known], "y": [y for _, y in known]})
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Figure 15: iteration by iteration.


def iterate(runs: Sequence[Run], preset: str, options: Options) -> None:
    """Train step by step, and look at the test images after each."""
    for run in runs:
        options.clock.check()
        steps: list[dict[str, float]] = []

        def write(model: nn.Module, run: Run = run, steps: list[dict[str, float]] = steps) -> Mapping[str, Any]:
            records.write_table(run.folder / STEPS, pa.Table.from_pylist(steps))
            return {"iterations": len(steps)}

        hooks = training.Hooks(measure=write)
        loop = loop_of(config_of(run), options.torch_device, progress=False, resume=False, hooks=hooks)
        test = cast("DeviceLoader", loop.test)
        images, labels = test.images[: ITERATED[preset]], test.labels[: ITERATED[preset]]
        for _ in loop.stepwise():
            seen = looking.look(cast("Classifier", loop.model), images, labels, test.scale)
            steps.append(group_statistics(seen, torch.zeros_like(labels), 1, "all"))


def iterated_rows(runs: Sequence[Run], preset: str) -> Iterator[Row]:
    """When norm, AVH and accuracy settle in each training; one that has not learned has no times."""
    for run in runs:
        curves = _of(pq.read_table(run.folder / STEPS).to_pylist(), "all0")
        learned = curves["correct"][-1] > GUESSING
        yield row_of(run, {"learned": int(learned), "images": ITERATED[preset]})
        for name in ("norm", "avh", "correct") if learned else ():
            curve = curves[name]
            found = {"settled": settling_time(curve), "knot": knot(curve), "by_10": made_by(curve, 10)}
            if name == "norm":
                found["growth_after"] = phases(curves)["norm_growth_after"]
            yield row_of(run, finite(found), settings={"quantity": name})


def iterated_points(runs: Sequence[Run], preset: str) -> list[dict[str, Any]]:
    """The curves of the trainings that have learned."""
    tables = [(run, pq.read_table(run.folder / STEPS)) for run in runs]
    learned = [(run, table) for run, table in tables if table["all0_correct"][-1].as_py() > GUESSING]
    return [one for run, table in learned for one in _curves(run, table.to_pydict())]


def made_by(values: Sequence[float], time: int) -> float:
    """Share of a curve's whole change that is made by this time."""
    whole = values[-1] - values[0]
    return (values[min(time, len(values)) - 1] - values[0]) / whole if whole else 1.0
