"""Unpacking a downloaded archive: whole or not at all, and never outside its folder."""

import contextlib
import io
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

from hardsight.files import RefusedError, plain_file, reading
from hardsight.files.inside import stays_inside

# Bytes, all of them zero, that the usual programs write after the last file of a tar.
_ENDS_A_TAR = 1 << 14
# What an archive of any size may become on disk, and how many times its own bytes a larger one may; a file without
# bytes takes some, too. Pictures are packed already, and a set of the smallest ones becomes 20 times its archive.
_ALWAYS, _TIMES, _A_FILE = 1 << 29, 100, 1 << 13
# Far above every path, and what systems write beside it.
_LONGEST_NAME = 1 << 17


def unpack(archive: Path | str, folder: Path | str) -> tuple[str, ...]:
    """Unpack a zip or tar file into `folder` and return the names it put there at the top.

    Rejected before anything is written: an entry that points outside (`../`, absolute), a link, a device, a name that
    is there already. A truncated archive leaves nothing behind.
    """
    archive, folder = Path(archive).expanduser(), Path(folder).expanduser()
    if not archive.exists():
        raise FileNotFoundError(f"the archive {archive} is not there")
    plain_file(archive)
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # Beside its goal, so that the last step is a rename on one disk.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".unpack-") as place:
            with reading(archive, "a zip or tar archive"):
                _extract(archive, Path(place), folder)
            names = sorted(entry.name for entry in Path(place).iterdir())
            if not names:
                raise RefusedError(f"{archive} holds nothing: download it again")
            for name in names:
                shutil.move(Path(place) / name, folder / name)
        return tuple(names)
    finally:
        if new:
            # Stays where something was put into it.
            with contextlib.suppress(OSError):
                folder.rmdir()


def _extract(archive: Path, place: Path, folder: Path) -> None:
    with archive.open("rb") as file:
        # To the reader of xz zeros are no end: it would go through a sparse file of any size.
        if not any(file.read(_ENDS_A_TAR)) and archive.stat().st_size > _ENDS_A_TAR:
            return
    entries = _Entries(archive, folder)
    # A tar by its beginning, before a zip by its end: a tar whose last file is a zip has the end of one.
    try:
        opened = tarfile.open(archive, tarinfo=_Member)  # noqa: SIM115
    except tarfile.ReadError:
        _extract_zip(archive, place, entries)
        return
    with opened:
        members = []
        for member in opened:
            # A sparse file may be of any size in an archive of a few bytes.
            entries.check(member.name, member.size, member.isdir() or (member.isreg() and not member.issparse()))
            members.append(member)
        if opened.fileobj is not None and opened.fileobj.tell() == opened.offset:
            # The file ended where a header, or the block of zeros that ends every tar, was to be read.
            raise EOFError
        # The sum that a compressed file keeps of itself is its last word, after the end of the tar in it.
        while not isinstance(opened.fileobj, io.BufferedReader | None) and (rest := opened.fileobj.read(1 << 20)):
            entries.count(len(rest))
        for member in members:
            # The content alone: tarfile's own filter for data takes over modes, and times that there are not.
            path, source = place / member.name, opened.extractfile(member)
            (path if source is None else path.parent).mkdir(parents=True, exist_ok=True)
            if source is not None:
                with source, path.open("wb") as file:
                    shutil.copyfileobj(source, file)


def _extract_zip(archive: Path, place: Path, entries: "_Entries") -> None:
    with zipfile.ZipFile(archive) as opened:
        with archive.open("rb") as file:
            file.seek(-min(archive.stat().st_size, 22 + 0xFFFF), os.SEEK_END)
            _, mark, record = file.read().rpartition(b"PK\x05\x06")
        counted = int.from_bytes(record[6:8], "little")
        # Damage to one entry may hide those after it. The largest number says that the count is too large for it.
        if mark and counted not in (0xFFFF, len(opened.infolist()) & 0xFFFF):
            raise zipfile.BadZipFile
        for entry in opened.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)
            entries.check(entry.filename, entry.file_size, kind in (0, stat.S_IFREG, stat.S_IFDIR))
        try:
            opened.extractall(place)
        except RuntimeError as error:
            raise RefusedError(f"{archive} is encrypted, or compressed in a way that is not known here") from error


class _Entries:
    """What an archive puts on the disk, rejected before any of it is there."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.archive, self.folder = archive, folder
        self.bytes = 0
        self.most = max(_ALWAYS, _TIMES * archive.stat().st_size)
        self.free = shutil.disk_usage(folder).free

    def check(self, name: str, size: int, plain: bool) -> None:
        """Reject an entry that points outside, is no plain file or folder, is there already, or is too much."""
        if not stays_inside(name):
            raise RefusedError(f"{self.archive} is rejected: its entry {name!r} points outside the folder")
        if not plain or size < 0:
            raise RefusedError(f"{self.archive} is rejected: its entry {name!r} is neither a file nor a folder")
        for top in Path(name).parts[:1]:
            if (self.folder / top).exists():
                raise RefusedError(f"{self.folder / top} is there already, and {self.archive} would write over it")
        self.count(size + _A_FILE)

    def count(self, size: int) -> None:
        """Reject the archive when it becomes more than its bytes honestly do, or than the disk holds."""
        self.bytes += size
        for most, what in ((self.most, f"bytes, {_TIMES} times its size"), (self.free, "bytes that its disk has left")):
            if self.bytes > most:
                raise RefusedError(f"{self.archive} is rejected: it would become more than {most:,} {what}")


class _Member(tarfile.TarInfo):
    """An entry of a tar; what is said of the next one is read at once, and may claim to have any number of bytes."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Member":
        member = super().frombuf(buf, encoding, errors)
        about = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME)
        if member.type in (*about, tarfile.GNUTYPE_LONGLINK) and not 0 <= member.size <= _LONGEST_NAME:
            raise ValueError(f"names must have at most {_LONGEST_NAME:,} bytes; one has {member.size:,}")
        return member
