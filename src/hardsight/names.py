"""Names that a person or a file gives: an unknown one raises with the known ones, and all print in one line.

The error names the nearest where one is near, else the list.
"""

import difflib
from collections.abc import Iterable
from typing import Any

# How much alike two names must be. One typing mistake in three letters leaves 2/3; at 0.6 `imagenet` meant `lenet`.
_ALIKE = 0.65
_MOST_HINTS = 3
# A list longer than this is left out where one near name answers already, and one longer than that always.
_FEW, _MANY = 12, 40
# What a text could command a terminal with: control characters, and those that turn the direction of writing.
HIDDEN = (*range(32), *range(127, 160), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_VISIBLE = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in HIDDEN}
_VISIBLE |= {9: "\\t", 10: "\\n", 13: "\\r"}


def visible(text: str) -> str:
    """The text in one line, with escapes in the place of what a terminal obeys.

    >>> print(visible("a\\nb\\x1b[2J"))
    a\\nb\\x1b[2J
    """
    return text.translate(_VISIBLE)


def check_name(parameter: str, given: Any, known: Iterable[Any], kind: str = "names", see: str = "") -> None:
    """Raise for what is none of the known names; see `unknown_name`."""
    known = list(known)
    if given not in known:
        raise unknown_name(parameter, given, known, kind, see)


def unknown_name(parameter: str, given: Any, known: Iterable[Any], kind: str = "names", see: str = "") -> ValueError:
    """The error of an unknown name, one sentence; `kind` says in the plural what the names are, `see` where to look.

    >>> unknown_name("network", "restnet20", ["lenet", "resnet20"])
    ValueError("network must be one of lenet, resnet20; got 'restnet20', did you mean 'resnet20'?")
    >>> unknown_name("network", "xyzzy", ["lenet", "resnet20"])
    ValueError("network must be one of lenet, resnet20; got 'xyzzy'")
    """
    listed = list(dict.fromkeys(str(name) for name in known))
    near = nearest_names(given, listed)
    if len(listed) <= (_FEW if len(near) == 1 else _MANY):
        names = ", ".join(listed) or f"the {kind}, of which there are none"
    else:
        shown = see or ("" if near else f"such as {', '.join(listed[:_MOST_HINTS])}")
        names = f"the {len(listed)} {kind}{', ' if shown else ''}{shown}"
    hint = f", did you mean {' or '.join(map(repr, near))}?" if near else ""
    return ValueError(f"{parameter} must be one of {names}; got {given!r}{hint}")


def nearest_names(given: Any, known: Iterable[str]) -> list[str]:
    """The known names that the given one could mean, likeliest first; none where all are far.

    Case, hyphens, underscores and spaces count for nothing, and the beginning of a name is near it.
    """
    text = _plain(str(given))
    alike = {name: _likeness(text, _plain(name)) for name in known}
    best = max(alike.values(), default=0.0)
    near = [
        name for name in sorted(alike, key=alike.__getitem__, reverse=True) if alike[name] >= max(_ALIKE, best - 0.1)
    ]
    return near[:_MOST_HINTS]


def _likeness(given: str, name: str) -> float:
    matcher = difflib.SequenceMatcher(None, given, name, autojunk=False)
    # An upper bound that costs nothing, for text of any length.
    ratio = matcher.ratio() if matcher.real_quick_ratio() >= _ALIKE else 0.0
    return max(ratio, _ALIKE) if len(given) >= 3 and name.startswith(given) else ratio


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter not in "-_ ")
