"""The streaming loader: the batches of the loader in memory, in the same order, and a list instead of a crash."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image

from hardsight.datasets.augment import Augmentation
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


def names(count: int = 23) -> list[str]:
    return [f"{n:02}.png" for n in range(count)]


def same(one, two) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"class_balanced": (2, 3)}, {"world_size": 2, "rank": 1}])
def test_equals_the_loader_in_memory(folder, workers, options):
    root, images, labels, ids = folder
    options = options | {"augmentation": FULL, "seed": 3, "mean": (0.5,) * 3, "std": (0.2,) * 3}
    inside = DeviceLoader(images, labels, ids, 6, **options)
    streamed = StreamingLoader(names(), labels, ids, 6, root=root, workers=workers, **options)
    for _ in range(2):
        one, two = list(inside), list(streamed)
        assert len(one) == len(two) == len(streamed)
        assert all(same(a, b) for a, b in zip(one, two, strict=True))
    assert streamed.unreadable == ()


def test_order_is_kept_although_the_first_files_take_longest(folder):
    """Worker 0's file is ready only after a later one has been asked for."""
    _, images, labels, ids = folder
    later = threading.Event()

    def decode(path: str) -> torch.Tensor:
        place = int(path[:2])
        if place == 0:
            assert later.wait(timeout=30)
        if place == 3:
            later.set()
        return images[place]

    loader = StreamingLoader(names(), labels, ids, 5, decode=decode, shuffle=False, workers=4)
    assert torch.cat([batch.ids for batch in loader]).tolist() == ids.tolist()


def test_unreadable_files_are_listed_and_the_rest_comes_as_it_would(folder):
    root, images, labels, ids = folder
    (root / "04.png").write_bytes(b"not an image")
    (root / "11.png").unlink()
    (root / "17.png").write_bytes((root / "17.png").read_bytes()[:60])
    streamed = StreamingLoader(names(), labels, ids, 6, root=root, workers=3, augmentation=FULL)
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
    root, _, labels, ids = folder
    for n in range(4):
        (root / f"{n:02}.png").write_bytes(b"")
    batches = list(StreamingLoader(names(8), labels[:8], ids[:8], 4, root=root, size=6, shuffle=False))
    assert [tuple(batch.images.shape) for batch in batches] == [(0, 3, 6, 6), (4, 3, 6, 6)]


def test_paths_that_lead_outside_the_root_are_listed_and_not_read(folder):
    root, _, labels, ids = folder
    inner = root / "inner"
    inner.mkdir()
    (inner / "00.png").write_bytes((root / "00.png").read_bytes())
    (inner / "link.png").symlink_to(root / "01.png")
    entries = ["00.png", "../02.png", str(root / "03.png"), "link.png"]
    loader = StreamingLoader(entries, labels[:4], ids[:4], 4, root=inner, shuffle=False)
    assert [batch.ids.tolist() for batch in loader] == [[500]]
    assert [entry.path for entry in loader.unreadable] == entries[1:]
    assert all("outside the root" in entry.reason for entry in loader.unreadable)


@pytest.mark.parametrize("stop", [1, 3, 4])
def test_resumed_equals_uninterrupted(folder, stop):
    root, _, labels, ids = folder
    whole = StreamingLoader(names(), labels, ids, 6, root=root, augmentation=FULL, seed=2)
    expected = [batch for _ in range(2) for batch in whole]
    first = StreamingLoader(names(), labels, ids, 6, root=root, augmentation=FULL, seed=2)
    passing = iter(first)
    for _ in range(stop):
        next(passing)
    passing.close()
    second = StreamingLoader(names(), labels, ids, 6, root=root, augmentation=FULL, workers=2)
    second.load_state_dict(first.state_dict())
    rest = [batch for _ in range(2) for batch in second][: 8 - stop]
    assert all(same(a, b) for a, b in zip(rest, expected[stop:], strict=True))


def test_no_more_is_decoded_ahead_than_asked_for_and_leaving_early_ends_the_workers(folder):
    _, images, labels, ids = folder
    asked = []

    def decode(path: str) -> torch.Tensor:
        asked.append(path)
        return images[int(path[:2])]

    before = threading.active_count()
    loader = StreamingLoader(names(), labels, ids, 4, decode=decode, shuffle=False, workers=2, ahead=1)
    passing = iter(loader)
    next(passing)
    assert threading.active_count() > before
    passing.close()
    assert threading.active_count() == before
    assert set(asked) <= set(names(8))


@pytest.mark.parametrize(
    ("made", "got"),
    [
        (torch.rand(3, 4, 4), r"torch.float32 \[3, 4, 4\]"),
        (torch.zeros(4, 4, dtype=torch.uint8), r"torch.uint8 \[4, 4\]"),
        (torch.zeros(1, 4, 4, dtype=torch.uint8), r"torch.uint8 \[1, 4, 4\]"),
    ],
)
def test_what_is_no_picture_of_bytes_is_refused(folder, made, got):
    # Floats in [0, 1] would be divided by 255 once more, and all be black.
    _, _, labels, ids = folder
    loader = StreamingLoader(names(), labels, ids, 4, decode=lambda path: made)
    with pytest.raises(TypeError, match=rf"decode must return uint8 \[3, H, W\]; got {got}"):
        next(iter(loader))


def test_images_of_several_sizes_need_a_size(folder):
    root, _, labels, ids = folder
    Image.fromarray(np.zeros((9, 5, 3), np.uint8)).save(root / "01.png")
    with pytest.raises(ValueError, match="size must be given because the images differ"):
        list(StreamingLoader(names(), labels, ids, 8, root=root, shuffle=False))
    batch = next(iter(StreamingLoader(names(), labels, ids, 8, root=root, shuffle=False, size=(4, 7))))
    assert tuple(batch.images.shape) == (8, 3, 4, 7)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"paths": []}, "at least one file"),
        ({"labels": torch.zeros(3, dtype=torch.long)}, "labels must be one a path, 23; got 3"),
        ({"ids": torch.zeros(3, dtype=torch.long)}, "ids must be one a path, 23; got 3"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"ahead": 0}, "ahead must be at least 1"),
        ({"size": 0}, "size must be at least 1 pixel; got 0"),
    ],
)
def test_refusals(folder, change, sentence):
    _, _, labels, ids = folder
    with pytest.raises(ValueError, match=sentence):
        StreamingLoader(**({"paths": names(), "labels": labels, "ids": ids} | change))
