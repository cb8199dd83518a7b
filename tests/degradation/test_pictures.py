"""Each degradation moves the pixel statistics as it is defined to, and equals a slow float64 version."""

import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from hardsight.degradation import brightness, contrast, degrade, gaussian_blur, occlusion, uniform_noise
from hardsight.degradation.pictures import opened


@pytest.mark.parametrize("level", [0.1, 0.2, 0.3, 0.6, 1.0])
def test_contrast_scales_the_spread_and_pulls_the_mean_to_grey(level, pictures):
    before, after = pictures.double(), contrast(pictures.double(), level)
    for one, two in zip(before, after, strict=True):
        assert float(two.std()) == pytest.approx(level * float(one.std()))
        assert float(two.mean()) == pytest.approx(level * float(one.mean()) + (1 - level) / 2)
    expected = [level * value + (1 - level) / 2 for value in before.flatten().tolist()]
    torch.testing.assert_close(after.flatten(), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("level", [0.1, 0.2, 0.3, 0.4])
def test_uniform_noise_is_uniform_with_its_width(level, generator):
    """On mid-grey nothing is cut: the noise itself can be tested."""
    grey = torch.full((4, 3, 40, 40), 0.5, dtype=torch.float64)
    noise = uniform_noise(grey, level, generator=generator) - 0.5
    assert float(noise.abs().max()) <= level
    assert stats.kstest(noise.flatten().numpy(), stats.uniform(-level, 2 * level).cdf).pvalue > 1e-4
    assert float(noise.std()) == pytest.approx(level / 3**0.5, rel=0.03)
    assert not torch.equal(noise[:, 0], noise[:, 1])


def test_grey_noise_is_shared_by_the_channels(generator):
    noise = uniform_noise(torch.full((2, 3, 8, 8), 0.5), 0.3, generator=generator, grey=True)
    assert torch.equal(noise[:, 0], noise[:, 1])
    assert not torch.equal(noise[0], noise[1])


def test_uniform_noise_is_cut_at_black_and_white(generator):
    """A black image gets half of the noise: mean level / 4, and half of the pixels stay black."""
    dark = uniform_noise(torch.zeros(4, 3, 50, 50), 0.4, generator=generator)
    assert float(dark.mean()) == pytest.approx(0.1, rel=0.03)
    assert float((dark == 0).double().mean()) == pytest.approx(0.5, abs=0.02)


def test_brightness_scales_and_cuts(pictures):
    torch.testing.assert_close(brightness(pictures, 0.4), 0.4 * pictures)
    torch.testing.assert_close(brightness(pictures, 3.0), (3 * pictures).clamp(max=1))


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 2.5, 8.0])
def test_blur_equals_scipy(sigma, pictures):
    out = gaussian_blur(pictures.double(), sigma)
    expected = ndimage.gaussian_filter(pictures.double().numpy(), (0, 0, sigma, sigma), mode="reflect", truncate=4.0)
    np.testing.assert_allclose(out.numpy(), expected, atol=1e-12)


def test_blur_keeps_the_mean_and_lowers_the_spread(pictures):
    spreads = []
    for sigma in (0.0, 0.5, 1.0, 2.0, 4.0):
        out = gaussian_blur(pictures.double(), sigma)
        torch.testing.assert_close(out.mean((2, 3)), pictures.double().mean((2, 3)))
        spreads.append(float(out.std((2, 3)).mean()))
    assert spreads == sorted(spreads, reverse=True)
    flat = torch.full((1, 1, 5, 7), 0.3, dtype=torch.float64)
    torch.testing.assert_close(gaussian_blur(flat, 50.0), flat)


@pytest.mark.parametrize("level", [0.0, 0.1, 0.25, 0.5, 1.0])
def test_occlusion_covers_its_share_in_one_rectangle(level, generator):
    images = torch.full((200, 2, 20, 30), 0.9)
    out = occlusion(images, level, generator=generator, fill=0.2)
    tall, wide = round(level**0.5 * 20), round(level**0.5 * 30)
    covered = out[:, 0] == torch.tensor(0.2)
    assert torch.equal(covered, out[:, 1] == torch.tensor(0.2))
    assert bool((out[:, 0][~covered] == torch.tensor(0.9)).all())
    assert bool((covered.sum((1, 2)) == tall * wide).all())
    if 0 < level < 1:
        for mask in covered[:20]:
            rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
            assert int(rows.max() - rows.min()) + 1 == tall
            assert int(columns.max() - columns.min()) + 1 == wide


def test_occlusion_stands_everywhere_equally_often(generator):
    out = occlusion(torch.ones(6000, 1, 8, 8), 0.25, generator=generator)
    tops = (out[:, 0] == 0.5).any(2).float().argmax(1)
    lefts = (out[:, 0] == 0.5).any(1).float().argmax(1)
    for starts in (tops, lefts):
        assert stats.chisquare(torch.bincount(starts, minlength=5).numpy()).pvalue > 1e-4


def test_occlusion_refuses_a_fill_outside_the_range(pictures, generator):
    with pytest.raises(ValueError, match="fill must lie"):
        occlusion(pictures, 0.2, generator=generator, fill=2.0)


def test_a_blur_far_wider_than_the_image_is_its_mean_and_takes_no_memory() -> None:
    images = torch.rand(1, 1, 7, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for sigma in (1e4, 1e9, 1e30):
        blurred = gaussian_blur(images, sigma)
        torch.testing.assert_close(blurred, images.mean().expand_as(images), rtol=0, atol=1e-5)


def test_one_image_without_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"images must be a batch \[N, C, H, W\]; got shape \[3, 8, 8\]"):
        opened(torch.rand(3, 8, 8), 0.5, "contrast", 0.0, 1.0)


@pytest.mark.parametrize("wrong", [lambda one: 255 * one, lambda one: (one - 0.5) / 0.2, lambda one: one / 0])
def test_pictures_that_are_not_in_the_range_are_refused(pictures, generator, wrong):
    # Bytes as floats would come out white, normalised images with half their pixels cut to black.
    for name, level in (("contrast", 0.5), ("uniform_noise", 0.1), ("brightness", 0.5), ("blur", 1.0), ("jpeg", 50)):
        with pytest.raises(ValueError, match=r"images must be uint8 or floats in \[0, 1\]; got values from"):
            degrade(wrong(pictures), name, level, generator=generator)


def test_a_little_beyond_the_range_is_cut(pictures):
    # As a bicubic resize leaves them.
    beyond = 1.2 * pictures - 0.1
    torch.testing.assert_close(contrast(beyond, 1.0), beyond.clamp(0, 1))


def test_one_pixel_or_one_level_out_of_range_is_enough(pictures):
    levels = torch.full((len(pictures),), 0.5)
    levels[3] = 2.0
    with pytest.raises(ValueError, match=r"level of contrast must lie in \[0, 1\]; got \[0.5, 0.5, 0.5, 2.0"):
        contrast(pictures, levels)
    pictures[2, 1, 4, 5] = 7.0
    with pytest.raises(ValueError, match=r"images must be uint8 or floats in .* got values from .* to 7$"):
        contrast(pictures, 0.5)
