"""AVH, Figures 4 and 9 to 14: what norm, AVH, confidence and accuracy of test images do while a network trains.

Paper (ImageNet, 90 epochs; curves without numbers): the norm keeps growing, AVH reaches a plateau early while accuracy
still improves, AVH tells five bins of human frequency apart at every epoch, better networks have lower AVH.
Ours (30 epochs, one seed): on CIFAR-10 AVH has settled at epochs 11 (ResNet-20), 12 (AlexNet), 11 (VGG-19) and 9 of 15
(DenseNet-121); accuracy is best at 28, 29, 23 and 15 and 1.1 to 2.9 points higher, but by the same rule it settles no
later than AVH. The norm grows in two of the four. On CIFAR-100 AVH has settled at 13, 12 and 11. All of it:
docs/studies/avh-figure4.md and avh-figure14.md, made from the results files.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hardsight.training import Cell
from hardsight_studies.avh.dynamics import (
    LEVELS,
    Dynamics,
    Network,
    cells_of,
    compute_dynamics,
    judge_dynamics,
)
from hardsight_studies.avh.dynamics_figures import draw_dynamics
from hardsight_studies.avh.dynamics_table import dynamics_table
from hardsight_studies.avh.terms import AVH, CONFIDENCE, HSF, NORM, SPEARMAN
from hardsight_studies.framework import PRESETS, Options, Study
from hardsight_studies.keeping import Entries
from hardsight_studies.wording import terms

_SMALL = {"stem": "small"}
_CROPPED = {"shift": 4, "flip": True, "test_batch_size": 1000}
# The paper's learning rates. DenseNet-121 costs ten times a ResNet-20: half as many epochs, and no compiling.
_NETWORKS = (
    Network("resnet20", 30, 0.1, shortcuts=True),
    Network("alexnet", 30, 0.01, shortcuts=False, options=_SMALL),
    Network("vgg19_bn", 30, 0.01, shortcuts=False, options=_SMALL),
    Network("densenet121", 15, 0.1, shortcuts=True, batch_size=256, options=_SMALL, capture=False),
)
_DIGITS = Dynamics(
    {"name": "digits", "held_out": 0.5, "limit": 240},
    (
        Network("digits_cnn", 4, 0.05, shortcuts=False, batch_size=32),
        Network("resnet20", 4, 0.05, shortcuts=True, batch_size=32),
    ),
    degraded=60,
)
CIFAR10 = {
    "smoke": _DIGITS,
    # Few images at few pixels, to see the two phases in minutes: AlexNet wants 32 x 32 pixels, ResNet-20 does with 16.
    # All test images: people find few of them hard, and a bin of three shows nothing.
    "cpu": Dynamics(
        {"name": "cifar10", "limit": 10_000, "shift": 2, "flip": True, "test_batch_size": 500},
        (
            Network("resnet20", 12, 0.1, shortcuts=True, batch_size=64, shrink=2),
            Network("alexnet", 12, 0.02, shortcuts=False, batch_size=64, options=_SMALL),
        ),
        degraded=200,
    ),
    "paper": Dynamics({"name": "cifar10", **_CROPPED}, _NETWORKS, seeds=3),
}
CIFAR100 = {
    "smoke": _DIGITS,
    "cpu": Dynamics(
        # AlexNet, without normalization, learns nothing of a hundred classes from so few images.
        {"name": "cifar100", "limit": 8000, "shift": 2, "flip": True, "test_batch_size": 500},
        (Network("resnet20", 12, 0.1, shortcuts=True, batch_size=64, shrink=2),),
        degraded=100,
    ),
    "paper": Dynamics({"name": "cifar100", **_CROPPED}, _NETWORKS[:3]),
}


def _study(id: str, title: str, reference: str, about: str, presets: Mapping[str, Dynamics]) -> Study:
    def cells(preset: str) -> list[Cell]:
        return cells_of(presets[preset])

    def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
        compute_dynamics(presets[preset], mine, options)

    def judge(preset: str, folder: Path) -> dict[str, Any]:
        return judge_dynamics(presets[preset], folder)

    return Study(
        id=id, title=title, about=about, reference=reference, cells=cells, compute=compute, judge=judge,
        table=dynamics_table, figures=draw_dynamics, worth=worth, at_once=dict.fromkeys(PRESETS, 1),
        entries=Entries(("networks",), lambda cell: cell.settings["network"]),
    )  # fmt: skip


def worth(cell: Cell, file: str) -> int | None:
    """The curves and the levels; what the training says of its own images stays."""
    return {"epochs.parquet": 0, LEVELS: 0}.get(file)


_TRAINING = """The schedule is the paper's, shortened: SGD with momentum 0.9 and weight decay 5e-4, and a tenth of
the learning rate after each third of the epochs."""
_DRAWN = """Lines are means over the images of a group. Bands are one standard deviation of the images, cut where the
quantity ends: no norm lies below 0, no AVH or confidence outside [0, 1]."""
ABOUT = f"""What do angular visual hardness (AVH), confidence and the norm of the features do while a network trains?
The paper follows them from epoch to epoch and makes four observations and one conjecture; this study follows them on
CIFAR-10.

{terms(AVH, CONFIDENCE, NORM, HSF, SPEARMAN)}

**How it was made.** Every network trains on CIFAR-10's training images. After every epoch it looks at the test images,
which it never trains on: at all of them as they are, and at some of them with five levels of uniform noise and of
contrast. Human selection frequency comes from CIFAR-10H. {_TRAINING}

**Figures.** By their number in the paper: norm, AVH, accuracy and confidence after every epoch, in five groups of
images by human selection frequency, noise or contrast. `observation3` shows ρ with people after every epoch; figures
17 and 18 show AVH by level of noise and contrast at the end. {_DRAWN}"""
ABOUT_100 = f"""Do angular visual hardness (AVH) and the norm of the features behave on CIFAR-100 as they do on
[CIFAR-10](avh-figure4.md) while a network trains? The paper shows curves for AlexNet, VGG-19 and ResNet-50 and says
that they do.

{terms(AVH, NORM)}

**How it was made.** As [avh-figure4](avh-figure4.md), with CIFAR-100. Nobody has asked people about its test images, so
they are followed all together, and some of them at five levels of uniform noise and of contrast. {_TRAINING}

**Figures.** Norm, AVH and accuracy after every epoch: of all images, then in five groups by noise and by contrast.
Figures 17 and 18 show AVH by level of noise and contrast at the end. {_DRAWN}"""

FIGURE_4 = _study(
    "avh-figure4",
    "norm, AVH, confidence and accuracy over training, by human frequency, noise and contrast",
    "AVH Figs. 4, 9, 10, 11, 12, 13; observations 1 to 4, conjecture of two phases",
    ABOUT,
    CIFAR10,
)
FIGURE_14 = _study("avh-figure14", "norm and AVH over training on CIFAR-100", "AVH Fig. 14", ABOUT_100, CIFAR100)
