"""One look at a network: norm, AVH, confidence and correctness of every image, and their means by group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from hardsight import hardness
from hardsight.datasets.augment import PixelScale, normalise
from hardsight.heads import evaluating
from hardsight.models import Classifier

# What is followed: the first three with a mean and a standard deviation, of `correct` the mean says all.
QUANTITIES = ("norm", "avh", "confidence", "correct")
STATISTICS = ("norm", "norm_sd", "avh", "avh_sd", "confidence", "confidence_sd", "correct")


@dataclass(frozen=True)
class Look:
    """One number an image: feature norm, AVH, softmax probability of the label, and whether it is predicted.

    Confidence is float64: many easy images round to 1 in float32 and would tie.
    """

    norm: Float[Tensor, "samples"]
    avh: Float[Tensor, "samples"]
    confidence: Float[Tensor, "samples"]
    correct: Float[Tensor, "samples"]

    def __len__(self) -> int:
        return len(self.norm)

    def first(self, count: int) -> "Look":
        """The look at the first so many images."""
        return Look(*(getattr(self, name)[:count] for name in QUANTITIES))


def joined(looks: Sequence[Look]) -> Look:
    """Several looks as one, in their order."""
    return Look(*(torch.cat([getattr(one, name) for one in looks]) for name in QUANTITIES))


def features_of(
    model: Classifier, images: UInt8[Tensor, "samples channels height width"], scale: PixelScale, batch_size: int = 1000
) -> Float[Tensor, "samples dim"]:
    """Features in evaluation mode. On CUDA the network computes in bfloat16, as in training; what follows does not."""
    layout = images.device.type == "cuda"
    with evaluating(model), torch.autocast(images.device.type, torch.bfloat16, enabled=layout):
        parts = [
            model.forward_features(normalise(part, scale, dtype=torch.float32, channels_last=layout))
            for part in images.split(batch_size)
        ]
    return torch.cat(parts).float()


def look(
    model: Classifier,
    images: UInt8[Tensor, "samples channels height width"],
    labels: Int[Tensor, "samples"],
    scale: PixelScale,
) -> Look:
    """Look at these images, with these labels, as bytes; `scale` normalises them as in training."""
    features = features_of(model, images, scale)
    with evaluating(model):
        return look_at_features(features, model.head, labels)


@torch.no_grad()
def look_at_features(features: Float[Tensor, "samples dim"], head: Any, labels: Int[Tensor, "samples"]) -> Look:
    """The look from features that exist already; `head` is the linear layer behind them."""
    scores = hardness.score(features, head.weight, labels, head.bias, scores=("norm", "avh", "loss"))
    confidence = torch.exp(-scores.pop("loss").double())
    return Look(**scores, confidence=confidence, correct=(head(features).argmax(1) == labels).float())


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


def curves_of(rows: Sequence[Mapping[str, Any]], prefix: str, count: int) -> list[dict[str, list[Any]]]:
    """What `group_statistics` put into the rows of a training, as one curve a statistic for each group."""
    return [
        {title: [row[f"{prefix}{group}_{title}"] for row in rows] for title in STATISTICS} for group in range(count)
    ]


def mean_curves(seeds: Sequence[dict[str, list[Any]]]) -> dict[str, list[float | None]]:
    """The mean over seeds of each curve, four digits; where a seed has no number there is none."""
    found: dict[str, list[float | None]] = {}
    for title in seeds[0]:
        values = np.array([seed[title] for seed in seeds], dtype=np.float64).mean(0)
        found[title] = [short(value) for value in values.tolist()]
    return found


def short(value: float) -> float | None:
    """Four significant digits; None for what is no number."""
    return float(f"{value:.4g}") if np.isfinite(value) else None
