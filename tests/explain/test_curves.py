"""Deletion and insertion curves: pixel by pixel in a loop, by hand, and their ends."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hardsight.explain import deletion_curve, insertion_curve

CURVES = pytest.mark.parametrize("curve", [deletion_curve, insertion_curve])


@pytest.fixture
def images() -> Tensor:
    return torch.randn(3, 3, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def maps() -> Tensor:
    return torch.rand(3, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def by_loops(
    net: nn.Module, image: Tensor, order: Tensor, target: int, ground: Tensor, counts: list[int], insert: bool
):
    """One image: every pixel of the first `count` places is set in turn."""
    ranked = sorted(range(order.numel()), key=lambda place: -float(order.flatten()[place]))
    found = []
    for count in counts:
        picture = (ground if insert else image).clone()
        for place in ranked[:count]:
            row, column = divmod(place, order.shape[1])
            picture[:, row, column] = (image if insert else ground)[:, row, column]
        found.append(float(net(picture[None]).softmax(1)[0, target].detach()))
    return found


@CURVES
@pytest.mark.parametrize("batch_size", [1, 4, 1000])
def test_equals_a_loop(curve: Callable, batch_size: int, small_net: nn.Module, images: Tensor, maps: Tensor) -> None:
    classes = torch.tensor([1, 0, 4])
    found = curve(small_net.train(), images, maps, classes=classes, steps=5, baseline="mean", batch_size=batch_size)
    assert small_net.training
    small_net.eval()
    counts = [0, 10, 19, 29, 38, 48]
    torch.testing.assert_close(found.shares, torch.tensor(counts, dtype=torch.float64) / 48)
    for n in range(3):
        ground = images[n].mean((1, 2), keepdim=True).expand(3, 6, 8)
        expected = by_loops(small_net, images[n], maps[n], int(classes[n]), ground, counts, curve is insertion_curve)
        torch.testing.assert_close(found.probabilities[n], torch.tensor(expected, dtype=torch.float64))


def test_a_hand_computed_curve(pooled_net: Callable[[Tensor], nn.Module]) -> None:
    # Two classes with logits +-mean: the probability of the first is sigmoid(2 mean).
    net = pooled_net(torch.tensor([[1.0], [-1.0]]))
    image = torch.tensor([[[[8.0, 4.0], [0.0, -4.0]]]])
    curve = deletion_curve(net, image, image[:, 0], steps=4)
    expected = torch.tensor([[2.0, 0.0, -1.0, -1.0, 0.0]]).mul(2).sigmoid()
    torch.testing.assert_close(curve.probabilities, expected)
    steps = expected[0].tolist()
    area = sum((left + right) / 2 / 4 for left, right in itertools.pairwise(steps))
    torch.testing.assert_close(curve.area, torch.tensor([area]))


@pytest.mark.parametrize("baseline", ["zero", "mean", "blur"])
def test_the_ends_are_the_image_and_the_baseline(
    baseline: str, small_net: nn.Module, images: Tensor, maps: Tensor
) -> None:
    deleted = deletion_curve(small_net, images, maps, steps=3, baseline=baseline).probabilities
    inserted = insertion_curve(small_net, images, maps, steps=3, baseline=baseline).probabilities
    whole = small_net(images).softmax(1).amax(1).detach()
    torch.testing.assert_close(deleted[:, 0], whole)
    torch.testing.assert_close(inserted[:, -1], whole)
    torch.testing.assert_close(deleted[:, -1], inserted[:, 0])


@CURVES
def test_inserting_is_deleting_in_reverse(curve: Callable, small_net: nn.Module, images: Tensor, maps: Tensor) -> None:
    """Inserting the least important places last is deleting them first."""
    other = {deletion_curve: insertion_curve, insertion_curve: deletion_curve}[curve]
    forth = curve(small_net, images, maps, steps=8, baseline="zero")
    back = other(small_net, images, -maps, steps=8, baseline="zero")
    torch.testing.assert_close(forth.probabilities, back.probabilities.flip(1))
    # The law rejects a curve that takes the places in the same order.
    assert not torch.allclose(forth.probabilities, other(small_net, images, maps, steps=8).probabilities.flip(1))


def test_blur_keeps_the_mean_of_an_even_picture_also_at_the_rim(small_net: nn.Module) -> None:
    even = torch.full((1, 3, 6, 8), 0.7, dtype=torch.float64)
    curve = deletion_curve(small_net, even, torch.rand(1, 6, 8), steps=2, baseline="blur")
    torch.testing.assert_close(curve.probabilities, curve.probabilities[:, :1].expand(1, 3))


def test_blur_is_the_gaussian_of_the_documentation(pooled_net: Callable[[Tensor], nn.Module]) -> None:
    image = torch.rand(1, 1, 7, 9, dtype=torch.float64)
    expected = torch.zeros(7, 9, dtype=torch.float64)
    for i in range(7):
        for j in range(9):
            weights = [((k, m), torch.tensor(-((i - k) ** 2 + (j - m) ** 2) / 50.0, dtype=torch.float64).exp())
                       for k in range(7) for m in range(9) if abs(i - k) <= 5 and abs(j - m) <= 5]  # fmt: skip
            expected[i, j] = sum(w * image[0, 0, k, m] for (k, m), w in weights) / sum(w for _, w in weights)
    net = pooled_net(torch.tensor([[1.0], [0.0]], dtype=torch.float64))
    seen: list[Tensor] = []
    net[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
    insertion_curve(net, image, torch.rand(1, 7, 9), steps=1, batch_size=1)
    torch.testing.assert_close(seen[1][0, 0], expected)


def test_small_maps_are_enlarged(small_net: nn.Module, images: Tensor) -> None:
    small = torch.rand(3, 3, 4, dtype=torch.float64)
    large = nn.functional.interpolate(small[:, None], size=(6, 8), mode="bilinear")[:, 0]
    found = deletion_curve(small_net, images, small, steps=4)
    torch.testing.assert_close(found.probabilities, deletion_curve(small_net, images, large, steps=4).probabilities)


def test_ties_are_taken_in_reading_order(pooled_net: Callable[[Tensor], nn.Module]) -> None:
    net = pooled_net(torch.tensor([[1.0], [-1.0]]))
    image = torch.tensor([[[[1.0, 2.0], [4.0, 8.0]]]])
    curve = deletion_curve(net, image, torch.zeros(1, 2, 2), classes=0, steps=4)
    torch.testing.assert_close(curve.probabilities, torch.tensor([[15.0, 14.0, 12.0, 8.0, 0.0]]).div(2).sigmoid())


@pytest.mark.parametrize(("changed", "sentence"), [
    ({"maps": torch.rand(2, 6, 8)}, r"^maps .*\[3, height, width\].*\[2, 6, 8\]$"),
    ({"maps": torch.full((3, 6, 8), torch.nan)}, "^maps .*finite"),
    ({"images": torch.rand(3, 6, 8)}, r"images must be \[samples, .*; got \[3, 6, 8\]"),
    ({"images": torch.rand(0, 3, 6, 8), "maps": torch.rand(0, 6, 8)}, r"^maps .*at least one.*\[0, 6, 8\]"),
    ({"steps": 0}, r"^steps .*\[1, 48\].*0$"),
    ({"steps": 49}, r"^steps .*\[1, 48\].*49$"),
    ({"batch_size": 0}, "^batch_size .*1.*0$"),
    ({"baseline": "black"}, "^baseline .*zero, mean, blur; got 'black'"),
    ({"baseline": torch.zeros(2, 2)}, r"^baseline .*\[3, 3, 6, 8\].*\[2, 2\]$"),
    ({"classes": 5}, r"classes must lie in \[0, 5\)"),
])  # fmt: skip
def test_bad_input_in_one_sentence(
    changed: dict, sentence: str, small_net: nn.Module, images: Tensor, maps: Tensor
) -> None:
    arguments = {"images": images, "maps": maps, "steps": 4, **changed}
    with pytest.raises(ValueError, match=sentence):
        deletion_curve(small_net, arguments.pop("images"), arguments.pop("maps"), **arguments)


class OfBytes(nn.Module):
    """A network that scales its pixels itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(768, 3)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.head(pictures.flatten(1).float() / 255)


@pytest.mark.parametrize("baseline", ["zero", "mean", "blur"])
def test_pictures_of_bytes_have_baselines_of_bytes(baseline: str) -> None:
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    maps = torch.rand(2, 16, 16, generator=torch.Generator().manual_seed(1))
    net = OfBytes()
    found = insertion_curve(net, images, maps, steps=4, baseline=baseline).probabilities
    # A byte is rounded: half a level of 255 at most.
    expected = insertion_curve(net, images.float(), maps, steps=4, baseline=baseline).probabilities
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)


@pytest.mark.parametrize("curve", [deletion_curve, insertion_curve])
def test_images_that_the_model_does_not_take_are_refused_with_what_to_do(
    curve: Callable, small_net: nn.Module, images: Tensor, maps: Tensor
) -> None:
    for baseline in ("zero", "mean", "blur"):
        with pytest.raises(ValueError, match=r"^images .*torch"):
            curve(small_net, images.byte(), maps, steps=4, baseline=baseline)
