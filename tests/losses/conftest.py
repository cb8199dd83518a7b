"""A batch for every loss, and one way to call each of them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hardsight.losses.registry import LossEntry, Sizes


@pytest.fixture
def sizes() -> Sizes:
    return Sizes(dim=6, classes=5, samples=40)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20)


@pytest.fixture
def batch(sizes: Sizes, generator: torch.Generator) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """make(entry, count, dtype): the first argument of forward, labels, ids. The same numbers every time."""

    def make(entry: LossEntry, count: int = 12, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
        source = torch.Generator().manual_seed(7)
        width = sizes.classes if entry.takes == "logits" else sizes.dim
        first = 2 * torch.randn(count, width, generator=source, dtype=torch.float64)
        labels = torch.randint(sizes.classes, (count,), generator=source)
        return first.to(dtype), labels, torch.arange(count)

    return make


@pytest.fixture
def build(sizes: Sizes) -> Callable[..., nn.Module]:
    """make(entry, dtype): the loss with its defaults, its state the same every time and nothing in it zero."""

    def make(entry: LossEntry, dtype: torch.dtype = torch.float64, reduction: str | None = None) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(3)
            module = entry.make(sizes)
            for name in entry.class_rows:
                if name == "centers":
                    nn.init.normal_(module.get_buffer(name))
        if reduction is not None:
            module.reduction = reduction
        return module.to(dtype)

    return make


@pytest.fixture
def call() -> Callable[..., Tensor]:
    def evaluate(
        entry: LossEntry,
        module: nn.Module,
        first: Tensor,
        labels: Tensor,
        ids: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        names = {"ids": ids} if entry.needs_ids else {}
        return module(first, labels, sample_weight, **names)

    return evaluate
