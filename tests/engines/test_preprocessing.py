"""Preprocessing: the formula, Pillow's resizing, the middle cut, and what timm's and Hugging Face's files say."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from hardsight.engines import preprocessing
from hardsight.engines.preprocessing import Preprocessing, from_huggingface, from_timm, from_torchvision

IMAGE = torch.randint(256, (3, 50, 80), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def by_pillow(image: torch.Tensor, resize: int, size: int, resampling: Image.Resampling) -> np.ndarray:
    """Resize the shorter side, cut the middle: with Pillow alone."""
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    width, height = picture.size
    scale = resize / min(width, height)
    picture = picture.resize((int(width * scale), int(height * scale)), resampling)
    left, top = round((picture.width - size) / 2), round((picture.height - size) / 2)
    return np.asarray(picture.crop((left, top, left + size, top + size)))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("image", [IMAGE, IMAGE.transpose(1, 2)])
def test_resize_and_cut_equal_pillows(interpolation: str, image: torch.Tensor) -> None:
    wanted = Preprocessing((24, 24), 30, interpolation, (0.0,) * 3, (1.0,) * 3)
    expected = by_pillow(image, 30, 24, Image.Resampling[interpolation.upper()])
    np.testing.assert_allclose(wanted(image).permute(1, 2, 0).numpy() * 255, expected, atol=1e-3)


def test_formula_of_a_pixel() -> None:
    wanted = Preprocessing(mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    torch.testing.assert_close(wanted(IMAGE), (IMAGE.float() - 127) / 128)


def test_squashing_keeps_the_borders_and_cutting_does_not() -> None:
    image = torch.zeros(1, 20, 60, dtype=torch.uint8)
    image[:, :, :15] = 255
    plain = {"mean": (0.0,), "std": (1.0,), "interpolation": "nearest"}
    assert float(Preprocessing((20, 20), None, **plain)(image).max()) == 1.0
    assert float(Preprocessing((20, 20), 20, **plain)(image).max()) == 0.0


def test_channels_follow_the_model() -> None:
    grey = IMAGE[:1]
    assert Preprocessing()(grey).shape == (3, 50, 80)
    one = Preprocessing(mean=(0.0,), std=(1.0,))(IMAGE)
    luma = np.asarray(Image.fromarray(IMAGE.permute(1, 2, 0).numpy()).convert("L"))
    np.testing.assert_array_equal((one[0].numpy() * 255).round(), luma)
    with pytest.raises(ValueError, match="must have 3 channels or 1; got 4"):
        Preprocessing()(torch.zeros(4, 5, 5, dtype=torch.uint8))


def test_an_image_smaller_than_the_cut_still_fills_it() -> None:
    assert Preprocessing((32, 40), 32)(IMAGE[:, :5, :5]).shape == (3, 32, 40)


def test_a_thread_of_an_image_is_cut_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Preprocessing((224, 224), 256, "bicubic")
    generator = torch.Generator().manual_seed(0)
    thread = torch.randint(256, (3, 1, 60_000), generator=generator, dtype=torch.uint8)
    assert wanted(thread).shape == (3, 224, 224)
    # Made in one piece or cut first: the same pixels, up to the rounding of a level.
    image = torch.randint(256, (3, 60, 400), generator=generator, dtype=torch.uint8)
    whole = wanted(image)
    monkeypatch.setattr(preprocessing, "_LARGEST", 0)
    torch.testing.assert_close(wanted(image), whole, rtol=0, atol=1.01 / 255 / min(wanted.std))


def test_timm() -> None:
    said = {
        "input_size": (3, 224, 224),
        "crop_pct": 0.875,
        "interpolation": "bicubic",
        "mean": (0.5,) * 3,
        "std": (0.4,) * 3,
    }
    assert from_timm(said) == Preprocessing((224, 224), 256, "bicubic", (0.5,) * 3, (0.4,) * 3)
    assert from_timm(said | {"crop_mode": "squash"}).resize is None
    # timm rounds 224 / 0.95 = 235.8 down.
    assert from_timm(said | {"crop_pct": 0.95}).resize == 235


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"size": 32}, ((32, 32), None)),
        ({"size": {"height": 32, "width": 48}}, ((32, 48), None)),
        (
            {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}},
            ((224, 224), 256),
        ),
        ({"size": {"shortest_edge": 224}}, ((224, 224), 224)),
        ({"size": 256, "do_center_crop": True, "crop_size": 224}, ((224, 224), 256)),
        (
            {"size": 256, "do_center_crop": True, "crop_size": 224, "feature_extractor_type": "DeiTFeatureExtractor"},
            ((224, 224), (256, 256)),
        ),
        ({"size": 224, "crop_pct": 0.875, "feature_extractor_type": "ConvNextFeatureExtractor"}, ((224, 224), 256)),
        ({"size": 224, "do_resize": False}, (None, None)),
    ],
)
def test_huggingface_sizes(said: dict, expected: tuple, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({**said, "resample": 3, "image_mean": [0.1] * 3, "image_std": [0.2] * 3})
    )
    found = from_huggingface(tmp_path)
    assert (found.size, found.resize) == expected
    assert (found.interpolation, found.mean, found.std) == ("bicubic", (0.1,) * 3, (0.2,) * 3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ViT", {}),
        ("Beit", {}),
        ("CLIP", {}),
        ("DeiT", {}),
        ("Levit", {}),
        ("MobileNetV2", {}),
        ("PoolFormer", {}),
        ("EfficientNet", {}),
        ("ConvNext", {"size": {"shortest_edge": 224}}),
        ("ConvNext", {"size": {"shortest_edge": 384}}),
    ],
)
def test_equal_to_the_processors_of_transformers(name: str, options: dict, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    build = getattr(transformers, f"{name}ImageProcessorPil", None) or getattr(transformers, f"{name}ImageProcessor")
    processor = build(**options)
    processor.save_pretrained(tmp_path)
    # Of the second, an odd number of pixels is cut off.
    for sides in ((500, 333), (338, 333)):
        photo = Image.fromarray(IMAGE.permute(1, 2, 0).numpy()).resize(sides, Image.Resampling.BICUBIC)
        ours = from_huggingface(tmp_path)(torch.from_numpy(np.array(photo)).permute(2, 0, 1))
        np.testing.assert_allclose(ours.numpy(), np.asarray(processor(photo)["pixel_values"][0]), atol=1e-5)


def test_the_longer_side_is_not_one_short_by_rounding() -> None:
    # 285 * (224 / 190) is 335.99... in floating point.
    image = torch.zeros(3, 190, 285, dtype=torch.uint8)
    image[:, :, -1] = 255
    whole = Preprocessing((224, 336), 224, "nearest", (0.0,) * 3, (1.0,) * 3)
    torch.testing.assert_close(whole(image), Preprocessing((224, 336), None, "nearest", (0.0,) * 3, (1.0,) * 3)(image))
    narrow = Preprocessing((224, 334), 224, "nearest", (0.0,) * 3, (1.0,) * 3)
    torch.testing.assert_close(narrow(image), whole(image)[:, :, 1:-1])


def test_huggingface_without_normalisation(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text('{"size": 8, "do_normalize": false}')
    assert (from_huggingface(tmp_path).mean, from_huggingface(tmp_path).std) == ((0.0,) * 3, (1.0,) * 3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not readable JSON"),
        ("[]", "must hold a JSON object"),
        ('{"rescale_factor": 1.0}', "must scale pixels by 1/255"),
        ('{"do_rescale": false}', "must scale pixels by 1/255; it says 1"),
        ('{"do_flip_channel_order": true}', "it says do_flip_channel_order, not known here"),
        ('{"size": 224, "do_center_crop": true, "crop_size": 256}', "crop_size .* must not exceed size"),
        ('{"do_resize": false, "do_center_crop": true, "crop_size": 256}', "must resize before it crops"),
        ('{"size": "big"}', "must be a number, shortest_edge or height, width"),
    ],
)
def test_bad_huggingface_files(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        from_huggingface(tmp_path)


def test_torchvision() -> None:
    said = SimpleNamespace(
        crop_size=[224],
        resize_size=[232],
        mean=[0.485, 0.456, 0.406],
        std=[0.2] * 3,
        interpolation=SimpleNamespace(value="bilinear"),
    )
    assert from_torchvision(said) == Preprocessing((224, 224), 232, "bilinear", (0.485, 0.456, 0.406), (0.2,) * 3)


def test_flags_change_what_they_name() -> None:
    own = Preprocessing((224, 224), 256, "bicubic")
    assert own.changed(size=None, mean=None) == own
    assert own.changed(size=(112, 112)).resize == 128
    assert Preprocessing((224, 224), (256, 256)).changed(size=(112, 112)).resize == (128, 128)
    assert Preprocessing().changed(size=(32, 48)) == Preprocessing((32, 48), 32)
    assert Preprocessing((8, 8)).changed(size=(32, 32)) == Preprocessing((32, 32), None)
    assert own.changed(mean=(0.25,)).mean == (0.25,) * 3
    assert Preprocessing(mean=(0.5,), std=(0.5,)).changed(std=(0.3,)).std == (0.3,)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mean": (127.0,) * 3}, "mean must be for pixels in"),
        ({"std": (0.0,) * 3}, "std must be positive"),
        ({"mean": (0.5,), "std": (0.5,) * 3}, "mean must have 1 or 3 numbers and std as many; got 1 and 3"),
        ({"interpolation": "magic"}, "interpolation must be one of"),
        ({"size": (0, 4)}, "size must be at least 1"),
        ({"resize": 4}, "come with a size"),
    ],
)
def test_refusals(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Preprocessing(**options)
