"""Arrays in MATLAB files (up to version 7), read and never executed."""

import zlib
from pathlib import Path

import numpy as np

from hardsight.files import LARGEST_READ, plain_file


def load_matlab(path: Path | str, key: str) -> np.ndarray:
    """The numeric array `key` of a .mat file; damaged, foreign and version 7.3 files are refused in a sentence."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there")
    plain_file(path, LARGEST_READ)
    try:
        found = loadmat(path, variable_names=[key]).get(key)
    except NotImplementedError as error:
        raise ValueError(f"{path} must be a MATLAB file up to version 7; it is 7.3, which is HDF5") from error
    # The parser meets damaged bytes with many kinds of exceptions.
    except (
        MatReadError, ValueError, TypeError, OSError, EOFError, IndexError, KeyError, MemoryError, zlib.error,
    ) as error:  # fmt: skip
        raise ValueError(f"{path} is truncated or is not a MATLAB file") from error
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iufb":
        raise ValueError(f"{path} must hold the numeric array {key}; it does not")
    return found
