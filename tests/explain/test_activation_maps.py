"""Grad-CAM: the paper's map, by hand and by finite differences, and a model that is left as it was."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from hardsight.explain import (
    box_masks,
    deletion_curve,
    energy_inside,
    grad_cam,
    insertion_curve,
    pointing_game,
    tokens_to_maps,
)
from hardsight.explain.activation_maps import rescale, resize
from hardsight.models import create, load_cifar10_resnet


@pytest.fixture
def images() -> Tensor:
    return torch.randn(3, 3, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_finite_differences(net: nn.Module, images: Tensor, classes: list[int]) -> Tensor:
    """ReLU(sum_k a_k A_k), a_k the mean over places of the logit's slope, place by place."""
    step = 1e-5
    with torch.no_grad():
        activations = net.conv(images)
        samples, channels, height, width = activations.shape
        maps = torch.zeros(samples, height, width, dtype=torch.float64)
        for n in range(samples):
            for k in range(channels):
                weight = 0.0
                for i in range(height):
                    for j in range(width):
                        up, down = activations[n : n + 1].clone(), activations[n : n + 1].clone()
                        up[0, k, i, j] += step
                        down[0, k, i, j] -= step
                        weight += float((net.tail(up) - net.tail(down))[0, classes[n]]) / (2 * step)
                maps[n] += weight / (height * width) * activations[n, k]
    return maps.clamp_min(0)


def test_a_hand_computed_map(pooled_net: Callable[[Tensor], nn.Module]) -> None:
    # Pooling is a mean over 4 places, so a_k = w_k / 4 and the map is ReLU((1 A_0 - 2 A_1) / 4).
    net = pooled_net(torch.tensor([[1.0, -2.0], [0.0, 1.0]]))
    image = torch.tensor([[[[4.0, 0.0], [8.0, 1.0]], [[0.0, 1.0], [2.0, 0.0]]]])
    raw = grad_cam(net, image, layer="0", classes=0, normalize=False)
    torch.testing.assert_close(raw, torch.tensor([[[1.0, 0.0], [1.0, 0.25]]]))
    torch.testing.assert_close(grad_cam(net, image, layer="0", classes=0), raw)
    second = grad_cam(net, image, layer="0", classes=1)
    torch.testing.assert_close(second, torch.tensor([[[0.0, 0.5], [1.0, 0.0]]]))


def test_equals_finite_differences(small_net: nn.Module, images: Tensor) -> None:
    classes = [4, 0, 2]
    expected = by_finite_differences(small_net, images, classes)
    assert bool((expected > 0).any((1, 2)).all())
    found = grad_cam(small_net, images, layer="conv", classes=torch.tensor(classes), normalize=False)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(grad_cam(small_net, images, layer=small_net.conv, classes=torch.tensor(classes)),
                               rescale(expected), rtol=1e-6, atol=1e-6)  # fmt: skip


def test_the_reference_rejects_a_map_weighted_place_by_place(small_net: nn.Module, images: Tensor) -> None:
    """Gradient times activation without the mean over places is another method."""
    activations = small_net.conv(images).detach().requires_grad_()
    (slopes,) = torch.autograd.grad(small_net.tail(activations.clone())[:, 1].sum(), activations)
    wrong = (slopes * activations.detach()).sum(1).relu()
    assert not torch.allclose(wrong, by_finite_differences(small_net, images, [1, 1, 1]), rtol=1e-2, atol=1e-4)


def test_without_classes_the_predicted_ones_count(small_net: nn.Module, images: Tensor) -> None:
    predicted = small_net(images).argmax(1)
    expected = grad_cam(small_net, images, layer="conv", classes=predicted)
    torch.testing.assert_close(grad_cam(small_net, images, layer="conv"), expected, rtol=0, atol=0)
    same = grad_cam(small_net, images, layer="conv", classes=2)
    torch.testing.assert_close(same, grad_cam(small_net, images, layer="conv", classes=torch.tensor([2, 2, 2])))


def test_an_image_has_the_same_map_in_any_batch(small_net: nn.Module, images: Tensor) -> None:
    together = grad_cam(small_net.train(), images, layer="conv", normalize=False)
    for at, image in enumerate(images):
        alone = grad_cam(small_net, image[None], layer="conv", normalize=False)
        torch.testing.assert_close(alone[0], together[at])
    assert grad_cam(small_net, images[:0], layer="conv").shape == (0, 3, 4)


def test_turning_the_image_turns_the_map_of_a_pooled_net(pooled_net: Callable[[Tensor], nn.Module]) -> None:
    net = pooled_net(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))
    image = torch.randn(2, 4, 5, 7, generator=torch.Generator().manual_seed(1))
    upright = grad_cam(net, image, layer="0", classes=1, size=(10, 14))
    turned = grad_cam(net, image.flip(3), layer="0", classes=1, size=(10, 14))
    torch.testing.assert_close(turned.flip(2), upright)


def test_only_the_raw_map_knows_the_scale_of_the_logits(pooled_net: Callable[[Tensor], nn.Module]) -> None:
    weight = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    image = torch.randn(2, 4, 5, 7, generator=torch.Generator().manual_seed(1))
    small, large = pooled_net(weight), pooled_net(100 * weight)
    torch.testing.assert_close(grad_cam(large, image, layer="0"), grad_cam(small, image, layer="0"))
    raw = [grad_cam(net, image, layer="0", normalize=False) for net in (small, large)]
    torch.testing.assert_close(raw[1], 100 * raw[0])


def test_a_map_without_contrast_is_zero(pooled_net: Callable[[Tensor], nn.Module]) -> None:
    net = pooled_net(torch.tensor([[1.0], [-1.0]]))
    image = torch.ones(1, 1, 3, 3)
    assert grad_cam(net, image, layer="0", classes=0).eq(0).all()
    assert grad_cam(net, image, layer="0", classes=0, normalize=False).eq(1 / 9).all()
    assert grad_cam(net, image, layer="0", classes=1).eq(0).all()


def test_a_faint_map_is_as_good_as_a_strong_one(pooled_net: Callable[[Tensor], nn.Module]) -> None:
    image = torch.rand(1, 1, 3, 3)
    maps = grad_cam(pooled_net(torch.tensor([[1e-20], [0.0]])), image, layer="0", classes=0)
    torch.testing.assert_close(maps, rescale(image[:, 0]))


def test_enlarged_as_an_image_library_does() -> None:
    maps = torch.rand(2, 3, 4)
    pictures = [Image.fromarray(one.numpy()).resize((11, 9), Image.Resampling.BILINEAR) for one in maps]
    expected = np.stack([np.asarray(picture) for picture in pictures])
    torch.testing.assert_close(resize(maps, (9, 11)), torch.from_numpy(expected), atol=1e-5, rtol=1e-5)


def test_input_size_is_the_images(small_net: nn.Module, images: Tensor) -> None:
    enlarged = grad_cam(small_net, images, layer="conv", size="input")
    assert enlarged.shape == (3, 6, 8)
    torch.testing.assert_close(enlarged.amax((1, 2)), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(enlarged, grad_cam(small_net, images, layer="conv", size=(6, 8)))
    # Scaling before enlarging, as well as after, changes nothing: enlarging keeps shifts and scales.
    twice = rescale(resize(grad_cam(small_net, images, layer="conv"), (6, 8)))
    torch.testing.assert_close(enlarged, twice)


def state(net: nn.Module) -> tuple[object, ...]:
    return (
        [module.training for module in net.modules()],
        [(p.requires_grad, None if p.grad is None else p.grad.tolist()) for p in net.parameters()],
        {name: tensor.tolist() for name, tensor in net.state_dict().items()},
        [[*module._forward_hooks, *module._forward_pre_hooks, *module._backward_hooks] for module in net.modules()],
        torch.is_grad_enabled(),
    )


@pytest.mark.parametrize("layer", [None, "conv"])
def test_the_model_is_left_as_it_was(small_net: nn.Module, images: Tensor, layer: str | None) -> None:
    small_net.train()
    small_net.norm.eval()
    small_net(images).sum().backward()
    small_net.hidden.weight.requires_grad_(False)
    small_net.fc.weight.grad = None
    before = state(small_net)
    grad_cam(small_net, images, layer=layer)
    assert state(small_net) == before


@pytest.mark.parametrize("layer", [None, "conv"])
def test_also_when_the_model_raises(small_net: nn.Module, images: Tensor, layer: str | None) -> None:
    small_net.train()
    small_net.hidden = nn.Linear(7, 6).double()
    before = state(small_net)
    with pytest.raises(ValueError, match="shapes cannot be multiplied"):
        grad_cam(small_net, images, layer=layer)
    assert state(small_net) == before


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_callers_gradient_mode_does_not_matter(small_net: nn.Module, images: Tensor, context: type) -> None:
    expected = grad_cam(small_net, images, layer="conv")
    for parameter in small_net.parameters():
        parameter.requires_grad_(False)
    with context():
        found = grad_cam(small_net, images * 1, layer="conv")
        assert torch.is_inference_mode_enabled() == (context is torch.inference_mode)
    assert not found.requires_grad
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_an_image_of_inference_mode_may_be_the_layer_itself(pooled_net: Callable[[Tensor], nn.Module]) -> None:
    net = pooled_net(torch.tensor([[1.0], [0.0]]))
    with torch.inference_mode():
        image = torch.rand(1, 1, 3, 3)
        found = grad_cam(net, image, layer="0", classes=0)
    torch.testing.assert_close(found.clone(), rescale(image.clone()[:, 0]))


def test_one_backward_and_no_graph_before_the_layer(small_net: nn.Module, images: Tensor) -> None:
    graphs, backwards = [], []
    small_net.conv.register_forward_hook(lambda module, inputs, output: graphs.append(output.requires_grad))
    small_net.hidden.register_full_backward_hook(lambda *_: backwards.append(1))
    grad_cam(small_net, images, layer="norm")
    assert (graphs, backwards) == ([False], [1])


def test_half_precision_is_accumulated_in_float32(pooled_net: Callable[[Tensor], nn.Module]) -> None:
    weight = torch.rand(2, 512, generator=torch.Generator().manual_seed(0))
    image = torch.rand(2, 512, 4, 4, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = grad_cam(pooled_net(weight.bfloat16()), image, layer="0", classes=1, normalize=False)
    assert found.dtype == torch.float32
    slopes = (weight[1].bfloat16().double() / 16)[:, None, None]
    torch.testing.assert_close(found.double(), (slopes * image.double()).sum(1), rtol=5e-3, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        inside = grad_cam(pooled_net(weight), image.float(), layer="0", classes=1, normalize=False)
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, found, rtol=5e-3, atol=0)


@pytest.mark.parametrize("size", [2.0**-7, 100.0], ids=["small", "large"])
def test_float16_loses_no_slope_that_pooling_makes_tiny(pooled_net: Callable[[Tensor], nn.Module], size: float) -> None:
    # A mean over 256 x 256 places: slopes of 2**-23 and less, where the smallest float16 is 2**-24. Large weights
    # overflow instead, if what saves the small ones is not taken back.
    weight = size * torch.rand(2, 3, generator=torch.Generator().manual_seed(0))
    image = torch.rand(2, 3, 256, 256, generator=torch.Generator().manual_seed(1)) - 0.5
    weight, image = weight.half(), image.half()
    found = grad_cam(pooled_net(weight), image, layer="0", classes=1, normalize=False)
    assert found.dtype == torch.float32
    expected = torch.einsum("c,nchw->nhw", weight[1].double() / 256**2, image.double()).clamp_min(0)
    torch.testing.assert_close(found.double(), expected, rtol=3e-3, atol=3e-3 * float(expected.max()))


class Speaks(nn.Module):
    """Ends in log-probabilities; its body gives a tuple and runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Pair(), nn.Linear(3, 4)

    def forward(self, images: Tensor) -> Tensor:
        maps, _ = self.body(self.body(images)[0])
        return self.head(maps.mean((2, 3))).log_softmax(1)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, images: Tensor) -> tuple[Tensor, str]:
        return self.conv(images).relu_(), "something else"


def test_the_logit_counts_of_the_last_run_of_a_layer_that_gives_a_tuple() -> None:
    torch.manual_seed(0)
    net, images = Speaks(), torch.randn(2, 3, 5, 5)
    with torch.no_grad():
        last = net.body(net.body(images)[0])[0]
    expected = torch.einsum("k,nkhw->nhw", net.head.weight[3].detach() / 25, last).relu()
    found = grad_cam(net, images, layer="body", classes=3, normalize=False)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "wrap", [partial(torch.compile, backend="eager"), nn.DataParallel], ids=["compiled", "parallel"]
)
def test_wrapped_models_keep_their_layers_names(wrap: Callable, small_net: nn.Module, images: Tensor) -> None:
    expected = grad_cam(small_net, images, layer="conv")
    torch.testing.assert_close(grad_cam(wrap(small_net), images, layer="conv"), expected)


@pytest.mark.parametrize(("name", "shape", "layer", "resolution"), [
    ("resnet20", (2, 3, 32, 32), "layer3", (8, 8)),
    ("cnn28", (2, 1, 28, 28), "convolutions", (5, 5)),
])  # fmt: skip
def test_the_networks_of_the_papers(name: str, shape: tuple, layer: str, resolution: tuple) -> None:
    torch.manual_seed(0)
    net, images = create(name), torch.randn(shape)
    maps = grad_cam(net, images, normalize=False)
    assert maps.shape == (2, *resolution)
    # Both average the last maps, so a_k = w_k / places.
    last = capture(net.eval(), layer, images)
    weight = net.head.weight.detach()[net(images).argmax(1)] / (resolution[0] * resolution[1])
    torch.testing.assert_close(maps, torch.einsum("nk,nkhw->nhw", weight, last).relu())


def capture(net: nn.Module, layer: str, images: Tensor) -> Tensor:
    seen: list[Tensor] = []
    handle = net.get_submodule(layer).register_forward_hook(lambda module, inputs, output: seen.append(output))
    net(images)
    handle.remove()
    return seen[0].detach()


def transformer() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    configuration = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=4,
        num_labels=3,
    )  # fmt: skip
    return transformers.ViTForImageClassification(configuration).eval()


def last_named(net: nn.Module, ending: str) -> str:
    return [name for name, _ in net.named_modules() if name.endswith(ending)][-1]


def test_a_transformer_through_its_tokens() -> None:
    net, images = transformer(), torch.randn(2, 3, 16, 16)
    layer = last_named(net, "layernorm_before")
    found = grad_cam(net, images, layer=layer, reshape=tokens_to_maps, classes=1, normalize=False)
    leaf: list[Tensor] = []
    net.get_submodule(layer).register_forward_hook(lambda module, inputs, output: leaf.append(output) or None)
    (slopes,) = torch.autograd.grad(net(images).logits[:, 1].sum(), leaf)
    expected = torch.zeros(2, 4, 4)
    for i in range(4):
        for j in range(4):
            token = leaf[0].detach()[:, 1 + 4 * i + j]
            expected[:, i, j] = (slopes[:, 1:].mean(1) * token).sum(1).clamp_min(0)
    torch.testing.assert_close(found, expected)
    assert float(found.max()) > 0


def test_tokens_that_change_no_logit_are_refused() -> None:
    net, images = transformer(), torch.randn(2, 3, 16, 16)
    layer = last_named(net, "layernorm_after")
    with pytest.raises(ValueError, match=r"^layer .* '.*' change none"):
        grad_cam(net, images, layer=layer, reshape=tokens_to_maps)


class ChannelsLast(nn.Module):
    """As Swin transformers are written: maps of patches as [N, height, width, channels]."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm, self.fc = nn.Conv2d(3, 6, 4, stride=4), nn.LayerNorm(6), nn.Linear(6, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.norm(self.patches(images).permute(0, 2, 3, 1)).square().mean((1, 2)))


def test_maps_with_their_channels_last_are_not_taken_for_others() -> None:
    torch.manual_seed(0)
    net, images = ChannelsLast(), torch.randn(2, 3, 16, 24)
    with pytest.raises(ValueError, match=r"reshape=.*'norm' has \[2, 4, 6, 6\]"):
        grad_cam(net, images)
    found = grad_cam(net, images, reshape=lambda maps: maps.permute(0, 3, 1, 2), classes=1, normalize=False)
    maps = capture(net, "norm", images).requires_grad_()
    (slopes,) = torch.autograd.grad(net.fc(maps.square().mean((1, 2)))[:, 1].sum(), maps)
    torch.testing.assert_close(found, (slopes.mean((1, 2), keepdim=True) * maps.detach()).sum(3).relu())
    assert grad_cam(net, images, layer="patches").shape == (2, 4, 6)


def test_images_are_a_batch() -> None:
    with pytest.raises(ValueError, match=r"^images .*\[samples, channels, height, width\].*\[3, 32, 32\]"):
        grad_cam(create("resnet20"), torch.randn(3, 32, 32))


@pytest.mark.parametrize(("arguments", "sentence"), [
    ({"layer": "layer9.2.conv1"}, r"one of the \d+ layers of \w+; got '.*', did you mean 'layer\d.2.conv1'"),
    ({"layer": nn.Conv2d(3, 3, 3)}, "^layer .*Conv2d"),
    ({"layer": "linear"}, r"^layer .*'linear'.*\[2, 10\]"),
    ({"layer": "layer3", "classes": 10}, r"^classes .*\[0, 10\).* = 10$"),
    ({"layer": "layer3", "classes": torch.tensor([0, -1])}, r"^classes .*\[0, 10\).* = -1$"),
    ({"layer": "layer3", "classes": torch.tensor([0, 1, 2])}, r"^classes .*\b2\b.*\[3\]$"),
    ({"layer": "layer3", "size": (0, 4)}, r'^size .*"input" or \(height, width\).*\(0, 4\)$'),
    ({"layer": "layer3", "head": "lin"}, "head must be one of "),
])  # fmt: skip
def test_bad_input_in_one_sentence(arguments: dict, sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        grad_cam(create("resnet20"), torch.randn(2, 3, 32, 32), **arguments)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.aside, self.idle = (nn.Conv2d(3, 3, 1) for _ in range(3))
        self.fc = nn.Linear(3, 2)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.conv(images)
        self.aside(maps)
        return self.fc(maps.mean((2, 3)))


def test_a_layer_that_never_runs_or_leads_nowhere_is_refused() -> None:
    net, images = Unused(), torch.randn(2, 3, 4, 4)
    with pytest.raises(ValueError, match=r"^layer .*'idle'"):
        grad_cam(net, images, layer="idle")
    with pytest.raises(ValueError, match=r"^layer .*'aside'"):
        grad_cam(net, images, layer="aside")


def test_a_map_has_more_than_one_place() -> None:
    net = nn.Sequential(nn.AdaptiveAvgPool2d((1, 2)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    images = torch.randn(2, 3, 4, 4)
    assert grad_cam(net, images, layer="0").shape == grad_cam(net, images).shape == (2, 1, 2)
    assert grad_cam(net, images.mT, layer="0", reshape=lambda maps: maps.mT).shape == (2, 2, 1)
    with pytest.raises(ValueError, match=r"^layer .*'1' has \[2, 3, 1, 1\]"):
        grad_cam(net, images, layer="1")


@pytest.mark.gpu
def test_on_a_gpu_maps_and_measures_stay_there_and_equal_the_hosts(small_net: nn.Module, images: Tensor) -> None:
    masks = box_masks(torch.tensor([[1.0, 1.0, 6.0, 4.0]]).expand(3, 4), (6, 8))

    def measured(device: str) -> list[Tensor]:
        net, seen = small_net.to(device), images.to(device)
        maps = grad_cam(net, seen, layer="conv", size="input")
        curves = (curve(net, seen, maps, steps=8).area for curve in (deletion_curve, insertion_curve))
        return [maps, energy_inside(maps, masks.to(device)), pointing_game(maps, masks.to(device)), *curves]

    expected = measured("cpu")
    for found, host in zip(measured("cuda"), expected, strict=True):
        assert found.device.type == "cuda"
        torch.testing.assert_close(found.cpu(), host)


@pytest.mark.data
def test_what_a_trained_network_looks_at_is_what_it_needs(data_root: Path) -> None:
    """Deleting by the map hurts sooner than deleting against it; inserting by it helps sooner."""
    folder = data_root / "cifar-10-batches-bin"
    net = load_cifar10_resnet(20, folder / "resnets.safetensors")
    records = np.fromfile(folder / "test_batch.bin", np.uint8, 12 * 3073).reshape(-1, 3073)
    pixels = torch.from_numpy(records[:, 1:].copy()).reshape(-1, 3, 32, 32).float() / 255
    images = (pixels - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(
        3, 1, 1
    )
    maps = grad_cam(net, images, size="input")
    for curve, sign in ((deletion_curve, -1), (insertion_curve, 1)):
        along, against = (curve(net, images, order, steps=8).area.mean() for order in (maps, 1 - maps))
        assert sign * float(along - against) > 0.05


@pytest.mark.parametrize("layer", [None, "conv"])
def test_images_that_the_model_does_not_take_are_refused_with_what_to_do(
    small_net: nn.Module, images: Tensor, layer: str | None
) -> None:
    for given, sentence in (
        (images.byte(), r".* images.float\(\) / 255; .*torch.uint8"),
        (images.float(), r".*torch.float32 ended in"),
        (images[:, :2], r".*\[3, 2, 6, 8\].*: Given groups"),
    ):
        with pytest.raises(ValueError, match=f"^images {sentence}") as refused:
            grad_cam(small_net, given, layer=layer)
        assert isinstance(refused.value.__cause__, RuntimeError)
