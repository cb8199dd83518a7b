"""`hardsight score`: both forms end to end, the summary, and one sentence with exit code 2 for every bad input."""

import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner, Result

from hardsight.cli.score import score
from hardsight.engines.files import ENDINGS, write_features
from hardsight.explorer.answers import Answers

app = typer.Typer()
app.command()(score)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write(path: Path, **changes: torch.Tensor) -> Path:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "features": torch.randn(9, 4, generator=generator),
        "weight": torch.randn(3, 4, generator=generator),
        "labels": torch.tensor([0, 1, 2] * 3),
        "bias": None,
        "ids": None,
    }
    write_features(path, **(tensors | changes))  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("ending", ENDINGS)
def test_features_in_a_file(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"features{ending}")
    result = run(path, "-o", tmp_path / "out" / "scores.parquet", "--score", "avh", "--score", "loss")
    assert result.exit_code == 0, result.output
    assert "9 samples, 3 classes, " in result.stdout
    table = pq.read_table(tmp_path / "out" / "scores.parquet")
    assert table.column_names == ["id", "label", "predicted", "avh", "loss"]
    assert table.schema.field("avh").metadata[b"direction"] == b"larger is harder"


def test_json_for_machines(tmp_path: Path) -> None:
    result = run(write(tmp_path / "f.npz"), "-o", tmp_path / "scores.parquet", "--json")
    summary = json.loads(result.stdout)
    table = pq.read_table(tmp_path / "scores.parquet")
    assert summary["samples"] == 9
    assert summary["scores"] == table.column_names[3:]
    agreement = (table.column("label").to_numpy() == table.column("predicted").to_numpy()).mean()
    assert summary["agreement"] == pytest.approx(agreement)


def test_a_model_and_a_folder(tiny_vit: Path, photos: Path, tmp_path: Path) -> None:
    (photos / "dog" / "broken.jpg").write_bytes(b"no image")
    result = run("--model", f"hf:{tiny_vit}", "--data", photos, "-o", tmp_path / "scores.parquet", "--batch-size", "4")
    assert result.exit_code == 0, result.output
    assert "9 samples, 3 classes, " in result.stdout
    assert "1 image was left out: dog/broken.jpg" in result.stdout
    assert "assumed" not in result.stdout
    table = pq.read_table(tmp_path / "scores.parquet")
    assert table.column("path").to_pylist()[0] == "cat/0.png"
    assert json.loads(table.schema.metadata[b"class names"]) == ["cat", "dog", "frog"]


def test_what_the_model_does_not_say_is_said(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "from torch import nn",
        "def make():",
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))",
    )
    (tmp_path / "plain_net.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    refused(
        run("--model", "nets/plain_net.py:make", "--data", photos),
        "write nets.plain_net:make",
        tmp_path,
    )
    common = ("--model", "plain_net:make", "--data", photos, "--batch-size", "1")
    result = run(*common, "--std", "0.25")
    assert result.exit_code == 0, result.output
    assert "assumed: no --size, each image's own, --mean 0.485,0.456,0.406\n" in result.stdout
    assert json.loads(run(*common, "--json").stdout)["assumed"]["std"] == [0.229, 0.224, 0.225]
    told = run(*common, "--size", "8", "--mean", "0.5", "--std", "0.25")
    assert "assumed" not in told.stdout


def test_the_hardest_images_get_activation_maps_that_the_page_finds(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        "from torch import nn",
        "def make():",
        "    top = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)",
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), *top)",
    )
    (tmp_path / "conv_net.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    common = ("--model", "conv_net:make", "--data", photos, "--size", "24")
    result = run(*common, "--activation-maps", "2")
    assert result.exit_code == 0, result.output
    assert "grad_cam.parquet" in result.stdout
    table, maps = pq.read_table("scores.parquet"), pq.read_table("grad_cam.parquet")
    hardest = np.argsort(-table["avh"].to_numpy(), kind="stable")[:2]
    assert maps["id"].to_pylist() == table["id"].take(hardest).to_pylist()
    with Image.open(io.BytesIO(maps["png"][0].as_py())) as picture:
        assert (picture.size, picture.mode) == ((24, 24), "RGB")
    answers = Answers(tmp_path / "scores.parquet")
    assert [row for row in range(table.num_rows) if answers.sample(row)["heat"]] == sorted(hardest.tolist())
    answers.close()
    assert "--activation-maps belongs to" in run(write(tmp_path / "f.npz"), "--activation-maps", "2").stderr


def test_a_model_that_has_learned_nothing_is_noticed(tmp_path: Path) -> None:
    labels = torch.arange(3).repeat_interleave(40)
    right = torch.eye(3, 4)[labels]
    path = write(tmp_path / "f.npz", features=right, weight=torch.eye(3, 4), labels=labels)
    assert "100.0% of the labels\n" in run(path, "-o", tmp_path / "s.parquet").stdout
    path = write(tmp_path / "f.npz", features=right, weight=torch.eye(3, 4), labels=labels.roll(40))
    said = run(path, "-o", tmp_path / "s.parquet").stdout
    assert [share for share in ("0.0%", "33.3%") if share not in said] == []
    assert "is it trained" in said
    told = json.loads(run(path, "-o", tmp_path / "s.parquet", "--json").stdout)
    assert told["commonest_class"] == pytest.approx(1 / 3)


def test_several_images_that_do_not_decode(tiny_vit: Path, photos: Path, tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        (photos / "dog" / name).write_bytes(b"no image")
    result = run("--model", f"hf:{tiny_vit}", "--data", photos, "-o", tmp_path / "scores.parquet")
    assert "left out, first dog/a.jpg" in result.stdout
    assert result.stdout.splitlines()[2].endswith("; --json names all")


def test_flags_take_the_place_of_the_models_own(tiny_vit: Path, photos: Path, tmp_path: Path) -> None:
    scores = []
    for flags in ([], ["--mean", "0.5,0.5,0.5", "--std", "1/2"], ["--mean", "127/255", "--interpolation", "nearest"]):
        result = run(
            "--model", f"hf:{tiny_vit}", "--data", photos, "-o", tmp_path / "s.parquet", "--score", "avh", *flags
        )
        assert result.exit_code == 0, result.output
        scores.append(pq.read_table(tmp_path / "s.parquet").column("avh").to_numpy())
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2], rtol=1e-6)


def test_classes_from_a_file_and_without_labels(tiny_vit: Path, photos: Path, tmp_path: Path) -> None:
    (photos / "frog").rename(photos / "toad")
    (tmp_path / "classes.json").write_text('{"cat": "cat", "dog": ["dog"], "toad": ["frog", 0]}')
    common = ("--model", f"hf:{tiny_vit}", "--data", photos, "-o", tmp_path / "s.parquet")
    assert run(*common, "--classes", tmp_path / "classes.json").exit_code == 0
    assert json.loads(pq.read_table(tmp_path / "s.parquet").schema.metadata[b"class names"]) == ["cat", "dog", "toad"]
    result = run(*common, "--unlabelled")
    assert "against the predicted class" in result.stdout
    assert "agrees" not in result.stdout


def test_images_without_class_folders_are_scored_without_labels(tiny_vit: Path, photos: Path, tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, path in enumerate(sorted(photos.rglob("*.png"))):
        path.rename(flat / f"{number}.png")
    common = ("--model", f"hf:{tiny_vit}", "--data", flat, "-o", tmp_path / "s.parquet")
    hint = "move them into a folder that is named as their class, or score them without labels (--unlabelled)"
    refused(run(*common), hint, tmp_path)
    result = run(*common, "--unlabelled")
    assert result.exit_code == 0, result.output
    table = pq.read_table(tmp_path / "s.parquet")
    assert table["path"].to_pylist() == sorted(path.name for path in flat.iterdir())
    assert table["label"].null_count == len(table)


def refused(result: Result, sentence: str, folder: Path) -> None:
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert result.stderr.startswith("hardsight: ")
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.output
    assert not list(folder.glob("*.parquet"))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"labels": torch.tensor([0, 1, 5] * 3)}, "labels must lie in [0, 3)"),
        ({"weight": torch.ones(3, 5)}, "got features [9, 4] and weight [3, 5]"),
        ({"features": torch.full((9, 4), float("nan"))}, "9 of 9 rows hold NaN or infinity, first row 0"),
        ({"features": torch.ones(0, 4), "labels": torch.ones(0).long()}, "features must not be empty"),
        ({"features": torch.ones(9, 4).int()}, "features must be floating point; got torch.int32"),
    ],
)
def test_bad_features(changes: dict, sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path / "f.npz", **changes)
    refused(run(path, "-o", tmp_path / "scores.parquet"), sentence, tmp_path)


def test_bad_files_and_options(tmp_path: Path) -> None:
    out = ("-o", tmp_path / "scores.parquet")
    path = write(tmp_path / "f.npz")
    refused(run(tmp_path / "none.npz", *out), "is not there", tmp_path)
    refused(run(tmp_path, *out), "images are scored by --model and --data", tmp_path)
    refused(run(path, "-o", tmp_path / "scores.csv"), "--output must end in .parquet", tmp_path)
    refused(run(path, *out, "--score", "avhh"), "did you mean 'avh'?", tmp_path)
    refused(run(*out), "give either FEATURES", tmp_path)
    refused(run(path, *out, "--model", "hf:x"), "give either FEATURES", tmp_path)
    for option in (("--unlabelled",), ("--size", "8"), ("--split", "val"), ("--num-classes", "3")):
        refused(run(path, *out, *option), f"{option[0]} belongs to --model and --data", tmp_path)
    refused(run("--model", "hf:x", "--data", tmp_path, *out, "--engine", "ray"), "--engine belongs to shards", tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    refused(run(path, *out), "is truncated or is not an .npz file", tmp_path)


def test_what_could_not_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    # The file of features is not even there: the output is looked at first.
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.parquet").mkdir()
    nothing = tmp_path / "none.npz"
    refused(
        run(nothing, "-o", tmp_path / "file" / "new" / "s.parquet"),
        "a folder is needed where there is a file",
        tmp_path / "file",
    )
    result = run(nothing, "-o", tmp_path / "folder.parquet")
    assert (result.exit_code, "Is a directory" in result.stderr) == (2, True)


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes are Linux's")
def test_names_with_newlines_and_names_that_are_no_text(tiny_vit: Path, photos: Path, tmp_path: Path) -> None:
    home = (tmp_path / "my photos\nof 2020").absolute()
    photos.rename(home)
    (home / "cat" / "0.png").rename(home / "cat" / "a b\n[c].png")
    (home / "cat" / "1.png").rename(home / "cat" / os.fsdecode(b"\xff.png"))
    common = ("--model", f"hf:{tiny_vit}", "--data", home, "-o", tmp_path / "s c.parquet")
    result = run(*common)
    assert result.exit_code == 0, result.output
    assert r"1 image was left out: cat/\udcff.png:" in result.stdout
    assert "cat/a b\n[c].png" in pq.read_table(tmp_path / "s c.parquet").column("path").to_pylist()
    (tmp_path / "s c.parquet").unlink()
    (home / "dog").rename(home / os.fsdecode(b"\xfe"))
    refused(run(*common), r"the folder \udcfe in", tmp_path)


def test_bad_models_and_data(tiny_vit: Path, photos: Path, tmp_path: Path) -> None:
    def refuse(sentence: str, *arguments: str | Path) -> None:
        refused(run(*arguments, "-o", tmp_path / "scores.parquet"), sentence, tmp_path)

    model, data = ("--model", f"hf:{tiny_vit}"), ("--data", photos)
    (tmp_path / "classes.json").write_text("[")
    refuse("--model and --data belong together", *model)
    refuse("the data folder", *model, "--data", tmp_path / "nowhere")
    refuse("must be timm:NAME", "--model", "vit", *data)
    refuse("--size must be pixels", *model, *data, "--size", "big")
    for size in ("0", "8x0", "999999"):
        refuse(f"--size must be 1 to 8192 pixels a side; got {size}", *model, *data, "--size", size)
    refuse("--mean must be 1 or 3 numbers", *model, *data, "--mean", "a,b,c")
    refuse("mean must be for pixels in [0, 1]", *model, *data, "--mean", "127")
    refuse("interpolation must be one of", *model, *data, "--interpolation", "magic")
    for device in ("abacus", "meta"):
        refuse("--device must be one that this machine has", *model, *data, "--device", device)
    refuse("classes.json is a file", *model, "--data", tmp_path / "classes.json")
    refuse("nothing is not there", *model, *data, "--split", "nothing")
    refuse("is not readable JSON", *model, *data, "--classes", tmp_path / "classes.json")
    refuse("give one of them", *model, *data, "--unlabelled", "--classes", tmp_path / "classes.json")
    (photos / "cat").rename(photos / "toad")
    (photos / "dog").rename(photos / "cow")
    (photos / "extra").mkdir()
    (photos / "extra" / "x.png").write_bytes((photos / "cow" / "0.png").read_bytes())
    refuse("the model has 3 classes and the data 4", *model, *data)


def test_help_shows_examples() -> None:
    result = run("--help")
    assert "hardsight score features.npz" in result.stdout
    assert "--model hf:my-vit" in result.stdout


def test_flags_take_the_place_of_a_processor_that_was_not_saved(photos: Path, tiny_vit: Path, tmp_path: Path) -> None:
    words = ("--model", f"hf:{tiny_vit}", "--data", photos)
    assert run(*words, "-o", tmp_path / "said.parquet").exit_code == 0
    (tiny_vit / "preprocessor_config.json").unlink()
    result = run(*words, "--size", "16", "--mean", "0.5", "--std", "0.5", "-o", tmp_path / "given.parquet", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["assumed"] == {}
    assert "assumed: --mean 0.485" in run(*words, "-o", tmp_path / "taken.parquet").stdout


def test_shards_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for at in range(2):
        write(tmp_path / "in" / f"{at}.parquet")
    head, out = write(tmp_path / "head.npz"), tmp_path / "out"
    common = (f"{tmp_path}/in/*.parquet", "--head", head, "--out", out, "--score", "avh")
    result = run(*common, "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["samples"], said["shards"], said["scored_before"], said["classes"]) == (18, 2, 0, 3)
    assert pq.read_table(out / "1.parquet").column_names == ["id", "label", "predicted", "avh"]
    assert "2 of the shards were scored before" in run(*common).stdout
    refused(run(tmp_path / "in", "--out", out), "--head", tmp_path)
    refused(run(*common, "--engine", "spark"), '--engine must be "local" or "ray"', tmp_path)
    refused(run(*common, "--size", "224"), "--size belongs to --model and --data", tmp_path)
