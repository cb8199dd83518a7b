"""Real noise instead of Clothing1M's: people's label errors in CIFAR-10N and CIFAR-100N under GR and its competitors.

Claim (GR, Section 4.3): under real noise of unknown structure GR beats cross-entropy and the robust losses. The paper
shows it on Clothing1M (its Table 6: CCE 71.7 and GCE 72.5, its own runs, SL 71.0, GR 73.2), which is not public for
all; people's errors in CIFAR (Wei et al. 2022: `aggre` 9 %, `random1` 17 %, `worse` 40 % of CIFAR-10's labels, 40 % of
CIFAR-100's) are.
Ours: docs/studies/gr-human-noise.md, made from the results files.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hardsight.studies.configured import Tree, train_cells
from hardsight.studies.framework import Options, Study, markdown_table
from hardsight.studies.gr.choosing import (
    AUTO,
    AUTO_AS_PRINTED,
    CHOOSING,
    choices,
    chosen_table,
    method_loss,
    method_title,
)
from hardsight.studies.gr.clothing1m import PAPER
from hardsight.studies.gr.collapse import weakest_classes
from hardsight.studies.gr.curves import learning_curves
from hardsight.studies.gr.judged import (
    KINDS,
    judge_cells,
    kinds_of,
    number_of,
    percent,
    several_seeds,
    shown_accuracy,
    under_protocol,
)
from hardsight.studies.gr.tables import page, standing
from hardsight.studies.gr.trainings import (
    DIGITS,
    PRINTED,
    RELEASED,
    RELEASED_DROPS,
    RELEASED_EPSILON,
    RELEASED_TRAINING,
    Protocol,
    gr,
)
from hardsight.studies.wording import listed
from hardsight.training import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# A cell's name says how it was trained: a setting alone is Eq. 6 to the letter, which was measured first; with this
# behind it, fitted samples are let go as in the authors' code.
_LETS_GO = "-released"


def _released(beta: int | float, lam: int | float) -> str:
    return gr(beta, lam) + _LETS_GO


class Labels(NamedTuple):
    """Where noisy labels come from: a data set's column, or for the digits a noise made on purpose."""

    title: str
    data: str
    noise: Tree
    tuned: str  # the paper's best setting for about this much noise and this many classes


def _people(title: str, data: str, column: str, tuned: str) -> Labels:
    return Labels(title, data, {"kind": "human", "column": column}, tuned)


LABELS = {
    "worse": _people("CIFAR-10N worse (40 %)", "cifar10", "worse_label", _released(16, 1)),
    "random1": _people("CIFAR-10N random1 (17 %)", "cifar10", "random_label1", _released(12, 0.5)),
    "aggre": _people("CIFAR-10N aggre (9 %)", "cifar10", "aggre_label", _released(2, 0)),
    "cifar100n": _people("CIFAR-100N (40 %)", "cifar100", "noisy_label", _released(6, 0.4)),
    "pairwise": Labels("digits, next class (30 %)", "digits", {"kind": "pairwise", "rate": 0.3}, _released(12, 0.5)),
}  # fmt: skip
UNKNOWN_NOISE = _released(8, 0.5)
TO_THE_LETTER = gr(8, 0.5)
COMMON = ("cce", UNKNOWN_NOISE, "gce", "sl", AUTO)
# The first forms of GR, kept with what was measured of them.
FORMER = (TO_THE_LETTER, AUTO_AS_PRINTED)
# As long as the authors' code trains on CIFAR-100: where wrong labels can be learnt by heart.
LONG_METHODS = ("cce", UNKNOWN_NOISE, "gce")
# Shortened: 20 epochs, the rate's falls where the authors' released code has them.
_SHORT = dataclasses.replace(PRINTED, model="resnet20", epochs=20, drops=RELEASED_DROPS, weight_decay=5e-4)
PROTOCOLS: dict[str, Protocol] = {
    "smoke": dataclasses.replace(DIGITS, epochs=6),
    # 3,000 images at a quarter of the pixels: to see it work on people's errors.
    "cpu": dataclasses.replace(_SHORT, epochs=6, limit=3000, shrink=2, shift=2),
    "paper": _SHORT,
}


def cells(preset: str) -> list[Cell]:
    """CCE, GR and auto on every kind of labels, the worst first; then GCE, SL and the tuned setting; then seeds.

    Then, or at any time by `--cells protocol=released`, long trainings; last, once, the first forms of GR and of auto.
    """
    if preset == "smoke":
        return [_cell("pairwise", method, 0) for method in ("cce", UNKNOWN_NOISE, AUTO)]
    kinds = ("worse", "aggre") if preset == "cpu" else ("worse", "random1", "aggre", "cifar100n")
    pairs = [(kind, method) for kind in kinds for method in ("cce", UNKNOWN_NOISE, AUTO)]
    pairs += [(kind, method) for kind in kinds for method in ("gce", "sl")]
    if preset == "paper":
        pairs += [(kind, LABELS[kind].tuned) for kind in kinds]
    seeds = (0, 1, 2) if preset == "paper" else (0,)
    planned = [_cell(kind, method, seed) for seed in seeds for kind, method in pairs]
    if preset == "paper":
        planned += [_cell(kind, method, 0, RELEASED) for kind in kinds for method in LONG_METHODS]
    former = [(kind, TO_THE_LETTER) for kind in kinds[:3]] + [(kind, AUTO_AS_PRINTED) for kind in kinds[:2]]
    return planned + [_cell(kind, method, 0) for kind, method in former]


def _cell(kind: str, method: str, seed: int, protocol: str = "") -> Cell:
    named = {"protocol": protocol} if protocol else {}
    return Cell({"labels": kind, "method": method, **named, "seed": seed})


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together."""
    train_cells(mine, options, lambda cell: configure(preset, cell))


def configure(preset: str, cell: Cell) -> Tree:
    """One training on people's labels, tested on the test set that nobody relabelled."""
    labels = LABELS[cell.settings["labels"]]
    # As the authors' code trains, no gradient is clipped either.
    as_released = {**RELEASED_TRAINING, "clip": None} if "protocol" in cell.settings else {"clip": 1.0}
    protocol = dataclasses.replace(PROTOCOLS[preset], data=labels.data, **as_released)
    tree = protocol.tree("cce", 0.0, cell.settings["seed"])
    if labels.noise["kind"] == "human":
        tree["data"] |= {"name": f"{labels.data}n", "test_name": labels.data}
    method = cell.settings["method"]
    loss = method_loss(method, 0.0, labels.data, RELEASED_EPSILON if method.endswith(_LETS_GO) else 0.0)
    return tree | {"loss": loss, "noise": labels.noise}


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Accuracies over seeds and curves, by labels and method, what `auto` chose, and the class each knows least."""
    planned = cells(preset)
    return judge_cells(planned, folder, PROTOCOLS[preset]) | {
        "choices": choices(planned, folder),
        "weakest": weakest_classes(planned, folder),
    }


def _key(kind: str, method: str, protocol: str = "") -> str:
    return under_protocol(f"labels={kind},method={method}", protocol)


def _methods(kind: str) -> tuple[str, ...]:
    return (*COMMON, LABELS[kind].tuned, *FORMER)


def _title(method: str) -> str:
    return f"{method_title(method)}, Eq. 6 to the letter" if method == TO_THE_LETTER else method_title(method)


def table(results: Mapping[str, Any]) -> str:
    """Best, last and the fit of wrong labels by labels and method, and who ends best."""
    legend = (
        "Accuracies in percent; – is not measured yet. The fit of wrong labels is the share of the wrongly labelled "
        "training images of which the network predicts the given label. The weakest class is the one that is "
        "recognised in the smallest share of its training images, by their true labels"
        f"{', of the first seed' if several_seeds(results) else ''}."
    )
    parts = [
        _beside(results),
        chosen_table(
            results, [(labels.title, one, _key(kind, one)) for one in CHOOSING for kind, labels in LABELS.items()]
        ),
        *(_verdict(results, kind) for kind in LABELS),
    ]
    if any(_key(kind, method, RELEASED) in results["accuracies"] for kind in LABELS for method in LONG_METHODS):
        parts += [_LONG_HEAD, _beside(results, RELEASED), *(_verdict(results, kind, RELEASED) for kind in LABELS)]
    return page(results, parts, legend)


_LONG_HEAD = (
    "As long as the authors' code trains on CIFAR-100 (154 epochs of batch 256, gradients of any norm), where wrong "
    "labels can be learnt by heart:"
)


def _beside(results: Mapping[str, Any], protocol: str = "") -> str:
    """Labels and methods of a protocol as a table."""
    kinds, columns = kinds_of(cells(results["preset"])), ("last", "best", "intact", "noisy")
    rows = [
        [
            LABELS[kind].title,
            _title(method),
            *(shown_accuracy(results, key, one) or "–" for one in columns),
            _weakest(results, key),
        ]
        for kind in LABELS
        for method in _methods(kind)
        if (key := _key(kind, method, protocol)) in kinds
    ]
    heads = ["last test", "best test", "true training labels", "fit of wrong labels", "weakest class"]
    return markdown_table(["labels", "method", *heads], rows)


def _weakest(results: Mapping[str, Any], key: str) -> str:
    """`cat (20.3)`; empty where it was not recorded."""
    found = results.get("weakest", {}).get(key)
    return "" if found is None else f"{found[0]} ({100 * found[1]:.1f})"


def _verdict(results: Mapping[str, Any], kind: str, protocol: str = "") -> str:
    """Which method ends best, and how GR (fixed) and auto stand to CCE."""
    found = {method: number_of(results, _key(kind, method, protocol), "last") for method in _methods(kind)}
    measured = {method: number for method, number in found.items() if number is not None}
    if "cce" not in measured or len(measured) < 2:
        return ""
    best, cce = max(measured, key=lambda method: measured[method]["mean"]), measured["cce"]
    said = [
        f"{_title(method)} {standing(measured[method], cce)} CCE"
        for method in (UNKNOWN_NOISE, AUTO, *FORMER)
        if method in measured
    ]
    return (
        f"{LABELS[kind].title}: {_title(best)} ends best ({percent(measured[best])}); {', '.join(said)} "
        f"({percent(cce)})."
    )


def figures(results: Mapping[str, Any]) -> "Mapping[str, Figure]":
    """Learning curves, one row of panels for each kind of labels."""
    rows = {
        labels.title: [(_title(method), _key(kind, method)) for method in _methods(kind)]
        for kind, labels in LABELS.items()
    }
    rows |= {
        f"{labels.title}, long": [(_title(method), _key(kind, method, RELEASED)) for method in _methods(kind)]
        for kind, labels in LABELS.items()
    }
    return learning_curves(results, rows)


_PRINTED = listed([f"{method_title(method)} {number}" for method, number in PAPER.items()])
ABOUT = f"""People's label errors in the training sets of CIFAR-10N and CIFAR-100N (Wei et al. 2022), the original test
sets. They are not symmetric: people mistake alike classes and hard images. ResNet-20, 20 epochs, SGD 0.1 divided by ten
after 1/2 and 11/15 of them, weight decay 5e-4, batch 128, crop and flip, gradients of norm 1 at most, the same for
every loss. Beside CCE, GCE and SL: GR as the paper fixes it where the noise is unknown (β = 8, λ = 0.5), the paper's
best setting for as much symmetric noise, and GR that chooses by itself ([gr-auto](gr-auto.md)). They let go of fitted
samples as the authors' code does (epsilon 1e-6). Two first forms were measured before: GR as Eq. 6 has it to the
letter, without that epsilon, which where few labels are wrong alone can ruin a training
([gr-protocol](gr-protocol.md)); and auto with the paper's settings as printed, without bounds on β and λ and without
the epsilon. A class that a method hardly recognises is what `gr-protocol` calls a collapse, on a smaller scale: its
weights pull least on what is not learnt. Twenty epochs keep every loss from learning people's errors by heart;
whether GR saves from it in trainings eight times as long is planned (`protocol=released`). On Clothing1M (ResNet-50),
in whose place this stands, the paper prints
{_PRINTED}."""

HUMAN_NOISE = Study(
    id="gr-human-noise",
    title="gradient rescaling under people's label errors",
    about=ABOUT,
    reference="in place of GR Table 6",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    at_once={"smoke": 3, "cpu": 1, "paper": 8},
    figures=figures,
    entries=KINDS.beside("choices", "weakest"),
)
