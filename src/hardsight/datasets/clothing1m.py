"""Clothing1M: key lists with noisy and clean splits.

`noisy_label_kv.txt` and `clean_label_kv.txt` hold `path label`; the `..._key_list.txt` files hold the paths of each
split; class names are the lines of `category_names_eng.txt`. Some images have both a noisy and a clean label.
"""

from pathlib import Path

import torch

from hardsight.datasets.folders import collect, parse_list, text_lines
from hardsight.datasets.interface import FileDataset, Size
from hardsight.datasets.paths import quoted
from hardsight.names import check_name

_SPLITS = ("noisy_train", "clean_train", "clean_val", "clean_test")


def read_clothing1m(folder: Path | str, split: str = "noisy_train", *, size: Size = None) -> FileDataset:
    """Clothing1M; labels are noisy in "noisy_train" and clean elsewhere, both in `columns` (-1: not known)."""
    folder = Path(folder)
    check_name("split", split, _SPLITS)
    # Some copies keep the text files apart from the images.
    apart = (folder / "annotations" / f"{split}_key_list.txt").is_file()
    lists = folder / "annotations" if apart else folder
    keys, class_names = (_lines(lists / name) for name in (f"{split}_key_list.txt", "category_names_eng.txt"))
    noisy = _labels(lists / "noisy_label_kv.txt", keys, len(class_names))
    clean = _labels(lists / "clean_label_kv.txt", keys, len(class_names))
    labels, source = (noisy, "noisy") if split == "noisy_train" else (clean, "clean")
    if int(labels.min()) < 0:
        unknown = keys[int((labels < 0).nonzero()[0])]
        raise ValueError(
            f"{lists / f'{source}_label_kv.txt'} must label every key of {split}; {quoted(unknown)} has none"
        )
    return collect(
        folder,
        _as_stored(folder, keys),
        labels,
        columns={"noisy_labels": noisy, "clean_labels": clean},
        class_names=class_names,
        name="clothing1m",
        split=split,
        size=size,
    )


def _lines(path: Path) -> list[str]:
    lines = text_lines(path)
    if not lines:
        raise ValueError(f"{path} must have at least one line; it is empty")
    return lines


def _labels(path: Path, keys: list[str], num_classes: int) -> torch.Tensor:
    label_of = dict(zip(*parse_list(path, num_classes), strict=True))
    return torch.tensor([label_of.get(key, -1) for key in keys], dtype=torch.int64)


def _as_stored(folder: Path, keys: list[str]) -> list[str]:
    """Keys begin with `images/`; some copies unpack its ten folders `0` to `9` directly."""
    if (folder / "images").is_dir():
        return keys
    return [key.removeprefix("images/") for key in keys]
