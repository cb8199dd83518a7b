"""Arrays in MATLAB files (up to version 7), read and never executed."""

import math
import zlib
from pathlib import Path
from typing import Literal

import numpy as np

from hardsight.files import RefusedError, check_unpacked, plain_file, reading

_NUMBERS = ("double", "single", "logical", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_HEADER, _COMPRESSED = 128, 15


def load_matlab(path: Path | str, key: str) -> np.ndarray:
    """The numeric array `key` of a .mat file; damaged, foreign and version 7.3 files are refused in a sentence."""
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
        if kind not in _NUMBERS:
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
