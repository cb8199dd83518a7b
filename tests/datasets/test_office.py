"""The Office family and VisDA-17: folders, and lists as others published them."""

import shutil

import pytest
import torch

from hardsight.datasets import source
from hardsight.datasets.folders import of_domains, parse_list
from hardsight.datasets.photos import read_office31, read_office_caltech10, read_office_home, read_visda17

LISTS = {domain: f"{domain}_list.txt" for domain in ("amazon", "dslr", "webcam")}


def test_a_domain_is_a_split(build):
    folder = build("office-caltech10") / "office_caltech10"
    whole, part = read_office_caltech10(folder), read_office_caltech10(folder, "dslr")
    assert part.paths == whole.in_domain("dslr").paths
    with pytest.raises(ValueError, match="split must be one of all, amazon, caltech10"):
        read_office_caltech10(folder, "caltech")


def test_folders_under_other_names_are_the_same_domain(build):
    folder = build("office-caltech10") / "office_caltech10"
    (folder / "caltech10").rename(folder / "caltech")
    assert len(read_office_caltech10(folder, "caltech10")) == 4
    folder = build("office-home") / "OfficeHomeDataset_10072016"
    (folder / "Real World").rename(folder / "RealWorld")
    assert read_office_home(folder, "Real World").paths[0] == "RealWorld/Alarm_Clock/frame_0001.png"


def test_lists_and_folders_agree(build):
    folder = build("office31") / "office31"
    listed = read_office31(folder, lists=LISTS, prefix="/somebody/office/")
    walked = read_office31(folder)
    assert listed.paths == walked.paths
    assert torch.equal(listed.labels, walked.labels)
    assert torch.equal(listed.domains, walked.domains)
    assert listed.class_names == walked.class_names
    assert (
        read_office31(folder, "dslr", lists=LISTS, prefix="/somebody/office/").paths == walked.in_domain("dslr").paths
    )


def test_a_list_with_absolute_paths_opens_none_of_them(build):
    folder = build("office31") / "office31"
    with pytest.raises(ValueError, match=r"none of the 18 images .*the path points outside the root"):
        read_office31(folder, lists=LISTS)
    with pytest.raises(ValueError, match=r"lists must name a file for each of the domains .*; dslr is missing"):
        read_office31(folder, lists={"amazon": "amazon_list.txt"})


def test_images_may_lie_directly_in_the_domain(build):
    folder = build("office31") / "office31"
    for domain in ("amazon", "dslr", "webcam"):
        for inner in (folder / domain / "images").iterdir():
            shutil.move(inner, folder / domain)
        (folder / domain / "images").rmdir()
    assert read_office31(folder).class_counts().tolist() == [6, 6, 6]


def test_one_domain_alone_keeps_the_label_numbers(build):
    folder = build("office31") / "office31"
    shutil.rmtree(folder / "dslr" / "images" / "back_pack")
    assert read_office31(folder, "dslr").class_names == ("back_pack", "bike", "mug")
    assert set(read_office31(folder, "dslr").labels.tolist()) == {1, 2}


def test_lists_of_any_domains(build):
    folder = build("visda17") / "visda17"
    classes = source("visda17").classes
    found = {"synthetic": parse_list(folder / "train" / "image_list.txt", len(classes))}
    dataset = of_domains(folder / "train", found, classes, name="list", split="all")
    assert dataset.labels.tolist() == list(range(12))
    assert dataset.domain_names == ("synthetic",)


def test_visda_by_list_and_by_folder(build):
    folder = build("visda17") / "visda17"
    listed = read_visda17(folder, "validation")
    (folder / "validation" / "image_list.txt").unlink()
    walked = read_visda17(folder, "validation")
    assert listed.paths == walked.paths
    assert torch.equal(listed.labels, walked.labels)
    assert len(read_visda17(folder, "test")) == 12
    (folder / "test" / "image_list.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"image_list\.txt is not there"):
        read_visda17(folder, "test")
    with pytest.raises(ValueError, match="split must be one of train, validation, test"):
        read_visda17(folder, "val")


def test_lists_that_number_the_classes_in_another_order_name_them_so(build):
    # The lists of Office-Home that most papers use begin with Drill, Exit_Sign, Bottle.
    folder = build("office31") / "office31"
    other = {0: 2, 1: 0, 2: 1}
    for file in LISTS.values():
        lines = [line.rsplit(" ", 1) for line in (folder / file).read_text().splitlines()]
        (folder / file).write_text("".join(f"{path} {other[int(label)]}\n" for path, label in lines))
    for split in ("all", "dslr"):
        dataset = read_office31(folder, split, lists=LISTS, prefix="/somebody/office/")
        assert dataset.class_names == ("bike", "mug", "back_pack")
        for path, label in zip(dataset.paths, dataset.labels.tolist(), strict=True):
            assert path.split("/")[-2] == dataset.class_names[label]


def test_a_class_that_the_lists_lack_keeps_a_number(build):
    folder = build("office31") / "office31"
    for file in LISTS.values():
        lines = [line.rsplit(" ", 1) for line in (folder / file).read_text().splitlines()]
        kept = [f"{path} {2 - int(label)}\n" for path, label in lines if int(label) != 1]
        (folder / file).write_text("".join(kept))
    assert read_office31(folder, lists=LISTS, prefix="/somebody/office/").class_names == ("mug", "bike", "back_pack")


def test_a_few_wrong_labels_in_a_list_do_not_rename_the_classes(build):
    folder = build("office31") / "office31"
    text = (folder / "dslr_list.txt").read_text()
    (folder / "dslr_list.txt").write_text(text.replace(" 0\n", " 1\n"))
    dataset = read_office31(folder, lists=LISTS, prefix="/somebody/office/")
    assert dataset.class_names == ("back_pack", "bike", "mug")
    assert dataset.in_domain("dslr").labels.tolist() == [1, 1, 1, 1, 2, 2]


def test_lists_that_give_one_folder_two_numbers_are_refused(build):
    folder = build("office31") / "office31"
    for file in LISTS.values():
        (folder / file).write_text((folder / file).read_text().replace("back_pack", "bike"))
    with pytest.raises(ValueError, match="lists must number each class folder once; bike is both 0 and 1"):
        read_office31(folder, lists=LISTS, prefix="/somebody/office/")
