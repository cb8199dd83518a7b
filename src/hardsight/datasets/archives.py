"""Unpacking a downloaded archive: whole or not at all, and never outside its folder."""

import contextlib
import errno
import io
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from hardsight.datasets.paths import stays_inside
from hardsight.files import plain_file

# Bytes, all of them zero, that the usual programs write after the last file of a tar.
_ENDS_A_TAR = 1 << 14


def unpack(archive: Path | str, folder: Path | str) -> tuple[str, ...]:
    """Unpack a zip or tar file into `folder` and return the names it put there at the top.

    Refused before anything is written: an entry that points outside (`../`, absolute), a link, a device, a name that
    is there already. A truncated archive leaves nothing behind.
    """
    archive, folder = Path(archive).expanduser(), Path(folder).expanduser()
    if not archive.exists():
        raise FileNotFoundError(f"the archive {archive} is not there")
    plain_file(archive)
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return _unpack(archive, folder)
    finally:
        if new:
            # Stays where something was put into it.
            with contextlib.suppress(OSError):
                folder.rmdir()


def _unpack(archive: Path, folder: Path) -> tuple[str, ...]:
    # Beside its goal, so that the last step is a rename on one disk.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpack-") as place:
        try:
            _extract(archive, Path(place), folder)
        except _RefusedError as refusal:
            raise ValueError(str(refusal)) from None
        except RuntimeError as error:
            raise ValueError(f"{archive} is encrypted, or compressed in a way that is not known here") from error
        # The parsers meet damaged headers with many kinds of exceptions.
        except (
            zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError, OverflowError,
            struct.error, OSError,
        ) as error:  # fmt: skip
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                # A full disk, say: nothing is wrong with the archive. EINVAL is a place before its beginning.
                raise
            raise ValueError(f"{archive} is truncated or is not a zip or tar archive") from error
        names = sorted(entry.name for entry in Path(place).iterdir())
        if not names:
            raise ValueError(_nothing(archive))
        for name in names:
            shutil.move(Path(place) / name, folder / name)
    return tuple(names)


def _extract(archive: Path, place: Path, folder: Path) -> None:
    with archive.open("rb") as file:
        # To the reader of xz zeros are no end: it would go through a sparse file of any size.
        if not any(file.read(_ENDS_A_TAR)) and archive.stat().st_size > _ENDS_A_TAR:
            raise _RefusedError(_nothing(archive))
    # A tar by its beginning, before a zip by its end: a tar whose last file is a zip has the end of one.
    if not tarfile.is_tarfile(archive):
        with zipfile.ZipFile(archive) as opened:
            _check_count(archive, len(opened.infolist()))
            _check(archive, folder, ((entry.filename, _plain_zip(entry)) for entry in opened.infolist()))
            opened.extractall(place)
        return
    with tarfile.open(archive) as opened:
        members = opened.getmembers()
        if opened.fileobj is not None and opened.fileobj.tell() == opened.offset:
            # The file ended where a header, or the block of zeros that ends every tar, was to be read.
            raise EOFError
        # The sum that a compressed file keeps of itself is its last word, after the end of the tar in it.
        while not isinstance(opened.fileobj, io.BufferedReader | None) and opened.fileobj.read(1 << 20):
            pass
        _check(archive, folder, ((member.name, _plain_tar(member)) for member in members))
        for member in members:
            _write(opened, member, place / member.name)


def _write(opened: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """The content alone: `extractall` takes over owners and modes, too, unless told otherwise from Python 3.11.4 on."""
    if member.size < 0:
        raise tarfile.ReadError
    source = opened.extractfile(member)
    if source is None:
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with source, path.open("wb") as file:
        shutil.copyfileobj(source, file)


def _nothing(archive: Path) -> str:
    return f"{archive} holds nothing: download it again"


def _check_count(archive: Path, found: int) -> None:
    """Refuse a zip whose last record counts other entries than were found: damage to one may hide those after it."""
    with archive.open("rb") as file:
        file.seek(-min(archive.stat().st_size, 22 + 0xFFFF), os.SEEK_END)
        _, mark, record = file.read().rpartition(b"PK\x05\x06")
    counted = int.from_bytes(record[6:8], "little")
    # The largest number says that the count is too large for this record.
    if mark and counted not in (0xFFFF, found & 0xFFFF):
        raise zipfile.BadZipFile


def _plain_tar(member: tarfile.TarInfo) -> bool:
    # A sparse file may be of any size in an archive of a few bytes.
    return member.isdir() or (member.isreg() and not member.issparse())


def _plain_zip(entry: zipfile.ZipInfo) -> bool:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    return kind in (0, stat.S_IFREG, stat.S_IFDIR)


class _RefusedError(Exception):
    pass


def _check(archive: Path, folder: Path, entries: Iterable[tuple[str, bool]]) -> None:
    for name, plain in entries:
        if not stays_inside(name):
            raise _RefusedError(f"{archive} is refused: its entry {name!r} points outside the folder")
        if not plain:
            raise _RefusedError(f"{archive} is refused: its entry {name!r} is neither a file nor a folder")
        for top in Path(name).parts[:1]:
            if (folder / top).exists():
                raise _RefusedError(f"{folder / top} is there already, and {archive} would write over it")
