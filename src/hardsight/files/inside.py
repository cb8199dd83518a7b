"""Paths that a file names: none of them may lead outside the folder they belong to."""

import os
from pathlib import Path

OUTSIDE = "the path points outside the root"
LINK_OUTSIDE = "a link in the path leads outside the root"


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
