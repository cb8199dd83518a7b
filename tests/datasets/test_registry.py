"""The laws that every registered data set keeps, on its miniature; a set without a miniature fails here."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hardsight import datasets
from hardsight.datasets.registry import SOURCES, describe, reader

SPLITS = [(source.name, split) for source in SOURCES for split in source.splits if source.name != "folder"]
SPLITS += [("folder", split) for split in ("train", "val", "test")]


@pytest.fixture
def dataset(request, miniature):
    name, split = request.param
    return datasets.load(name, split, miniature(name))


def test_every_source_has_a_miniature(built_names):
    assert built_names == set(datasets.names())


@pytest.mark.parametrize("dataset", SPLITS, indirect=True, ids=lambda pair: "-".join(pair))
class TestLaws:
    def test_an_item_is_image_label_id(self, dataset):
        assert len(dataset) > 0
        image, label, number = dataset[len(dataset) - 1]
        assert image.dtype in (torch.uint8, torch.float32)
        assert label == int(dataset.labels[-1])
        assert number == int(dataset.ids[-1])

    def test_labels_are_classes_and_ids_are_unique(self, dataset):
        assert -1 <= int(dataset.labels.min()) <= int(dataset.labels.max()) < dataset.num_classes
        assert len(dataset.ids.unique()) == len(dataset)
        assert len(set(dataset.class_names)) == dataset.num_classes
        if dataset.domains is not None:
            assert int(dataset.domains.max()) < len(dataset.domain_names)

    def test_ids_find_the_same_image_after_shuffling_and_subsetting(self, dataset):
        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))
        part = dataset.subset(order).subset(range(0, len(dataset), 2))
        place = {int(number): index for index, number in enumerate(dataset.ids)}
        for index in range(len(part)):
            image, label, number = part[index]
            original, original_label, original_number = dataset[place[number]]
            assert torch.equal(image, original)
            assert (label, number) == (original_label, original_number)
            for key, column in part.columns.items():
                torch.testing.assert_close(column[index], dataset.columns[key][place[number]], equal_nan=True)

    def test_other_labels_leave_the_data_set_alone(self, dataset):
        before = dataset.labels.clone()
        relabelled = dataset.with_labels(torch.zeros_like(dataset.labels))
        assert torch.equal(dataset.labels, before)
        assert not relabelled.labels.any()
        assert torch.equal(relabelled.ids, dataset.ids)

    def test_a_loader_of_torch_can_batch_it(self, dataset):
        samples = dataset.resized(4) if isinstance(dataset, datasets.FileDataset) else dataset
        images, labels, ids = next(iter(torch.utils.data.DataLoader(samples, batch_size=2)))
        assert len(images) == len(labels) == len(ids) == min(2, len(dataset))
        assert torch.equal(ids, dataset.ids[:2])


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_split_that_is_not_there_is_one_sentence(source, tmp_path):
    with pytest.raises(ValueError, match=r"^split of .* must be one of .*; got 'nonsense'$"):
        datasets.load(source.name, "nonsense", tmp_path)


@pytest.mark.parametrize(
    "source", [each for each in SOURCES if each.folders not in ((), (".",))], ids=lambda source: source.name
)
def test_an_absent_set_names_the_path_and_the_root(source, tmp_path):
    with pytest.raises(FileNotFoundError) as refusal:
        datasets.load(source.name, root=tmp_path)
    sentence = str(refusal.value)
    assert "\n" not in sentence
    assert str(tmp_path / source.folders[0]) in sentence
    assert "$HARDSIGHT_DATA" in sentence


def test_an_option_that_no_reader_takes_is_refused_by_the_name_of_the_set(tmp_path):
    (tmp_path / "cat").mkdir()
    with pytest.raises(
        ValueError, match=r"an option of folder must be one of .*size.*; got 'sizee', did you mean 'size'"
    ):
        datasets.load("folder", root=tmp_path, sizee=32)


def test_a_folder_of_ones_own_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"the folder {tmp_path / 'photos'} is not there$"):
        datasets.load("folder", root=tmp_path / "photos")
    (tmp_path / "photos").write_text("")
    with pytest.raises(FileNotFoundError, match=r"photos is a file$"):
        datasets.load("folder", root=tmp_path / "photos")


def test_the_root_comes_from_the_environment(build, monkeypatch):
    monkeypatch.setenv("HARDSIGHT_DATA", str(build("mnist")))
    assert datasets.load("mnist").name == "mnist"


def test_no_root_at_all_says_how_to_set_it(monkeypatch):
    monkeypatch.delenv("HARDSIGHT_DATA", raising=False)
    with pytest.raises(ValueError, match=r"DATA must be set, or root given, to the folder that holds MNIST/raw"):
        datasets.load("mnist")


def test_every_data_set_is_said_in_one_line(miniature):
    for name, split in SPLITS:
        data = datasets.load(name, split, miniature(name))
        assert repr(data).startswith(f"{type(data).__name__}({data.name!r}, {data.split!r}, samples={len(data)}, ")
        assert len(repr(data)) < 400


def test_names_are_forgiving_about_case_and_dashes():
    assert datasets.source("CIFAR-10") is datasets.source("cifar10")
    with pytest.raises(ValueError, match=r"name must be one of digits, .*; got 'cifar11'"):
        datasets.source("cifar11")


def test_every_reader_exists_and_every_source_can_be_described():
    for source in SOURCES:
        assert callable(reader(source))
        assert describe(source)["name"] == source.name


def test_importing_the_room_imports_no_heavy_library():
    code = (
        "import sys, torch; before = set(sys.modules); import hardsight.datasets; "
        "print([name for name in ('sklearn', 'scipy', 'PIL', 'pandas', 'torchvision') "
        "if name in set(sys.modules) - before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_page_names_every_data_set():
    page = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
    assert [name for name in datasets.names() if f"`{name}`" not in page] == []
