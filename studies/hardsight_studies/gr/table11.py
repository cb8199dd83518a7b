"""GR, Table 11: what a network fits of the right and of the wrong labels, and whether its predictions can replace them.

Paper (CIFAR-10, ResNet-56): at 20 % GR (12, 0.5) fits 98.8 % of the right and 11.7 % of the wrong labels, CCE 99.0 %
and 85.9 %; trained again on its own predictions, GR ends at 89.3 (+1.5). At 40 %, GR (16, 1): 94.8 % and 7.5 %, then
85.3 (+2). Ours in 154 epochs (one seed): at 20 % GR 98.2 % and 7.1 %, CCE 98.6 % and 59.1 %; at 40 % GR 90.8 % and
4.2 %, CCE 95.4 % and 39.7 %. Training again is not measured yet.

The fit of all given labels is (1 - r) times that of the right plus r times that of the wrong ones. The paper's GR rows
obey this within half a point, its CCE rows do not (at 40 % noise 90.6 follows where 83.0 is printed).
"""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from hardsight.cleaning.correction import correct_labels, correction_report
from hardsight.training import Cell, NonFiniteLossError
from hardsight.training.sweeps import FINISHED, missing, status_of
from hardsight_studies.configured import CellTraining, Hooks, train_cells
from hardsight_studies.framework import Options, Study, finished_cells, markdown_table, run_details, spread
from hardsight_studies.gr.judged import (
    KINDS,
    cell_of,
    judge_cells,
    key_of,
    kind_of,
    kinds_of,
    mean_of,
    shown_accuracy,
    shown_last_and_best,
)
from hardsight_studies.gr.table3 import TABLE3
from hardsight_studies.gr.table3_trainings import OTHERS, PROTOCOLS, configure
from hardsight_studies.gr.tables import page
from hardsight_studies.gr.terms import BY_HEART, CCE, GR, LET_GO, NOISE
from hardsight_studies.gr.trainings import LONG, RELEASED, gr, recalls, title_of
from hardsight_studies.wording import above_or_below, percents, slashed, terms

AGAIN = "again"
COLUMNS = ("best", "last", "corrupted", "intact", "clean", "noisy")
# Rate, method: the columns above, then the last accuracy after training again on the predictions.
PAPER: dict[tuple[float, str], tuple[float | None, ...]] = {
    (0.2, "cce"): (86.5, 76.8, 95.7, 80.6, 99.0, 85.9, None),
    (0.2, gr(12, 0.5)): (89.4, 87.8, 81.5, 95.0, 98.8, 11.7, 89.3),
    (0.4, "cce"): (82.8, 60.9, 83.0, 64.4, 97.0, 81.1, None),
    (0.4, gr(16, 1)): (84.7, 83.3, 60.3, 88.9, 94.8, 7.5, 85.3),
}
_UNPRINTED = (None,) * (len(COLUMNS) + 1)
# The printed protocol, and those as long as the authors' later code.
UNDER = ("", LONG, RELEASED)
# Beside the paper's rows: a milder setting at 40 %, in case GR (16, 1) drops whole classes.
PAIRS = (*PAPER, (0.4, gr(12, 0.5)))


def cells(preset: str) -> list[Cell]:
    """First trainings of Table 3, 40 % before 20 %; then those on the labels that these predict; then more seeds.

    Last the same as long as the authors' code trains.
    """
    if preset != "paper":
        first = [cell_of(0.2, gr(12, 0.5), 0), cell_of(0.2, "cce", 0)]
        return first + [again_of(cell) for cell in first if preset != "smoke" or cell.settings["method"] != "cce"]
    pairs = sorted(PAPER, key=lambda pair: (-pair[0], pair[1] != "cce"))
    groups = [[cell_of(*pair, seed) for pair in pairs] for seed in (0, 1, 2)]
    groups += [[cell_of(*pair, 0, protocol) for pair in PAIRS] for protocol in UNDER if protocol]
    return [cell for first in groups for cell in (*first, *map(again_of, first))]


def again_of(cell: Cell) -> Cell:
    """The training on what this one predicts."""
    kind = {name: value for name, value in cell.settings.items() if name != "seed"}
    return Cell({**kind, "stage": AGAIN, "seed": cell.settings["seed"]})


def _key(rate: float, method: str, protocol: str, stage: str = "") -> str:
    first = kind_of(rate, method, protocol)
    return f"{first},stage={stage}" if stage else first


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train the first ones of these cells together, then the others on what the first ones predict."""
    configured = functools.partial(configure, preset)
    first = [one for one in mine if "stage" not in one[0].settings]
    again = [one for one in mine if "stage" in one[0].settings]
    # A training again waits for its first one: where that is missing still, it comes with it.
    needed = {_source(*one) for one in again} - {folder for _, folder in first}
    first += [(_first_of(cell), _source(cell, folder)) for cell, folder in again if _source(cell, folder) in needed]
    first = [(cell, folder) for cell, folder in first if missing(folder.parent, [cell])]
    if first:
        # The record says that one failed; what the others predict can be learnt all the same.
        with contextlib.suppress(NonFiniteLossError):
            train_cells(first, options, configured, Hooks(measure=recalls))
    ready = []
    for cell, folder in again:
        if status_of(_source(cell, folder)) == FINISHED:
            ready.append((cell, folder))
        else:
            options.say(f"skipped {cell.name}: the training whose predictions it would learn has failed")
    if ready:
        train_cells(ready, options, configured, Hooks(begin=_relabel, measure=_corrected))


def _first_of(cell: Cell) -> Cell:
    return Cell({name: value for name, value in cell.settings.items() if name != "stage"})


def _source(cell: Cell, folder: Path) -> Path:
    """The record of the training whose predictions this one learns."""
    return folder.parent / _first_of(cell).name


def _predictions(training: CellTraining) -> tuple[Tensor, Tensor, Tensor]:
    """Given, predicted and true labels of the first training, in the order of the batches' samples."""
    samples = pq.read_table(_source(Cell(training.run.settings), training.folder) / "samples.parquet").sort_by("id")
    ids = torch.from_numpy(samples["id"].to_numpy().copy())
    assert torch.equal(ids, training.batches.ids.cpu()), "the records must be of the same samples"
    given, predicted, true = (
        torch.from_numpy(samples[name].to_numpy().copy()).long() for name in ("label", "predicted", "clean_label")
    )
    return given, predicted, true


def _relabel(training: CellTraining) -> None:
    given, predicted, _ = _predictions(training)
    training.batches.set_labels(correct_labels(given, predicted).labels)


def _corrected(training: CellTraining, model: nn.Module) -> dict[str, int]:
    """What the correction repaired and damaged, counted."""
    given, predicted, true = _predictions(training)
    report = correction_report(given, correct_labels(given, predicted).labels, true)
    return {f"correction_{name}": value for name, value in dataclasses.asdict(report).items()}


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Accuracies over seeds and curves by rate, method and stage; what the corrections did."""
    every = cells(preset)
    found = judge_cells(every, folder, PROTOCOLS[preset])
    again: dict[str, list[dict[str, Any]]] = {}
    for cell in finished_cells(folder, [cell for cell in every if "stage" in cell.settings]):
        again.setdefault(key_of(cell), []).append(run_details(folder / cell.name)["results"])
    wrong = {
        key: {
            name: spread([one[f"correction_wrong_{name}"] / one["correction_samples"] for one in results])
            for name in ("before", "after")
        }
        for key, results in again.items()
    }
    return {**found, "wrong_labels": wrong}


def table(results: Mapping[str, Any]) -> str:
    """Ours beside the paper's, whether the fits add up, and what the correction did; then under other protocols."""
    parts = []
    for protocol in UNDER:
        if protocol and not any(_key(*pair, protocol) in results["accuracies"] for pair in PAIRS):
            continue
        parts += [OTHERS[protocol].head] if protocol else []
        gained = [one for pair in PAIRS if (one := _gained(results, *pair, protocol))]
        parts += [_beside(results, protocol), "\n".join(f"- {one}" for one in gained), _adds_up(results, protocol)]
    return page(results, parts, result=_result(results), legend=_LEGEND, conclude=_SCOPE)


_LEGEND = """**How to read the table.** An entry is ours, in square brackets what the paper prints, in percent. – is not
measured yet.

- `last`: test accuracy at the end of training, the number that counts. `best`: that of the best epoch, chosen by the
  test set.
- `given labels`, `true labels`: accuracy on the training images against the labels that were given, wrong ones
  included, and against the true ones.
- `right ones`, `wrong ones`: the share of the right and of the wrong labels that the network predicts. The second is
  what it has learnt by heart.
- `trained again`: test accuracy at the end of the training on the predictions; in brackets, that of its best epoch."""
_SCOPE = """[gr-table3](gr-table3.md) has the same first trainings with more settings. The settings of GR are the
paper's, chosen by the test set."""


def _result(results: Mapping[str, Any]) -> str:
    """By protocol, what is fitted of right and wrong labels, and what training again on the predictions gains."""
    said, gains = [], False
    for protocol in UNDER:
        gained = [one for pair in PAIRS if (one := _gain(results, *pair, protocol))]
        said.append(_fits(results, protocol))
        if gained:
            said.append(f"Training again on the predictions gains, in points: {'; '.join(gained)}.")
            gains = True
    if any(said) and not gains:
        said.append("Training again on the predictions is not measured yet.")
    return " ".join(one for one in said if one)


def _fits(results: Mapping[str, Any], protocol: str) -> str:
    """How many right and wrong labels CCE and the paper's GR fit, at the rates where both are measured."""
    ours: dict[float, list[float | None]] = {}
    theirs: dict[float, list[float | None]] = {}
    for rate, method in PAPER:
        fits = [mean_of(results, _key(rate, method, protocol), one) for one in ("noisy", "clean")]
        ours.setdefault(rate, []).extend(fits)
        theirs.setdefault(rate, []).extend(PAPER[rate, method][place] for place in (5, 4))
    rates = [rate for rate, numbers in ours.items() if None not in numbers]
    if not rates:
        return ""

    def row(of: Mapping[float, list[float | None]], place: int) -> str:
        return slashed((of[rate][place] or 0.0 for rate in rates), ".1f")

    # Of each rate: the wrong and the right labels that CCE fits, then those that GR fits.
    epochs = (OTHERS[protocol].protocol if protocol else PROTOCOLS["paper"]).epochs
    decay = " with weight decay 5e-4" if protocol == RELEASED else ""
    return (
        f"In {epochs} epochs{decay}, at {percents(rates)} % noise, CCE fits {row(ours, 0)} % of the wrong labels and "
        f"GR {row(ours, 2)} % (paper: {row(theirs, 0)} and {row(theirs, 2)}); of the right ones {row(ours, 1)} and "
        f"{row(ours, 3)} % (paper: {row(theirs, 1)} and {row(theirs, 3)})."
    )


def _gain(results: Mapping[str, Any], rate: float, method: str, protocol: str) -> str:
    first, again = (mean_of(results, _key(rate, method, protocol, stage), "last") for stage in ("", AGAIN))
    if first is None or again is None:
        return ""
    printed = PAPER.get((rate, method), _UNPRINTED)
    beside = "" if printed[6] is None or printed[1] is None else f" (paper {printed[6] - printed[1]:+.1f})"
    return f"at {100 * rate:.0f} % noise {title_of(method)} {again - first:+.1f}{beside}"


def _beside(results: Mapping[str, Any], protocol: str) -> str:
    """Rates and methods of a protocol as a table."""
    columns = ["given labels", "true labels", "right ones", "wrong ones", "trained again"]
    planned, rows = kinds_of(cells(results["preset"])), []
    for rate, method in sorted(PAIRS, key=lambda pair: pair[0]):
        first = _key(rate, method, protocol)
        if first in planned:
            ours = [shown_accuracy(results, first, one) or "–" for one in COLUMNS]
            ours.append(shown_last_and_best(results, _key(rate, method, protocol, AGAIN)))
            printed = PAPER.get((rate, method), _UNPRINTED)
            entries = (one + ("" if paper is None else f" [{paper}]") for one, paper in zip(ours, printed, strict=True))
            rows.append([f"{100 * rate:.0f} %", title_of(method), *entries])
    return markdown_table(["noise", "model", "best", "last", *columns], rows)


def follows(rate: float, clean: float, noisy: float) -> float:
    """The fit of all given labels that the fits of the right and of the wrong ones imply at this rate."""
    return (1 - rate) * clean + rate * noisy


def _adds_up(results: Mapping[str, Any], protocol: str) -> str:
    """How far the three fits are from adding up: ours, and as printed."""
    ours, theirs = [], {}
    for (rate, method), printed in PAPER.items():
        key = _key(rate, method, protocol)
        corrupted, clean, noisy = (mean_of(results, key, one) for one in ("corrupted", "clean", "noisy"))
        if corrupted is None or clean is None or noisy is None:
            continue
        ours.append(abs(follows(rate, clean, noisy) - corrupted))
        assert printed[2] is not None and printed[4] is not None and printed[5] is not None  # noqa: PT018
        theirs[f"{title_of(method)} at {100 * rate:.0f} %"] = abs(follows(rate, printed[4], printed[5]) - printed[2])
    if not ours:
        return ""
    listed = ", ".join(f"{name} {value:.1f}" for name, value in theirs.items())
    return (
        "A check: (1 − noise) times the fit of the right labels plus noise times that of the wrong ones must be the "
        f"fit of all. It misses the fit of all by at most {max(ours):.1f} points in ours; by {listed} as printed."
    )


def _gained(results: Mapping[str, Any], rate: float, method: str, protocol: str) -> str:
    """Wrong labels before and after the correction, and what training again gains."""
    later = _key(rate, method, protocol, AGAIN)
    shares = results["wrong_labels"].get(later)
    first, again = (mean_of(results, key, "last") for key in (_key(rate, method, protocol), later))
    if shares is None or first is None or again is None:
        return ""
    printed = PAPER.get((rate, method), _UNPRINTED)
    beside = "" if printed[6] is None or printed[1] is None else f" (paper: {printed[6] - printed[1]:+.1f})"
    before, after = (100 * shares[name]["mean"] for name in ("before", "after"))
    return (
        f"{title_of(method)} at {100 * rate:.0f} %: its predictions as labels take the wrong ones from {before:.1f} % "
        f"to {after:.1f} %; trained again on them it ends {above_or_below(again - first)} the first training{beside}."
    )


ABOUT = f"""When labels are wrong, what does a network learn of the right ones and what of the wrong ones? And if its
predictions replace the labels, does a second training on them end higher? The paper says: cross-entropy (CCE) learns
most wrong labels by heart, gradient rescaling (GR) few of them, and training again on GR's predictions gains up to two
points.

{terms(CCE, GR, NOISE, BY_HEART)}

**How it was made.** ResNet-56 on CIFAR-10 with symmetric noise: the trainings of [gr-table3](gr-table3.md). Each
leaves its prediction for every training image. These become the labels of a second training from scratch, with the
same loss. It is planned with the printed schedule of 51 epochs and with trainings of 154 epochs, in which the
paper's result comes out there. {LET_GO}"""

TABLE11 = Study(
    id="gr-table11",
    title="what is fitted of right and wrong labels, and training again on the predictions",
    about=ABOUT,
    reference="GR Table 11",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    at_once={"smoke": 3, "cpu": 1, "paper": 4},
    records=TABLE3.id,
    entries=KINDS.beside("wrong_labels"),
)
