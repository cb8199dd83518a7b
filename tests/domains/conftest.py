"""Two small domains of the same three classes, and a network that every kind of state is in."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from hardsight.datasets.interface import ArrayDataset


class Domains(NamedTuple):
    """Patterns of 6 x 6 pixels: the target's are paler, shifted in brightness and noisier."""

    source: ArrayDataset
    target: ArrayDataset
    test: ArrayDataset


class Small(nn.Module):
    """Convolution, batch normalization, dropout and a head that only a look at a forward finds."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 12))
        self.dropout = nn.Dropout(0.1)
        self.last = nn.Linear(12, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.dropout(self.body(images)))


def pictures(patterns: Tensor, seed: int, count: int, name: str, *, scale: float, add: float, noise: float) -> Any:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    images = patterns[labels] * scale + add + noise * torch.rand(count, 1, 6, 6, generator=generator)
    return ArrayDataset(
        images=(images.clamp(0, 1) * 255).to(torch.uint8),
        labels=labels,
        class_names=("cat", "dog", "frog"),
        name=name,
        split="all",
    )


@pytest.fixture
def domains() -> Domains:
    patterns = torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    shifted = {"scale": 0.4, "add": 0.4, "noise": 0.6}
    return Domains(
        pictures(patterns, 2, 120, "sharp", scale=1.0, add=0.0, noise=0.25),
        pictures(patterns, 3, 150, "pale", **shifted),
        pictures(patterns, 4, 60, "pale-test", **shifted),
    )


@pytest.fixture
def small() -> Callable[..., Small]:
    def make(seed: int = 0, **options: Any) -> Small:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Small(**options)

    return make


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Networks so small that threads mostly wait for each other."""
