"""`hardsight audit` of labelled data: Parquet and CSV tables, arrays beside them, and what cannot be audited."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
import typer
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from typer.testing import CliRunner, Result

import hardsight as hs
from hardsight.cli.audit import audit
from hardsight.engines import encoders

app = typer.Typer()
app.command()(audit)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Reviews of three kinds as CSV and Parquet, embeddings beside them; the places of the wrong labels."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 3, 150)
    features = (np.eye(3, 6)[truth] + 0.15 * generator.normal(size=(150, 6))).astype(np.float32)
    wrong = generator.permutation(150)[:8]
    kinds = np.array(["ant", "bee", "cat"])[truth]
    kinds[wrong] = np.array(["bee", "cat", "ant"])[truth[wrong]]
    table = pa.table({"kind": kinds, "review": [f"review, {at}" for at in range(150)], "shop": np.arange(150) % 7})
    np.save("embeddings.npy", features)
    raised = np.exp(6 * features[:, :3])
    np.save("said.npy", raised / raised.sum(1, keepdims=True))
    pyarrow.csv.write_csv(table, "reviews.csv")
    pq.write_table(table.append_column("vector", pa.array(list(features))), "reviews.parquet")
    return sorted(wrong.tolist())


def suspects(result: Result) -> list[int]:
    assert result.exit_code == 0, result.output
    return sorted(row["id"] for row in json.loads(result.stdout)["suspects"])


OF_CSV = ("reviews.csv", "--label", "kind", "--features", "embeddings.npy")


@pytest.mark.parametrize(
    "source",
    [
        OF_CSV,
        ("reviews.parquet", "--label", "kind", "--features", "vector"),
        ("reviews.csv", "--label", "kind", "--probabilities", "said.npy"),
        ("reviews.parquet", "--label", "kind", "--features", "vector", "--probabilities", "said.npy"),
    ],
)
def test_planted_errors_come_first(wrong: list[int], source: tuple) -> None:
    assert suspects(run(*source, "--no-page", "--json", "--top", "8")) == wrong


def test_text_and_columns_reach_list_record_and_page(wrong: list[int]) -> None:
    result = run(*OF_CSV, "--text", "review", "--show", "shop")
    assert result.exit_code == 0, result.output
    folder = Path("reviews-audit")
    samples = pq.read_table(folder / "table.parquet")
    first = samples.slice(0, 1).to_pylist()[0]
    assert (first["text"], first["shop"]) == (f"review, {first['id']}", first["id"] % 7)
    lines = (folder / "actions.csv").read_text().splitlines()
    assert lines[1].endswith(f'"review, {first["id"]}",{first["id"] % 7}')
    assert f"review, {first['id']}" in (folder / "report.html").read_text(encoding="utf-8")
    # An audit is a record like any other, and shows the same again.
    again = hs.audit(folder, text="text")
    assert again.table.column("text").to_pylist() == samples.column("text").to_pylist()


def test_an_edited_list_is_applied(wrong: list[int]) -> None:
    assert run(*OF_CSV, "--no-page").exit_code == 0
    actions = Path("reviews-audit/actions.csv")
    lines = actions.read_text().splitlines()
    first = int(lines[1].split(",")[0])
    actions.write_text("\n".join([lines[0], lines[1].replace("keep", "relabel"), lines[2].replace("keep", "drop")]))
    result = run(*OF_CSV, "--apply", actions)
    assert result.exit_code == 0, result.output
    labels = pq.read_table("reviews-audit/labels.parquet")
    assert labels.num_rows == 149
    changed = [row for row in labels.to_pylist() if row["label"] != row["new_label"]]
    assert [row["id"] for row in changed] == [first]
    assert changed[0]["new_label"] == lines[1].split(",")[2]


def test_a_table_of_scores_shows_columns_too(wrong: list[int]) -> None:
    scores = pa.table({"id": [0, 1], "label": [0, 1], "avh": [0.1, 0.9], "remark": ["fine", "blurred"]})
    pq.write_table(scores, "scores.parquet")
    pyarrow.csv.write_csv(scores, "scores.csv")
    for file in ("scores.parquet", "scores.csv"):
        assert suspects(run(file, "--show", "remark", "--json", "--no-page", "--top", "1")) == [1]
        assert (Path("scores-audit") / "actions.csv").read_text().splitlines()[0].endswith(",remark")


def test_left_out_samples_are_counted(wrong: list[int]) -> None:
    features = np.load("embeddings.npy")
    features[[3, 4]] = np.nan
    np.save("embeddings.npy", features)
    assert "left out: 2 samples, first 3" in run(*OF_CSV, "--no-page").stdout
    listed = json.loads(run(*OF_CSV, "--no-page", "--json").stdout)["left_out"]
    assert [row["id"] for row in listed] == [3, 4]
    assert json.loads(Path("reviews-audit/audit.json").read_text())["results"]["left_out"]["count"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("reviews.csv", "--label", "kind", "--text", "review"), ("--features", "probabilities", "'review'")),
        (("reviews.csv", "--label", "none", "--features", "embeddings.npy"), ("'none'", "kind")),
        (("reviews.csv", "--label", "kind", "--features", "nothing"), ("--features", ".npy", "'nothing'")),
        (("reviews.csv", "--label", "kind", "--features", "reviews.csv"), ("--features", ".npy", "reviews.csv")),
        (("reviews.parquet", "--label", "kind", "--features", "review"), ("'review'", "texts", "string")),
        ((*OF_CSV, "--show", "none"), ("'none'", "review")),
        ((*OF_CSV, "--probabilities", "short.npy"), ("probabilities", "150", "2")),
        (("odd.csv", "--label", "kind", "--features", "embeddings.npy"), ("odd.csv", "CSV")),
        ((".", "--features", "embeddings.npy"), ("image", "kind")),
        (("none.csv", "--features", "embeddings.npy"), ("none.csv",)),
    ],
)
def test_what_cannot_be_audited(wrong: list[int], arguments: tuple, words: tuple) -> None:
    np.save("short.npy", np.full((2, 3), 1 / 3))
    Path("odd.csv").write_text("kind,shop\n1,2,3\n")
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert all(word in result.output for word in words), result.output
    assert result.output.count("\n") == 1


@pytest.fixture
def network(wrong: list[int]) -> str:
    """A module whose network gives the mean of each colour as features."""
    Path("colours.py").write_text(
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    input_shape = (3, 8, 8)\n"
        "    def __init__(self):\n        super().__init__()\n        self.head = nn.Linear(3, 4)\n"
        "    def forward(self, images):\n        return self.head(images.mean((2, 3)))\n"
    )
    return "colours:Net"


def pictures(folder: Path, split: str = "") -> str:
    """Red, green and blue pictures in class folders; the path of one in the wrong folder."""
    generator = np.random.default_rng(0)
    for name, colour in (("red", 0), ("green", 1), ("blue", 2)):
        for at in range(12):
            pixels = generator.integers(0, 60, (8, 8, 3), np.uint8)
            pixels[..., colour] += 150
            place = folder / split / ("green" if (name, at) == ("red", 5) else name) / f"{name}-{at}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(place)
    return f"{split}/green/red-5.png".removeprefix("/")


def test_a_folder_of_images_needs_no_network_of_its_classes(network: str) -> None:
    misfiled = pictures(Path("photos"))
    (Path("photos/blue/broken.png")).write_bytes(b"no image")
    arguments = ("photos", "--backbone", network, "--json", "--folds", "3")
    first = json.loads(run(*arguments).stdout)
    assert first["suspects"][0]["id"] == misfiled
    assert first["suspects"][0]["expected"] == "red"
    assert first["output"] == "photos-audit"
    assert first["pictures"]
    again = json.loads(run(*arguments, "--no-page").stdout)
    assert again["suspects"] == first["suspects"]
    assert "broken.png" in again["left_out"][0]["reason"]
    actions = Path("photos-audit/actions.csv")
    lines = actions.read_text().splitlines()
    actions.write_text("\n".join([lines[0], lines[1].replace("keep", "relabel")]))
    assert run("photos", "--apply", actions).exit_code == 0
    labels = pq.read_table("photos-audit/labels.parquet").to_pylist()
    assert [row["path"] for row in labels if row["label"] != row["new_label"]] == [misfiled]
    rebuilt = run("photos", "--apply", actions, "--to", "cleaned", "--files", "copy")
    assert "1 relabel" in rebuilt.stdout
    assert Path("cleaned/red/red-5.png").is_file() is not Path("cleaned", misfiled).exists()
    assert "files taken back" in run("cleaned", "--undo").stdout
    assert not Path("cleaned").exists()
    assert run("photos", "--to", "cleaned").exit_code == 2


def test_folders_of_splits_are_judged_together(network: str) -> None:
    misfiled = {pictures(Path("photos"), split) for split in ("train", "val")}
    result = run("photos", "--backbone", network, "--json", "--no-page", "--groups", "path")
    assert {row["id"] for row in json.loads(result.stdout)["suspects"][:2]} == misfiled
    table = pq.read_table("photos-audit/table.parquet")
    assert {(row["path"].split("/")[0], row["split"]) for row in table.to_pylist()} == {
        (one, one) for one in ("train", "val")
    }
    one = json.loads(run("photos", "--backbone", network, "--json", "--no-page", "--split", "val").stdout)
    assert one["samples"] == 36


def test_a_data_set_by_name_with_features_and_columns(wrong: list[int]) -> None:
    features = load_digits().data.astype(np.float32)
    save_file({"pixels": torch.from_numpy(features)}, "pixels.safetensors")
    np.savez("pixels.npz", features=features, other=features[:, :3])
    told = [run("digits", "--features", name, "--json", "--no-page") for name in
            ("pixels.safetensors", "pixels.npz")]  # fmt: skip
    assert told[0].exit_code == 0, told[0].output
    assert suspects(told[0]) == suspects(told[1])
    assert json.loads(told[0].stdout)["output"] == "digits-audit"


def test_arrays_of_one_file(wrong: list[int]) -> None:
    kinds = pq.read_table("reviews.parquet").column("kind").to_numpy()
    np.savez("all.npz", features=np.load("embeddings.npy"), labels=kinds.astype(str), shop=np.arange(150) % 7)
    assert suspects(run("all.npz", "--json", "--no-page", "--top", "8", "--groups", "shop")) == wrong
    numbers = np.unique(kinds.astype(str), return_inverse=True)[1]
    save_file(
        {"features": torch.from_numpy(np.load("embeddings.npy")), "label": torch.from_numpy(numbers)}, "all.safetensors"
    )
    result = run("all.safetensors", "--json", "--no-page", "--top", "8", "--class-names", "ant,bee,cat")
    assert suspects(result) == wrong
    assert {row["label"] for row in json.loads(result.stdout)["suspects"]} <= {"ant", "bee", "cat"}


def test_texts_by_a_backbone(wrong: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings = torch.from_numpy(np.load("embeddings.npy"))
    encoded: list[list[str]] = []

    def encoder(backbone: str, of: str) -> encoders.Encoder:
        assert (backbone, of) == ("hf:sentences", "texts")
        places = {f"review, {at}": at for at in range(150)}

        def encode(texts: list[str]) -> torch.Tensor:
            encoded.append(texts)
            return embeddings[[places[text] for text in texts]]

        return encoders.Encoder(torch.nn.Identity(), encode)

    monkeypatch.setattr(encoders, "load_encoder", encoder)
    for _ in range(2):
        arguments = ("reviews.csv", "--label", "kind", "--text", "review", "--backbone", "hf:sentences")
        assert suspects(run(*arguments, "--json", "--no-page", "--top", "8")) == wrong
    assert sum(map(len, encoded)) == 150
    assert f"review, {wrong[0]}" in pq.read_table("reviews-audit/table.parquet").column("text").to_pylist()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("photos",), ("--backbone", "photos", "give features")),
        (("photos", "--backbone", "hf:none"), ("none", "config.json")),
        (("photos", "--backbone", "colours:Net", "--text", "x"), ("--text", "photos")),
        (("photos", "--backbone", "colours:Net", "--features", "embeddings.npy"), ("--backbone", "features")),
        (("photos", "--features", "embeddings.npy"), ("--features", "36", "150")),
        (("photos", "--backbone", "colours:Net", "--groups", "camera"), ("--groups", "'camera'", "path")),
        (("photos", "--backbone", "colours:Net", "--groups", "path", "--folds", "40"), ("--groups", "40", "36")),
        (("photos", "--backbone", "colours:Net", "--class-names", "ant"), ("labels", "[0, 0]", "2")),
        (("photos", "--backbone", "colours:Net", "--split", "test"), ("test",)),
        (("phots",), ("'phots'", "path", "data set")),
        (("digitz",), ("'digitz'", "'digits'")),
        (("reviews.csv", "--label", "kind", "--backbone", "hf:none"), ("--text", "kind", "review")),
        (("reviews.csv", "--label", "kind", "--backbone", "hf:none", "--text", "shop"), ("'shop'", "int64")),
        ((*OF_CSV, "--backbone", "hf:none"), ("--backbone", "features")),
        ((*OF_CSV, "--groups", "none"), ("'none'", "shop")),
        ((*OF_CSV, "--groups", "kind"), ("--groups", "5", "3")),
        ((*OF_CSV, "--size", "32"), ("--size", "images")),
        (("odd.npz",), ("odd.npz", "labels", "other")),
    ],
)
def test_sources_that_cannot_be_audited(network: str, arguments: tuple, words: tuple) -> None:
    pictures(Path("photos"))
    np.savez("odd.npz", other=np.ones(3))
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert all(word in result.output for word in words), result.output
    assert result.output.count("\n") == 1
