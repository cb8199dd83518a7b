"""Shared by the noise tests: clean labels and fresh generators."""

from collections.abc import Callable

import pytest
import torch


@pytest.fixture
def seeded() -> Callable[[int], torch.Generator]:
    """A new generator for each seed."""
    return lambda seed=0: torch.Generator().manual_seed(seed)


@pytest.fixture
def clean() -> torch.Tensor:
    """Ten classes, unevenly many of each, in no order."""
    counts = torch.tensor([900, 1000, 1100, 1200, 800, 1000, 1300, 700, 1000, 1000])
    labels = torch.arange(10).repeat_interleave(counts)
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(99))]
