"""Encoders by name: pooled features of images and texts, kept for the next time, and what cannot be had offline."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from hardsight.engines import encoders
from hardsight.engines.encoders import FEATURES_FILE, features_of_images, features_of_texts, load_encoder
from hardsight.engines.images import open_images

TEXTS = ["a dog runs", "the cat", "a dog", None, "cat cat runs the dog"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Six photos of two classes, one of which does not decode."""
    generator = np.random.default_rng(0)
    for at in range(6):
        folder = tmp_path / "photos" / ("ant" if at < 3 else "bee")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (40, 50, 3), np.uint8)).save(folder / f"{at}.png")
    (tmp_path / "photos/bee/4.png").write_bytes(b"no image")
    return tmp_path / "photos"


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=16, patch_size=8
    )
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    said = {"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}}
    (tmp_path / "vit/preprocessor_config.json").write_text(json.dumps(said))
    return tmp_path / "vit"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "dog", "cat", "runs"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizer(vocab={word: at for at, word in enumerate(words)})
    tokenizer.save_pretrained(tmp_path / "bert")
    config = transformers.BertConfig(
        vocab_size=10, hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    torch.manual_seed(0)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_features_are_what_the_head_of_a_classifier_receives(photos: Path, vit: Path) -> None:
    images = open_images(photos)
    features, unreadable = features_of_images(images, f"hf:{vit}")
    assert features.shape == (6, 12)
    assert list(unreadable) == [4]
    assert "bee/4.png" in unreadable[4]
    assert features.isnan().all(1).tolist() == [False, False, False, False, True, False]
    encoder = load_encoder(f"hf:{vit}")
    assert encoder.preprocessing is not None
    pixels = encoder.preprocessing(images[0][0])[None]
    with torch.no_grad():
        hidden = encoder.model.vit(pixels).last_hidden_state[:, 0]  # type: ignore[operator,union-attr]
    torch.testing.assert_close(features[:1], hidden)


def test_texts_are_pooled_over_their_own_tokens_alone(bert: Path) -> None:
    features = features_of_texts(TEXTS, f"hf:{bert}")
    assert features.shape == (5, 12)
    assert features.isnan().all(1).tolist() == [False, False, False, True, False]
    for at in (0, 2, 4):
        # Alone a text has no padding.
        torch.testing.assert_close(features_of_texts([TEXTS[at]], f"hf:{bert}")[0], features[at])
    (bert / "1_Pooling").mkdir()
    (bert / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    (bert / "2_Normalize").mkdir()
    pooled = features_of_texts(TEXTS[:1], f"hf:{bert}")
    assert not torch.allclose(pooled[0], features[0])
    torch.testing.assert_close(pooled.norm(dim=1), torch.ones(1))


def test_a_second_call_reads_the_features_and_other_samples_are_encoded_again(
    photos: Path, vit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def counted(backbone: str, of: str = "images") -> Any:
        calls.append(backbone)
        return load_encoder(backbone, of)

    monkeypatch.setattr(encoders, "load_encoder", counted)
    images, cache = open_images(photos), tmp_path / "audit"
    first = features_of_images(images, f"hf:{vit}", cache=cache)
    second = features_of_images(images, f"hf:{vit}", cache=cache)
    assert len(calls) == 1
    torch.testing.assert_close(first[0], second[0], equal_nan=True)
    assert first[1] == second[1]
    with pytest.raises(ValueError, match=r"backbone.*\[24, 24\].*size"):
        features_of_images(images, f"hf:{vit}", size=24, cache=cache)
    Image.new("RGB", (40, 50)).save(photos / "ant/0.png")
    changed, _ = features_of_images(open_images(photos), f"hf:{vit}", cache=cache)
    assert len(calls) == 3
    assert not torch.allclose(changed[0], first[0][0])
    (cache / FEATURES_FILE).write_bytes(b"damaged")
    features_of_images(open_images(photos), f"hf:{vit}", cache=cache)
    assert len(calls) == 4


def test_a_package_may_hold_one_models_folder(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site/my_sentences"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('never run')")
    bert.rename(package / "model")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert features_of_texts(["a dog"], "package:my-sentences").shape == (1, 12)
    (package / "other").mkdir()
    for name in ("config.json", "model.safetensors"):
        (package / "other" / name).write_bytes((package / "model" / name).read_bytes())
    with pytest.raises(ValueError, match=r"backbone.*model.*other"):
        load_encoder("package:my-sentences", "texts")


def test_ones_own_model_gives_the_input_of_its_head(
    photos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from torch import nn\nclass Net(nn.Sequential):\n    input_shape = (3, 8, 8)\n    def __init__(self):\n"
        "        super().__init__(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))\n"
    )
    features, _ = features_of_images(open_images(photos), "mine:Net")
    assert features.shape == (6, 8)


def test_weights_of_timm_from_a_file(photos: Path, tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = timm.create_model("resnet18", num_classes=7)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    features, _ = features_of_images(open_images(photos), f"timm:resnet18@{tmp_path / 'weights.safetensors'}", size=64)
    assert features.shape == (6, 512)
    with pytest.raises(ValueError, match=r"backbone.*timm:resnet18@FILE"):
        load_encoder("timm:resnet18")


def test_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: Any, **__: Any) -> None:
        torch.hub.download_url_to_file("https://example.org/weights.pth", "weights.pth")

    monkeypatch.setattr(encoders, "load_model", build)
    with pytest.raises(ValueError, match=r"backbone.*timm:resnet18.*timm:resnet18@FILE"):
        load_encoder("timm:resnet18")


@pytest.mark.parametrize(
    ("backbone", "of", "words"),
    [
        ("resnet18", "images", ("backbone", "'resnet18'", "hf:")),
        ("hf:", "images", ("backbone", "hf:")),
        ("hf:nowhere", "images", ("nowhere", "config.json")),
        ("hf:nowhere", "texts", ("nowhere", "config.json")),
        ("package:none-such", "texts", ("backbone", "pip install none-such")),
        ("package:pyarrow", "texts", ("backbone", "pyarrow", "config.json")),
        ("timm:resnet18", "texts", ("backbone", "timm:resnet18", "texts")),
        ("package:efficientnet_lite0", "texts", ("backbone", "texts")),
    ],
)
def test_what_is_no_backbone(backbone: str, of: str, words: tuple[str, ...]) -> None:
    with pytest.raises((ValueError, OSError, ImportError)) as raised:
        load_encoder(backbone, of)
    assert all(word in str(raised.value) for word in words), raised.value


def test_damaged_folders_are_named(vit: Path, bert: Path) -> None:
    (vit / "model.safetensors").write_bytes(b"\0" * 50)
    with pytest.raises(ValueError, match=str(vit)):
        load_encoder(f"hf:{vit}")
    for file in bert.glob("tokenizer*"):
        file.write_text("{")
    with pytest.raises(ValueError, match=f"{bert}.*tokenizer"):
        load_encoder(f"hf:{bert}", "texts")
