"""PACS: `<domain>/<class>/<file>` with the authors' lists `<domain>_{train,crossval}_kfold.txt` (labels from 1)."""

from collections.abc import Sequence
from pathlib import Path

from hardsight.datasets.folders import collect, parse_list, read_domain_folders
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
    paths, labels, numbers = [], [], []
    for number, domain in enumerate(domains):
        found, classes = parse_list(_list_file(folder, f"{domain}_{split}_kfold.txt"), 7, first_label=1)
        paths += found
        labels += classes
        numbers += [number] * len(found)
    return collect(
        folder,
        paths,
        labels,
        domains=numbers,
        class_names=PACS_CLASSES,
        domain_names=domains,
        name="pacs",
        split=split,
        size=size,
    )


def _list_file(folder: Path, name: str) -> Path:
    for place in _LIST_FOLDERS:
        if (folder / place / name).is_file():
            return folder / place / name
    raise FileNotFoundError(f"the list {folder / _LIST_FOLDERS[0] / name} is not there")
