"""The streaming loader: the batches of the loader in memory, in the same order, and a list instead of a crash."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image

from hardsight.datasets.augment import Augmentation
from hardsight.datasets.interface import FileDataset
from hardsight.datasets.loader import DeviceLoader, StreamingLoader

FULL = Augmentation(shift=1, flip=True, noise_std=0.1)


@pytest.fixture
def folder(tmp_path):
    """23 PNG files of 6 x 6 pixels, and what they hold."""
    g = torch.Generator().manual_seed(0)
    images = torch.randint(256, (23, 3, 6, 6), generator=g, dtype=torch.uint8)
    for n, image in enumerate(images):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{n:02}.png")
    return tmp_path, images, torch.arange(23) % 4, 500 + torch.arange(23)


def files(folder, count: int = 23, **changed) -> FileDataset:
    root, _, labels, ids = folder
    described = {"name": "dots", "split": "all", "class_names": tuple("abcd"), "root": root}
    named = {"paths": tuple(f"{n:02}.png" for n in range(count)), "labels": labels[:count], "ids": ids[:count]}
    return FileDataset(**(described | named | changed))


def same(one, two) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"class_balanced": (2, 3)}, {"world_size": 2, "rank": 1}])
def test_equals_the_loader_in_memory(folder, workers, options):
    _, images, labels, ids = folder
    options = options | {"augmentation": FULL, "seed": 3, "mean": (0.5,) * 3, "std": (0.2,) * 3}
    inside = DeviceLoader(images, labels, ids, 6, **options)
    streamed = StreamingLoader(files(folder), 6, workers=workers, **options)
    for _ in range(2):
        one, two = list(inside), list(streamed)
        assert len(one) == len(two) == len(streamed)
        assert all(same(a, b) for a, b in zip(one, two, strict=True))
    assert streamed.unreadable == ()


def test_order_is_kept_although_the_first_files_take_longest(folder, monkeypatch):
    """Worker 0's file is ready only after a later one has been asked for."""
    later, read_bytes = threading.Event(), FileDataset.read_bytes

    def slow(self: FileDataset, place: int) -> bytes:
        if place == 0:
            assert later.wait(timeout=30)
        if place == 3:
            later.set()
        return read_bytes(self, place)

    monkeypatch.setattr(FileDataset, "read_bytes", slow)
    loader = StreamingLoader(files(folder), 5, shuffle=False, workers=4)
    assert torch.cat([batch.ids for batch in loader]).tolist() == folder[3].tolist()


def test_unreadable_files_are_listed_and_the_rest_comes_as_it_would(folder):
    root, images, labels, ids = folder
    (root / "04.png").write_bytes(b"not an image")
    (root / "11.png").unlink()
    (root / "17.png").write_bytes((root / "17.png").read_bytes()[:60])
    streamed = StreamingLoader(files(folder), 6, workers=3, augmentation=FULL)
    inside = DeviceLoader(images, labels, ids, 6, augmentation=FULL)
    for epoch in range(2):
        for whole, batch in zip(inside, streamed, strict=True):
            kept = ~torch.isin(whole.ids, torch.tensor([504, 511, 517]))
            assert same((part[kept] for part in whole), batch), epoch
    assert [(entry.path, entry.id) for entry in streamed.unreadable] == [
        ("04.png", 504),
        ("11.png", 511),
        ("17.png", 517),
    ]
    assert streamed.unreadable[1].reason == "no such file"
    assert all(entry.reason and "\n" not in entry.reason for entry in streamed.unreadable)


def test_a_batch_of_which_nothing_can_be_read_is_empty(folder):
    for n in range(4):
        (folder[0] / f"{n:02}.png").write_bytes(b"")
    batches = list(StreamingLoader(files(folder, 8, size=6), 4, shuffle=False))
    assert [tuple(batch.images.shape) for batch in batches] == [(0, 3, 6, 6), (4, 3, 6, 6)]


def test_paths_that_lead_outside_the_root_are_listed_and_not_read(folder):
    root = folder[0]
    inner = root / "inner"
    inner.mkdir()
    (inner / "00.png").write_bytes((root / "00.png").read_bytes())
    (inner / "link.png").symlink_to(root / "01.png")
    entries = ("00.png", "../02.png", str(root / "03.png"), "link.png")
    loader = StreamingLoader(files(folder, 4, root=inner, paths=entries), 4, shuffle=False)
    assert [batch.ids.tolist() for batch in loader] == [[500]]
    assert tuple(entry.path for entry in loader.unreadable) == entries[1:]
    assert all("outside the root" in entry.reason for entry in loader.unreadable)


@pytest.mark.parametrize("stop", [1, 3, 4])
def test_resumed_equals_uninterrupted(folder, stop):
    whole = StreamingLoader(files(folder), 6, augmentation=FULL, seed=2)
    expected = [batch for _ in range(2) for batch in whole]
    first = StreamingLoader(files(folder), 6, augmentation=FULL, seed=2)
    passing = iter(first)
    for _ in range(stop):
        next(passing)
    passing.close()
    second = StreamingLoader(files(folder), 6, augmentation=FULL, workers=2)
    second.load_state_dict(first.state_dict())
    rest = [batch for _ in range(2) for batch in second][: 8 - stop]
    assert all(same(a, b) for a, b in zip(rest, expected[stop:], strict=True))


def test_no_more_is_decoded_ahead_than_asked_for_and_leaving_early_ends_the_workers(folder, monkeypatch):
    asked, read_bytes = set(), FileDataset.read_bytes

    def counted(self: FileDataset, place: int) -> bytes:
        asked.add(place)
        return read_bytes(self, place)

    monkeypatch.setattr(FileDataset, "read_bytes", counted)
    before = threading.active_count()
    loader = StreamingLoader(files(folder), 4, shuffle=False, workers=2, ahead=1)
    passing = iter(loader)
    next(passing)
    assert threading.active_count() > before
    passing.close()
    assert threading.active_count() == before
    assert asked <= set(range(8))


def test_images_of_several_sizes_need_a_size(folder):
    Image.fromarray(np.zeros((9, 5, 3), np.uint8)).save(folder[0] / "01.png")
    with pytest.raises(ValueError, match="size must be given because the images differ"):
        list(StreamingLoader(files(folder), 8, shuffle=False))
    batch = next(iter(StreamingLoader(files(folder, size=(4, 7)), 8, shuffle=False)))
    assert tuple(batch.images.shape) == (8, 3, 4, 7)


@pytest.mark.parametrize(
    ("count", "options", "sentence"),
    [
        (0, {}, "files must hold at least one image"),
        (23, {"workers": 0}, "workers must be at least 1"),
        (23, {"ahead": 0}, "ahead must be at least 1"),
    ],
)
def test_refusals(folder, count, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        StreamingLoader(files(folder, count), **options)
