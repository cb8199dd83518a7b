"""A small noisy classification problem that trains in a second, and what the tests ask of a record."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from hardsight.datasets.loader import DeviceLoader
from hardsight.models import Classifier


class Problem(NamedTuple):
    """Blurred class patterns of 6x6 pixels, 15 % of the labels wrong."""

    images: Tensor
    labels: Tensor
    clean: Tensor

    def loader(self, **options: Any) -> DeviceLoader:
        return DeviceLoader(
            self.images, self.labels, **{"batch_size": 16, "seed": 3, "mean": [0.5], "std": [0.25]} | options
        )


class Small(Classifier):
    """Convolution, batch normalization, dropout, one linear head: every kind of state a training has to keep."""

    feature_dim = 8

    def __init__(self, classes: int = 3, dropout: float = 0.1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(8, classes)

    def forward_features(self, images: Tensor) -> Tensor:
        return self.dropout(torch.relu(self.norm(self.convolution(images))).mean((2, 3)))


@pytest.fixture
def problem() -> Problem:
    generator = torch.Generator().manual_seed(1)
    patterns = torch.rand(3, 1, 6, 6, generator=generator)
    clean = torch.randint(3, (90,), generator=generator)
    images = (patterns[clean] + 0.2 * torch.rand(90, 1, 6, 6, generator=generator)).clamp(0, 1)
    wrong = torch.rand(90, generator=generator) < 0.15
    labels = torch.where(wrong, (clean + 1) % 3, clean)
    return Problem((images * 255).to(torch.uint8), labels, clean)


@pytest.fixture
def small() -> Callable[..., Small]:
    def make(seed: int = 0, **options: Any) -> Small:
        torch.manual_seed(seed)
        return Small(**options)

    return make


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Networks so small that threads mostly wait for each other."""
