"""From encoded image bytes to a uint8 tensor: RGB, upright, resized."""

import io
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".gif"})

# By name, because Pillow would hand a PostScript file, whatever its ending, to an interpreter that runs it.
_FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")


def decode(data: bytes, size: int | tuple[int, int] | None = None, fit: Literal["crop", "squash"] = "crop") -> Tensor:
    """An encoded image as uint8 [3, H, W], turned upright by its EXIF tag; ValueError where it does not decode."""
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            if size is not None and opened.format == "JPEG":
                # JPEG decodes directly to a half, quarter or eighth: never below twice the wanted size.
                height, width = _pair(size)
                opened.draft("RGB", (2 * max(height, width), 2 * max(height, width)))
            upright = _eight_bits(ImageOps.exif_transpose(opened), opened.format).convert("RGB")
    # Decoders meet hostile bytes with whatever exception they like: IndexError, struct.error, SyntaxError, ...
    except Exception as error:
        raise ValueError(f"it does not decode as an image ({_first_words(error)})") from error
    if size is not None:
        upright = _resize(upright, _pair(size), fit)
    return torch.from_numpy(np.array(upright)).permute(2, 0, 1).contiguous()


def _eight_bits(image: "PillowImage", kind: str | None) -> "PillowImage":
    """A grey image of sixteen bits brought to eight; Pillow's own conversion makes all above 255 of 65,535 white."""
    from PIL import Image

    # Netpbm's come as 32-bit integers, already spread over sixteen bits.
    if image.mode.startswith("I;16") or (image.mode == "I" and kind in ("PNG", "PPM")):
        return Image.fromarray(((np.asarray(image).astype(np.int64) + 128) // 257).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("its 32-bit pixels do not say what white is; save it with 8 or 16 bits")
    return image


def _resize(image: "PillowImage", size: tuple[int, int], fit: str) -> "PillowImage":
    from PIL import Image, ImageOps

    height, width = size
    if image.size == (width, height):
        return image
    if fit == "crop":
        return ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _first_words(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    # Pillow names the in-memory buffer, which says nothing to a reader.
    return text.split(" <_io")[0]
