"""The toys: the paper's sphere is learned, features lie in the plane."""

import torch
from torch.nn import functional as F

from hardsight import models
from hardsight.models.plain import MLP, LeNet


def test_the_toy_separates_two_gaussians_on_the_sphere() -> None:
    torch.manual_seed(0)
    centres = torch.eye(3)[:2].repeat_interleave(1000, 0)
    points = F.normalize(centres + 0.3 * torch.randn(2000, 3))
    labels = torch.arange(2000) // 1000
    model = models.create("mlp_2d")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        F.cross_entropy(model(points), labels).backward()
        optimizer.step()
    assert (model(points).argmax(1) == labels).float().mean() > 0.97


def test_the_toy_is_its_formula() -> None:
    model = MLP(hidden=(4, 2), activation="relu")
    first, second = model.hidden[1], model.hidden[3]
    inputs = torch.randn(5, 3)
    hidden = (inputs @ first.weight.T + first.bias).clamp_min(0)
    torch.testing.assert_close(model.forward_features(inputs), (hidden @ second.weight.T + second.bias).clamp_min(0))
    assert model.feature_dim == 2


def test_images_are_flattened_for_the_toy() -> None:
    model = MLP(in_channels=12)
    images = torch.randn(2, 3, 2, 2)
    assert torch.equal(model(images), model(images.flatten(1)))


def test_lenet_features_have_any_length() -> None:
    for dim in (2, 3):
        assert LeNet(feature_dim=dim).forward_features(torch.randn(4, 1, 28, 28)).shape == (4, dim)
