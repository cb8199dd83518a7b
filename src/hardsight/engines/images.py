"""Scoring a user's own images with a user's own model: open the data, match the classes, run, keep paths and names."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

import pyarrow as pa
import torch
from torch import Tensor

from hardsight.datasets.folders import collect, images_below, read_domain_folders, read_image_folder, subfolders
from hardsight.datasets.formats import in_order
from hardsight.datasets.huggingface import read_huggingface, splits
from hardsight.datasets.interface import ArrayDataset, FileDataset
from hardsight.datasets.registry import SOURCES, Source, find, reader, source
from hardsight.engines.matching import Groups, match_classes
from hardsight.engines.model_spec import LoadedModel
from hardsight.engines.preprocessing import Preprocessing
from hardsight.engines.streaming import score_model
from hardsight.files import memory_left
from hardsight.files.parquet import text_metadata
from hardsight.hardness.scoring import DEFAULT_SCORES
from hardsight.names import check_name
from hardsight.records import with_skipped

Images = ArrayDataset | FileDataset
_ANYWHERE = ("folder", "huggingface")
SPLITS = frozenset({"train", "training", "val", "valid", "validation", "dev", "test", "testing"})
_THUMBNAIL_SIDE = 96
# How many times an image's memory what a network makes of it takes.
_TIMES_ITSELF = 16


def open_images(
    root: Path | str, layout: str | None = None, split: str | None = None, *, labelled: bool = True
) -> Images:
    """The images below `root`, by the reader that `layout` names (`hardsight data list`).

    Left out, the layout is told by what is there: the folder of a known data set by its name, Parquet files of a
    Hugging Face data set, else one folder per class; images without class folders are taken where they need not be
    `labelled`. `split` left out is the layout's first.
    """
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"the data folder {root} is {'a file' if root.exists() else 'not there'}")
    known = _by_name(root) if layout is None else source(layout)
    images: Images
    if known is None:
        # Parquet files and no image: a folder of images may also hold the scores that were made of it.
        tables = next(root.rglob("*.parquet"), None) is not None
        photos = tables and any(images_below(root, each) for each in subfolders(root))
        known = source("huggingface" if tables and not photos else "folder")
    if known.name == "huggingface":
        images = read_huggingface(root, split or next(iter(splits(root)), "train"))
    elif known.name == "folder":
        images = _read_folder(root, split, labelled)
    else:
        chosen = next(iter(known.splits)) if split is None else split
        check_name(f"split of {known.name}", chosen, known.splits)
        images = reader(known)(_home(known, root), chosen)
    if isinstance(images, ArrayDataset) and images.images.dtype != torch.uint8:
        raise ValueError(f"data must be images; {images.name} holds points")
    return images


def score_images(
    loaded: LoadedModel,
    images: Images,
    scores: Sequence[str] = DEFAULT_SCORES,
    *,
    classes: Groups | None = None,
    labelled: bool = True,
    preprocessing: Preprocessing | None = None,
    head: str | None = None,
    device: torch.device | str | None = None,
    batch_size: int = 64,
    workers: int = 0,
    progress: bool | None = None,
    origin: Mapping[str, str] | None = None,
) -> pa.Table:
    """Every image's scores: id, label, predicted, one column per score, and path and domain where the data has them.

    Classes are matched as `match_classes` says; label and predicted are classes of the data. Without `labelled`
    hardness is against the model's own prediction, in the model's classes. Images that do not decode are left out and
    named in the table's metadata, which also keeps `origin`: how the data were opened, so that they can be again.
    `workers` threads decode; 0 is one for each core, at most 8.
    """
    batches = PreparedBatches(images, preprocessing or loaded.preprocessing, batch_size, workers, labelled=labelled)
    matched = match_classes(loaded, images.class_names, batches.first(), classes, labelled, head)
    if labelled and bool((images.labels < 0).any()):
        raise ValueError(f"data must have a label for every image, or be scored without labels; {images.name} has not")
    with matched.reduced():
        table = score_model(
            loaded.model, batches, scores, device=device, head=matched.head, record=loaded.record, progress=progress
        )
    table = with_paths(table, images)
    if images.domains is not None:
        domains = images.domains[_rows_of(images, table.column("id").to_pylist())]
        table = table.append_column("domain", pa.array([images.domain_names[number] for number in domains.tolist()]))
    facts = text_metadata(table.schema) | {"data": images.name, "model": loaded.spec, **(origin or {})}
    if matched.names is not None:
        facts["class names"] = json.dumps(list(matched.names), ensure_ascii=False)
    return with_skipped(table.replace_schema_metadata(facts), [*map(str, images.skipped), *batches.skipped])


def thumbnails(images: Images, ids: Sequence[str], side: int = _THUMBNAIL_SIDE) -> pa.Table:
    """Small PNG pictures of the samples with these ids, for a record; those that do not decode are left out."""
    from PIL import Image

    where = {str(one): at for at, one in enumerate(images.ids.tolist())}
    pictures: dict[str, bytes] = {}
    for one in ids:
        if one not in where:
            continue
        try:
            pixels = images[where[one]][0].permute(1, 2, 0).numpy()
        except ValueError:
            continue
        picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        picture.thumbnail((side, side))
        stream = io.BytesIO()
        picture.save(stream, "PNG")
        pictures[one] = stream.getvalue()
    return pa.table({"id": pa.array(pictures, pa.string()), "png": pa.array(pictures.values(), pa.binary())})


class PreparedBatches:
    """The data's images as the model wants them, decoded ahead by threads; remembers what did not decode."""

    def __init__(
        self, images: Images, preprocessing: Preprocessing, batch_size: int, workers: int = 0, *, labelled: bool = True
    ) -> None:
        self.images, self.preprocessing, self.batch_size, self.labelled = images, preprocessing, batch_size, labelled
        self.workers = workers or min(8, os.cpu_count() or 1)
        self.skipped: list[str] = []
        # Of images that keep their own size, a batch of the largest must fit, with what a network makes of it.
        self.most = sys.maxsize if preprocessing.size else memory_left() // (2 * 4 * _TIMES_ITSELF * batch_size)

    def __len__(self) -> int:
        return -(-len(self.images) // self.batch_size)

    def first(self) -> Tensor:
        """The first image that decodes."""
        for index in range(len(self.images)):
            image = self._prepared(index)
            if isinstance(image, Tensor):
                return image
        raise ValueError(f"data must hold at least one image that decodes; {self.images.name} holds none")

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
        places = range(len(self.images))
        with contextlib.closing(in_order(self._prepared, places, self.workers, self.batch_size)) as prepared:
            for start in places[:: self.batch_size]:
                read = {at: next(prepared) for at in places[start : start + self.batch_size]}
                self.skipped += [image for image in read.values() if isinstance(image, str)]
                batch = {at: image for at, image in read.items() if isinstance(image, Tensor)}
                shapes = sorted({tuple(image.shape) for image in batch.values()})
                if len(shapes) > 1:
                    raise ValueError(f"size must be given (--size), as the images differ: {shapes[0]} and {shapes[-1]}")
                if batch:
                    labels = self.images.labels[list(batch)] if self.labelled else None
                    yield torch.stack(list(batch.values())), labels, self.images.ids[list(batch)]

    def _prepared(self, index: int) -> Tensor | str:
        """One image, or why it does not decode."""
        try:
            image = self.images[index][0]
        except ValueError as unreadable:
            return str(unreadable)
        if image.numel() > self.most:
            pixels = f"{self.batch_size} images of {list(image.shape[1:])} pixels"
            raise ValueError(
                f"size must be given (--size), or --batch-size be smaller: {pixels} do not fit into memory"
            )
        return self.preprocessing(image)


def scored_images(
    table: pa.Table, data: Path | None = None, layout: str | None = None, split: str | None = None
) -> Images | None:
    """The images that were scored, in `data` or where the table says; None where they are not found.

    Without a split, that of a known data set whose labels are the table's.
    """
    metadata = text_metadata(table.schema)
    root = data or (Path(metadata["root"]) if "root" in metadata else None)
    if root is None or (data is None and not root.is_dir()) or "id" not in table.column_names:
        return None
    layout, split = layout or metadata.get("layout") or None, split or metadata.get("split") or None
    known = _by_name(root) if layout is None else source(layout)
    named = split is not None or known is None or known.name in _ANYWHERE
    # Another picture beside a label would be worse than none.
    remedy = "say where they are with --data, or leave out the page with --no-page"
    problem: Exception = ValueError(f"the images below {root} are not those that were scored: {remedy}")
    for at, one in enumerate([split] if named or known is None else known.splits):
        try:
            images = open_images(root, layout, one)
        except FileNotFoundError as missing:
            problem = problem if at else missing
            continue
        if same_images(images, table):
            return images
    raise problem


def same_images(images: Images, table: pa.Table) -> bool:
    """Whether these are the images that a table was made of: every id is there, under the same path.

    Of a table without paths the labels of files must be those of their folders, and most of those in memory the same;
    `clean_label` where there is one.
    """
    ids = table.column("id").to_pylist()
    known = set(images.ids.tolist())
    if not all(one in known for one in ids):
        return False
    rows = _rows_of(images, ids)
    if "path" in table.column_names and isinstance(images, FileDataset):
        return bool([images.paths[at] for at in rows] == table.column("path").to_pylist())
    column = next((name for name in ("clean_label", "label") if name in table.column_names), None)
    given = [None] * len(rows) if column is None else table.column(column).to_pylist()
    pairs = zip(given, images.labels[rows].tolist(), strict=True)
    agree = [one == own for one, own in pairs if isinstance(one, int) and one >= 0 <= own]
    # Labels in memory may have been changed since; of other images they agree by chance alone.
    return all(agree) if isinstance(images, FileDataset) else 2 * sum(agree) >= len(agree)


def with_paths(table: pa.Table, images: Images) -> pa.Table:
    """The table with each sample's `path`, where it has none and its images are files."""
    if "path" in table.column_names or not isinstance(images, FileDataset):
        return table
    rows = _rows_of(images, table.column("id").to_pylist())
    return table.append_column("path", pa.array([images.paths[at] for at in rows], pa.string()))


def _rows_of(images: Images, ids: Sequence[int]) -> list[int]:
    where = {one: at for at, one in enumerate(images.ids.tolist())}
    return [where[one] for one in ids]


def splits_below(root: Path) -> list[str]:
    """The subfolders where they are splits, each with class folders of its own; none where they are classes."""
    folders = subfolders(root)
    return folders if SPLITS.issuperset(folders) and all(subfolders(root / each) for each in folders) else []


def _read_folder(root: Path, split: str | None, labelled: bool) -> FileDataset:
    name, below = root.resolve().name, splits_below(root) if split in (None, "all") else []
    if below and split is None:
        raise ValueError(f"{root} holds the splits {', '.join(below)}: choose one with --split, or all")
    if below:
        # Each is a domain of its own, so that what a sample's split is stays known.
        return read_domain_folders(root, {each: each for each in below}, name=name)
    split = split or "all"
    folder = root if split == "all" else root / split
    flat = [] if not folder.is_dir() or subfolders(folder) else images_below(folder, ".")
    if not flat:
        return read_image_folder(root, split, name=name)
    if labelled:
        raise ValueError(
            f"{folder} must hold one folder for each class; it holds none but images ({len(flat)}): move them into a "
            "folder that is named as their class, or score them without labels (--unlabelled)"
        )
    paths = [path.removeprefix("./") for path in flat]
    return collect(folder, paths, [-1] * len(paths), class_names=(), name=name, split=split)


def _by_name(root: Path) -> Source | None:
    """The known data set whose folder `root` is, by its name."""
    own = root.resolve().parts
    for known in SOURCES:
        places = [PurePath(each).parts for each in known.folders if each != "."]
        if known.name not in _ANYWHERE and any(own[-len(place) :] == place for place in places):
            return known
    return None


def _home(known: Source, root: Path) -> Path:
    """The data set's own folder: below `root`, or `root` itself, or below it where `root` is the beginning of it."""
    own = root.resolve().parts
    for place in (PurePath(each).parts for each in known.folders if each != "."):
        for shared in range(len(place), 0, -1):
            inner = root.joinpath(*place[shared:])
            if own[-shared:] == place[:shared] and inner.is_dir():
                return inner
    return find(known, root) if known.folders else root
