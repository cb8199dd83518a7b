"""The real files, where they are at hand: counts, known agreements, published checksums."""

import re
from pathlib import Path

import pytest
import torch
from PIL import Image

from hardsight import datasets
from hardsight.datasets.cifar import CIFAR10_HIERARCHY, CIFAR100_HIERARCHY
from hardsight.datasets.registry import check

pytestmark = pytest.mark.data

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
USPS_TRAIN = [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]
# Dog, elephant, giraffe, guitar, horse, house, person.
PACS = {
    "art_painting": [379, 255, 285, 184, 201, 295, 449],
    "cartoon": [389, 457, 346, 135, 324, 288, 405],
    "photo": [189, 202, 182, 186, 199, 280, 432],
    "sketch": [772, 740, 753, 608, 816, 80, 160],
}
USPS_TEST = [359, 264, 198, 166, 200, 160, 170, 147, 166, 177]


@pytest.mark.parametrize(
    ("name", "split", "counts"),
    [
        ("mnist", "train", MNIST_TRAIN),
        ("mnist", "test", MNIST_TEST),
        ("usps", "train", USPS_TRAIN),
        ("usps", "test", USPS_TEST),
        ("cifar10", "train", [5000] * 10),
        ("cifar10", "test", [1000] * 10),
        ("cifar100", "train", [500] * 100),
        ("cifar100", "test", [100] * 100),
        ("vehicles10", "train", [500] * 10),
        ("vehicles10", "test", [100] * 10),
    ],
)
def test_counts_of_each_class(data_root, name, split, counts):
    assert datasets.load(name, split, data_root).class_counts().tolist() == counts


def test_pacs_and_office_have_their_domains(data_root):
    pacs = datasets.load("pacs", "all", data_root)
    for domain, counts in PACS.items():
        assert pacs.in_domain(domain).class_counts().tolist() == counts
    train, crossval = (datasets.load("pacs", split, data_root) for split in ("train", "crossval"))
    label_of = dict(zip(pacs.paths, pacs.labels.tolist(), strict=True))
    assert sorted(train.paths + crossval.paths) == sorted(pacs.paths)
    for part in (train, crossval):
        assert [label_of[path] for path in part.paths] == part.labels.tolist()
    office = datasets.load("office-caltech10", "all", data_root)
    assert torch.bincount(office.domains).tolist() == [958, 1123, 157, 295]
    assert office.num_classes == 10


def test_pictures_decode(data_root):
    sketches = datasets.load("pacs", "crossval", data_root, domains=("sketch",)).load(32)
    assert sketches.images.shape == (398, 3, 32, 32)
    assert sketches.skipped == ()
    # Sketches are dark lines on white paper.
    assert sketches.images.float().mean() > 200


def test_humans_agree_with_the_label(data_root):
    dataset = datasets.load("cifar10h", "test", data_root)
    votes = dataset.columns["human_votes"]
    assert round(100 * float((votes.argmax(1) == dataset.labels).double().mean()), 2) == 99.21
    assert int(votes.sum(1).min()) >= 47
    frequency = datasets.human_selection_frequency(votes, dataset.labels)
    coarse = datasets.human_selection_frequency(votes, dataset.labels, CIFAR10_HIERARCHY)
    assert (coarse >= frequency).all()
    assert coarse.mean() > frequency.mean()


@pytest.mark.parametrize(("column", "percent"), [("aggre_label", 9.0), ("random_label1", 17.2), ("worse_label", 40.2)])
def test_noise_of_cifar10n(data_root, column, percent):
    dataset = datasets.load("cifar10n", "train", data_root, labels=column)
    noise = (dataset.labels != dataset.columns["clean_label"]).double().mean()
    assert round(100 * float(noise), 1) == percent


def test_noise_of_cifar100n_and_its_hierarchy(data_root):
    dataset = datasets.load("cifar100n", "train", data_root)
    assert round(100 * float((dataset.columns["noisy_label"] != dataset.labels).double().mean()), 1) == 40.2
    assert torch.equal(CIFAR100_HIERARCHY.coarsen(dataset.labels), dataset.columns["coarse_labels"])


def test_the_digits_that_need_no_download():
    digits = datasets.load("digits")
    assert digits.class_counts().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert int(digits.images.max()) == 255


def test_check_finds_the_published_bytes(data_root):
    states = {state.name: state for state in check(data_root, ["mnist", "cifar10", "cifar10h", "office-caltech10"])}
    assert {state.state for state in states.values()} == {"complete"}
    assert set(states["cifar10"].checksums.values()) == {"match"}
    assert len(states["cifar10"].checksums) == 6


def test_the_examples_of_the_page_run(data_root, monkeypatch, tmp_path):
    monkeypatch.setenv("HARDSIGHT_DATA", str(data_root))
    for name in ("cat", "dog"):
        (tmp_path / "photos" / "train" / name).mkdir(parents=True)
        Image.new("RGB", (60, 50)).save(tmp_path / "photos" / "train" / name / "first.png")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python[^\n]*\n(.*?)```", page, re.DOTALL)
    seen: dict = {}
    for block in blocks:
        exec(block.replace('"~/data"', repr(str(data_root))), seen)
    assert len(seen["photos"]) == 2
    assert seen["few"].ids.tolist() == [5, 3, 9]
    assert seen["coarse"].mean() > seen["frequency"].mean()
