"""Damage to honest files: bytes turned over, cut, doubled and swapped, numbers and words replaced by hostile ones."""

import os
import random
import re
from pathlib import Path

# Numbers at the ends of the types that readers keep them in.
NUMBERS = [
    "0", "-1", "1", "127", "255", "256", "65535", "65536", "2147483647", "2147483648", "4294967295", "1000000000",
    "9223372036854775807", "9223372036854775808", "18446744073709551615", "1e308", "-1e308", "1e400", "nan", "inf",
    "-inf", "0.5", "1e-320", "9" * 400, "9" * 5000, "-0", "1_0", "0x10", "1e18", "1000000000000",
]  # fmt: skip
WORDS = [
    "", " ", "\x1b]0;owned\x07", "\x1b[2J\x9b31m", "\u202egpj.exe", "a\rb", "a\nb", "a\tb", "\x00",
    "=cmd|' /C calc'!A0",
    "../../etc/passwd", "/etc/passwd", "~/x", "a" * 5000, "caf\u00e9 \u732b \U0001f600",
    "null", "true", "[]", "{}", '"',
    "'", ",", ";", "|", "[" * 2000, "{" * 2000, '{"a":' * 500, "%s%s%n", "{0}", "[red]x[/]", "nan", "None", "cuda",
    "meta", "-100", "\\", "\ufeff", "0" * 100,
]  # fmt: skip
# What a line may become, repeated: the files are to stay small, and several damages are done one after the other.
LONGEST = 1 << 22
TEXTS = {".json", ".csv", ".toml", ".txt"}
BYTES = [
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\x7f",
    b"\xff" * 8,
    b"\x00" * 8,
    b"\x00\x00\x00\x80",
    b"PK\x05\x06",
]


def damage(path: Path, random: random.Random) -> None:
    """Damage one file in one to four places."""
    text = path.suffix in TEXTS or path.name.endswith("_list.txt")
    for _ in range(random.choice((1, 1, 2, 4))):
        data = path.read_bytes()
        path.write_bytes(_text(data, random) if text and random.random() < 0.8 else _bytes(data, random))


def rename(path: Path, random: random.Random) -> None:
    """Give a file beside a hostile name to its folder: what is listed meets it."""
    name = random.choice([word for word in WORDS if "/" not in word and "\0" not in word and 0 < len(word) < 200])
    hostile = path.with_name(name + path.suffix)
    kind = random.choice(("copy", "copy", "bytes", "link", "loop", "folder", "pipe"))
    if kind == "copy":
        hostile.write_bytes(path.read_bytes())
    elif kind == "bytes":
        hostile = Path(os.fsdecode(os.fsencode(path.parent) + b"/caf\xe9\xff" + os.fsencode(path.suffix)))
        hostile.write_bytes(path.read_bytes())
    elif kind == "link":
        hostile.symlink_to(random.choice(("/etc/passwd", "/dev/zero", "nowhere")))
    elif kind == "loop":
        hostile.symlink_to(path.parent, target_is_directory=True)
    elif kind == "folder":
        hostile.mkdir(exist_ok=True)
    else:
        os.mkfifo(hostile)


def _bytes(data: bytes, random: random.Random) -> bytes:
    if not data:
        return random.choice(BYTES)
    at, length = random.randrange(len(data)), random.choice((1, 1, 2, 4, 8, 64, 1000))
    kind = random.choice(
        ("turn", "turn", "turn", "set", "set", "cut", "drop", "double", "swap", "join", "zeros", "tail")
    )
    if kind == "turn":
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    if kind == "set":
        new = random.choice(BYTES)
        return data[:at] + new + data[at + len(new) :]
    if kind == "cut":
        return data[:at]
    if kind == "drop":
        return data[:at] + data[at + length :]
    if kind == "double":
        return data[: at + length] + data[at:]
    if kind == "swap":
        other = random.randrange(len(data))
        return data[:at] + data[other : other + length] + data[at + length :]
    if kind == "join":
        return data + data
    if kind == "zeros":
        return data[:at] + bytes(length) + data[at:]
    return data[at:]


def _text(data: bytes, random: random.Random) -> bytes:
    text = data.decode("utf-8", "surrogateescape")
    kind = random.choice(("number", "number", "word", "word", "line", "lines", "deep", "latin", "long"))
    spots = list(re.finditer(r"-?\d+(\.\d+)?" if kind == "number" else r"[A-Za-z_]+", text))
    if kind in ("number", "word") and spots:
        spot = random.choice(spots)
        text = text[: spot.start()] + random.choice(NUMBERS if kind == "number" else WORDS) + text[spot.end() :]
    elif kind in ("line", "lines"):
        lines = text.splitlines(keepends=True) or [""]
        at = random.randrange(len(lines))
        times = min(random.choice((0, 2, 1000)), max(2, LONGEST // max(1, len(lines[at]))))
        text = "".join([*lines[:at], *([lines[at]] * times), *lines[at + 1 :]])
    elif kind == "deep":
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice("[{(,;") * random.choice((10, 1000, 100_000)) + text[at:]
    elif kind == "latin":
        return data + b"\xff\xfe"
    else:
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice(("x", ",", "\n", "1,", '"', "a.")) * 100_000 + text[at:]
    return text.encode("utf-8", "surrogateescape")
