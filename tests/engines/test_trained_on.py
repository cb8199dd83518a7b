"""Inputs that look prepared otherwise than in the model's training are told, where its record says how it was."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

import hardsight as hs
from hardsight.cli import app
from hardsight.engines.model_spec import load_model

MEAN, STD = (0.3, 0.5, 0.6), (0.2, 0.3, 0.25)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))


@pytest.fixture
def pixels() -> Tensor:
    """Images in [0, 1] with the means and spreads of the training."""
    noise = torch.randn(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return (noise * torch.tensor(STD).view(-1, 1, 1) + torch.tensor(MEAN).view(-1, 1, 1)).clamp(0, 1)


def record(folder: Path, **details: Any) -> Path:
    folder.mkdir(exist_ok=True)
    told = {"kind": "training", "preprocessing": {"size": [8, 8], "mean": list(MEAN), "std": list(STD)}}
    (folder / "run.json").write_text(json.dumps(told | details))
    return folder


def normalised(pixels: Tensor, mean: Any = MEAN, std: Any = STD) -> Tensor:
    return (pixels - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)


def test_inputs_as_in_training_are_not_remarked_on(model: nn.Module, pixels: Tensor, tmp_path: Path) -> None:
    imagenet = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for images in (normalised(pixels), normalised(pixels.clamp(0.05, 0.8)), normalised(pixels, **imagenet)):
            hs.score_model(model, images.split(16), record=record(tmp_path))
        # What nothing is known of is not judged: another record, rows instead of images, no record at all.
        hs.score_model(model, pixels.split(16), record=record(tmp_path, preprocessing=None))
        hs.score_model(nn.Sequential(nn.Linear(5, 3)), [torch.rand(9, 5)], record=record(tmp_path))
        hs.score_model(model, pixels.split(16))


WRONG = {
    "not normalised": lambda pixels: pixels,
    "bytes": lambda pixels: 255 * pixels,
    "from -1 to 1": lambda pixels: 2 * pixels - 1,
    "twice": lambda pixels: normalised(normalised(pixels)),
}


@pytest.mark.parametrize("prepare", WRONG.values(), ids=WRONG)
def test_inputs_prepared_otherwise_are_told(prepare: Any, model: nn.Module, pixels: Tensor, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"normalised.*0\.3.*0\.2") as told:
        table = hs.score_model(model, prepare(pixels).split(16), record=record(tmp_path))
    assert len(told) == 1, "once, however many batches"
    assert len(str(told[0].message).splitlines()) == 1
    assert table.num_rows == 60


def test_a_grey_image_is_judged_by_one_channel(pixels: Tensor, tmp_path: Path) -> None:
    grey, network = pixels[:, :1], nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    folder = record(tmp_path, preprocessing={"size": [8, 8], "mean": [0.3], "std": [0.2]})
    with pytest.warns(UserWarning, match="normalised"):
        hs.score_model(network, [grey], record=folder)
    with pytest.raises(ValueError, match=r"must be the folder of a training.*nowhere"):
        hs.score_model(network, [grey], record=tmp_path / "nowhere")


@pytest.mark.parametrize(
    "damaged", [[1, 2], {"mean": "0.3", "std": [0.2]}, {"mean": [0.3], "std": [0.0]}, {"mean": []}]
)
def test_a_preprocessing_that_is_none_is_passed_over(
    damaged: Any, model: nn.Module, pixels: Tensor, tmp_path: Path
) -> None:
    hs.score_model(model, [pixels], record=record(tmp_path, preprocessing=damaged))


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Path, Path]:
    """Photos of two classes, and the record of a training on them."""
    generator = torch.Generator().manual_seed(0)
    for at in range(24):
        image = torch.randint(0, 90, (20, 28, 3), generator=generator, dtype=torch.uint8)
        image[:, :, at % 2] += 150
        place = tmp_path / "photos" / ("green" if at % 2 else "amber")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.numpy()).save(place / f"{at}.png")
    config = tmp_path / "photos.toml"
    config.write_text(
        f"epochs = 1\nfolder = '{tmp_path}/run'\n[data]\nname = 'folder'\nroot = '{tmp_path}/photos'\n"
        "options = { size = 32 }\n[model]\nname = 'resnet20'\n"
    )
    assert CliRunner().invoke(app, ["train", str(config), "--quiet"]).exit_code == 0
    return tmp_path / "photos", tmp_path / "run"


def test_weights_of_a_record_bring_its_preprocessing(trained: tuple[Path, Path]) -> None:
    photos, run = trained
    weights = run / "checkpoint" / "last.safetensors"
    about = json.loads((run / "run.json").read_text())
    loaded = load_model("hardsight:resnet20", weights, num_classes=2)
    assert list(loaded.preprocessing.mean) == about["preprocessing"]["mean"]
    assert list(loaded.preprocessing.std) == about["preprocessing"]["std"]
    assert loaded.preprocessing.size == (32, 32)
    assert loaded.class_names == ("amber", "green")
    assert loaded.assumed == ()
    command = ["score", "--model", "hardsight:resnet20", "--weights", str(weights), "--num-classes", "2", "--data"]
    command += [str(photos), "-o", str(photos.parent / "scores.parquet")]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0, told.output
    assert "normalised" not in told.output
    assert "assumed" not in told.output
    otherwise = CliRunner().invoke(app, [*command, "--mean", "0", "--std", "1"])
    assert otherwise.exit_code == 0, otherwise.output
    assert "normalised" in otherwise.output
