"""`hardsight adapt`: a record from two names or folders, JSON for machines, one sentence for what is wrong."""

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from hardsight import datasets, models
from hardsight.cli.adapt import adapt

QUICK = ("--rounds", 2, "--source-epochs", 1, "--batch-size", 16)


def run(*arguments: object) -> Any:
    app = typer.Typer()
    app.command()(adapt)
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A source of two classes, a target of the same classes, and the target's pictures without class folders."""
    generator = np.random.default_rng(0)
    for domain, dark in (("day", 0), ("night", 60)):
        for at in range(24):
            pixels = generator.integers(0, 100, (8, 8, 3))
            if at % 2:
                pixels[:, 4:] += 120
            else:
                pixels[:4] += 120
            picture = Image.fromarray((pixels - dark).clip(0, 255).astype(np.uint8))
            places = [tmp_path / domain / ("beside" if at % 2 else "above")]
            for place in [*places, *([tmp_path / "flat"] if domain == "night" else [])]:
                place.mkdir(parents=True, exist_ok=True)
                picture.save(place / f"{at}.png")
    return tmp_path / "day", tmp_path / "night", tmp_path / "flat"


def test_it_leaves_a_record_and_goes_on(folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    day, night, flat = folders
    options = ("--model", "digits_cnn", "--test", night, *QUICK, "-o", tmp_path / "run")
    done = run(day, flat, *options, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["round"] for row in found["rounds"]] == [0, 1, 2]
    assert found["rounds"][0]["accuracy"] is None
    assert 0 <= found["rounds"][-1]["test_accuracy"] <= 1
    assert pq.read_table(tmp_path / "run" / "rounds.parquet").num_rows == 3
    assert pq.read_table(tmp_path / "run" / "samples.parquet")["label"].null_count == 24
    again = run(day, flat, *options)
    assert again.exit_code == 0
    assert "going on after round 2" in again.stdout
    assert f"record: {tmp_path / 'run'}" in again.stdout


def test_a_data_set_by_name_beside_a_folder_in_colour(tmp_path: Path) -> None:
    for digit in range(10):
        place = tmp_path / "painted" / str(digit)
        place.mkdir(parents=True)
        for at in range(2):
            Image.fromarray(np.full((9, 9, 3), 20 * digit + at, np.uint8)).save(place / f"{at}.png")
    done = run("digits", tmp_path / "painted", "-m", "digits_cnn", *QUICK, "--limit", 60, "-o", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert "after round 0, accuracy" in done.stdout


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("--portion", 0), "portion must lie in (0, 1], the share of target samples to pseudo-label; got 0.0"),
        (("--portion", 0.6), "--portion must be at most its cap, 0.5; got 0.6"),
        (("--selector", "avhh"), "did you mean 'avh'?"),
        (("--model", "lenett"), "did you mean 'lenet'?"),
        (("--regenerate", "hour"), "--regenerate must be one of round, epoch; got 'hour'"),
        (("--rounds", 0), "rounds must be at least 1 and finite; got 0"),
        (("--size", 0), "--size must be at least 1; got 0"),
        (("--device", "cudda"), "device must be one that this machine has, cpu or cuda:0, say; got 'cudda'"),
        (("--limit", 0), "--limit must be at least 1; got 0"),
        (("--lr", "nan"), "--lr must be a finite number above 0; got nan"),
        (("--lr", -1), "--lr must be a finite number above 0; got -1.0"),
    ],
)
def test_bad_options_are_one_sentence(change: tuple[object, ...], sentence: str, tmp_path: Path) -> None:
    done = run("digits", "digits", "-o", tmp_path, *change)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_bad_domains_are_one_sentence(folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    day, night, _ = folders
    (night / "beside").rename(night / "below")
    (tmp_path / "empty").mkdir()
    for target, sentence in (
        (night, "the source has no 'below'"),
        ("mnst", "got 'mnst', did you mean 'mnist'"),
        ("nowhere", "a domain that is no folder of images must be one of digits, mnist"),
        ("", "a domain that is no folder of images must be one of digits, mnist"),
        (tmp_path / "empty", "empty must hold one folder for each class, or images; it holds none"),
    ):
        done = run(day, target, "-m", "digits_cnn", *QUICK, "-o", tmp_path / "run")
        assert done.exit_code == 2
        assert sentence in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_the_default_network_has_features_enough() -> None:
    """Of two features, an earlier default, self-training could only make worse what it began with."""
    default = inspect.signature(adapt).parameters["model"].default
    assert models.create(default).feature_dim >= 64


def test_with_every_default_it_ends_above_where_it_began(tmp_path: Path) -> None:
    """Handwritten digits, and others of them paler and under noise: only sizes and places are given."""
    digits = datasets.load("digits")
    generator = torch.Generator().manual_seed(0)
    noise = 60 * torch.rand(digits.images.shape, generator=generator)
    pale = (0.6 * digits.images.float() + noise).clamp(0, 255).to(torch.uint8)
    for domain, images, rows in (("bold", digits.images, range(900)), ("pale", pale, range(900, 1797))):
        for at in rows:
            place = tmp_path / domain / str(int(digits.labels[at]))
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[at, 0].numpy()).save(place / f"{at}.png")
    done = run(tmp_path / "bold", tmp_path / "pale", "-m", "digits_cnn", "-o", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    accuracies = [row["accuracy"] for row in found["rounds"]]
    assert accuracies[-1] > accuracies[0] + 0.005
    assert found["rounds"][-1]["agreement"] > 0.9
    assert found["notes"] == []


@pytest.mark.data
def test_the_example_ends_above_where_it_began(data_root: Path, tmp_path: Path) -> None:
    """The first example of the help, on fewer samples."""
    less = (
        "--limit",
        1000,
        "--rounds",
        3,
        "--source-epochs",
        15,
        "-o",
        tmp_path / "run",
        "--data",
        data_root,
        "--json",
    )
    done = run("mnist", "usps", "--test", "usps:test", *less)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    for measured in ("accuracy", "test_accuracy"):
        assert found["rounds"][-1][measured] > found["rounds"][0][measured]
    assert found["notes"] == []


def test_help_shows_an_example() -> None:
    assert "hardsight adapt mnist usps" in run("--help").stdout
