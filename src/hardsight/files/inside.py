"""Paths that a file names: none of them may lead outside the folder they belong to."""

import os
import stat
from pathlib import Path

OUTSIDE = "the path points outside the root"
LINK_OUTSIDE = "a link in the path leads outside the root"
NOT_TEXT = "its name is not UTF-8"


def stays_inside(entry: str) -> bool:
    """Whether a path written in a list or an archive stays below the folder it is relative to, links aside.

    >>> stays_inside("amazon/images/mug/frame_0001.jpg"), stays_inside("../secret.jpg"), stays_inside("/etc/passwd")
    (True, False, False)
    """
    # A list written on Windows separates with backslashes and may name a drive: neither may lead out.
    parts = entry.replace("\\", "/").split("/")
    return parts[0] not in ("", "..") and parts[0][1:2] != ":" and ".." not in parts and "\0" not in entry


def follow(root: Path, entry: str) -> Path:
    """The real file that `entry` names below `root`; ValueError where it or a link in it leads outside."""
    if not stays_inside(entry):
        raise ValueError(OUTSIDE)
    base = os.path.realpath(root)
    real = os.path.realpath(os.path.join(base, entry))
    if os.path.commonpath([base, real]) != base:
        raise ValueError(LINK_OUTSIDE)
    return Path(real)


def is_text(name: str) -> bool:
    """Whether a file's name is UTF-8; on Linux it may be any bytes, and no table or page could hold those."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(name: str) -> str:
    """The name as it is, or with what is not UTF-8 written as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


class Below:
    """Says of many entries below one root, quickly, why one cannot be used: folders are resolved once, not per file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folders: dict[str, str | None] = {}

    def problem(self, entry: str) -> str | None:
        """None for a file that is there and inside the root; else the reason."""
        if not stays_inside(entry):
            return OUTSIDE
        if not is_text(entry):
            return NOT_TEXT
        folder = os.path.dirname(entry)
        if folder not in self._folders:
            self._folders[folder] = self._leads_outside(folder)
        if self._folders[folder]:
            return self._folders[folder]
        try:
            kind = os.lstat(os.path.join(self.root, entry)).st_mode
        except OSError:
            return "no such file"
        if stat.S_ISLNK(kind):
            return self._leads_outside(entry) or (None if (self.root / entry).is_file() else "no such file")
        return None if stat.S_ISREG(kind) else "not a file"

    def _leads_outside(self, entry: str) -> str | None:
        try:
            follow(self.root, entry or ".")
        except ValueError as error:
            return str(error)
        return None
