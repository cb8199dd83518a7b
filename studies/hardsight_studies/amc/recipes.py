"""The AMC-Loss paper's trainings as configurations: three losses, two schedules, at full or shortened length.

The two schedules are the paper's text and the authors' script (Section 3.2 against the public code). They differ in
epochs and ramps, and above all in the weight of the loss on features: 0.1 in print, 10 in the script. The script also
shifts images by up to 2 pixels and evaluates an exponential average of the weights. Neither flips images.

What is settled by the code that is public:
- Pixels are shares of full brightness there, neither centred nor divided by their deviation, so the noise of 0.15 is
  0.15 of full brightness. Here inputs are standardised, and the noise is divided alike.
- "+ Euclidean" is in no public file. Features are never normalised for it: not in the paper's Eq. 1, nor in the code
  that the script follows (SNTG, Luo et al. 2018). That code takes the mean of the squared
  differences over the dimensions, Eq. 1 their sum, which is 128 times as much: the schedule of the script, with its
  weight of 10, takes the mean; that of the paper the sum as printed.
- The script's network is narrower than the paper's Table 2 (64, 128 and 256 channels); both schedules use the table's.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hardsight import datasets
from hardsight.datasets import registry
from hardsight.losses.schedules import AMC_PAPER, AMC_SCRIPT
from hardsight.training import Cell
from hardsight_studies.configured import Hooks, Tree, train_cells
from hardsight_studies.framework import Options

# The order in which they stand in every table.
LOSSES = ("cross-entropy", "euclidean", "amc")
NAMES = {"cross-entropy": "cross-entropy", "euclidean": "+ Euclidean", "amc": "+ AMC"}
SCHEDULES = {"paper": AMC_PAPER, "script": AMC_SCRIPT}
MARGIN_RADIANS, MARGIN_EUCLIDEAN = 0.5, 1.0
# Standard deviation of the input noise, and of a data set's pixels, both as shares of full brightness.
NOISE = 0.15
PIXEL_DEVIATION = {"mnist": 0.308, "cifar10": 0.252, "cifar100": 0.268, "svhn": 0.198}
_CIFAR_SAMPLES = 50_000
# What two cores manage in minutes: few samples, squares of 2 x 2 pixels averaged, smaller batches for as many steps.
FEW: Tree = {"limit": 6000, "shrink": 2, "batch_size": 50}

# The reader's options, and the paper's network for it (its Table 2). For MNIST the paper names a network only for two
# figures: the small one, here with the 128 features of all other experiments.
DATA: dict[str, tuple[Tree, Tree]] = {
    "mnist": ({}, {"name": "cnn28"}),
    "cifar10": ({}, {"name": "cnn13"}),
    "cifar100": ({"options": {"granularity": "coarse"}}, {"name": "cnn13"}),
    "svhn": ({}, {"name": "cnn13"}),
    "digits": ({}, {"name": "digits_cnn"}),
}
TITLES = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100 (20 classes)",
    "svhn": "SVHN",
    "digits": "digits",
}


def recipe(
    data: str,
    loss: str,
    schedule: str,
    *,
    seed: int,
    length: float = 1.0,
    model: Tree | None = None,
    weight: float | None = None,
    margin_radians: float = MARGIN_RADIANS,
    per_dimension: bool | None = None,
    pairs: str = "predictions",
    **more: Any,
) -> Tree:
    """The configuration of one training; `length` multiplies its epochs and all its ramps.

    The average of the weights forgets in proportion: in the script over 1,000 of CIFAR's 78,000 steps.
    `weight` is that of the loss on features at full ramp, and `per_dimension` the reading of Euclidean distance, each
    the schedule's own unless given; `pairs` says whose labels make neighbours; `more` are keys of the configuration's
    data.
    """
    plan = SCHEDULES[schedule]
    by_script = schedule == "script"
    reading, network = DATA[data]
    tree: Tree = {
        "data": {
            "name": data,
            **reading,
            "drop_last": True,
            "shift": 2 if by_script else 0,
            "fill": "reflect",
            "test_batch_size": 2000,
            **more,
        },
        "model": _noisy(model or network, data),
        "epochs": max(2, round(length * plan.epochs)),
        "seed": seed,
        "optimizer": {"name": "adam", "lr": plan.learning_rate, "beta1": plan.beta1, "weight_decay": 0.0},
        "schedule": {"preset": f"amc-{schedule}", "stretch": length},
        "record": {"dynamics": False, "scores": []},
    }
    if by_script:
        # The share of the script's steps on CIFAR; a memory as long as the script's would hold the first weights.
        share = length * min(1.0, more.get("limit", _CIFAR_SAMPLES) / _CIFAR_SAMPLES)
        tree["average_decay"] = max(0.0, round(1 - 0.001 / share, 4))
    if loss != "cross-entropy":
        mean = by_script if per_dimension is None else per_dimension
        full = plan.coefficient if weight is None else weight
        tree["feature_loss"] = _loss_on_features(loss, margin_radians, mean) | {"weight": full, "pairs": pairs}
    return tree


def _loss_on_features(loss: str, margin_radians: float, per_dimension: bool) -> Tree:
    options: dict[str, Tree] = {
        "amc": {"name": "amc", "options": {"margin_radians": margin_radians}},
        "euclidean": {"name": "contrastive", "options": {"margin": MARGIN_EUCLIDEAN, "per_dimension": per_dimension}},
    }
    return options[loss]


def _noisy(network: Tree, data: str) -> Tree:
    """The network with noise of that share of full brightness on its input, which is standardised."""
    if data not in PIXEL_DEVIATION:
        return network
    return {**network, "options": {"noise": round(NOISE / PIXEL_DEVIATION[data], 3), **network.get("options", {})}}


def train_at_hand(
    mine: Sequence[tuple[Cell, Path]], options: Options, configure: Callable[[Cell], Tree], hooks: Hooks | None = None
) -> None:
    """`train_cells` of the cells whose data are there; of the others one line is said, and the study goes on."""
    there = [(cell, place) for cell, place in mine if _at_hand(cell, configure(cell)["data"]["name"], options)]
    if there:
        train_cells(there, options, configure, hooks)


def _at_hand(cell: Cell, data: str, options: Options) -> bool:
    known = datasets.source(data)
    try:
        if known.folders:
            registry.find(known, registry.data_root(None, known))
    except FileNotFoundError as absent:
        options.say(f"skipped {cell.name}: {absent}")
        return False
    return True


def length_name(length: float) -> str:
    """`full length`, or `1/10 of the length`."""
    return "full length" if length == 1 else f"1/{round(1 / length)} of the length"


def caveat(preset: str) -> str:
    """What to keep in mind of a preset that is not the paper's."""
    if preset == "paper":
        return ""
    return (
        " This preset takes few samples and few steps: it shows that the code works, and its numbers do not compare "
        "with the paper's."
    )
