"""Finding layers: the last one with maps, and tokens as maps."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from hardsight.explain import last_spatial_layer, tokens_to_maps
from hardsight.explain.activation_maps import find_layer
from hardsight.models import create


class Named(nn.Module):
    """Registered in another order than they run; the pooled maps have one place."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.late, self.early = nn.Conv2d(6, 6, 3), nn.Conv2d(3, 6, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.pool(self.late(self.early(images))).flatten(1))


@pytest.mark.parametrize(("make", "shape", "expected"), [
    (Named, (3, 9, 9), "late"),
    (partial(create, "resnet20"), (3, 32, 32), "layer3"),
    (partial(create, "lenet"), (1, 28, 28), "convolutions"),
])  # fmt: skip
def test_the_last_layer_with_maps(make: Callable[[], nn.Module], shape: tuple[int, ...], expected: str) -> None:
    model = make().train()
    assert last_spatial_layer(model, torch.zeros(2, *shape)) == expected
    assert all(module.training and not module._forward_hooks for module in model.modules())


def test_a_model_without_maps_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^model .*spatial maps.*MLP"):
        last_spatial_layer(create("mlp"), torch.zeros(2, 3))


def test_a_transformer_must_name_its_layer() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.norm, self.head = nn.Conv2d(3, 4, 2, stride=2), nn.LayerNorm(4), nn.Linear(4, 2)

        def forward(self, images: Tensor) -> Tensor:
            return self.head(self.norm(self.patches(images).flatten(2).transpose(1, 2)).mean(1))

    with pytest.raises(ValueError, match=r"^layer .*reshape=tokens_to_maps.*Tokens"):
        last_spatial_layer(Tokens(), torch.zeros(1, 3, 8, 8))


def test_a_layer_by_name_and_by_module() -> None:
    model = create("resnet20")
    block = model.layer2[1]
    assert find_layer(model, "layer2.1") == ("layer2.1", block)
    assert find_layer(model, block) == ("layer2.1", block)


def test_a_model_of_one_layer_has_no_nearest_ones() -> None:
    with pytest.raises(ValueError, match=r"^layer .*Linear.*'body'"):
        find_layer(nn.Linear(2, 2), "body")


def test_tokens_keep_their_places() -> None:
    places = torch.arange(12.0).reshape(3, 4)
    tokens = torch.stack([places.flatten(), -places.flatten()], 1).unsqueeze(0)
    with_class = torch.cat([torch.full((1, 2, 2), 99.0), tokens], 1)
    maps = tokens_to_maps(with_class, class_tokens=2, grid=(3, 4))
    torch.testing.assert_close(maps, torch.stack([places, -places]).unsqueeze(0))
    assert tokens_to_maps(torch.zeros(5, 17, 3)).shape == (5, 3, 4, 4)
    assert tokens_to_maps(torch.zeros(5, 16, 3), class_tokens=0).shape == (5, 3, 4, 4)


@pytest.mark.parametrize(("shape", "options", "sentence"), [
    ((2, 16, 3), {}, "^tokens .*square.* 16 tokens leave 15.*class_tokens"),
    ((2, 1, 3), {}, "^tokens .*square.* 1 tokens leave 0"),
    ((2, 17, 3), {"grid": (3, 5)}, "^tokens .*3 x 5 .* 17 tokens leave 16"),
    ((2, 17, 3), {"grid": (-4, -4)}, "^tokens .*-4 x -4 "),
    ((2, 17), {}, r"^tokens .*\[samples, tokens, dim\].*\[2, 17\]$"),
])  # fmt: skip
def test_tokens_that_do_not_fit(shape: tuple[int, ...], options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        tokens_to_maps(torch.zeros(shape), **options)
