"""What tests of several rooms share: the public data sets when they are at hand, a tiny classifier, small pictures."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image


def pytest_configure() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Two workers on two cores: more threads than cores only wait for each other.
        torch.set_num_threads(1)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """The test runs on one thread, whatever the process has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def tiny_vit(tmp_path: Path) -> Path:
    """A ViT of 3 classes for 16 x 16 pixels, as `save_pretrained` leaves it."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    names = {0: "cat", 1: "dog", 2: "frog"}
    configuration = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8,
        num_labels=3, id2label=names, label2id={name: at for at, name in names.items()},
    )  # fmt: skip
    folder = tmp_path / "tiny-vit"
    transformers.ViTForImageClassification(configuration).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        '{"size": {"height": 16, "width": 16}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'
    )
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three folders of three pictures, of different sizes."""
    generator = np.random.default_rng(0)
    root = tmp_path / "photos"
    for name in ("cat", "dog", "frog"):
        (root / name).mkdir(parents=True)
        for at in range(3):
            pixels = generator.integers(0, 256, (20 + at, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{at}.png")
    return root
