"""Pickles that may hold arrays and nothing else, and arrays in MATLAB files (up to version 7).

A pickle is a program. This reader runs it with stand-ins for what it may call: whatever the pickle names, it can only
build numbers, text, bytes, lists, tuples, dicts and NumPy arrays of plain numbers; any other name is rejected.
"""

import io
import math
import pickle
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from hardsight.files import RefusedError, check_unpacked, plain_file, quoted, read_bytes, reading
from hardsight.files.pickled import check_pickle


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

    def real(self) -> np.dtype:
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


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
    real = dtype.real()
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


def _reject(sentence: str) -> None:
    raise NotArraysError(sentence)


def _vocabulary() -> dict[tuple[str, str], _StandIn]:
    words = {
        ("numpy", "ndarray"): _StandIn(lambda *_: _reject("it calls numpy.ndarray directly")),
        ("numpy", "dtype"): _StandIn(lambda code, *_: _DType(code)),
        ("_codecs", "encode"): _StandIn(_encoded),
    }
    # NumPy 2 renamed its core; files of both ages are about.
    for core in ("numpy.core", "numpy._core"):
        words[f"{core}.multiarray", "_reconstruct"] = _StandIn(lambda *_: _Array())
        words[f"{core}.multiarray", "scalar"] = _StandIn(_scalar)
        words[f"{core}.numeric", "_frombuffer"] = _StandIn(_array)
    return words


_VOCABULARY = _vocabulary()


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
    if id(value) not in done:
        done[id(value)] = _finish(value, done)
    return done[id(value)]


def _finish(value: Any, done: dict[int, Any]) -> Any:
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, dict):
        return {finished(key, done): finished(item, done) for key, item in value.items()}
    if isinstance(value, list):
        return [finished(item, done) for item in value]
    if isinstance(value, tuple):
        return tuple(finished(item, done) for item in value)
    if value is None or isinstance(value, bool | int | float | str | bytes | bytearray | np.ndarray | Tensor):
        return value
    raise NotArraysError(f"it holds a {type(value).__name__}")


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
