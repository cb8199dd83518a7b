"""AMC's networks: the layers of its Table 2, noise in training only, features of any length."""

import pytest
import torch
from torch import nn

from hardsight.models.classifier import GaussianNoise
from hardsight.models.plain import CNN13, CNN28

TABLE_2 = {
    CNN13: "noise 128 128 128 pool drop 256 256 256 pool drop 512 256 128",
    CNN28: "noise 64 pool drop 64 pool drop 128 64 128",
}


@pytest.mark.parametrize("kind", TABLE_2)
def test_the_layers_are_those_of_table_2(kind: type[CNN13 | CNN28]) -> None:
    words = {GaussianNoise: "noise", nn.MaxPool2d: "pool", nn.Dropout: "drop"}
    layers = [layer for layer in kind().convolutions if isinstance(layer, (nn.Conv2d, *words))]
    said = [str(layer.out_channels) if isinstance(layer, nn.Conv2d) else words[type(layer)] for layer in layers]
    assert " ".join(said) == TABLE_2[kind]


def test_the_maps_have_the_printed_sizes() -> None:
    assert CNN13().convolutions(torch.zeros(1, 3, 32, 32)).shape == (1, 128, 6, 6)
    assert CNN28(feature_dim=3).convolutions(torch.zeros(1, 1, 28, 28)).shape == (1, 3, 5, 5)


def test_noise_has_its_deviation_and_stops_in_evaluation() -> None:
    torch.manual_seed(0)
    layer = GaussianNoise(0.15)
    zeros = torch.zeros(100, 100)
    assert layer(zeros).std().item() == pytest.approx(0.15, rel=0.03)
    assert torch.equal(layer.eval()(zeros), zeros)
    assert torch.equal(GaussianNoise(0.0)(zeros), zeros)


def test_features_in_the_plane_point_everywhere() -> None:
    torch.manual_seed(0)
    planar = CNN28(feature_dim=2).forward_features(torch.randn(256, 1, 28, 28))
    assert planar.min() < 0 < planar.max()


def test_weights_start_within_the_bounds_of_glorot() -> None:
    torch.manual_seed(0)
    weight = CNN13().convolutions[4].weight
    bound = (6 / (9 * 128 + 9 * 128)) ** 0.5
    assert 0.99 * bound < weight.abs().max().item() <= bound
