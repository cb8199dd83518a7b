"""Arrays in .npy, .npz and safetensors files: known by their headers, read whole or some rows after others.

The headers are parsed here, because those of NumPy's that a stranger wrote end its parser in many ways, and because
what they promise is to be compared with what the file holds before an array of that size is made.
"""

import ast
import contextlib
import functools
import io
import math
import re
import zipfile
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardsight.files.plain import RefusedError, check_unpacked, parse_json, plain_file, reading

_MAGIC, _LONGEST_HEADER = b"\x93NUMPY", 1 << 14
# Numbers and text; a type of other letters holds objects, which would have to be unpickled, or fields with names.
_PLAIN = re.compile(r"[<>=|]?([biufcmMSU]\d*(\[\w+\])?|[?bhilqBHILQefdgFDG])")
# A hundred bytes for each of 160,000 tensors; as objects they take thirty times as many.
_LONGEST_TENSOR_HEADER = 1 << 24
_TENSORS = {
    "F64": "f8", "F32": "f4", "F16": "f2", "BF16": "u2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
    "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
_BLOCK = 1 << 22


@dataclass(frozen=True)
class StoredArray:
    """An array in a file whose header fits its bytes. Nothing of it is read before it is asked for.

    `packed` is how many bytes it takes in the file, `kind` what sentences call the file; `open` gives the bytes of the
    array and those after it.
    """

    key: str
    path: Path
    kind: str
    shape: tuple[int, ...]
    dtype: np.dtype
    packed: int
    open: Callable[[], contextlib.AbstractContextManager[io.BufferedIOBase]]
    by_columns: bool = False
    bfloat16: bool = False

    @property
    def name(self) -> str:
        return f"{self.key} of {self.path}"

    @property
    def size(self) -> int:
        """Its bytes once it is unpacked."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def torch_dtype(self) -> torch.dtype:
        """The type of its tensors."""
        return self.tensor_of(np.empty(0, self.dtype)).dtype

    def read(self) -> np.ndarray:
        """The whole array, where memory holds it."""
        check_unpacked(self.name, self.size, self.packed)
        with reading(self.path, self.kind), self.open() as file:
            return self._read(file, self.shape)

    def pieces(self, rows: int) -> Iterator[np.ndarray]:
        """So many rows after others: an array of any length in the memory of one piece.

        One that is stored column after column is read whole.
        """
        if self.by_columns and len(self.shape) > 1:
            whole = self.read()
            yield from (whole[start : start + rows] for start in range(0, len(whole), rows))
            return
        check_unpacked(self.name, self.size, self.packed, held=rows * self.size // max(1, self.shape[0]))
        with reading(self.path, self.kind), self.open() as file:
            for start in range(0, self.shape[0], rows):
                yield self._read(file, (min(rows, self.shape[0] - start), *self.shape[1:]))

    def tensors(self, rows: int) -> Iterator[Tensor]:
        """The pieces as tensors."""
        return map(self.tensor_of, self.pieces(rows))

    def tensor_of(self, values: np.ndarray) -> Tensor:
        """What was read as a tensor. Torch knows one byte order, and few of the unsigned integers."""
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
        if values.dtype == np.longdouble:
            values = values.astype(np.float64)
        if self.bfloat16:
            return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
        if values.dtype.kind == "u":
            values = values.astype(np.int64)
        return torch.from_numpy(np.require(values, requirements=("C", "W")))

    def _read(self, file: io.BufferedIOBase, shape: tuple[int, ...]) -> np.ndarray:
        values = np.empty(math.prod(shape), self.dtype)
        left = memoryview(values.view(np.uint8))  # type: ignore[arg-type]
        while len(left):
            # No more in one go: a compressed one is unpacked beside it.
            count = file.readinto(left[:_BLOCK])
            if not count:
                raise EOFError
            left = left[count:]
        return values.reshape(shape, order="F" if self.by_columns else "C")


def npy_array(path: Path | str) -> StoredArray:
    """The array of a .npy file."""
    path, kind = plain_file(path), "an .npy file"
    size = path.stat().st_size
    with reading(path, kind), path.open("rb") as file:
        return _described(file, size, "the array", path, kind, size)


def npz_arrays(path: Path | str, wanted: Container[str] | None = None) -> dict[str, StoredArray | None]:
    """The arrays of an .npz file by name; None for what is not `wanted`, which may be no array."""
    path, kind = plain_file(path), "an .npz file"
    with path.open("rb") as start:
        if start.read(1) == b"\x80":
            raise RefusedError(f"{path} would need unpickling, which can run code: it is a pickle, not an .npz file")
    arrays: dict[str, StoredArray | None] = {}
    with reading(path, kind), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            key = member.filename.removesuffix(".npy")
            arrays[key] = None
            if wanted is None or key in wanted:
                if key == member.filename:
                    raise RefusedError(f"{key[:100]!r} of {path} must be an array; it is another file")
                packed = member.compress_size
                with archive.open(member) as inside:
                    file: io.BufferedIOBase = inside  # type: ignore[assignment]
                    arrays[key] = _described(file, member.file_size, key, path, kind, packed, member.filename)
    return arrays


@contextlib.contextmanager
def _opened(
    path: Path, start: int, member: str | None = None, content: bytes | None = None
) -> Iterator[io.BufferedIOBase]:
    """The bytes of the file, of a member of it or of `content`, from `start` on."""
    if member is not None:
        with zipfile.ZipFile(path) as archive, archive.open(member) as inside:
            # Read, not sought: a sum is kept of what is read, and forgotten by who seeks.
            inside.read(start)
            yield inside  # type: ignore[misc]
        return
    with path.open("rb") if content is None else io.BytesIO(content) as file:
        file.seek(start)
        yield file


def _described(
    file: io.BufferedIOBase, size: int, key: str, path: Path, kind: str, packed: int, member: str | None = None
) -> StoredArray:
    """The array whose header begins here, in `size` bytes; rejected where the two do not agree."""
    start = file.read(8)
    if start[:6] != _MAGIC or start[6] not in (1, 2, 3):
        raise RefusedError(f"{key} of {path} must be an array; it does not begin as one")
    counted = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(counted), "little")
    if length > _LONGEST_HEADER:
        raise RefusedError(f"{key} of {path} must have a header of at most {_LONGEST_HEADER} bytes; it has {length}")
    header = file.read(length).decode("latin1")
    # Python 2 wrote an L behind long numbers.
    said = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", header.strip()))
    descr, shape, by_columns = said["descr"], said["shape"], bool(said["fortran_order"])
    if not isinstance(descr, str) or not _PLAIN.fullmatch(descr):
        if isinstance(descr, str) and descr.lstrip("|<>=")[:1] == "O":
            raise RefusedError(f"{path} would need unpickling, which can run code: {key} holds Python objects")
        raise RefusedError(f"{key} of {path} must hold plain numbers or text; its type is {str(descr)[:100]}")
    opened = functools.partial(_opened, path, 8 + counted + length, member)
    array = StoredArray(key, path, kind, _sides(shape), np.dtype(descr), packed, opened, by_columns=by_columns)
    if not array.dtype.itemsize or array.size != size - (8 + counted + length):
        raise RefusedError(
            f"{path} is truncated or is not {kind}: {key} must hold the {array.size:,} bytes that its header says; it "
            f"holds {size - (8 + counted + length):,}"
        )
    return array


def _sides(shape: Any) -> tuple[int, ...]:
    """A shape that can be counted; torch gives up at sides whose product has no 63 bits, zeros left out."""
    sides = tuple(shape)
    if not all(type(side) is int and side >= 0 for side in sides) or math.prod(filter(None, sides)) >= 2**62:
        raise ValueError(f"no shape: {str(shape)[:100]}")
    return sides


def tensor_arrays(path: Path | str, content: bytes | None = None) -> dict[str, StoredArray]:
    """The tensors of a safetensors file by name, or of one that is `content` in the file at `path`.

    Those of types that only other machines compute with are rejected.
    """
    path, kind = plain_file(path), "a safetensors file"
    with reading(path, kind, reason=True), _opened(path, 0, content=content) as file:
        length = int.from_bytes(file.read(8), "little")
        size = (path.stat().st_size if content is None else len(content)) - 8 - length
        if size < 0 or length > _LONGEST_TENSOR_HEADER:
            raise ValueError(f"its header would have {length:,} bytes")
        header = parse_json(file.read(length))
        header.pop("__metadata__", None)
        arrays, last = {}, 0
        for key, said in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            opened = functools.partial(_opened, path, 8 + length + last, content=content)
            sides, (start, end) = _sides(said["shape"]), said["data_offsets"]
            if said["dtype"] not in _TENSORS:
                raise RefusedError(f"{key} of {path} must be of {', '.join(_TENSORS)}; it is of {said['dtype']}")
            dtype = np.dtype(_TENSORS[said["dtype"]])
            if start != last or math.prod(sides) * dtype.itemsize != end - start:
                raise ValueError(f"{key} is not where its header says")
            wide = said["dtype"] == "BF16"
            arrays[key] = StoredArray(key, path, kind, sides, dtype, end - start, opened, bfloat16=wide)
            last = end
        if last > size:
            raise ValueError(f"it ends {last - size:,} bytes before its last tensor does")
    return arrays


def load_tensors(path: Path | str) -> dict[str, Tensor]:
    """All tensors of a safetensors file, as they are."""
    from safetensors.torch import load_file

    check_unpacked(path, sum(array.size for array in tensor_arrays(path).values()))
    with reading(path, "a safetensors file", reason=True):
        return load_file(path)
