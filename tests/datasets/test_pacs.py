"""PACS: the folders and the authors' lists agree."""

import pytest

from hardsight.datasets.photos import PACS_DOMAINS, read_pacs


def test_the_lists_part_the_folders(build):
    folder = build("pacs") / "PACS"
    whole, train, crossval = (read_pacs(folder, split) for split in ("all", "train", "crossval"))
    assert sorted(train.paths + crossval.paths) == sorted(whole.paths)
    assert set(train.paths).isdisjoint(crossval.paths)
    kind = {path: (label, domain) for path, label, domain in zip(whole.paths, whole.labels, whole.domains, strict=True)}
    for part in (train, crossval):
        for path, label, domain in zip(part.paths, part.labels, part.domains, strict=True):
            assert kind[path] == (label, domain)
            assert path.startswith(f"{PACS_DOMAINS[domain]}/{part.class_names[label]}/")


def test_some_domains_only(build):
    folder = build("pacs") / "PACS"
    for split in ("all", "train"):
        dataset = read_pacs(folder, split, domains=("sketch", "photo"))
        assert dataset.domain_names == ("sketch", "photo")
        assert {path.split("/")[0] for path in dataset.in_domain("sketch").paths} == {"sketch"}
    with pytest.raises(ValueError, match=r"domains must be among .*; got \['clipart'\]"):
        read_pacs(folder, domains=("clipart",))
    with pytest.raises(ValueError, match=r"domains must be among"):
        read_pacs(folder, domains=())


@pytest.mark.parametrize("place", ["kfold", "pacs_label"])
def test_other_places_of_the_lists(build, place):
    folder = build("pacs") / "PACS"
    (folder / "splits").rename(folder / place)
    assert len(read_pacs(folder, "train")) == 56


def test_what_is_wrong_is_said(build):
    folder = build("pacs") / "PACS"
    with pytest.raises(ValueError, match="split must be one of all, train, crossval"):
        read_pacs(folder, "test")
    (folder / "splits" / "photo_train_kfold.txt").write_text("photo/dog/pic_000.png 8\n")
    with pytest.raises(ValueError, match=r"line 1 must be a path and a label in \[1, 7\]"):
        read_pacs(folder, "train")
    (folder / "splits" / "photo_train_kfold.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"splits.photo_train_kfold.txt"):
        read_pacs(folder, "train")
