"""Augmentation against a slow loop over the same draws, pixel by pixel."""

import math

import pytest
import torch
from scipy import stats

from hardsight.datasets.augment import Augmentation, Draws, draw, normalise, pixel_scale, shift_and_flip


def looked_up(position: int, size: int, fill: str) -> int | None:
    """Where a pixel outside comes from; None for black."""
    if 0 <= position < size:
        return position
    if fill == "zero":
        return None
    if fill == "edge":
        return min(max(position, 0), size - 1)
    return -position if position < 0 else 2 * (size - 1) - position


def slow_shift_and_flip(images: torch.Tensor, draws: Draws, fill: str) -> torch.Tensor:
    """One sample and one pixel at a time: mirror, then look `row` down and `column` right."""
    out = torch.zeros_like(images)
    _, _, height, width = images.shape
    for n, (row, column, flip) in enumerate(zip(*(part.tolist() for part in draws), strict=True)):
        for h in range(height):
            for w in range(width):
                down, right = looked_up(h + row, height, fill), looked_up(w + column, width, fill)
                if down is not None and right is not None:
                    out[n, :, h, w] = images[n, :, down, width - 1 - right if flip else right]
    return out


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randint(1, 256, (12, 2, 7, 5), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.mark.parametrize("fill", ["zero", "edge", "reflect"])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_equals_the_slow_loop_over_the_same_draws(images, fill, flip, shift):
    augmentation = Augmentation(shift=shift, fill=fill, flip=flip)
    draws = draw(augmentation, len(images), torch.Generator().manual_seed(1))
    before = images.clone()
    fast = shift_and_flip(images, draws, augmentation)
    assert torch.equal(fast, slow_shift_and_flip(images, draws, fill))
    assert torch.equal(images, before)


def test_every_corner_of_the_shift_equals_the_loop():
    """The last window of the last sample ends exactly at the end of the frame."""
    image = torch.arange(1, 13, dtype=torch.uint8).reshape(1, 1, 4, 3).repeat(8, 1, 1, 1)
    corners = torch.tensor([(r, c, f) for r in (-2, 2) for c in (-2, 2) for f in (0, 1)])
    draws = Draws(corners[:, 0], corners[:, 1], corners[:, 2].bool())
    for fill in ("zero", "edge", "reflect"):
        fast = shift_and_flip(image, draws, Augmentation(shift=2, fill=fill, flip=True))
        assert torch.equal(fast, slow_shift_and_flip(image, draws, fill))


def test_the_loop_rejects_a_crop_that_flips_the_wrong_way_round(images):
    """Shifting before mirroring is another function: the reference must notice."""
    augmentation = Augmentation(shift=2, flip=True)
    draws = draw(augmentation, len(images), torch.Generator().manual_seed(1))
    shifted = shift_and_flip(images, draws._replace(flips=torch.zeros_like(draws.flips)), augmentation)
    wrong = torch.where(draws.flips[:, None, None, None], shifted.flip(3), shifted)
    assert not torch.equal(wrong, slow_shift_and_flip(images, draws, "zero"))


def test_zero_fill_equals_pad_and_crop(images):
    """The textbook augmentation: pad with black, cut a window of the old size."""
    augmentation = Augmentation(shift=3)
    draws = draw(augmentation, len(images), torch.Generator().manual_seed(2))
    padded = torch.nn.functional.pad(images, (3, 3, 3, 3))
    fast = shift_and_flip(images, draws, augmentation)
    for n, (row, column) in enumerate(zip(draws.rows.tolist(), draws.columns.tolist(), strict=True)):
        assert torch.equal(fast[n], padded[n, :, 3 + row : 10 + row, 3 + column : 8 + column])


def test_draws_are_uniform_and_seeded():
    augmentation = Augmentation(shift=2, flip=True)
    draws = draw(augmentation, 20_000, torch.Generator().manual_seed(3))
    table = torch.bincount(((draws.rows + 2) * 5 + draws.columns + 2) * 2 + draws.flips, minlength=50)
    assert stats.chisquare(table.numpy()).pvalue > 1e-4
    again = draw(augmentation, 20_000, torch.Generator().manual_seed(3))
    assert all(torch.equal(one, two) for one, two in zip(draws, again, strict=True))
    assert not draw(Augmentation(shift=2), 100, torch.Generator().manual_seed(3)).flips.any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_normalise_equals_its_definition(images, dtype, channels_last):
    mean, std = torch.tensor([0.3, 0.6]), torch.tensor([0.2, 0.25])
    out = normalise(images, pixel_scale(mean, std, dtype), dtype=dtype, channels_last=channels_last)
    expected = (images.double() / 255 - mean.double().view(2, 1, 1)) / std.double().view(2, 1, 1)
    assert out.dtype == dtype
    tolerance = max(torch.finfo(dtype).eps, 1e-16) * 8
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    if channels_last:
        assert out.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"shift": -1}, "shift must be at least 0"),
        ({"noise_std": -0.1}, "noise_std must be finite"),
        ({"noise_std": math.inf}, "noise_std must be finite"),
    ],
)
def test_refusals(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Augmentation(**options)


def test_an_unknown_fill_is_refused():
    with pytest.raises((ValueError, TypeError)):
        Augmentation(fill="black")
