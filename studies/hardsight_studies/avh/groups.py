"""The test images in groups of hardness: how often people chose the class, how much noise, how little contrast."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from hardsight.alignment import FIVE_BINS, bin_of, correlate
from hardsight.datasets.augment import PixelScale
from hardsight.degradation import DEGRADATIONS, degrade
from hardsight.models import Classifier
from hardsight_studies.avh.looking import Look, group_statistics, joined, look

# The seed of the noise on the test images: the same for every network and after every epoch.
_NOISE_SEED = 0


@dataclass(frozen=True)
class Grouping:
    """Five groups of test images, hardest first, and what the figure calls them."""

    name: str
    title: str
    groups: tuple[str, ...]
    degradation: str | None = None

    @property
    def levels(self) -> tuple[float, ...]:
        """The degradation's levels, hardest first; the last changes nothing."""
        return DEGRADATIONS[self.degradation].levels if self.degradation else ()


HUMAN = Grouping(
    "human",
    "human selection frequency",
    tuple(f"{low:.1f} to {high:.1f}" for low, high in itertools.pairwise(FIVE_BINS)),
)
NOISE = Grouping(
    "noise",
    "uniform noise",
    tuple(f"{level:.1f}" for level in DEGRADATIONS["uniform_noise"].levels),
    "uniform_noise",
)
CONTRAST = Grouping(
    "contrast", "contrast", tuple(f"{level:.1f}" for level in DEGRADATIONS["contrast"].levels), "contrast"
)
GROUPINGS = (HUMAN, NOISE, CONTRAST)
ALL = "all"


class TestImages:
    """Test images, as bytes, in their groupings; noise is drawn once.

    `frequency`: people's, one an image, or None where nobody was asked. `degraded`: so many images, the first, are
    looked at at every level of noise and contrast; the level that changes nothing among them. Left out: all.
    """

    __test__ = False

    def __init__(
        self,
        images: UInt8[Tensor, "samples channels height width"],
        labels: Int[Tensor, "samples"],
        scale: PixelScale,
        frequency: Tensor | None = None,
        degraded: int | None = None,
    ) -> None:
        self.images, self.labels, self.scale = images, labels, scale
        self.frequency = None if frequency is None else frequency.cpu().numpy()
        self.degraded = min(degraded or len(images), len(images))
        people = -np.ones(len(self.images), np.int64) if self.frequency is None else bin_of(self.frequency)
        self.bins = torch.from_numpy(people).to(self.labels.device)
        self.levels = {one.name: self._degrade(one) for one in (NOISE, CONTRAST)}

    def _degrade(self, grouping: Grouping) -> list[Tensor]:
        """The images at every level but the last, as bytes."""
        assert grouping.degradation is not None
        generator = torch.Generator().manual_seed(_NOISE_SEED)
        source = self.images[: self.degraded].cpu()
        made = (degrade(source, grouping.degradation, level, generator=generator) for level in grouping.levels[:-1])
        return [one.to(self.images.device) for one in made]

    @property
    def sizes(self) -> list[int]:
        """Images in each bin of human frequency."""
        counted = self.bins[self.bins >= 0].cpu().numpy()
        return np.bincount(counted, minlength=len(HUMAN.groups)).tolist()

    def looks(self, model: Classifier) -> tuple[Look, dict[str, list[Look]]]:
        """The look at the images as they are, and those at each level of each degradation, hardest first."""
        clean = look(model, self.images, self.labels, self.scale)
        labels = self.labels[: self.degraded]
        at_levels = {
            name: [*(look(model, images, labels, self.scale) for images in levels), clean.first(self.degraded)]
            for name, levels in self.levels.items()
        }
        return clean, at_levels

    def statistics(self, model: Classifier) -> dict[str, float]:
        """Means and standard deviations in every group, as columns of an epoch's row, and correlations with people."""
        clean, at_levels = self.looks(model)
        row = group_statistics(clean, torch.zeros_like(self.labels), 1, ALL)
        if self.frequency is not None:
            row |= group_statistics(clean, self.bins, len(HUMAN.groups), HUMAN.name)
            row |= agreement(clean, self.frequency)
        for name, looks in at_levels.items():
            level = torch.arange(len(looks), device=self.labels.device).repeat_interleave(self.degraded)
            row |= group_statistics(joined(looks), level, len(looks), name)
        return row


def agreement(seen: Look, frequency: np.ndarray) -> dict[str, float]:
    """Spearman's correlation of AVH, confidence and norm with people's frequency; NaN for a score that is constant."""
    columns: Mapping[str, np.ndarray] = {
        name: getattr(seen, name).double().cpu().numpy() for name in ("avh", "confidence", "norm")
    }
    return {
        f"{name}_rho": correlate(values, frequency).coefficient if np.ptp(values) > 0 else float("nan")
        for name, values in columns.items()
    }
