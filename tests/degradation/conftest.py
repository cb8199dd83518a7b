"""Shared by the degradation tests: pictures with edges, gradients and texture."""

import pytest
import torch


@pytest.fixture
def pictures() -> torch.Tensor:
    """Float32 [6, 3, 20, 24] in [0, 1]: smooth gradients with a disc and some texture."""
    g = torch.Generator().manual_seed(0)
    rows, columns = torch.meshgrid(torch.linspace(0, 1, 20), torch.linspace(0, 1, 24), indexing="ij")
    base = torch.stack([rows, columns, (rows + columns) / 2])
    disc = ((rows - 0.5) ** 2 + (columns - 0.4) ** 2 < 0.06).float()
    tints = torch.rand(6, 3, 1, 1, generator=g)
    texture = 0.1 * torch.rand(6, 3, 20, 24, generator=g)
    return (0.6 * base * tints + 0.4 * disc * (1 - tints) + texture).clamp(0, 1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)
