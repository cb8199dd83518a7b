"""Human votes and labels: read from what is published, and nothing in it is run."""

import itertools
import shutil
import zipfile

import numpy as np
import pytest
import torch

from hardsight.datasets.cifar import load_human_labels, read_cifar10h, read_cifar10n, read_cifar100n


def test_votes_stand_beside_the_test_set(build):
    dataset = read_cifar10h(build("cifar10h") / "cifar-10-batches-bin")
    assert dataset.columns["human_votes"].shape == (4, 10)
    assert torch.equal(dataset.columns["human_votes"].argmax(1), dataset.labels)


@pytest.mark.parametrize(
    ("votes", "sentence"),
    [
        (np.zeros((3, 10), np.int64), r"must hold counts \[4, 10\], one row an image; got int64 \[3, 10\]"),
        (np.full((4, 10), -1), "must hold counts"),
        (np.full((4, 10), 0.1), "must hold counts .*whole numbers"),
        (np.full((4, 10), np.nan), "must hold counts .*whole numbers"),
        (np.full((4, 10), np.inf), "must hold counts .*whole numbers"),
        (np.array([{}], dtype=object), "would need unpickling, which can run code"),
    ],
)
def test_votes_that_do_not_fit_are_refused(build, votes, sentence):
    folder = build("cifar10h") / "cifar-10-batches-bin"
    np.save(folder / "cifar10h-counts.npy", votes, allow_pickle=True)
    with pytest.raises(ValueError, match=sentence):
        read_cifar10h(folder)


def test_any_column_can_be_the_label(build):
    folder = build("cifar10n") / "cifar-10-batches-bin"
    clean, worse = read_cifar10n(folder), read_cifar10n(folder, labels="worse_label")
    assert torch.equal(worse.labels, clean.columns["worse_label"])
    assert torch.equal(worse.columns["clean_label"], clean.labels)
    assert torch.equal(worse.images, clean.images)
    with pytest.raises(ValueError, match=r"labels must be one of clean_label, .*; got 'bad_label'"):
        read_cifar10n(folder, labels="bad_label")


def test_coarse_columns_of_cifar100n_come_with_coarse_names(build):
    folder = build("cifar100n") / "cifar-100-binary"
    dataset = read_cifar100n(folder, labels="noisy_coarse_label")
    assert dataset.num_classes == 20
    assert torch.equal(dataset.columns["clean_coarse_label"], dataset.columns["coarse_labels"])


def test_npz_and_pt_hold_the_same(tmp_path):
    labels = {"clean_label": np.arange(10), "worse_label": np.arange(10, dtype=np.uint8)[::-1].copy()}
    np.savez(tmp_path / "labels.npz", **labels)
    torch.save(labels, tmp_path / "labels.pt")
    for kind in ("npz", "pt"):
        read = load_human_labels(tmp_path / f"labels.{kind}")
        assert {key: value.tolist() for key, value in read.items()} == {k: v.tolist() for k, v in labels.items()}


def test_a_pt_written_under_the_other_numpy_is_read(tmp_path):
    torch.save({"clean_label": np.arange(10)}, tmp_path / "new.pt")
    with zipfile.ZipFile(tmp_path / "new.pt") as new, zipfile.ZipFile(tmp_path / "old.pt", "w") as old:
        for entry in new.infolist():
            data = new.read(entry)
            names = (b"numpy._core.multiarray", b"numpy.core.multiarray")
            here, there = names if names[0] in data else names[::-1]
            renamed = data.replace(here, there)
            assert renamed != data or not entry.filename.endswith("data.pkl")
            old.writestr(entry, renamed)
    assert load_human_labels(tmp_path / "old.pt")["clean_label"].tolist() == list(range(10))


def test_a_pt_that_wants_to_run_code_is_refused(tmp_path, bomb):
    value, witness = bomb
    path = tmp_path / "CIFAR-10_human.pt"
    torch.save({"clean_label": np.arange(3), "worse_label": value}, path)
    with pytest.raises(ValueError, match="would need unpickling, which can run code"):
        load_human_labels(path)
    assert not witness.exists()
    torch.load(path, weights_only=False)
    assert witness.exists()


@pytest.mark.parametrize("kind", ["npz", "pt"])
def test_every_kind_of_damage_is_one_sentence(tmp_path, kind):
    whole = tmp_path / f"whole.{kind}"
    if kind == "npz":
        np.savez(whole, clean_label=np.arange(50))
    else:
        torch.save({"clean_label": np.arange(50)}, whole)
    data = whole.read_bytes()
    cut = tmp_path / f"cut.{kind}"
    for length in (0, 1, 10, len(data) // 2, len(data) - 1):
        cut.write_bytes(data[:length])
        with pytest.raises(ValueError, match=rf"cut.{kind} is truncated"):
            load_human_labels(cut)


@pytest.mark.parametrize("kind", ["npz", "pt", "old pt"])
def test_a_byte_that_was_turned_over_is_noticed_in_one_sentence_or_changes_nothing(tmp_path, kind):
    path = tmp_path / f"labels.{kind.split()[-1]}"
    labels = np.arange(50, dtype=np.int8)
    if kind == "npz":
        np.savez_compressed(path, clean_label=labels)
    else:
        torch.save({"clean_label": labels}, path, _use_new_zipfile_serialization=kind == "pt")
    data = path.read_bytes()
    sentences = []
    for place, bits in itertools.product(range(0, len(data), 3), (0xFF, 0x01)):
        path.write_bytes(data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :])
        try:
            read = load_human_labels(path)
        except ValueError as refusal:
            sentences.append(str(refusal))
        else:
            # An old .pt has no checksum: what lies among its numbers is read as a number.
            assert kind == "old pt" or read["clean_label"].tolist() == labels.tolist()
    assert len(sentences) > 50
    assert all(str(path) in one and "\n" not in one for one in sentences)


def test_labels_that_are_no_whole_numbers_are_refused(tmp_path):
    np.savez(tmp_path / "labels.npz", clean_label=np.array([0.5, 1.0]))
    with pytest.raises(ValueError, match="must hold whole numbers; 'clean_label' holds float64"):
        load_human_labels(tmp_path / "labels.npz")


def test_a_column_that_is_a_list_is_read(tmp_path):
    # So the published CIFAR-100_human.pt has its coarse labels, beside arrays of the fine ones.
    torch.save({"clean_label": np.arange(3), "clean_coarse_label": [4, 1, 14]}, tmp_path / "labels.pt")
    assert load_human_labels(tmp_path / "labels.pt")["clean_coarse_label"].tolist() == [4, 1, 14]
    for wrong in ([], ["a"], [1, [2]], [0.5]):
        torch.save({"clean_label": np.arange(3), "clean_coarse_label": wrong}, tmp_path / "labels.pt")
        with pytest.raises(ValueError, match=r"labels\.pt (must hold|is truncated or is not a file of arrays)"):
            load_human_labels(tmp_path / "labels.pt")


def test_a_pt_of_something_else_is_refused(tmp_path):
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ValueError, match="must hold a dict of arrays; got list"):
        load_human_labels(tmp_path / "list.pt")


def test_labels_of_another_length_or_order_are_refused(build):
    folder = build("cifar10n") / "cifar-10-batches-bin"
    path = folder / "CIFAR-10_human.npz"
    columns = dict(np.load(path))
    np.savez(path, **{**columns, "worse_label": columns["worse_label"][:-1]})
    with pytest.raises(ValueError, match=r"must hold 20 labels in worse_label, one an image; got \[19\]"):
        read_cifar10n(folder)
    np.savez(path, **{**columns, "clean_label": columns["clean_label"][::-1]})
    with pytest.raises(ValueError, match="belongs to images in another order"):
        read_cifar10n(folder)


def test_the_files_may_lie_beside_the_images(build, tmp_path):
    root = build("cifar10n")
    place = root / "cifar-10-100n" / "data"
    place.mkdir(parents=True)
    shutil.move(root / "cifar-10-batches-bin" / "CIFAR-10_human.npz", place)
    assert "worse_label" in read_cifar10n(root / "cifar-10-batches-bin").columns
    shutil.rmtree(place)
    with pytest.raises(FileNotFoundError, match=r"CIFAR-10_human.npz or CIFAR-10_human.pt is not there"):
        read_cifar10n(root / "cifar-10-batches-bin")


def test_only_the_split_that_people_saw_exists(tmp_path):
    with pytest.raises(ValueError, match="split must be one of test"):
        read_cifar10h(tmp_path, "train")
    with pytest.raises(ValueError, match="split must be one of train"):
        read_cifar10n(tmp_path, "test")
