"""The test images in groups of hardness: how often people chose the class, how much noise, how little contrast.

AVH, Figures 17 and 18, follow AVH over the levels of noise and contrast.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from hardsight.alignment import bin_of, correlate
from hardsight.datasets.augment import PixelScale
from hardsight.degradation import DEGRADATIONS, degrade
from hardsight.models import Classifier
from hardsight_studies.avh.looking import QUANTITIES, Found, Look, Subject, computing, joined, look

# What is degraded to which levels, hardest first; the last changes nothing.
DEGRADED = {"noise": "uniform_noise", "contrast": "contrast"}
LEVELS = {name: DEGRADATIONS[of].levels for name, of in DEGRADED.items()}
STATISTICS = ("norm", "norm_sd", "avh", "avh_sd", "confidence", "confidence_sd", "correct")
METHODS = ("spearman", "pearson", "kendall")
BINS = 30
# The noise on the test images is the same for every network and after every epoch.
_NOISE_SEED = 0


class GroupedImages:
    """Test images, as bytes, in their groups: five bins of human frequency, five levels of each degradation.

    `frequency`: people's, one per image, or None where nobody was asked. `degraded`: how many images, the first, are
    looked at at every level; left out, all.
    """

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
        bins = -np.ones(len(images), np.int64) if self.frequency is None else bin_of(self.frequency)
        self.bins = torch.from_numpy(bins).to(labels.device)
        self.levels = {name: self._degrade(name) for name in DEGRADED}

    def _degrade(self, name: str) -> list[Tensor]:
        """The images at every level but the last, as bytes."""
        generator, source = torch.Generator().manual_seed(_NOISE_SEED), self.images[: self.degraded].cpu()
        made = (degrade(source, DEGRADED[name], level, generator=generator) for level in LEVELS[name][:-1])
        return [one.to(self.images.device) for one in made]

    @property
    def sizes(self) -> list[int]:
        """Images in each bin of human frequency."""
        counts: list[int] = np.bincount(self.bins[self.bins >= 0].cpu().numpy(), minlength=5).tolist()
        return counts

    def looks(self, model: Classifier) -> tuple[Look, dict[str, list[Look]]]:
        """The images as they are, and at each level of each degradation, hardest first."""
        clean = look(model, self.images, self.labels, self.scale)
        labels = self.labels[: self.degraded]
        return clean, {
            name: [*(look(model, images, labels, self.scale) for images in levels), clean.first(self.degraded)]
            for name, levels in self.levels.items()
        }

    def statistics(self, model: Classifier) -> dict[str, float]:
        """Means and standard deviations in every group, as columns of an epoch's row, and correlations with people."""
        clean, at_levels = self.looks(model)
        row = group_statistics(clean, torch.zeros_like(self.labels), 1, "all")
        if self.frequency is not None:
            row |= group_statistics(clean, self.bins, 5, "human") | agreement(clean, self.frequency)
        for name, looks in at_levels.items():
            level = torch.arange(len(looks), device=self.labels.device).repeat_interleave(self.degraded)
            row |= group_statistics(joined(looks), level, len(looks), name)
        return row


def agreement(seen: Look, frequency: np.ndarray) -> dict[str, float]:
    """Spearman's correlation of AVH, confidence and norm with people's frequency; NaN for a score that is constant."""
    columns = {name: getattr(seen, name).double().cpu().numpy() for name in ("avh", "confidence", "norm")}
    return {
        f"{name}_rho": correlate(values, frequency).coefficient if np.ptp(values) > 0 else float("nan")
        for name, values in columns.items()
    }


def group_statistics(seen: Look, groups: Int[Tensor, "samples"], count: int, prefix: str) -> dict[str, float]:
    """Mean and standard deviation of each quantity in groups 0 to count - 1, as `prefix0_avh` and `prefix0_avh_sd`.

    The standard deviation is that of the images, not of their mean. Images of group -1 are left out; a group without
    images is NaN.
    """
    inside = torch.nn.functional.one_hot(groups.clamp_min(0), count).to(seen.norm) * (groups >= 0).unsqueeze(1)
    sizes = inside.sum(0)
    columns = []
    for name in QUANTITIES:
        values = getattr(seen, name).to(inside)
        mean = (values @ inside) / sizes
        # Around each group's own mean: the difference of two large squares would lose the digits of a small spread.
        apart = (values.unsqueeze(1) - mean.nan_to_num(0.0)).square() * inside
        columns += [mean] if name == "correct" else [mean, (apart.sum(0) / sizes).sqrt()]
    numbers = torch.stack(columns).double().cpu().tolist()
    return {
        f"{prefix}{group}_{title}": of_title[group]
        for title, of_title in zip(STATISTICS, numbers, strict=True)
        for group in range(count)
    }


def measure_levels(subject: Subject) -> list[Found]:
    """AVH, confidence and norm at every level of both degradations (Figures 17 and 18)."""
    _, at_levels = GroupedImages(subject.images, subject.labels, subject.scale).looks(subject.model)
    return [Found({"images": len(subject.labels)}), *found_at(at_levels)]


compute = computing(measure_levels, {"smoke": 100, "cpu": 500, "paper": 10_000})


def found_at(at_levels: Mapping[str, Sequence[Look]]) -> list[Found]:
    """Means at each level, AVH's distribution there, and how closely AVH, confidence and norm follow the level.

    The same images at every level: a correlation over all of them mixes what a level does with how images differ.
    `within` is the mean of the images' own rank correlations.
    """
    found: list[Found] = []
    for name, looks in at_levels.items():
        levels, columns = LEVELS[name], {one: _stacked(looks, one) for one in QUANTITIES}
        amount = np.repeat(np.asarray(levels, np.float64), len(looks[0]))
        edges = np.linspace(0.0, columns["avh"].max(), BINS + 1)
        followed: dict[str, Any] = {"degraded": len(looks[0])}
        for one in QUANTITIES[:3]:
            values = columns[one].ravel()
            for method in METHODS:
                followed[f"{one}_{method}"] = correlate(values, amount, method).coefficient if np.ptp(values) else None
            followed[f"{one}_within"] = within(columns[one], levels)
        found.append(Found(followed, {"degradation": name}))
        low, median, high = np.quantile(columns["avh"], (0.25, 0.5, 0.75), axis=1).tolist()
        for at, level in enumerate(levels):
            settings = {"degradation": name, "level": level}
            means = {one: float(values[at].mean()) for one, values in columns.items()}
            apart = {f"{one}_sd": float(values[at].std()) for one, values in columns.items() if one != "correct"}
            quartiles = {"avh_low": low[at], "avh_median": median[at], "avh_high": high[at]}
            counts = np.histogram(columns["avh"][at], edges)[0].tolist()
            shape = {"x": edges[:-1].tolist(), "end": edges[1:].tolist(), "y": counts}
            found.append(Found({**means, **apart, **quartiles}, settings, series="avh", columns=shape))
    return found


def _stacked(looks: Sequence[Look], name: str) -> np.ndarray:
    return np.stack([getattr(one, name).double().cpu().numpy() for one in looks])


def within(values: np.ndarray, levels: Sequence[float]) -> float | None:
    """Mean over images of the rank correlation of an image's own values [levels, images], where they vary at all."""
    from scipy.stats import rankdata

    varying = values[:, np.ptp(values, axis=0) > 0]
    if not varying.size:
        return None
    ranks, level = rankdata(varying, axis=0), rankdata(np.asarray(levels))
    ranks, level = ranks - ranks.mean(0), level - level.mean()
    return float(((level @ ranks) / np.sqrt((level**2).sum() * (ranks**2).sum(0))).mean())
