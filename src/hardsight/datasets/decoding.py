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
            upright = ImageOps.exif_transpose(opened).convert("RGB")
    # Decoders meet hostile bytes with whatever exception they like: IndexError, struct.error, SyntaxError, ...
    except Exception as error:
        raise ValueError(f"it does not decode as an image ({_first_words(error)})") from error
    if size is not None:
        upright = _resize(upright, _pair(size), fit)
    return torch.from_numpy(np.array(upright)).permute(2, 0, 1).contiguous()


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
