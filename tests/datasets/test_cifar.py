"""CIFAR: the binary layout and the pickles hold the same pictures; Vehicles-10 is a part of CIFAR-100."""

import pickle

import numpy as np
import pytest
import torch

from hardsight.datasets.cifar import (
    CIFAR100_CLASSES,
    CIFAR100_HIERARCHY,
    VEHICLES10_CLASSES,
    read_cifar10,
    read_cifar100,
    read_vehicles10,
)


def loop_reference(data: bytes, label_bytes: int) -> tuple[list[int], np.ndarray]:
    """The page's description, one pixel at a time: labels, then 1,024 red, green and blue bytes in row-major order."""
    record = label_bytes + 3072
    labels, images = [], np.empty((len(data) // record, 3, 32, 32), np.uint8)
    for number in range(len(data) // record):
        start = number * record
        labels.append(data[start + label_bytes - 1])
        for channel, row, column in np.ndindex(3, 32, 32):
            images[number, channel, row, column] = data[start + label_bytes + channel * 1024 + row * 32 + column]
    return labels, images


def test_records_are_read_as_the_page_describes(build):
    folder = build("cifar10") / "cifar-10-batches-bin"
    labels, images = loop_reference((folder / "test_batch.bin").read_bytes(), 1)
    dataset = read_cifar10(folder, "test")
    assert dataset.labels.tolist() == labels
    np.testing.assert_array_equal(dataset.images.numpy(), images)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    ("name", "read", "binary", "python"),
    [
        ("cifar10", read_cifar10, "cifar-10-batches-bin", "cifar-10-batches-py"),
        ("cifar100", read_cifar100, "cifar-100-binary", "cifar-100-python"),
    ],
)
def test_both_layouts_hold_the_same(build, name, read, binary, python, split):
    root = build(name)
    build(f"{name}-python")
    first, second = read(root / binary, split), read(root / python, split)
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.labels, second.labels)
    for key, column in first.columns.items():
        assert torch.equal(column, second.columns[key])


def test_the_training_set_is_its_five_parts_in_order(build):
    folder = build("cifar10") / "cifar-10-batches-bin"
    whole = read_cifar10(folder)
    parts = [loop_reference((folder / f"data_batch_{part}.bin").read_bytes(), 1) for part in range(1, 6)]
    assert whole.labels.tolist() == [label for labels, _ in parts for label in labels]
    np.testing.assert_array_equal(whole.images.numpy(), np.concatenate([images for _, images in parts]))


def test_coarse_and_fine_change_places(build):
    folder = build("cifar100") / "cifar-100-binary"
    fine, coarse = read_cifar100(folder), read_cifar100(folder, granularity="coarse")
    assert torch.equal(fine.columns["coarse_labels"], coarse.labels)
    assert torch.equal(coarse.columns["fine_labels"], fine.labels)
    assert (fine.num_classes, coarse.num_classes) == (100, 20)
    assert torch.equal(CIFAR100_HIERARCHY.coarsen(fine.labels), coarse.labels)
    with pytest.raises(ValueError, match="granularity must be one of fine, coarse"):
        read_cifar100(folder, granularity="medium")


def test_vehicles_keep_the_ids_of_cifar100(build):
    folder = build("cifar100") / "cifar-100-binary"
    whole, vehicles = read_cifar100(folder), read_vehicles10(folder)
    assert len(vehicles) == 10
    assert vehicles.class_names[3] == "pickup_truck"
    for index in range(len(vehicles)):
        image, label, number = vehicles[index]
        assert torch.equal(image, whole.images[number])
        assert VEHICLES10_CLASSES[label] == CIFAR100_CLASSES[int(whole.labels[number])]
    assert {CIFAR100_HIERARCHY.coarse_names[i] for i in vehicles.columns["coarse_labels"]} == {
        "vehicles_1",
        "vehicles_2",
    }


def test_a_truncated_part_is_one_sentence(build):
    folder = build("cifar10") / "cifar-10-batches-bin"
    path = folder / "data_batch_3.bin"
    for length in (0, 1, 3072, 2 * 3073 - 1):
        path.write_bytes(bytes(length))
        with pytest.raises(ValueError, match=r"data_batch_3.bin is truncated: .* records of 3073 bytes; got \d+ bytes"):
            read_cifar10(folder)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_cifar10(folder)


def test_a_file_of_the_other_cifar_is_refused(build):
    folder = build("cifar10") / "cifar-10-batches-bin"
    (folder / "test_batch.bin").write_bytes(bytes([99]) * 3073)
    with pytest.raises(ValueError, match=r"must hold labels in \[0, 9\]; got 99 to 99"):
        read_cifar10(folder, "test")


def test_a_pickle_that_wants_to_run_code_is_refused(build, bomb):
    value, witness = bomb
    folder = build("cifar10-python") / "cifar-10-batches-py"
    (folder / "test_batch").write_bytes(pickle.dumps({"data": value, "labels": []}))
    with pytest.raises(ValueError, match="test_batch is rejected"):
        read_cifar10(folder, "test")
    assert not witness.exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([1, 2], "must hold a dict; got list"),
        ({"labels": [1]}, r"must hold uint8 \[N, 3072\] under data"),
        ({"data": np.zeros((2, 3072)), "labels": [1, 2]}, r"must hold uint8 \[N, 3072\] under data"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "must hold 2 whole-number labels, one an image"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0.5, 1]}, "must hold 2 whole-number labels"),
        ({"data": np.zeros((2, 3072), np.uint8)}, "must hold 2 whole-number labels"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 10]}, r"must hold labels in \[0, 9\]"),
    ],
)
def test_a_pickle_of_something_else_is_refused(tmp_path, content, sentence):
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=sentence):
        read_cifar10(tmp_path, "test")


def test_coarse_labels_of_no_class_are_refused_with_the_file(build):
    folder = build("cifar100") / "cifar-100-binary"
    data = bytearray((folder / "train.bin").read_bytes())
    data[0] = 20
    (folder / "train.bin").write_bytes(data)
    with pytest.raises(ValueError, match=r"train\.bin must hold labels in \[0, 19\]; got \d+ to 20"):
        read_cifar100(folder)
