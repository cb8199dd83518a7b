"""Decisions applied to files: class folders by link, copy and move, tables, data sets of a known form, and undo."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from hardsight.cleaning.applying import LOG_FILE, WAYS, rebuild, undo
from hardsight.cleaning.sources import Options, open_source
from hardsight.datasets.interface import ArrayDataset

HEADER = "id,label,expected,action,new_label"


def image(path: Path, color: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), color).save(path)


def write_list(path: Path, *lines: str) -> Path:
    path.write_text("\n".join((HEADER, *lines)) + "\n")
    return path


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two splits of two classes, both with a file 1.png; ids: test/ant 0, 1; test/bee 2, 3; then those of train."""
    for at, place in enumerate(("train/ant", "train/bee", "test/ant", "test/bee")):
        for one in (1, 2):
            image(tmp_path / "photos" / place / f"{one}.png", 20 * at + one)
    return tmp_path / "photos"


def apply(photos: Path, files: str, *lines: str) -> Path:
    opened = open_source(photos, Options(judged=False))
    to = photos.parent / "cleaned"
    rebuild(opened, write_list(photos.parent / "list.csv", *lines), to, files=files)
    return to


@pytest.mark.parametrize("files", WAYS)
def test_class_folders_are_rebuilt_and_taken_back(photos: Path, files: str) -> None:
    before = state(photos)
    to = apply(photos, files, "4,ant,bee,relabel,bee", "5,ant,bee,drop,", "0,ant,bee,keep,")
    found = state(to)
    log = [json.loads(line) for line in found.pop(LOG_FILE).decode().splitlines()]
    # The relabelled image goes below its own split, under a name that is free there.
    moved = {"train/bee/1-ant.png": before["train/ant/1.png"]}
    dropped = ("train/ant/1.png", "train/ant/2.png")
    assert found == {path: data for path, data in before.items() if path not in dropped} | moved
    assert [(one["action"], one["id"]) for one in log if "action" in one] == [("relabel", 4), ("drop", 5)]
    assert (to / "train/bee/1-ant.png").is_symlink() == (files == "link")
    assert set(state(photos)) == ({"train/ant/2.png"} if files == "move" else set(before))
    assert undo(to) == (7, [])
    assert not to.exists()
    assert state(photos) == before


def test_undo_leaves_what_changed_since(photos: Path) -> None:
    to = apply(photos, "copy", "4,ant,bee,relabel,bee")
    image(to / "test/ant/1.png", 200)
    (to / "test/ant/own.txt").write_text("mine")
    assert undo(to) == (7, ["test/ant/1.png"])
    assert set(state(to)) == {"test/ant/1.png", "test/ant/own.txt", LOG_FILE}
    # A place that somebody has taken meanwhile is not written over.
    other = photos.parent / "moved"
    opened = open_source(photos, Options(judged=False))
    rebuild(opened, photos.parent / "list.csv", other, files="move")
    image(photos / "test/ant/1.png", 99)
    assert undo(other) == (7, ["test/ant/1.png"])


@pytest.mark.parametrize("place", ["../photos/test/ant/1.png", "/etc/hosts"])
def test_a_changed_log_touches_nothing(photos: Path, place: str) -> None:
    to = apply(photos, "copy")
    with (to / LOG_FILE).open("a") as file:
        file.write(json.dumps({"from": place, "to": place}) + "\n")
    before = state(to)
    with pytest.raises(ValueError, match="changed"):
        undo(to)
    assert state(to) == before


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_get_a_corrected_column(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"id": ["a", "b", "c"], "kind": ["x", "y", "x"], "more": [1, 2, 3]})
    path = tmp_path / f"rows.{suffix}"
    pyarrow.csv.write_csv(table, path) if suffix == "csv" else pq.write_table(table, path)
    samples = open_source(path, Options(label="kind", judged=False))
    actions = write_list(tmp_path / "list.csv", "a,x,y,relabel,y", "c,x,y,drop,")
    done = rebuild(samples, actions, tmp_path / "to")
    found = pyarrow.csv.read_csv(done.written) if suffix == "csv" else pq.read_table(done.written)
    assert found.to_pydict() == {"id": ["a", "b"], "kind": ["x", "y"], "corrected_kind": ["y", "y"], "more": [1, 2]}
    done.written.write_bytes(done.written.read_bytes() + b"\n")
    assert undo(tmp_path / "to") == (0, [done.written.name])


def test_cifar_gets_its_file_of_peoples_labels(tmp_path: Path) -> None:
    labels = torch.tensor([0, 1, 2, 1])
    pixels = torch.zeros(4, 3, 2, 2, dtype=torch.uint8)
    images = ArrayDataset(images=pixels, labels=labels, name="cifar10", split="train", class_names=tuple("abc"))
    samples = open_source(images, Options(judged=False))
    actions = write_list(tmp_path / "list.csv", "1,b,a,relabel,a", "2,c,a,drop,")
    rebuild(samples, actions, tmp_path / "to")
    with np.load(tmp_path / "to" / "CIFAR-10_human.npz") as file:
        assert file["corrected_label"].tolist() == [0, 0, -1, 1]
        assert file["clean_label"].tolist() == labels.tolist()
    assert pq.read_table(tmp_path / "to" / "labels.parquet").column("new_label").to_pylist() == [0, 0, 1]


def test_places_that_cannot_be(photos: Path) -> None:
    opened = open_source(photos, Options(judged=False))
    actions = write_list(photos.parent / "list.csv")
    for to in (photos / "inner", photos):
        with pytest.raises(ValueError, match=r"^to must"):
            rebuild(opened, actions, to)
    with pytest.raises(ValueError, match="files"):
        rebuild(opened, actions, photos.parent / "to", files="steal")
    with pytest.raises(FileNotFoundError, match=LOG_FILE):
        undo(photos)
