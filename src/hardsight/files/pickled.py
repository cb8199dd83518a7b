"""Pickles of strangers: tensors and plain containers alone, and no more numbers than they have bytes."""

import io
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hardsight.files.plain import RefusedError, check_unpacked, plain_file, read_bytes, reading

_KIND = "a PyTorch checkpoint"
# Torch's unpickler takes them, and each makes something of any size out of a number.
_MAKERS = re.compile(r"(builtins|__builtin__) bytearray|torch(\.\w+)* \w*Tensor")
# A checkpoint of before torch 1.6 is so many pickles, and the numbers after them.
_OLD_PICKLES = 5


def load_checkpoint(path: Path | str) -> Any:
    """What a checkpoint holds, by torch's own unpickler, which takes tensors and plain containers alone."""
    path = plain_file(path)
    with path.open("rb") as file:
        start = file.read(2)
    zipped = zipfile.is_zipfile(path)
    if start[:1] != b"\x80" and not zipped:
        raise RefusedError(f"{path} is truncated or is not {_KIND}")
    with reading(path, _KIND):
        if zipped:
            most = _check_parts(path)
        else:
            pickles = io.BytesIO(read_bytes(path))
            most = len(pickles.getbuffer())
            for _ in range(_OLD_PICKLES):
                if pickles.tell() < most:
                    check_pickle(pickles)
        try:
            with warnings.catch_warnings():
                # About pickle protocols: what the loader does not know it rejects.
                warnings.simplefilter("ignore")
                content = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise RefusedError(
                f"{path} would need unpickling, which can run code: save a state_dict or safetensors"
            ) from error
        _check_tensors(content, most, path)
    return content


def check_pickle(file: io.BufferedIOBase) -> None:
    """Reject one pickle that asks for memory by a number: a place in a list of places, or an array of zeros."""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):  # type: ignore[arg-type]
        if "PUT" in opcode.name and int(argument or 0) > count:
            raise ValueError(f"it remembers {count} things, one of them at place {argument}")
        if opcode.name in ("GLOBAL", "INST") and _MAKERS.fullmatch(str(argument)):
            raise pickle.UnpicklingError(f"it calls {argument}")


def _check_parts(path: Path) -> int:
    """Reject a zip whose parts become too much, or are not what was packed: torch looks at neither. Their bytes."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(part.file_size for part in archive.infolist())
        check_unpacked(path, unpacked, path.stat().st_size)
        if archive.testzip() is not None:
            raise zipfile.BadZipFile
        for part in archive.infolist():
            if part.filename.endswith(".pkl"):
                check_pickle(io.BytesIO(archive.read(part)))
    return unpacked


def _check_tensors(content: Any, most: int, path: Path) -> None:
    """Reject tensors that have more numbers than were stored: one of them repeated, or memory as it was found."""
    stored = {}
    for tensor in _tensors(content):
        whole = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not whole or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise RefusedError(f"{path} must hold every number of its tensors; {list(tensor.shape)} of one it does not")
        stored[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    if sum(stored.values()) > most:
        raise RefusedError(f"{path} must hold every number of its tensors; they have more bytes than its {most:,}")


def _tensors(content: Any) -> Iterator[Tensor]:
    """Every tensor in the containers; each container once, for a short pickle can nest one in itself."""
    waiting, seen = [content], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, dict | list | tuple | set) and id(one) not in seen:
            seen.add(id(one))
            waiting += [*one.keys(), *one.values()] if isinstance(one, dict) else one
