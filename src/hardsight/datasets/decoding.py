"""From encoded image bytes to a uint8 tensor: RGB, upright, resized."""

import collections
import functools
import io
import itertools
import sys
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from hardsight.files import Budget, RefusedError, check_unpacked, memory_left

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".gif"})

# Bytes that a pixel takes while it is decoded: four in Pillow, of two modes where it converts, then three as bytes.
_A_PIXEL, _MOST = 8, 3 << 29
# By name, because Pillow would hand a PostScript file, whatever its ending, to an interpreter that runs it.
_FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def decode(
    data: bytes,
    size: int | tuple[int, int] | None = None,
    fit: Literal["crop", "squash"] = "crop",
    *,
    most: int = sys.maxsize,
) -> Tensor | None:
    """An encoded image as uint8 [3, H, W], turned upright by its EXIF tag; ValueError where it does not decode.

    None for one of more than `most` pixels. Threads share a budget: large ones wait for each other.
    """
    from PIL import Image, ImageOps

    height, width = (size, size) if isinstance(size, int) else size or (0, 0)
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            if size is not None and opened.format == "JPEG":
                # JPEG decodes directly to a half, quarter or eighth: never below twice the wanted size.
                opened.draft("RGB", (2 * max(height, width), 2 * max(height, width)))
            pixels = opened.width * opened.height
            if pixels > most:
                return None
            check_unpacked("it", 3 * pixels, len(data))
            with _budget().taking(_A_PIXEL * pixels):
                ImageOps.exif_transpose(opened, in_place=True)
                upright = _eight_bits(opened, opened.format)
                upright = upright if upright.mode == "RGB" else upright.convert("RGB")
                if size is not None and upright.size != (width, height):
                    resize = ImageOps.fit if fit == "crop" else Image.Image.resize
                    upright = resize(upright, (width, height), Image.Resampling.BILINEAR)
                values = np.asarray(upright)
                # Before the last copy the image itself lets go of its pixels.
                del upright
                opened.close()
                return torch.from_numpy(values.transpose(2, 0, 1).copy())
    except RefusedError:
        raise
    # Decoders meet hostile bytes with whatever exception they like: IndexError, struct.error, SyntaxError, ...
    except Exception as error:
        # Pillow names the in-memory buffer, which says nothing to a reader.
        reason = (str(error).splitlines() or [type(error).__name__])[0].split(" <_io")[0]
        raise ValueError(f"it does not decode as an image ({reason})") from error


def in_order(
    read: Callable[[_Item], _Result], items: Iterable[_Item], workers: int, ahead: int
) -> Generator[_Result, None, None]:
    """`read` of every item, in the order of the items, by threads; at most `ahead` items are read before their turn."""
    rest = iter(items)
    waiting: collections.deque[Future[_Result]] = collections.deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
    try:
        while True:
            waiting.extend(pool.submit(read, item) for item in itertools.islice(rest, ahead - len(waiting)))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        # Also where the caller stops early: what has not begun never will.
        pool.shutdown(wait=True, cancel_futures=True)


@functools.cache
def _budget() -> Budget:
    """What all threads that decode hold together."""
    return Budget(min(_MOST, memory_left() // 4))


def _eight_bits(image: "PillowImage", kind: str | None) -> "PillowImage":
    """A grey image of sixteen bits brought to eight; Pillow's own conversion makes all above 255 of 65,535 white."""
    from PIL import Image

    # Netpbm's come as 32-bit integers, already spread over sixteen bits.
    if image.mode.startswith("I;16") or (image.mode == "I" and kind in ("PNG", "PPM")):
        return Image.fromarray(((np.asarray(image).astype(np.int64) + 128) // 257).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("its 32-bit pixels do not say what white is; save it with 8 or 16 bits")
    return image
