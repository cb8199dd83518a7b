"""Clothing1M: noisy and clean labels by key."""

import shutil

import pytest

from hardsight.datasets.photos import read_clothing1m
from hardsight.files.inside import OUTSIDE


def test_each_split_has_its_labels(build):
    folder = build("clothing1m") / "clothing1M"
    noisy = read_clothing1m(folder)
    assert noisy.labels.tolist() == [1, 2, 3, 4, 5]
    assert noisy.columns["clean_labels"].tolist() == [-1, -1, -1, 3, 4]
    clean = read_clothing1m(folder, "clean_train")
    assert clean.labels.tolist() == [4, 5, 6]
    assert clean.columns["noisy_labels"].tolist() == [5, 6, -1]
    assert [read_clothing1m(folder, split).labels.tolist() for split in ("clean_val", "clean_test")] == [[7], [8]]
    assert clean.class_names[3] == "class 3"


def test_other_copies_of_the_layout(build):
    folder = build("clothing1m") / "clothing1M"
    (folder / "annotations").mkdir()
    for path in folder.glob("*.txt"):
        shutil.move(path, folder / "annotations")
    for path in (folder / "images").iterdir():
        shutil.move(path, folder)
    (folder / "images").rmdir()
    dataset = read_clothing1m(folder)
    assert dataset.paths[1] == "1/01/1,1.jpg"
    assert dataset[1][0].shape == (3, 4, 6)


def test_what_is_wrong_is_said(build):
    folder = build("clothing1m") / "clothing1M"
    (folder / "images" / "1" / "01" / "1,1.jpg").unlink()
    dataset = read_clothing1m(folder)
    assert dataset.ids.tolist() == [0, 2, 3, 4]
    assert [(skip.id, skip.reason) for skip in dataset.skipped] == [(1, "no such file")]
    with (folder / "noisy_train_key_list.txt").open("a") as file:
        file.write("../../secret.jpg\n")
    with pytest.raises(
        ValueError, match=r"noisy_label_kv.txt must label every key of noisy_train; '../../secret.jpg' has"
    ):
        read_clothing1m(folder)
    with (folder / "noisy_label_kv.txt").open("a") as file:
        file.write("\n../../secret.jpg 3\n")
    assert read_clothing1m(folder).skipped[-1].reason == OUTSIDE
    with (folder / "noisy_label_kv.txt").open("a") as file:
        file.write("images/x.jpg 14\n")
    with pytest.raises(ValueError, match=r"noisy_label_kv.txt, line 8 must be a path and a label in \[0, 13\]"):
        read_clothing1m(folder)
    with pytest.raises(ValueError, match="split must be one of noisy_train, clean_train"):
        read_clothing1m(folder, "train")


def test_an_empty_or_missing_list_is_named(build):
    folder = build("clothing1m") / "clothing1M"
    lists = {name: (folder / name).read_text() for name in ("category_names_eng.txt", "noisy_train_key_list.txt")}
    for name, before in lists.items():
        (folder / name).write_text("\n")
        with pytest.raises(ValueError, match=f"{name} must have at least one line"):
            read_clothing1m(folder)
        (folder / name).unlink()
        with pytest.raises(FileNotFoundError, match=f"clothing1M/{name}"):
            read_clothing1m(folder)
        (folder / name).write_text(before)
