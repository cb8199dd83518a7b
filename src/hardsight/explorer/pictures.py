"""Pictures of samples: the files that the table names, below one folder and nowhere else, or what a record keeps."""

import io
import os
import threading
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hardsight.explorer.columns import Columns
from hardsight.explorer.source import Source
from hardsight.files import LARGEST_IMAGE, RefusedError, read_bytes, reading
from hardsight.files.inside import follow
from hardsight.files.parquet import Parquet

# By name, because Pillow would hand a PostScript file, whatever its ending, to an interpreter that runs it.
_FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")
_MOST_PIXELS, _LARGEST_KEPT = 100_000_000, 1 << 20
SIDES = (160, 1024)
_CACHED = 512
# A heat map over the picture, where someone has put it beside the record, as `records.write_thumbnails` does.
_KEPT = {"picture": "thumbnails.parquet", "heat": "grad_cam.parquet"}


class Pictures:
    """Pictures by row, as PNG or JPEG bytes that were decoded and encoded again here."""

    def __init__(self, columns: Columns, source: Source) -> None:
        self.columns, self.source = columns, source
        self._two = threading.Semaphore(2)
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._kept = {kind: _kept(name, source.records) for kind, name in _KEPT.items()}

    @property
    def any(self) -> bool:
        """Whether some sample may have a picture."""
        return bool(self._kept["picture"]) or (self.source.images is not None and "path" in self.columns.all)

    def heat(self, row: int) -> bytes | None:
        """The heat map that a record keeps of a sample."""
        return self._kept["heat"].get(str(self.columns.texts("id", [row])[0]))

    def picture(self, row: int, side: int) -> bytes:
        """A sample's picture, its longer side at most `side`; FileNotFoundError or ValueError where there is none."""
        if (row, side) in self._cache:
            return self._cache[row, side]
        entry = self.columns.texts("path", [row])[0] if "path" in self.columns.all else None
        if self.source.images is not None and entry:
            with self._two:
                made = _encoded(read_bytes(_below(self.source.images, str(entry)), LARGEST_IMAGE), side)
            self._cache[row, side] = made
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
            return made
        kept = self._kept["picture"].get(str(self.columns.texts("id", [row])[0]))
        if kept is None:
            raise FileNotFoundError("there is no picture of this sample")
        return kept


def _below(root: Path, entry: str) -> Path:
    """The file that the table names, below the root, also where its path is written from the very top."""
    if os.path.isabs(entry):
        entry = os.path.relpath(entry, os.path.abspath(root))
    return follow(root, entry)


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
    """The small PNGs that a record keeps, by id."""
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
