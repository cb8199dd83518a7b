"""Folders and lists: order, labels, what is left out and what is refused."""

import pytest
import torch

from hardsight.datasets import Skipped
from hardsight.datasets.folders import parse_list, read_domain_folders, read_image_folder, read_image_list
from hardsight.files.inside import LINK_OUTSIDE, OUTSIDE


@pytest.fixture
def animals(tmp_path, save_picture):
    for number, path in enumerate(["cat/b.png", "cat/a.jpg", "dog/x/c.webp", "dog/d.JPEG"]):
        save_picture(tmp_path / "animals" / path, number)
    return tmp_path / "animals"


def test_classes_and_files_come_sorted(animals, save_picture):
    (animals / "readme.txt").write_text("not a class")
    (animals / "cat" / "Thumbs.db").write_text("not an image")
    (animals / "cat" / ".hidden.png").write_text("not an image")
    (animals / ".cache").mkdir()
    # What a notebook leaves behind is a copy of a sample, not another one.
    save_picture(animals / "cat" / ".ipynb_checkpoints" / "a-checkpoint.jpg", 1)
    dataset = read_image_folder(animals)
    assert dataset.class_names == ("cat", "dog")
    assert dataset.paths == ("cat/a.jpg", "cat/b.png", "dog/d.JPEG", "dog/x/c.webp")
    assert dataset.labels.tolist() == [0, 0, 1, 1]
    assert dataset.ids.tolist() == [0, 1, 2, 3]


def test_each_path_decodes_to_its_own_picture(animals, grey_of):
    dataset = read_image_folder(animals)
    written = {"cat/b.png": 0, "cat/a.jpg": 1, "dog/x/c.webp": 2, "dog/d.JPEG": 3}
    for index, path in enumerate(dataset.paths):
        assert (dataset[index][0].int() - grey_of(written[path])).abs().max() <= 2


def test_a_class_folder_without_images_is_refused_or_allowed(animals):
    (animals / "emu").mkdir()
    with pytest.raises(ValueError, match=r"the class folder .*emu holds no image"):
        read_image_folder(animals)
    assert read_image_folder(animals, allow_empty=True).class_counts().tolist() == [2, 2, 0]


def test_no_classes_and_no_folder(tmp_path):
    with pytest.raises(ValueError, match="must hold one folder for each class; it holds none"):
        read_image_folder(tmp_path)
    (tmp_path / "lone.png").touch()
    with pytest.raises(ValueError, match=r"it holds none but images \(1\): move them into a folder"):
        read_image_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"the folder .*nothing is not there"):
        read_image_folder(tmp_path / "nothing")


def test_links_that_lead_outside_are_listed(animals, tmp_path, save_picture):
    save_picture(tmp_path / "secret.png", 0)
    (animals / "cat" / "aa.png").symlink_to(tmp_path / "secret.png")
    dataset = read_image_folder(animals)
    assert dataset.skipped == (Skipped("cat/aa.png", LINK_OUTSIDE, 1),)
    assert dataset.ids.tolist() == [0, 2, 3, 4]


def test_a_class_folder_that_is_a_link_outside_gives_no_image(animals, tmp_path, save_picture):
    save_picture(tmp_path / "elsewhere" / "z.png", 0)
    (animals / "zoo").symlink_to(tmp_path / "elsewhere")
    dataset = read_image_folder(animals)
    assert [skip.path for skip in dataset.skipped] == ["zoo/z.png"]
    assert 2 not in dataset.labels


def test_lists_give_labels_and_line_positions(animals):
    (animals / "list.txt").write_text("dog/d.JPEG 2\n\ncat/b.png 1\nmissing.png 1\n../animals/cat/a.jpg 1\n")
    dataset = read_image_list(animals, animals / "list.txt", class_names=("cat", "dog"), first_label=1)
    assert dataset.paths == ("dog/d.JPEG", "cat/b.png")
    assert dataset.labels.tolist() == [1, 0]
    assert dataset.ids.tolist() == [0, 1]
    assert dataset.skipped == (
        Skipped("missing.png", "no such file", 2),
        Skipped("../animals/cat/a.jpg", OUTSIDE, 3),
    )


def test_a_list_of_its_authors_folders_needs_the_prefix(animals):
    (animals / "list.txt").write_text("/home/author/animals/dog/d.JPEG 1\n")
    with pytest.raises(ValueError, match=r"none of the 1 images .* can be used; the first, /home/author.*outside"):
        read_image_list(animals, animals / "list.txt", class_names=("cat", "dog"))
    dataset = read_image_list(animals, animals / "list.txt", class_names=("cat", "dog"), prefix="/home/author/animals/")
    assert dataset.paths == ("dog/d.JPEG",)


@pytest.mark.parametrize(
    "line", ["cat/a.jpg", "cat/a.jpg cat", "cat/a.jpg 2", "cat/a.jpg -1", "7", "a.jpg " + "9" * 5000]
)
def test_a_line_that_is_no_path_and_label_is_refused(tmp_path, line):
    (tmp_path / "list.txt").write_text(f"cat/b.png 0\n{line}\n")
    with pytest.raises(ValueError, match=r"list.txt, line 2 must be a path and a label in \[0, 1\]; got") as refusal:
        parse_list(tmp_path / "list.txt", 2)
    assert len(str(refusal.value)) < 1000


def test_paths_may_hold_spaces(tmp_path):
    (tmp_path / "list.txt").write_text("Real World/Alarm Clock/1.jpg 0\r\n")
    assert parse_list(tmp_path / "list.txt", 1) == (["Real World/Alarm Clock/1.jpg"], [0])


def test_a_list_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ValueError, match="must be UTF-8 text"):
        parse_list(tmp_path / "list.txt", 2)


def test_domains_share_their_classes(tmp_path, save_picture):
    for number, path in enumerate(["new/cat/1.png", "new/dog/1.png", "old/dog/1.png", "old/emu/1.png"]):
        save_picture(tmp_path / path, number)
    dataset = read_domain_folders(tmp_path, {"new": "new", "old": "old"})
    assert dataset.class_names == ("cat", "dog", "emu")
    assert dataset.labels.tolist() == [0, 1, 1, 2]
    assert torch.equal(dataset.domains, torch.tensor([0, 0, 1, 1]))
    assert dataset.in_domain("old").paths == ("old/dog/1.png", "old/emu/1.png")
    (tmp_path / "old" / "cat").mkdir()
    with pytest.raises(ValueError, match=r"the class folder .*cat holds no image"):
        read_domain_folders(tmp_path, {"new": "new", "old": "old"})
    with pytest.raises(FileNotFoundError, match=r"the domain folder .*future is not there"):
        read_domain_folders(tmp_path, {"future": "future"})
