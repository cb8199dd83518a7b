"""AMC-Loss, Figures 2 and 6: what the network looks at, by Grad-CAM, with the numbers that test "less background".

Claim: with AMC-Loss maps are more compact and lie more on the object and less on the background than with
cross-entropy or the Euclidean contrastive loss. The paper shows pictures of CIFAR-10, chosen by its authors, and no
number. Ours: docs/studies/amc-figure6.md.

Here the claim is measured on all test images that are looked at, by the map of the true class:
on MNIST, where the ink is a true mask of the object, the share of the map's energy on the ink (widened by a pixel)
and the pointing game, beside chance, the share of the picture that the mask covers; on CIFAR-10, which has no masks,
deletion and insertion curves, and the energy in the middle quarter, where most objects lie but not all of them: a
stand-in and named so. On both, how much of the picture holds half of the map's energy: compactness.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardsight import records
from hardsight.explain import box_masks, deletion_curve, energy_inside, grad_cam, insertion_curve, pointing_game
from hardsight.explain.activation_maps import resize
from hardsight.training import Cell
from hardsight_studies.amc.attention_page import draw_grids, figures, table
from hardsight_studies.amc.looking import finished, normalised, over_seeds
from hardsight_studies.amc.recipes import LOSSES, recipe, train_at_hand
from hardsight_studies.amc.terms import LOSSES as TERMS
from hardsight_studies.configured import CellTraining, Hooks, Tree
from hardsight_studies.framework import Options, Study, finished_cells
from hardsight_studies.keeping import Entries

NUMBERS = (
    "test_accuracy", "energy_on_object", "pointing_game", "object_share", "energy_in_middle", "half_energy_area",
    "deletion_area", "insertion_area", "insertion_minus_deletion",
)  # fmt: skip
# Data sets whose objects are ink on an empty ground: the mask is the ink.
INKED = ("mnist", "digits")


@dataclass(frozen=True)
class Trainings:
    """One preset: data sets with their networks, seeds, how long, and how many test images are looked at."""

    data: tuple[tuple[str, Tree | None], ...]
    seeds: tuple[int, ...]
    length: float
    more: Tree
    images: int
    steps: int = 16
    at_once: int = 1


PRESETS = {
    "smoke": Trainings((("digits", None),), (0, 1), 0.02, {"limit": 512, "batch_size": 64}, 40, 8),
    "cpu": Trainings(
        (("mnist", None), ("cifar10", {"name": "cnn28"})), (0,), 0.03, {"limit": 1000, "batch_size": 50}, 200
    ),
    "paper": Trainings((("cifar10", None), ("mnist", None)), (0, 1, 2), 0.1, {}, 2000, at_once=9),
}

# ---------------------------------------------------------------------------------------------------------------------
# The cells, and what is measured at the end of each.


def cells(preset: str) -> list[Cell]:
    """One cell a data set, seed and loss."""
    of = PRESETS[preset]
    return [_cell(data, seed, loss) for data, _ in of.data for seed in of.seeds for loss in LOSSES]


def _cell(data: str, seed: int, loss: str) -> Cell:
    return Cell({"data": data, "loss": loss, "seed": seed})


def configure(preset: str, cell: Cell) -> Tree:
    """The script's training, shortened."""
    of = PRESETS[preset]
    model = dict(of.data)[cell.settings["data"]]
    return recipe(**cell.settings, schedule="script", length=of.length, model=model, **of.more)


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells, look with each; then draw the grids with pictures of all that is finished, as files beside
    the records: pictures of a data set belong to its owner, so none goes into the results.
    """
    of = PRESETS[preset]

    def measure(training: CellTraining, model: nn.Module) -> dict[str, Any]:
        return attention(of, training, model)

    train_at_hand(mine, options, lambda cell: configure(preset, cell), Hooks(measure=measure))
    folder = mine[0][1].parent
    done = finished_cells(folder, cells(preset))
    draw_grids(folder, done)


def attention(of: Trainings, training: CellTraining, model: nn.Module) -> dict[str, Any]:
    """Means over the images of every measure, and the maps of the first image of each class."""
    loader = training.test
    images, labels = normalised(loader, of.images)
    # A part at a time: the network's activations of all images would not fit.
    small = torch.cat(
        [
            grad_cam(model, part, classes=classes, normalize=False)
            for part, classes in zip(images.split(256), labels.split(256), strict=True)
        ]
    )
    maps = resize(small, tuple(images.shape[-2:]))
    deletion = deletion_curve(model, images, maps, classes=labels, steps=of.steps).area
    insertion = insertion_curve(model, images, maps, classes=labels, steps=of.steps).area
    found: dict[str, Any] = {
        "energy_in_middle": _mean(energy_inside(maps, middle(maps))),
        "half_energy_area": _mean(half_energy_area(maps)),
        "deletion_area": _mean(deletion),
        "insertion_area": _mean(insertion),
        "insertion_minus_deletion": _mean(insertion - deletion),
    }
    pixels = loader.images[: len(images)]
    if training.run.settings["data"] in INKED:
        ink = ink_masks(pixels)
        found["energy_on_object"] = _mean(energy_inside(maps, ink))
        found["pointing_game"] = _mean(pointing_game(maps, ink))
        found["object_share"] = _mean(ink.float().mean((1, 2)))
    first = first_of_each_class(labels)
    shown = pixels[first].cpu().permute(0, 2, 3, 1).squeeze(-1).numpy()
    ids = loader.ids[: len(images)][first].tolist()
    records.write_thumbnails(training.folder / "thumbnails.parquet", ids, shown)
    return {**found, "maps": as_percent(small[first]), "map_ids": ids, "map_labels": labels[first].tolist()}


def middle(maps: Tensor) -> Tensor:
    """The box in the middle that covers a quarter of the picture."""
    height, width = maps.shape[1:]
    box = torch.tensor([[width / 4, height / 4, 3 * width / 4, 3 * height / 4]], device=maps.device)
    return box_masks(box, (height, width)).expand_as(maps)


def ink_masks(pixels: Tensor) -> Tensor:
    """Where an image [N, 1, H, W] of bright ink on black has ink, at half of full brightness, and a pixel around it."""
    ink = (pixels.float() > 127).float()
    return F.max_pool2d(ink, 3, stride=1, padding=1).squeeze(1) > 0.5


def half_energy_area(maps: Tensor) -> Tensor:
    """Smallest share of the picture that holds half of each map's sum. In (0, 1/2]; smaller is more compact.

    A map that is zero everywhere is spread evenly: 1/2.
    """
    values = maps.flatten(1).double().sort(1, descending=True).values
    peak = values[:, :1]
    # In units of the largest, so that the slack for rounding means the same for every map.
    values = torch.where(peak == 0, 1.0, values / torch.where(peak == 0, 1.0, peak))
    reached = values.cumsum(1) >= values.sum(1, keepdim=True) / 2 - 1e-12
    return (reached.double().argmax(1) + 1) / values.shape[1]


def first_of_each_class(labels: Tensor) -> Tensor:
    """The place of the first sample of every class that occurs, in order of the classes."""
    return torch.stack([(labels == label).nonzero()[0, 0] for label in labels.unique()])


def as_percent(maps: Tensor) -> list[list[list[int]]]:
    """Maps as whole numbers, 100 the largest of each: what the results file holds of them."""
    peak = maps.amax((1, 2), keepdim=True)
    return (100 * maps / torch.where(peak == 0, 1.0, peak)).round().long().tolist()


def _mean(values: Tensor) -> float:
    return round(float(values.double().mean()), 5)


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """By data set and loss: the numbers over seeds, the maps of the first seed."""
    of = PRESETS[preset]
    found: dict[str, Any] = {}
    for data, _ in of.data:
        for loss in LOSSES:
            rows = finished(folder, [_cell(data, seed, loss) for seed in of.seeds])
            if rows:
                kept = {key: rows[0][key] for key in ("maps", "map_ids", "map_labels")}
                found.setdefault(data, {})[loss] = {**over_seeds(rows, NUMBERS), **kept}
    return {"length": of.length, "images": of.images, "attention": found}


ABOUT = f"""Does a network trained with AMC-Loss look more at the object and less at the background? The paper shows
pictures; here the claim is measured, over test images that nobody chose.

Three losses are compared:

{TERMS}

**How it was made.** Networks are trained by the schedule of the authors' script (weight 10). Grad-CAM maps, for the
true class and at the last convolution, show which places of an image the network's answer depends on. On MNIST the ink
of the digit is a true mask of the object. CIFAR-10 has no masks, so there the maps are tested by deleting and inserting
the places that they point at.

**Figures.** For each data set the measures of every run, and the maps of the first test image of each class. (The
pictures under their maps are written to `figures/` beside the records after a run.)"""

AMC_FIGURE6 = Study(
    id="amc-figure6",
    title="does AMC-Loss look less at the background? (Figures 2 and 6)",
    about=ABOUT,
    reference="AMC Figures 2 and 6",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    figures=figures,
    at_once={name: of.at_once for name, of in PRESETS.items()},
    entries=Entries(("attention",), lambda cell: (cell.settings["data"], cell.settings["loss"])),
)
