"""Carry a study's records from one machine to another in a few files of limited size, and unpack them as records."""

import contextlib
import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hardsight.studies.framework import Study
from hardsight.training.sweeps import FINISHED, Cell, status_of

MEBIBYTE = 2**20
# A tar file pads each member to 512 bytes, has a header of 512 (and more for a long name), and ends in 10 KiB.
_HEADER, _END = 2048, 10_240


@dataclass(frozen=True)
class Packed:
    """The files written, and the members that found no place in them."""

    files: list[Path]
    left_out: list[str]


def pack(
    study: Study,
    preset: str,
    folder: Path | str,
    destination: Path | str,
    *,
    max_files: int = 7,
    max_bytes: int = 16 * MEBIBYTE,
) -> Packed:
    """Put the finished records below `folder` into at most `max_files` tar files of at most `max_bytes` each.

    What is worth most goes first; what finds no place is named. `run.json` of every cell goes in any case.
    """
    folder, destination = Path(folder), Path(destination)
    members = _members(study, preset, folder)
    bins: list[list[str]] = []
    room: list[int] = []
    left_out = []
    for name in members:
        size = -(-(folder / name).stat().st_size // 512) * 512 + _HEADER
        place = next((at for at, free in enumerate(room) if free >= size), None)
        if place is None and len(bins) < max_files and size <= max_bytes - _END:
            bins.append([])
            room.append(max_bytes - _END)
            place = len(bins) - 1
        if place is None:
            left_out.append(name)
            continue
        bins[place].append(name)
        room[place] -= size
    destination.mkdir(parents=True, exist_ok=True)
    files = [destination / f"{study.id}-{preset}-{at}.tar" for at in range(len(bins))]
    for path, names in zip(files, bins, strict=True):
        with tarfile.open(path, "w") as archive:
            for name in names:
                archive.add(folder / name, name, recursive=False)
    return Packed(files, left_out)


def unpack(files: Sequence[Path | str], folder: Path | str) -> list[str]:
    """Unpack files of `pack` below `folder`; returns the cells that are there now. Nothing is written outside it."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    cells: set[str] = set()
    for path in files:
        data = io.BytesIO(Path(path).read_bytes())
        with contextlib.ExitStack() as stack:
            try:
                archive = stack.enter_context(tarfile.open(fileobj=data))
                # The filter refuses absolute names, ways out of the folder, links and devices.
                archive.extractall(folder, filter="data")
            except (tarfile.ReadError, EOFError):
                raise ValueError(f"{path} must be a file that `pack` wrote; it is no tar file, or cut short") from None
            except tarfile.TarError as error:
                raise ValueError(f"{path} must be a file that `pack` wrote; {error}") from None
            cells |= {name.split("/")[0] for name in archive.getnames()}
    return sorted(cells)


def _members(study: Study, preset: str, folder: Path) -> list[str]:
    """The files of the finished records, by worth, then by the order of the cells."""
    ranked: list[tuple[int, int, str]] = []
    for place, cell in enumerate(study.cells(preset)):
        if status_of(folder / cell.name) != FINISHED:
            continue
        for path in sorted((folder / cell.name).iterdir()):
            worth = _worth(study, cell, path)
            if worth is not None:
                ranked.append((worth, place, f"{cell.name}/{path.name}"))
    return [name for _, _, name in sorted(ranked)]


def _worth(study: Study, cell: Cell, path: Path) -> int | None:
    if not path.is_file() or path.name.startswith("."):
        return None
    return -1 if path.name == "run.json" else study.worth(cell, path.name)
