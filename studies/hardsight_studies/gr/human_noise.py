"""Real noise instead of Clothing1M's: people's label errors in CIFAR-10N and CIFAR-100N under GR and its competitors.

Claim (GR, Section 4.3): under real noise of unknown structure GR beats cross-entropy and the robust losses. The paper
shows it on Clothing1M (its Table 6: CCE 71.7 and GCE 72.5, its own runs, SL 71.0, GR 73.2), which is not public for
all; people's errors in CIFAR (Wei et al. 2022: `aggre` 9 %, `random1` 17 %, `worse` 40 % of CIFAR-10's labels, 40 % of
CIFAR-100's) are.
Ours: docs/studies/gr-human-noise.md, made from the results files.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.training import Cell
from hardsight_studies.configured import train_cells
from hardsight_studies.framework import Options, Study, markdown_table
from hardsight_studies.gr.choosing import AUTO, CHOOSING, choices, chosen_table, method_title
from hardsight_studies.gr.clothing1m import BEST, PAPER
from hardsight_studies.gr.collapse import weakest_classes
from hardsight_studies.gr.curves import learning_curves
from hardsight_studies.gr.human_noise_trainings import (
    COMMON,
    FORMER,
    LABELS,
    LONG_METHODS,
    PROTOCOLS,
    TO_THE_LETTER,
    UNKNOWN_NOISE,
    cells,
    configure,
)
from hardsight_studies.gr.judged import (
    KINDS,
    judge_cells,
    kinds_of,
    mean_of,
    number_of,
    percent,
    several_seeds,
    shown_accuracy,
    under_protocol,
)
from hardsight_studies.gr.tables import page, points_apart, ranks, standing
from hardsight_studies.gr.terms import BY_HEART, CCE, GR, ROBUST
from hardsight_studies.gr.trainings import RELEASED, RELEASED_TRAINING
from hardsight_studies.wording import listed, plural, terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together."""
    train_cells(mine, options, lambda cell: configure(preset, cell))


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
    parts = [
        _beside(results),
        chosen_table(
            results, [(labels.title, one, _key(kind, one)) for one in CHOOSING for kind, labels in LABELS.items()]
        ),
        _verdicts(results),
    ]
    if any(_key(kind, method, RELEASED) in results["accuracies"] for kind in LABELS for method in LONG_METHODS):
        chosen = [(labels.title, AUTO, _key(kind, AUTO, RELEASED)) for kind, labels in LABELS.items()]
        parts += [_LONG_HEAD, _beside(results, RELEASED), chosen_table(results, chosen), _verdicts(results, RELEASED)]
    first = ", of the first seed" if several_seeds(results) else ""
    return page(results, parts, result=_result(results), legend=_LEGEND.format(first=first), conclude=_SCOPE)


_LEGEND = """**How to read the table.** Numbers are percents. – is not measured yet.

- `labels`: which labels of CIFAR-10N or CIFAR-100N, and how many of them are wrong.
- `last test`: test accuracy at the end of training, the number that counts. `best test`: that of the best epoch, chosen
  by the test set.
- `true training labels`: accuracy on the training images against their true labels.
- `fit of wrong labels`: the share of the wrongly labelled training images of which the network predicts the given
  label.
- `weakest class`: the one that is recognised in the smallest share of its training images, by their true labels{first}.

Two numbers are level where they differ by less than half a point, or by less than the standard error over seeds."""
_LONG_HEAD = (
    "**As long as the authors' code trains on CIFAR-100** (154 epochs of batch 256, gradients of any norm; auto's of "
    "norm 1 at most), where wrong labels can be learnt by heart:"
)
_SCOPE = """The paper shows its gain on Clothing1M, photographs with other errors, a larger network and weights from
ImageNet; this is no repetition of it. The networks are small, and the settings of GR are the paper's for symmetric
noise: no setting was looked for here."""


def _result(results: Mapping[str, Any]) -> str:
    """How often GR ends above CCE, in short and in long trainings, and how much is learnt by heart there."""
    said = []
    for protocol, epochs in (("", PROTOCOLS[results["preset"]].epochs), (RELEASED, RELEASED_TRAINING["epochs"])):
        counts = [one for method in (UNKNOWN_NOISE, AUTO) if (one := _counted(results, method, protocol))]
        if counts:
            fits = [mean_of(results, _key(kind, "cce", protocol), "noisy") for kind in LABELS]
            known = sorted(fit for fit in fits if fit is not None)
            span = " to ".join(dict.fromkeys(f"{fit:.1f}" for fit in known[:1] + known[-1:]))
            heart = f" CCE fits {span} % of the wrong labels." if known else ""
            said.append(f"In trainings of {epochs} epochs {', and '.join(counts)}.{heart}")
        elif protocol:
            said.append(
                f"Trainings of {epochs} epochs, in which wrong labels can be learnt by heart, are not measured yet."
            )
    printed = PAPER[BEST] - PAPER["cce"]
    said.append(f"On Clothing1M, in whose place this stands, the paper's GR ends {printed:.1f} points above CCE.")
    return " ".join(said)


def _counted(results: Mapping[str, Any], method: str, protocol: str) -> str:
    """On how many kinds of labels a method ends above CCE, level with it and below it, and by how many points."""
    pairs = [[number_of(results, _key(kind, one, protocol), "last") for one in (method, "cce")] for kind in LABELS]
    found = [points_apart(ours, cce) for ours, cce in pairs if ours is not None and cce is not None]
    if not found:
        return ""
    sides, points = [side for _, side in found], sorted(apart for apart, _ in found)
    others = {"level with it": sides.count(0), "below it": sides.count(-1)}
    counted = "".join(f", {word} on {count}" for word, count in others.items() if count)
    span = " to ".join(f"{one:+.1f}" for one in dict.fromkeys((points[0], points[-1])))
    above = f"{sides.count(1)} of {plural(len(found), 'kind')} of labels"
    return f"{_title(method)} ends above CCE on {above}{counted} ({span} points)"


def _verdicts(results: Mapping[str, Any], protocol: str = "") -> str:
    return "\n".join(f"- {one}" for kind in LABELS if ranks(results) and (one := _verdict(results, kind, protocol)))


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
ABOUT = f"""Does gradient rescaling (GR) help where people labelled images wrongly, not a random generator? People
mistake alike classes and hard images. GR lets other samples pull on the network than cross-entropy (CCE) does; the
paper shows a gain under real noise on Clothing1M, which is not public for all. Here it meets people's errors that are:
CIFAR-10N and CIFAR-100N (Wei et al. 2022).

{terms(CCE, GR, ROBUST, BY_HEART)}

**How it was made.** ResNet-20 trains on the images with people's labels and is tested on the original test sets: 20
epochs of SGD with weight decay 5e-4, a learning rate of 0.1 that is divided by ten after 1/2 and 11/15 of them, batches
of 128, random crops and flips, gradients of norm 1 at most, the same for every loss. Of GR there are

- β = 8, λ = 0.5, which the paper fixes where the noise is unknown;
- the paper's best setting for as much symmetric noise;
- `auto`, which chooses β and λ by itself ([gr-auto](gr-auto.md)).

They let go of fitted samples as the authors' code does. Former forms were measured before: "Eq. 6 to the letter"
does not let go, which alone can ruin a training where few labels are wrong ([gr-protocol](gr-protocol.md)); auto with
the paper's settings "within bounds" on β and λ; and auto with them "as printed", without bounds, which does not let go
either. On Clothing1M (ResNet-50) the paper prints {_PRINTED}.

**Figure.** Accuracy after every epoch on the training images with people's labels (left) and on the test images
(right)."""

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
