"""What strangers' files hold: pickles of arrays and nothing else, MATLAB files (up to version 7), encoded images.

A pickle is a program. This reader runs it with stand-ins for what it may call: whatever the pickle names, it can only
build numbers, text, bytes, lists, tuples, dicts and NumPy arrays of plain numbers; any other name is rejected.
"""

import collections
import functools
import io
import itertools
import math
import os
import pickle
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from hardsight.files import Budget, RefusedError, check_unpacked, memory_left, plain_file, quoted, read_bytes, reading
from hardsight.files.pickled import check_pickle

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage


def load_arrays(path: Path | str) -> Any:
    """The arrays and plain containers in a pickle; ValueError, with nothing executed, where it wants more.

    Byte strings written by Python 2 stay bytes.
    """
    content = io.BytesIO(read_bytes(path))
    try:
        check_pickle(content)
        content.seek(0)
        return finished(_ArrayUnpickler(content, encoding="bytes").load())
    except NotArraysError as refusal:
        raise ValueError(f"{path} is rejected: {refusal}") from None
    # Damaged bytes end in whatever the machine of opcodes trips over first.
    except (
        pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError, ImportError,
        OverflowError, MemoryError, RecursionError,
    ) as error:  # fmt: skip
        raise ValueError(f"{path} is truncated or is not a pickle of arrays") from error


class NotArraysError(pickle.UnpicklingError):
    """The pickle asks for more than arrays."""


class _StandIn:
    """A callable that a pickle may name. It has no state that a pickle could set."""

    __slots__ = ("make",)

    def __init__(self, make: Any) -> None:
        self.make = make

    def __call__(self, *values: Any) -> Any:
        return self.make(*values)

    def __setstate__(self, state: Any) -> None:
        raise NotArraysError("it tries to change a function")


class _DType:
    """A number type; its state may say the byte order and nothing else."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any) -> None:
        self.code = _text(code)
        self.order = "="
        if self.code not in _NUMBERS:
            raise NotArraysError(f"it holds an array of type {quoted(self.code)}, which is no plain number")

    def __setstate__(self, state: Any) -> None:
        self.order = _text(state[1])
        if self.order not in ("|", "<", ">", "="):
            raise NotArraysError(f"it holds a byte order {quoted(self.order)}")


class _Array:
    """An array while it is being unpickled: `_reconstruct` makes it empty, its state fills it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        self.value = _array(raw, dtype, shape, "F" if fortran else "C")


def _array(raw: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(dtype, _DType) or not isinstance(raw, bytes | bytearray | str):
        raise NotArraysError("it holds an array whose values are not plain bytes")
    raw = raw.encode("latin1") if isinstance(raw, str) else raw
    real = np.dtype(dtype.code).newbyteorder(dtype.order)  # type: ignore[arg-type]
    if len(raw) != math.prod(shape) * real.itemsize:
        raise ValueError("array of the wrong length")
    array: np.ndarray = np.frombuffer(raw, real).reshape(shape, order=_text(order))  # type: ignore[call-overload]
    return array


def _scalar(dtype: Any, raw: Any) -> Any:
    return _array(raw, dtype, (1,), "C")[0].item()


def _encoded(text: Any, encoding: Any) -> bytes:
    if _text(encoding) != "latin1":
        raise NotArraysError(f"it asks for the codec {quoted(encoding)}")
    return _text(text).encode("latin1")


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


_NUMBERS = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})


def _ndarray(*values: Any) -> None:
    raise NotArraysError("it calls numpy.ndarray directly")


_VOCABULARY = {
    ("numpy", "ndarray"): _StandIn(_ndarray),
    ("numpy", "dtype"): _StandIn(lambda code, *_: _DType(code)),
    ("_codecs", "encode"): _StandIn(_encoded),
}
# NumPy 2 renamed its core; files of both ages are about.
for _core in ("numpy.core", "numpy._core"):
    _VOCABULARY[f"{_core}.multiarray", "_reconstruct"] = _StandIn(lambda *_: _Array())
    _VOCABULARY[f"{_core}.multiarray", "scalar"] = _StandIn(_scalar)
    _VOCABULARY[f"{_core}.numeric", "_frombuffer"] = _StandIn(_array)


def stand_ins() -> list[Any]:
    """The vocabulary by full name, for torch's own unpickler; what that builds with it is to be `finished`."""
    words = [(word, f"{module}.{name}") for (module, name), word in _VOCABULARY.items()]
    # Torch sets the state of types that are on its list alone.
    return [*words, *((kind, f"{__name__}.{kind.__name__}") for kind in (_Array, _DType))]


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        word = _VOCABULARY.get((module, name))
        if word is None:
            raise NotArraysError(f"it asks for {quoted(f'{module}.{name}')}, and only arrays are read")
        return word


def finished(value: Any, done: dict[int, Any] | None = None) -> Any:
    """The unpickled value with real arrays in the place of the stand-ins."""
    # Remembered, because a short pickle can nest one list in another a billion times.
    done = {} if done is None else done
    if id(value) in done:
        return done[id(value)]
    found: Any
    if isinstance(value, _Array):
        found = value.value
    elif isinstance(value, dict):
        found = {finished(key, done): finished(item, done) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        found = (list if isinstance(value, list) else tuple)(finished(item, done) for item in value)
    elif value is None or isinstance(value, bool | int | float | str | bytes | bytearray | np.ndarray | Tensor):
        found = value
    else:
        raise NotArraysError(f"it holds a {type(value).__name__}")
    done[id(value)] = found
    return found


def first_file(candidates: Sequence[Path]) -> Path:
    """The first of these files that is there."""
    for path in candidates:
        if path.is_file():
            return path
    names = " or ".join(dict.fromkeys(path.name for path in candidates))
    raise FileNotFoundError(f"{candidates[0].parent}{os.sep}{names} is not there")


_NUMERIC = ("double", "single", "logical", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_HEADER, _COMPRESSED = 128, 15


def load_matlab(path: Path | str, key: str) -> np.ndarray:
    """The numeric array `key` of a .mat file; damaged, foreign and version 7.3 files are rejected in a sentence."""
    from scipy.io import loadmat, whosmat

    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there")
    size = plain_file(path).stat().st_size
    with reading(path, "a MATLAB file"):
        try:
            held = {name: (shape, kind) for name, shape, kind in whosmat(path)}
        except NotImplementedError as error:
            raise RefusedError(f"{path} must be a MATLAB file up to version 7; it is 7.3, which is HDF5") from error
        shape, kind = held.get(key, ((), ""))
        if kind not in _NUMERIC:
            raise RefusedError(f"{path} must hold the numeric array {key}; it does not")
        check_unpacked(path, max(math.prod(shape), _unpacked(path)), size)
        read: np.ndarray = loadmat(path, variable_names=[key])[key]
        return read


def _unpacked(path: Path) -> int:
    """The bytes of all parts of the file once they are unpacked, as each says at its beginning."""
    total, at = 0, _HEADER
    with path.open("rb") as file:
        start = file.read(_HEADER)
        order: Literal["little", "big"] = "little" if start[126:128] == b"IM" else "big"
        if start[126:128] not in (b"IM", b"MI"):
            # Version 4, which compresses nothing.
            return 0
        while len(tag := file.read(8)) == 8:
            kind, length = (int.from_bytes(tag[at : at + 4], order) for at in (0, 4))
            if kind == _COMPRESSED:
                inner = zlib.decompressobj().decompress(file.read(min(length, 1024)), 8)
                total += int.from_bytes(inner[4:8], order)
            at += 8 + length
            file.seek(at)
    return total


EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".gif"})

# Bytes that a pixel takes while it is decoded: four in Pillow, of two modes where it converts, then three as bytes.
_A_PIXEL, _MOST = 8, 3 << 29
# By name, because Pillow would hand a PostScript file, whatever its ending, to an interpreter that runs it.
_FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")

Size = int | tuple[int, int] | None
Fit = Literal["crop", "squash"]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def decode(data: bytes, size: Size = None, fit: Fit = "crop", *, most: int = sys.maxsize) -> Tensor | None:
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


@functools.cache
def _budget() -> Budget:
    """What all threads that decode hold together."""
    return Budget(min(_MOST, memory_left() // 4))


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


def _eight_bits(image: "PillowImage", kind: str | None) -> "PillowImage":
    """A grey image of sixteen bits brought to eight; Pillow's own conversion makes all above 255 of 65,535 white."""
    from PIL import Image

    # Netpbm's come as 32-bit integers, already spread over sixteen bits.
    if image.mode.startswith("I;16") or (image.mode == "I" and kind in ("PNG", "PPM")):
        return Image.fromarray(((np.asarray(image).astype(np.int64) + 128) // 257).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("its 32-bit pixels do not say what white is; save it with 8 or 16 bits")
    return image
