"""What is explored: an audit's folder, a run's record, a table of scores or shards; its pictures and histories.

Pictures are the files that the table names, below one folder and nowhere else, or what a record keeps. A history is a
sample's way through a training, epoch by epoch.
"""

import functools
import io
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hardsight.explorer.columns import Columns
from hardsight.files import LARGEST_IMAGE, RefusedError, read_bytes, read_json, reading
from hardsight.files.inside import follow
from hardsight.files.parquet import MANIFEST_FILE, Parquet, is_sharded, open_table, text_metadata

_TABLES = (("audit.json", "table.parquet"), ("run.json", "samples.parquet"))
# By name, because Pillow would hand a PostScript file, whatever its ending, to an interpreter that runs it.
_FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")
_MOST_PIXELS, _LARGEST_KEPT = 100_000_000, 1 << 20
SIDES = (160, 1024)
_CACHED = 512
# A heat map over the picture, where someone has put it beside the record, as `records.write_thumbnails` does.
_KEPT = {"picture": "thumbnails.parquet", "heat": "grad_cam.parquet"}
_EPOCH = re.compile(r"epoch-(\d{5,})\.parquet")
_NO_MEASURES = frozenset({"id", "label", "seen", "flagged"})
_MOST_EPOCHS = 2000


@dataclass(frozen=True)
class Source:
    """A table and its surroundings.

    `decisions` is the folder of marks.jsonl and actions.csv; `records` are the folders that may hold pictures and
    histories, the nearest first; `images` is the folder that the table's paths are relative to; `estimated` is how many
    labels a run's record says are wrong.
    """

    name: str
    table: Path
    decisions: Path
    records: tuple[Path, ...]
    class_names: tuple[str, ...]
    images: Path | None
    estimated: int


def find_source(source: Path | str, images: Path | str | None = None) -> Source:
    """The table of an audit's folder or a run's record, or the Parquet file itself; its images as the record says."""
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"source must be an audit, a run or a table of scores; there is nothing at {path}")
    details: Mapping[str, Any] = {}
    table, decisions = path, path.with_name(f"{path.stem}-audit")
    records: tuple[Path, ...] = (path.parent,)
    if is_sharded(path):
        details, records = {"class_names": _inside(read_json(path / MANIFEST_FILE), "class_names")}, (path,)
    elif path.is_dir():
        pair = next(((path / one, path / two) for one, two in _TABLES if (path / two).is_file()), None)
        if pair is None:
            tables = " or ".join(two for _, two in _TABLES)
            raise FileNotFoundError(f"source must hold {tables}; {path} is no audit, and no run that kept its samples")
        said = read_json(pair[0]) if pair[0].is_file() else {}
        details = said if isinstance(said, dict) else {}
        audited = details.get("kind") == "audit"
        table, decisions, records = pair[1], path if audited else path / "audit", (path,)
        origin = _inside(details, "config", "source")
        if audited and isinstance(origin, str) and Path(origin).exists():
            records = (path, Path(origin) if Path(origin).is_dir() else Path(origin).parent)
    if images is not None and not Path(images).is_dir():
        raise NotADirectoryError(f"images must be the folder that the table's paths are relative to; got {images}")
    names, estimated = details.get("class_names"), _inside(details, "results", "label_issues", "estimated")
    if images is None:
        # Where they were, by the record or by the table's own metadata.
        with open_table(table) as file:
            written = text_metadata(file.schema).get("root")
        said = (_inside(details, "data", "root"), _inside(details, "config", "data", "root"), written)
        images = next((one for one in said if isinstance(one, str) and os.path.isdir(one)), None)
    return Source(
        name=str(details.get("name") or path.resolve().name), table=table, decisions=decisions, records=records,
        class_names=tuple(str(one) for one in names) if isinstance(names, list) else (),
        images=None if images is None else Path(images),
        estimated=max(0, estimated) if isinstance(estimated, int) else 0,
    )  # fmt: skip


def _inside(details: Any, *keys: str) -> Any:
    for key in keys:
        details = details.get(key) if isinstance(details, Mapping) else None
    return details


class Pictures:
    """Pictures by row, as PNG or JPEG bytes that were decoded and encoded again here."""

    def __init__(self, columns: Columns, source: Source) -> None:
        self.columns, self.source = columns, source
        self._two = threading.Semaphore(2)
        self._picture = functools.lru_cache(_CACHED)(self._made)
        self._kept = {kind: _kept(name, source.records) for kind, name in _KEPT.items()}

    @property
    def any(self) -> bool:
        """Whether some sample may have a picture."""
        return bool(self._kept["picture"]) or (self.source.images is not None and "path" in self.columns.all)

    def heat(self, row: int) -> bytes | None:
        return self._kept["heat"].get(str(self.columns.texts("id", [row])[0]))

    def picture(self, row: int, side: int) -> bytes:
        """A sample's picture, its longer side at most `side`; FileNotFoundError or ValueError where there is none."""
        return self._picture(row, side)

    def _made(self, row: int, side: int) -> bytes:
        entry = self.columns.texts("path", [row])[0] if "path" in self.columns.all else None
        if self.source.images is not None and entry:
            if os.path.isabs(entry):
                # A table's path may be written from the very top, and still be below the root.
                entry = os.path.relpath(entry, os.path.abspath(self.source.images))
            with self._two:
                return _encoded(read_bytes(follow(self.source.images, str(entry)), LARGEST_IMAGE), side)
        kept = self._kept["picture"].get(str(self.columns.texts("id", [row])[0]))
        if kept is None:
            raise FileNotFoundError("there is no picture of this sample")
        return kept


def _encoded(data: bytes, side: int) -> bytes:
    """A picture made smaller and upright, as JPEG, or as PNG where it is small or has no three colours."""
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            if opened.width * opened.height > _MOST_PIXELS:
                raise RefusedError(f"the picture must have at most {_MOST_PIXELS:,} pixels")
            opened.draft("RGB", (side, side))
            upright = ImageOps.exif_transpose(opened)
            small = upright.width * upright.height <= 128 * 128
            upright = upright if upright.mode in ("L", "RGB") else upright.convert("RGB")
            upright.thumbnail((side, side))
            out = io.BytesIO()
            upright.save(out, "PNG" if small else "JPEG", **({} if small else {"quality": 85}))
            return out.getvalue()
    except RefusedError:
        raise
    # Decoders meet hostile bytes with whatever exception they like.
    except Exception as error:
        raise ValueError("it does not decode as a picture") from error


def _kept(name: str, records: tuple[Path, ...]) -> dict[str, bytes]:
    path = next((one / name for one in records if (one / name).is_file()), None)
    if path is None:
        return {}
    found: dict[str, bytes] = {}
    with Parquet(path) as file, reading(path, "a table of pictures"):
        if {"id", "png"} <= set(file.schema.names):
            for batch in file.batches(["id", "png"]):
                stored = batch.column("png").cast(pa.binary())
                small = pc.less_equal(pc.binary_length(stored), _LARGEST_KEPT)
                names = batch.column("id").cast(pa.string()).filter(small).to_pylist()
                found |= dict(zip(names, stored.filter(small).to_pylist(), strict=True))
    return {one: png for one, png in found.items() if png.startswith(b"\x89PNG\r\n\x1a\n")}


def trajectory(records: tuple[Path, ...], identity: Any) -> dict[str, list[Any]]:
    """Each measure of a sample by epoch, `epoch` first; empty where no record keeps a history, or not of this sample.

    The rows of a history are in the order of their ids, so that one row group of each epoch is looked into.
    """
    folder = next((one / "dynamics" for one in records if (one / "dynamics").is_dir()), None)
    if folder is None or not isinstance(identity, int):
        return {}
    found: dict[str, list[Any]] = {}
    epochs = sorted((int(match[1]), path) for path in folder.iterdir() if (match := _EPOCH.fullmatch(path.name)))
    for epoch, path in epochs[:_MOST_EPOCHS]:
        for name, value in _row(path, identity).items():
            found.setdefault(name, []).append(value)
            if name == "correct":
                found.setdefault("epoch", []).append(epoch)
    return found


def _row(path: Path, identity: int) -> dict[str, float]:
    """The measures in one epoch of the sample; none where the epoch did not show it."""
    with Parquet(path) as file:
        measures = [one.name for one in file.schema if one.name not in _NO_MEASURES and pa.types.is_floating(one.type)]
        low, high = 0, len(file.group_sizes()) - 1
        while low <= high:
            group = (low + high) // 2
            ids = file.read_group(group, "id").to_numpy()
            if not len(ids) or ids[-1] < identity:
                low = group + 1
            elif ids[0] > identity:
                high = group - 1
            else:
                at = int(np.searchsorted(ids, identity))
                if at == len(ids) or ids[at] != identity:
                    return {}
                return {name: file.read_group(group, name)[at].as_py() for name in measures}
    return {}
