"""What a network looks at, by Grad-CAM, with the numbers that test "less background" (Figures 2 and 6).

The paper shows maps of pictures that its authors chose. Here every map of the true class counts. On MNIST the ink is a
true mask of the object: the share of the map's energy on the ink (widened by a pixel) and the pointing game, beside
chance, the share of the picture that the mask covers. CIFAR-10 has no masks: deletion and insertion curves, and the
energy in the middle quarter, a stand-in. On both, how much of the picture holds half of the map's energy.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardsight.datasets.loader import DeviceLoader
from hardsight.explain import box_masks, deletion_curve, energy_inside, grad_cam, insertion_curve, pointing_game
from hardsight.explain.activation_maps import resize
from hardsight_studies.engine.trainings import Training

# Data sets whose objects are ink on an empty ground: the mask is the ink.
_INKED = ("mnist", "digits")
# Test images that are looked at, and steps of the curves, by the size of the training set.
_IMAGES = {512: (40, 8), 1000: (200, 16)}
_ALL = (2000, 16)


def measure(training: Training, model: nn.Module) -> dict[str, Any]:
    """Means over the images of every measure, and of a first seed the maps of the first image of each class."""
    count, steps = _IMAGES.get(len(training.samples.images), _ALL)
    images, labels = _normalised(training.test, count)
    # A part at a time: the network's activations of all images would not fit.
    parts = zip(images.split(256), labels.split(256), strict=True)
    small = torch.cat([grad_cam(model, part, classes=classes, normalize=False) for part, classes in parts])
    maps = resize(small, tuple(images.shape[-2:]))
    deletion = deletion_curve(model, images, maps, classes=labels, steps=steps).area
    insertion = insertion_curve(model, images, maps, classes=labels, steps=steps).area
    found = {
        "energy_in_middle": energy_inside(maps, middle(maps)),
        "half_energy_area": half_energy_area(maps),
        "deletion_area": deletion,
        "insertion_area": insertion,
        "insertion_minus_deletion": insertion - deletion,
    }
    if training.config.data.name in _INKED:
        ink = ink_masks(training.test.images[: len(images)])
        found["energy_on_object"] = energy_inside(maps, ink)
        found["pointing_game"] = pointing_game(maps, ink)
        found["object_share"] = ink.float().mean((1, 2))
    numbers: dict[str, Any] = {name: float(values.double().mean()) for name, values in found.items()}
    if training.run.seed == 0:
        first = first_of_each_class(labels)
        numbers["points"] = {"map": map_points(small[first], labels[first], training.test.ids[: len(images)][first])}
    return numbers


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


def map_points(maps: Tensor, labels: Tensor, ids: Tensor) -> dict[str, list[int]]:
    """A point for each place of these maps, its value a whole number, 100 the largest of each map."""
    peak = maps.amax((1, 2), keepdim=True)
    values = (100 * maps / torch.where(peak == 0, 1.0, peak)).round().long().cpu()
    at, y, x = torch.ones_like(values).nonzero(as_tuple=True)
    columns = {"x": x, "y": y, "value": values.flatten(), "label": labels.cpu()[at], "id": ids.cpu()[at]}
    return {name: column.tolist() for name, column in columns.items()}


def _normalised(loader: DeviceLoader, count: int) -> tuple[Tensor, Tensor]:
    """The first images of a set as the network gets them, and their labels."""
    parts, seen = [], 0
    for images, labels, _ in loader:
        parts.append((images, labels))
        seen += len(labels)
        if seen >= count:
            break
    images, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    return images[:count], labels[:count]
