"""PACS: `<domain>/<class>/<file>` with the authors' lists `<domain>_{train,crossval}_kfold.txt` (labels from 1)."""

from collections.abc import Sequence
from pathlib import Path

from hardsight.datasets.folders import read_domain_folders, read_domain_lists
from hardsight.datasets.interface import FileDataset, Size

PACS_DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
_LIST_FOLDERS = ("splits", "kfold", "pacs_label", ".", "..")


def read_pacs(
    folder: Path | str, split: str = "all", *, domains: Sequence[str] = PACS_DOMAINS, size: Size = None
) -> FileDataset:
    """PACS: "all" reads the folders, "train" and "crossval" the authors' lists; `domains` may name some only."""
    folder = Path(folder)
    unknown = [domain for domain in domains if domain not in PACS_DOMAINS]
    if unknown or not domains:
        raise ValueError(f"domains must be among {list(PACS_DOMAINS)}; got {list(domains)}")
    if split == "all":
        places = {domain: domain for domain in domains}
        return read_domain_folders(folder, places, class_names=PACS_CLASSES, name="pacs", split=split, size=size)
    if split not in ("train", "crossval"):
        raise ValueError(f'split must be "all", "train" or "crossval"; got {split!r}')
    lists = {domain: _list_file(folder, f"{domain}_{split}_kfold.txt") for domain in domains}
    return read_domain_lists(
        folder, lists, class_names=PACS_CLASSES, first_label=1, name="pacs", split=split, size=size
    )


def _list_file(folder: Path, name: str) -> str:
    """Where the list lies, relative to the folder."""
    for place in _LIST_FOLDERS:
        if (folder / place / name).is_file():
            return f"{place}/{name}"
    raise FileNotFoundError(f"the list {folder / _LIST_FOLDERS[0] / name} is not there")
