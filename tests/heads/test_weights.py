"""What is taken for the head's weight made the logits, or a sentence says so."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import prune

import hardsight as hs
from hardsight.losses import AngularLinear, CosineLinear

IMAGES = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) % 5


def network(head: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5) if head is None else head)


def test_weights_given_to_the_forward_are_the_ones_that_are_seen() -> None:
    model, others = network(), {name: 2 * one.cos() for name, one in network().named_parameters()}
    with hs.observe(model) as seen:
        functional_call(model, others, (IMAGES,))
        assert seen.weight is others["2.weight"]
        assert seen.bias is others["2.bias"]
        model(IMAGES)
        assert seen.weight is model[2].weight


@contextmanager
def swapped(head: nn.Linear) -> Iterator[None]:
    """Other weights for a while, as an average of them is evaluated."""
    kept = head.weight.detach().clone()
    head.weight.data.copy_(kept.roll(1, 0))
    yield
    head.weight.data.copy_(kept)


class Swaps(nn.Module):
    """Swaps its head's weights during its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, images: Tensor) -> Tensor:
        with swapped(self.head):
            return self.head(self.body(images).relu())


class LowRank(nn.Linear):
    """As LoRA: the stored weight is not the one in force."""

    def __init__(self, *sides: int) -> None:
        super().__init__(*sides)
        self.up, self.down = nn.Parameter(torch.randn(sides[1], 2)), nn.Parameter(torch.randn(2, sides[0]))

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features) + features @ self.down.T @ self.up.T


class Doubled(nn.Linear):
    """Its output is changed by a hook."""

    def __init__(self, *sides: int) -> None:
        super().__init__(*sides)
        self.register_forward_hook(lambda module, inputs, output: 2 * output)


@pytest.mark.parametrize("build", [Swaps, lambda: network(LowRank(16, 5)), lambda: network(Doubled(16, 5))])
def test_a_weight_that_did_not_make_the_logits_is_refused(build: Callable[[], nn.Module]) -> None:
    model = build()
    with hs.observe(model) as seen:
        model(IMAGES)
        with pytest.raises(ValueError, match=r"weight.*logits"):
            _ = seen.weight
    with pytest.raises(ValueError, match=r"weight.*logits"):
        hs.score_model(model, [(IMAGES, LABELS)])


def test_weights_swapped_behind_the_forward_are_noticed() -> None:
    model = network()
    with hs.observe(model) as seen:
        with swapped(model[2]):
            model(IMAGES)
        with pytest.raises(ValueError, match=r"weight.*logits"):
            _ = seen.weight


class NormedLinear(nn.Linear):
    """A cosine head that is written as a linear layer."""

    def forward(self, features: Tensor) -> Tensor:
        return 7 * F.linear(F.normalize(features), F.normalize(self.weight))


class EightBits(nn.Linear):
    """As in training that prepares for quantisation: the weight is rounded to 8 bits on the way."""

    def forward(self, features: Tensor) -> Tensor:
        step = float(self.weight.detach().abs().max() / 127)
        return F.linear(features, torch.fake_quantize_per_tensor_affine(self.weight, step, 0, -128, 127), self.bias)


def weight_norm(head: nn.Linear) -> nn.Linear:
    nn.utils.parametrizations.weight_norm(head)
    return head


ORDINARY = {
    "parametrised": lambda: network(weight_norm(nn.Linear(16, 5))),
    "pruned": lambda: network(prune.random_unstructured(nn.Linear(16, 5), "weight", 0.5)),
    "angular": lambda: network(AngularLinear(16, 5)),
    "cosine": lambda: network(CosineLinear(16, 5)),
    "cosine as a linear layer": lambda: network(NormedLinear(16, 5)),
    "eight bits": lambda: network(EightBits(16, 5)),
    "without bias": lambda: network(nn.Linear(16, 5, bias=False)),
    "zeros": lambda: network(nn.Linear(16, 5).requires_grad_(False)),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_heads_pass(name: str) -> None:
    model = ORDINARY[name]()
    if name == "zeros":
        nn.init.zeros_(model[2].weight)
    assert hs.score_model(model, [(IMAGES, LABELS)]).num_rows == 12


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wide", [16, 2048])
def test_rounding_is_not_taken_for_another_weight(dtype: torch.dtype, wide: int) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, wide), nn.ReLU(), nn.Linear(wide, 300))
    labels = torch.arange(12)
    assert hs.score_model(copy.deepcopy(model).to(dtype), [(IMAGES.to(dtype), labels)]).num_rows == 12
    if dtype != torch.float64:
        with torch.autocast("cpu", dtype):
            assert hs.score_model(model, [(IMAGES, labels)]).num_rows == 12
    # Few bits, but not so few that another class's weight would pass.
    model.to(dtype)
    with hs.observe(model) as seen, torch.no_grad():
        model(IMAGES.to(dtype))
        model[2].weight[:2] = model[2].weight[:2].flip(0)
        with pytest.raises(ValueError, match=r"weight.*logits"):
            _ = seen.weight


class Views(nn.Module):
    """Classifies an image and its mirror image, and gives the mean of both."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.body, self.head = how, nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, images: Tensor) -> Tensor:
        views = [self.body(images).relu(), self.body(images.flip(1)).relu()]
        if self.how == "calls":
            return (self.head(views[0]) + self.head(views[1])) / 2
        if self.how == "side by side":
            return self.head(torch.stack(views, 1).flatten(0, 1)).reshape(-1, 2, 5).mean(1)
        return self.head(torch.cat(views)).reshape(2, -1, 5).mean(0)


@pytest.mark.parametrize("how", ["calls", "side by side", "one after the other"])
def test_several_views_are_refused_or_averaged_on_request(how: str) -> None:
    torch.manual_seed(3)
    model = Views(how)
    with pytest.raises(ValueError, match="views"):
        hs.score_model(model, [(IMAGES, LABELS)])
    with hs.observe(model, views="mean") as seen:
        for images in (IMAGES, IMAGES[:7]):
            torch.testing.assert_close(model(images), seen.logits)
            torch.testing.assert_close(F.linear(seen.features, seen.weight, seen.bias), seen.logits)
    table = hs.score_model(model, [(IMAGES, LABELS)], views="mean")
    assert table["predicted"].to_pylist() == model(IMAGES).argmax(1).tolist()


def test_views_whose_mean_is_given_beside_features_are_noticed() -> None:
    class WithFeatures(Views):
        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return self.body(images), super().forward(images)

    model = WithFeatures("side by side")
    with pytest.raises(ValueError, match="views"), hs.observe(model, "head"):
        model(IMAGES)
    with hs.observe(model, "head", views="mean") as seen:
        torch.testing.assert_close(model(IMAGES)[1], seen.logits)


def test_one_view_is_its_own_mean_and_rows_that_are_no_views_are_refused() -> None:
    model = network()
    assert hs.score_model(model, [(IMAGES, LABELS)], views="mean") == hs.score_model(model, [(IMAGES, LABELS)])

    class Pools(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 5)

        def forward(self, images: Tensor) -> Tensor:
            return self.head(images).reshape(-1, 2, 5).amax(1)

    for views in (None, "mean"):
        with pytest.raises(ValueError, match="views"):
            hs.score_model(Pools(), [IMAGES], views=views)
    with pytest.raises(ValueError, match="views must be"):
        hs.observe(model, views="max").__enter__()


class Slopes(nn.Module):
    """Classifies by the gradient of a function at the image, as models of energies and forces do."""

    def __init__(self, guarded: bool = True) -> None:
        super().__init__()
        self.guarded, self.energy, self.head = guarded, nn.Linear(8, 4), nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        with torch.enable_grad() if self.guarded else torch.autograd.set_grad_enabled(torch.is_grad_enabled()):
            images = images.detach().requires_grad_()
            (slopes,) = torch.autograd.grad(self.energy(images).square().sum(), images)
        return self.head(slopes)


def test_a_model_that_differentiates_in_its_forward_is_scored_or_told_how() -> None:
    table = hs.score_model(model := Slopes(), [(IMAGES, LABELS)])
    assert table["predicted"].to_pylist() == model(IMAGES).argmax(1).tolist()
    with pytest.raises(ValueError, match="enable_grad"):
        hs.score_model(Slopes(guarded=False), [(IMAGES, LABELS)])


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "compiled",
    [torch.jit.script, lambda model: torch.jit.trace(model, IMAGES), lambda m: nn.Sequential(torch.jit.script(m))],
)
def test_torchscript_is_refused_in_a_sentence(compiled: Callable[[nn.Module], nn.Module]) -> None:
    with pytest.raises(ValueError, match="TorchScript"):
        hs.score_model(compiled(network()), [(IMAGES, LABELS)])
