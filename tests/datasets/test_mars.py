"""MARS: tracklets, cameras, identities, queries and gallery."""

import shutil

import numpy as np
import pytest
import torch
from scipy.io import savemat

from hardsight.datasets.photos import read_mars


def test_training_tracklets(build):
    dataset = read_mars(build("mars") / "MARS")
    assert dataset.class_names == ("0001", "0003")
    assert dataset.labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert dataset.columns["tracklet"].tolist() == [0, 0, 1, 1, 2, 2]
    assert dataset.columns["camera"].tolist() == [1, 1, 2, 2, 4, 4]
    assert dataset.columns["identity"].tolist() == [1, 1, 1, 1, 3, 3]
    assert dataset.paths[4] == "bbox_train/0003/0003C4T0001F001.jpg"


def test_query_and_gallery_part_the_test_half(build):
    folder = build("mars") / "MARS"
    test, query, gallery = (read_mars(folder, split) for split in ("test", "query", "gallery"))
    assert query.columns["tracklet"].unique().tolist() == [2, 5]
    assert sorted(query.paths + gallery.paths) == sorted(test.paths)
    assert set(query.paths).isdisjoint(gallery.paths)
    assert test.class_names == query.class_names == gallery.class_names == ("0000", "0002", "0004")
    assert query.columns["identity"].tolist() == [2, 2, 4, 4]
    junk = test.columns["identity"] == -1
    assert test.labels[junk].tolist() == [-1, -1]
    assert (test.labels[~junk] >= 0).all()


def test_without_the_tables_the_names_say_the_same(build):
    folder = build("mars") / "MARS"
    before = {split: read_mars(folder, split) for split in ("train", "test")}
    shutil.rmtree(folder / "info")
    for split, with_tables in before.items():
        without = read_mars(folder, split)
        assert without.paths == with_tables.paths
        for key, column in with_tables.columns.items():
            assert torch.equal(without.columns[key], column)
    with pytest.raises(FileNotFoundError, match="only it says which tracklets are queries"):
        read_mars(folder, "query")


def test_a_missing_frame_is_listed(build):
    folder = build("mars") / "MARS"
    (folder / "bbox_train" / "0001" / "0001C1T0001F002.jpg").unlink()
    dataset = read_mars(folder)
    assert dataset.ids.tolist() == [0, 2, 3, 4, 5]
    assert dataset.skipped[0].reason == "no such file"


@pytest.mark.parametrize(
    ("tracks", "sentence"),
    [
        ([[1, 2, 1, 1]], "must give every frame a tracklet; 0001C2T0001F001.jpg has none"),
        ([[1, 7, 1, 1]], "must name frames 1 to 6"),
        ([[2, 1, 1, 1]], "must name frames 1 to 6"),
        ([[1, 6, 1, 1]], "must agree with the file names; it does not for 0001C2T0001F001.jpg"),
        ([[1, 2, 1]], r"must hold \[tracklets, 4\]"),
    ],
)
def test_a_table_of_other_tracklets_is_refused(build, tracks, sentence):
    folder = build("mars") / "MARS"
    savemat(folder / "info" / "tracks_train_info.mat", {"track_train_info": np.array(tracks)})
    with pytest.raises(ValueError, match=sentence):
        read_mars(folder)


def test_names_of_other_data_sets_are_refused(build):
    folder = build("mars") / "MARS"
    (folder / "info" / "train_name.txt").write_text("../../secret.jpg\n")
    with pytest.raises(ValueError, match=r"must be named like 0001C1T0001F001.jpg; got '../../secret.jpg'"):
        read_mars(folder)
    with pytest.raises(ValueError, match="split must be one of train, query, gallery, test"):
        read_mars(folder, "val")


@pytest.mark.parametrize("queries", [[0], [3, 99], [-1]])
def test_queries_of_other_tracklets_are_refused(build, queries):
    folder = build("mars") / "MARS"
    savemat(folder / "info" / "query_IDX.mat", {"query_IDX": np.array([queries])})
    with pytest.raises(ValueError, match=rf"query_IDX\.mat must name tracklets 1 to 6; got {queries[-1]}"):
        read_mars(folder, "query")


def test_a_table_without_a_query_is_refused(build):
    folder = build("mars") / "MARS"
    savemat(folder / "info" / "query_IDX.mat", {"query_IDX": np.zeros((1, 0))})
    with pytest.raises(ValueError, match=r"query_IDX\.mat must name at least one tracklet"):
        read_mars(folder, "query")
