"""Paths that files on disk name: none of them may lead outside the folder they belong to."""

import os
from pathlib import Path, PurePosixPath, PureWindowsPath


def stays_inside(entry: str) -> bool:
    """Whether a path written in a list or an archive stays below the folder it is relative to, links aside.

    >>> stays_inside("amazon/images/mug/frame_0001.jpg"), stays_inside("../secret.jpg"), stays_inside("/etc/passwd")
    (True, False, False)
    """
    if not entry or "\0" in entry or entry.startswith(("/", "\\")) or PureWindowsPath(entry).drive:
        return False
    # A list written on Windows separates with backslashes: both readings must stay inside.
    return ".." not in PurePosixPath(entry).parts and ".." not in PureWindowsPath(entry).parts


def follow(root: Path, entry: str) -> Path:
    """The real file that `entry` names below `root`; ValueError where it or a link in it leads outside."""
    if not stays_inside(entry):
        raise ValueError("the path points outside the root")
    base = os.path.realpath(root)
    real = os.path.realpath(os.path.join(base, entry))
    if os.path.commonpath([base, real]) != base:
        raise ValueError("a link in the path leads outside the root")
    return Path(real)
