"""JPEG on tensors against the files that Pillow writes and reads."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from hardsight.degradation import jpeg


def through_pillow(image: torch.Tensor, quality: int) -> torch.Tensor:
    pixels = image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality, subsampling="4:2:0")
    read = torch.from_numpy(np.array(Image.open(file)))
    return read.unsqueeze(0) if read.ndim == 2 else read.permute(2, 0, 1)


def agrees_with_pillow(ours: torch.Tensor, images: torch.Tensor, quality: int) -> bool:
    """A fifth of a grey level apart on average, and 19 of 20 values equal or one apart.

    A coefficient on the edge of a quantisation step may fall on either side, so single values may differ by more.
    """
    files = torch.stack([through_pillow(image, quality) for image in images]).int()
    error = (ours.int() - files).abs().float()
    return bool(error.mean() <= 0.2) and bool((error <= 1).float().mean() >= 0.95)


@pytest.mark.parametrize("quality", [1, 5, 20, 49, 50, 75, 95, 100])
@pytest.mark.parametrize("size", [(20, 24), (16, 16), (17, 5), (9, 23), (5, 4), (5, 3), (3, 2), (1, 1)])
def test_equals_pillow_up_to_roundings(quality, size, pictures):
    images = (pictures * 255).round().byte()[:, :, : size[0], : size[1]].contiguous()
    assert agrees_with_pillow(jpeg(images, float(quality)), images, quality)
    assert agrees_with_pillow(jpeg(images[:, :1], float(quality)), images[:, :1], quality)


def test_the_law_rejects_another_quality_and_full_resolution_colour(pictures):
    """A wrong scale of the tables, or colour that keeps its resolution, does not pass for JPEG."""
    images = (pictures * 255).round().byte()
    assert not agrees_with_pillow(jpeg(images, 40), images, 75)
    by_channel = torch.cat([jpeg(images[:, c : c + 1], 75.0) for c in range(3)], 1)
    assert not agrees_with_pillow(by_channel, images, 75)


def test_a_grey_picture_in_colour_stays_grey(pictures):
    grey = pictures[:, :1].expand(-1, 3, -1, -1)
    out = jpeg(grey, 30.0)
    torch.testing.assert_close(out[:, 0], out[:, 1])
    torch.testing.assert_close(out[:, :1], jpeg(pictures[:, :1], 30.0), atol=2 / 255, rtol=0)


@pytest.mark.parametrize("quality", [1.0, 50.0, 100.0])
def test_a_flat_block_is_kept_to_its_step(quality):
    """A flat block has one coefficient, 8 (value - 128), rounded to its step: an error of at most step / 16."""
    step = {1.0: 255, 50.0: 16, 100.0: 1}[quality]
    values = torch.arange(256, dtype=torch.uint8).reshape(256, 1, 1, 1).expand(256, 1, 8, 8)
    out = jpeg(values, quality)
    assert bool((out == out[:, :, :1, :1]).all())
    assert float((out.float() - values.float()).abs().max()) <= step / 16 + 0.5


@pytest.mark.data
def test_equals_pillow_on_photographs(data_root):
    path = data_root / "cifar-10-batches-bin" / "test_batch.bin"
    records = np.fromfile(path, dtype=np.uint8, count=3073 * 100).reshape(-1, 3073)
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    for quality in (5, 20, 50, 75, 95):
        assert agrees_with_pillow(jpeg(images, float(quality)), images, quality)
