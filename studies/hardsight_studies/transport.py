"""Carry a study's records from one machine to another in a few files of limited size, and unpack them as records."""

import contextlib
import shutil
import tarfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from hardsight import records
from hardsight.training.sweeps import FINISHED, Cell, status_of
from hardsight_studies.framework import Study

MEBIBYTE = 2**20
# A tar file pads each member to 512 bytes, has a header of 512 (and more for a long name), and ends in 10 KiB.
_HEADER, _END = 2048, 10_240
# What a tar file that is whole ends in; padding may follow.
_LAST = bytes(1024)


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
    files = [destination / f"{study.id}-{preset}-{at}.tar" for at in range(len(bins))]
    for path, names in zip(files, bins, strict=True):
        with records.atomic_path(path) as temporary, tarfile.open(temporary, "w") as archive:
            for name in names:
                archive.add(folder / name, name, recursive=False)
    return Packed(files, left_out)


def unpack(files: Sequence[Path | str], folder: Path | str, *, cells: Collection[str] | None = None) -> list[str]:
    """Unpack files of `pack` below `folder`; returns the cells that are there now.

    All are looked at before anything is written: one that is cut short, or holds anything but files of cells, or none
    of the `cells` that are wanted, is refused. Each file appears whole, and a cell's `run.json`, which calls it
    finished, after everything else.
    """
    folder = Path(folder)
    with contextlib.ExitStack() as stack:
        opened = [_opened(path, stack) for path in files]
        for path, archive in zip(files, opened, strict=True):
            held = {member.name.split("/")[0] for member in archive}
            if cells is not None and held.isdisjoint(cells):
                such = f"only others, such as {min(held)}" if held else "none at all"
                raise ValueError(f"{path} must hold cells of this study and preset; it holds {such}")
        found = [(archive, member) for archive in opened for member in archive]
        for _, member in found:
            # Of a record that is there already: cut short, it would call a mixture of both finished.
            if member.name.endswith("/run.json"):
                (folder / member.name).unlink(missing_ok=True)
        for archive, member in sorted(found, key=lambda one: one[1].name.endswith("/run.json")):
            source = archive.extractfile(member)
            assert source is not None
            with records.atomic_path(folder / member.name) as temporary, temporary.open("wb") as target:
                shutil.copyfileobj(source, target)
    return sorted({member.name.split("/")[0] for _, member in found})


def _opened(path: Path | str, stack: contextlib.ExitStack) -> tarfile.TarFile:
    """A file of `pack`, looked through to its end: every member is a plain `CELL/FILE`, so nothing leads elsewhere."""
    try:
        archive = stack.enter_context(tarfile.open(path, "r:"))  # noqa: SIM115 (the stack closes it)
        members = archive.getmembers()
        # tarfile takes anything that is no header for the end, and so a file cut between two members for whole.
        whole = _bytes_at(archive, archive.offset, len(_LAST)) == _LAST
    # Of what a header says beside the truth, tarfile finds out in many ways.
    except (tarfile.TarError, EOFError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise ValueError(f"{path} must be a file that `pack` wrote; it is no tar file, or cut short")
    for member in members:
        parts = member.name.split("/")
        # A sparse member may be of any size in a file of a few bytes.
        plain = member.isreg() and not member.issparse()
        if not plain or len(parts) != 2 or any(not part or part.startswith(".") for part in parts):
            raise ValueError(f"{path} must be a file that `pack` wrote; it holds {member.name!r}, no file of a cell")
    return archive


def _bytes_at(archive: tarfile.TarFile, offset: int, count: int) -> bytes:
    assert archive.fileobj is not None
    archive.fileobj.seek(offset)
    return archive.fileobj.read(count)


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
