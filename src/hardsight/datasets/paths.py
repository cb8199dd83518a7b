"""Paths that files on disk name: none of them may lead outside the folder they belong to."""

import os
import stat
from pathlib import Path

from hardsight.files.inside import OUTSIDE, follow, stays_inside

NOT_TEXT = "its name is not UTF-8"


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


def quoted(value: object) -> str:
    """What a file holds, as a sentence quotes it: the beginning of what is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


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
