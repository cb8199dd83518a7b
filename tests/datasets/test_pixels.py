"""Brightness counted in pieces equals that of the whole set."""

import pytest
import torch

from hardsight.datasets.augment import pixel_statistics


def test_statistics_equal_those_of_the_whole_set() -> None:
    images = torch.randint(0, 256, (300, 3, 4, 5), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    mean, std = pixel_statistics(images)
    shares = images.double() / 255
    assert mean == pytest.approx(shares.mean((0, 2, 3)).tolist(), rel=1e-12)
    assert std == pytest.approx(shares.std((0, 2, 3), correction=0).tolist(), rel=1e-12)


def test_points_have_no_brightness() -> None:
    with pytest.raises(ValueError, match=r"images must be uint8 \[N, C, H, W\]; got torch.float32 \[5, 2\]"):
        pixel_statistics(torch.zeros(5, 2))


def test_a_channel_that_never_changes_is_only_moved() -> None:
    images = torch.full((3, 2, 2, 2), 7, dtype=torch.uint8)
    images[0, 0, 0, 0] = 8
    mean, std = pixel_statistics(images)
    assert mean[1] == pytest.approx(7 / 255)
    # Divided by its spread, a single other pixel in the test set would be enormous.
    assert std[1] == 1
    assert 0 < std[0] < 1 / 255


def test_no_image_has_no_brightness() -> None:
    with pytest.raises(ValueError, match="images must hold at least one image; got none"):
        pixel_statistics(torch.zeros(0, 3, 4, 4, dtype=torch.uint8))
