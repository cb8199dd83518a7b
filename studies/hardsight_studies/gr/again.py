"""GR, Table 11: training again, from scratch, on the labels that a first training predicts.

The fit of all given labels is (1 - r) times that of the right plus r times that of the wrong ones. The paper's GR rows
obey this within half a point, its CE rows do not (at 40 % noise 90.6 follows where 83.0 is printed).
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from hardsight.cleaning.correction import correct_labels, correction_report
from hardsight.training import NonFiniteLossError
from hardsight.training.sweeps import FAILED, FINISHED, status_of
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import Run, name_of
from hardsight_studies.engine.rows import Rows
from hardsight_studies.engine.tables import formatted
from hardsight_studies.engine.trainings import Hooks, Training, train
from hardsight_studies.gr.learned import recalls

AGAIN = "again"
# What the table shows, and the paper's numbers by rate and method; the last is that of training again.
COLUMNS = {"best": "best", "last": "last", "given labels": "corrupted", "true labels": "intact", "right ones": "clean",
           "wrong ones": "noisy"}  # fmt: skip
PAPER: Mapping[tuple[float, str], Sequence[float]] = {
    (0.2, "cce"): (86.5, 76.8, 95.7, 80.6, 99.0, 85.9),
    (0.2, "gr-12-0.5"): (89.4, 87.8, 81.5, 95.0, 98.8, 11.7, 89.3),
    (0.4, "cce"): (82.8, 60.9, 83.0, 64.4, 97.0, 81.1),
    (0.4, "gr-16-1"): (84.7, 83.3, 60.3, 88.9, 94.8, 7.5, 85.3),
}


def compute(runs: Sequence[Run], preset: str, options: Options) -> None:
    """Train the first ones of these runs together, then the others on what the first ones predict."""
    again = [run for run in runs if run.settings.get("stage") == AGAIN]
    first = {run.folder: run for run in runs if run not in again}
    # A training again waits for its first one: where that is missing still, it comes with it.
    needed = {run.folder: run for run in map(first_of, again) if status_of(run.folder) not in (FINISHED, FAILED)}
    if waiting := [*{**needed, **first}.values()]:
        # The record says that one failed; what the others predict can be learned all the same.
        with contextlib.suppress(NonFiniteLossError):
            train(waiting, options, Hooks(measure=recalls))
    ready = [run for run in again if status_of(first_of(run).folder) == FINISHED]
    for run in again:
        if run not in ready:
            options.say(f"skipped {run.name}: the training whose predictions it would learn has failed")
    if ready:
        train(ready, options, Hooks(begin=_relabel, measure=_corrected))


def first_of(run: Run) -> Run:
    """The training whose predictions this one learns."""
    settings = {name: value for name, value in run.settings.items() if name != "stage"}
    return dataclasses.replace(run, settings=settings, folder=run.folder.parent / name_of(settings))


def _predictions(training: Training) -> tuple[Tensor, Tensor, Tensor]:
    """Given, predicted and true labels of the first training, in the order of the batches' samples."""
    samples = pq.read_table(first_of(training.run).folder / "samples.parquet").sort_by("id")
    ids = torch.from_numpy(samples["id"].to_numpy().copy())
    if not torch.equal(ids, training.batches.ids.cpu()):
        raise ValueError(f"{first_of(training.run).folder} must hold a record of the same samples; it holds others")
    columns = (samples[name].to_numpy().copy() for name in ("label", "predicted", "clean_label"))
    given, predicted, true = (torch.from_numpy(column).long() for column in columns)
    return given, predicted, true


def _relabel(training: Training) -> None:
    given, predicted, _ = _predictions(training)
    training.batches.set_labels(correct_labels(given, predicted))


def _corrected(training: Training, model: nn.Module) -> dict[str, Any]:
    """What the correction repaired and damaged, counted, and the shares of wrong labels before and after."""
    given, predicted, true = _predictions(training)
    report = correction_report(given, correct_labels(given, predicted), true)
    counts = {f"correction_{name}": value for name, value in report.items()}
    shares = {"before": report["wrong_before"], "after": report["wrong_after"]}
    return {**counts, **{f"correction_share_{name}": value / report["samples"] for name, value in shares.items()}}


def fits(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """What each first training fits, and its accuracy once trained again, ours and in brackets the paper's."""
    titles = {"printed": "51 epochs", "long": "154 epochs", "released": "154 epochs, weight decay 5e-4"}
    first = {tuple(row.settings.items()): row.settings for row in rows.where(stage=None)}
    lines = []
    order = sorted(first.values(), key=lambda one: (list(titles).index(one["protocol"]), one["rate"], one["method"]))
    for point in order:
        shown = [formatted(rows, f"{{{metric}:.1%}}", {**point, "stage": None}) for metric in COLUMNS.values()]
        shown.append(formatted(rows, "{last:.1%} ({best:.1%})", {**point, "stage": AGAIN}))
        printed = [f" [{number}]" for number in PAPER.get((point["rate"], point["method"]), ())]
        printed += [""] * (len(shown) - len(printed))
        name = "CE" if point["method"] == "cce" else "GR ({}, {})".format(*point["method"].split("-")[1:])
        cells = (ours + theirs for ours, theirs in zip(shown, printed, strict=True))
        lines.append([titles[point["protocol"]], f"{point['rate']:.0%}", name, *cells])
    return ["training", "noise", "loss", *COLUMNS, "trained again"], lines
