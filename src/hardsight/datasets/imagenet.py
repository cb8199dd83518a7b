"""ImageNet's validation set with human selection frequencies, and ImageNetV2.

Images: `<wnid>/ILSVRC2012_val_00000001.JPEG`, or all in one folder with `val.txt` (`file label`, as Caffe lists them)
or Kaggle's `LOC_val_solution.csv`. Frequencies: a table of which share of the people shown an image under its class
selected it (Recht et al. 2019, https://github.com/modestyachts/ImageNetV2).
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from hardsight.datasets.folders import collect, images_below, parse_list, read_image_folder, subfolders
from hardsight.datasets.interface import FileDataset, Size
from hardsight.files import LARGEST_TEXT, RefusedError, plain_file, quoted, read_json, reading

_WNID = re.compile(r"n\d{8}")
_NUMBER = re.compile(r"ILSVRC2012_val_(\d{8})")
_FREQUENCY_FILES = ("selection_frequency.csv", "selection_frequency.json")
_IMAGES = ("image", "image_id", "file", "filename", "file_name", "name", "path", "id")
_FREQUENCIES = ("selection_frequency", "human_selection_frequency", "hsf", "frequency", "fraction_selected")


def read_imagenet_val(
    folder: Path | str, split: str = "val", *, frequencies: Path | str | None = None, size: Size = None
) -> FileDataset:
    """ImageNet's validation images; ids are the official numbers less one; column `selection_frequency` (NaN: none).

    `frequencies` left out is selection_frequency.csv or .json in the folder or beside it, where there is one.
    """
    folder = Path(folder)
    paths, labels, class_names = _listed(folder)
    if frequencies is None:
        places = [place / name for place in (folder, folder.parent) for name in _FREQUENCY_FILES]
        frequencies = next((place for place in places if place.is_file()), None)
    columns = {}
    if frequencies is not None:
        table = read_selection_frequency(frequencies)
        shares = [_share(table, path, class_names[label]) for path, label in zip(paths, labels, strict=True)]
        columns["selection_frequency"] = torch.tensor(shares, dtype=torch.float64)
        if all(math.isnan(share) for share in shares):
            raise ValueError(f"{frequencies} must name images of {folder}; none of its {len(table)} images is there")
    official = [_NUMBER.search(path) for path in paths]
    ids = [int(match[1]) - 1 for match in official if match]
    return collect(
        folder,
        paths,
        labels,
        ids=ids if len(ids) == len(paths) else None,
        columns=columns,
        class_names=class_names,
        name="imagenet-val",
        split=split,
        size=size,
    )


def read_imagenet_v2(folder: Path | str, split: str = "test", *, size: Size = None) -> FileDataset:
    """ImageNetV2: class folders named 0 to 999, each named as its label; one that is not there moves no other."""
    numbers = [int(name) for name in subfolders(Path(folder)) if name.isdecimal() and int(name) < 1000]
    class_names = [str(number) for number in range(max(numbers, default=-1) + 1)]
    found = read_image_folder(folder, class_names=class_names, allow_empty=True, name="imagenetv2", size=size)
    empty = found.class_counts()[numbers] == 0
    if bool(empty.any()):
        raise ValueError(f"the class folder {Path(folder) / str(numbers[int(empty.int().argmax())])} holds no image")
    return found


def read_selection_frequency(path: Path | str) -> dict[str, dict[str, float]]:
    """Selection frequencies by image (file name without ending) and wnid; "" where the table gives no wnid.

    CSV with a header: an image column, a frequency column, optionally `wnid`. JSON: {image: share},
    {image: {wnid: share}} or {wnid: {image: share}}.
    """
    path = plain_file(path, LARGEST_TEXT)
    table: dict[str, dict[str, float]] = {}
    with reading(path, "a table of images and selection frequencies"):
        for image, wnid, share in _json_rows(path) if path.suffix.lower() == ".json" else _csv_rows(path):
            shares = table.setdefault(Path(image).stem, {})
            if shares.setdefault(wnid, float(share)) != float(share):
                raise RefusedError(
                    f"{path} must give each image one frequency; {Path(image).stem} has {shares[wnid]:g} and "
                    f"{float(share):g}"
                )
    for image, shares in table.items():
        if not all(0 <= share <= 1 for share in shares.values()):
            raise ValueError(f"{path} must hold frequencies in [0, 1]; {image} has {max(shares.values()):g}")
    return table


def _listed(folder: Path) -> tuple[list[str], list[int], tuple[str, ...]]:
    classes = [name for name in subfolders(folder) if _WNID.fullmatch(name)]
    if classes:
        # The official order is that of the numbers in the file names, across the class folders.
        pairs = [(path, label) for label, name in enumerate(classes) for path in images_below(folder, name)]
        pairs.sort(key=lambda pair: Path(pair[0]).name)
        return [path for path, _ in pairs], [label for _, label in pairs], tuple(classes)
    for place in (folder, folder.parent):
        if (place / "LOC_val_solution.csv").is_file():
            return _kaggle(place / "LOC_val_solution.csv")
        if (place / "val.txt").is_file():
            paths, labels = parse_list(place / "val.txt", 1000)
            return paths, labels, tuple(str(label) for label in range(1000))
    raise FileNotFoundError(
        f"{folder} must hold one folder per class (n01440764, ...), or val.txt or LOC_val_solution.csv; it holds none"
    )


def _kaggle(path: Path) -> tuple[list[str], list[int], tuple[str, ...]]:
    from hardsight.files.csv_tables import read_csv

    with reading(path, "a CSV of ImageId and PredictionString, a wnid first in it"):
        rows = [(row["ImageId"], row["PredictionString"].split()[0]) for row in read_csv(path).to_pylist()]
    classes = sorted({wnid for _, wnid in rows})
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    rows.sort()
    return [f"{image}.JPEG" for image, _ in rows], [label_of[wnid] for _, wnid in rows], tuple(classes)


def _share(table: Mapping[str, Mapping[str, float]], path: str, class_name: str) -> float:
    """The image's share under its own class; where the class has a number and no wnid, its only share."""
    shares = table.get(Path(path).stem, {})
    if len(shares) == 1 and not _WNID.fullmatch(class_name):
        return next(iter(shares.values()))
    return shares.get(class_name, shares.get("", math.nan))


def _csv_rows(path: Path) -> Iterator[tuple[str, str, Any]]:
    from hardsight.files.csv_tables import read_csv

    table = read_csv(path, column_types=dict.fromkeys((*_IMAGES, "wnid"), "string"))
    header = table.column_names
    image, share = (next((name for name in names if name in header), "") for names in (_IMAGES, _FREQUENCIES))
    if not image or not share:
        raise RefusedError(
            f"{path} must have an image column ({', '.join(_IMAGES)}) and a frequency column "
            f"({', '.join(_FREQUENCIES)}); got {quoted(header)}"
        )
    for row in table.to_pylist():
        yield row[image], row.get("wnid") or "", row[share]


def _json_rows(path: Path) -> Iterator[tuple[str, str, Any]]:
    for key, value in read_json(path).items():
        if not isinstance(value, dict):
            yield key, "", value
            continue
        for inner, share in value.items():
            yield (inner, key, share) if _WNID.fullmatch(key) else (key, inner, share)
