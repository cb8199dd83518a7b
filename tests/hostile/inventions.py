"""Well-formed files that nobody would write: columns of any type, arrays of any shape, JSON of any value."""

import contextlib
import decimal
import json
import random
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = ["", "a", "cat", "dog", "\x1b]0;owned\x07", "a\rb", "=1+1", "caf\u00e9", "\u202etxt", "a" * 3000, "1"]
NUMBERS = [0, 1, -1, 2, 3, 100, -100, 127, 2**31, 2**40, -(2**63), 2**63 - 1, 10**9]
FLOATS = [0.0, 1.0, -1.0, 0.5, 1e308, -1e308, 1e-320, float("nan"), float("inf"), float("-inf"), -0.0, 1e18]
VALUES: list[Any] = [None, True, [], {}, [[]], {"a": {}}, [None], 1e308, 10**400, *TEXTS, *NUMBERS, [0.5] * 3, ["a"]]
# The columns that some reader looks for, in any table.
NAMES = [
    "id", "label", "predicted", "expected", "avh", "confidence", "el2n_mean", "aum", "path", "domain", "probabilities",
    "features", "labels", "ids", "image", "png", "epoch", "train_loss", "test_accuracy", "suspicion", "rank", "issue",
    "reasons", "clean_label", "split", "seconds", "label_name", "hsf", "a.b",
]  # fmt: skip


def column(rows: int, chance: random.Random) -> pa.Array:
    """A column of any type."""

    def of(values: list[Any], kind: Any = None) -> pa.Array:
        gaps = chance.choice((0, 0, 0, 0.2, 1))
        return pa.array([None if chance.random() < gaps else chance.choice(values) for _ in range(rows)], kind)

    kinds: list[Callable[[], pa.Array]] = [
        lambda: pa.array(range(rows), pa.int64()),
        lambda: of([0, 1, 2], chance.choice((pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()))),
        lambda: of(NUMBERS, pa.int64()),
        lambda: of([0, 2**64 - 1, 2**63], pa.uint64()),
        lambda: of([0.1, 0.5, 0.9], chance.choice((pa.float16(), pa.float32(), pa.float64()))),
        lambda: of(FLOATS, pa.float64()),
        lambda: of(TEXTS, chance.choice((pa.string(), pa.large_string()))),
        lambda: of(["cat", "dog", "frog"]).dictionary_encode(),
        lambda: of([b"", b"\xff\x00", b"\x89PNG\r\n\x1a\n"], chance.choice((pa.binary(), pa.large_binary()))),
        lambda: of([True, False]),
        lambda: pa.nulls(rows),
        lambda: of([datetime(2026, 1, 1), datetime(1, 1, 1), datetime(9999, 12, 31)], pa.timestamp("us", tz="UTC")),
        lambda: of([date(2026, 1, 1)], pa.date32()),
        lambda: of([timedelta(1)], pa.duration("us")),
        lambda: of([decimal.Decimal("1.5"), decimal.Decimal(-1)], pa.decimal128(10, 2)),
        lambda: of([[0.5, 0.5], [0.1, 0.9]], pa.list_(pa.float32())),
        lambda: of([[], [0.5], [0.1, 0.9], [float("nan")] * 2, None], pa.list_(pa.float64())),
        lambda: of([[1.0, -0.5, 0.5]], pa.list_(pa.float64(), 3)),
        lambda: of([["a"], []], pa.list_(pa.string())),
        lambda: of([{"bytes": b"abc", "path": None}, {"bytes": None, "path": "/etc/passwd"}]),
        lambda: of([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ]
    return chance.choice(kinds)()


def table(path: Path, chance: random.Random) -> None:
    """A table in the place of an honest one: its columns, some of them of another type, and others."""
    names = [name for name in pq.read_schema(path).names if chance.random() < 0.95]
    names += chance.sample(NAMES, chance.choice((0, 0, 1, 3)))
    rows = chance.choice((0, 1, 2, 7, 30, 30))
    honest = pq.read_table(path).slice(0, rows)
    keep = rows <= honest.num_rows
    columns = [
        honest.column(name).combine_chunks() if keep and name in honest.column_names and chance.random() < 0.6
        else column(honest.num_rows if keep else rows, chance)
        for name in names
    ]  # fmt: skip
    said = {
        key: json.dumps(chance.choice(VALUES)) if chance.random() < 0.7 else chance.choice(TEXTS)
        for key in ("class names", "skipped", "classes", "hardness against", "huggingface", "root", "layout", "split")
        if chance.random() < 0.3
    }
    found = pa.Table.from_arrays(columns, names).replace_schema_metadata({**(honest.schema.metadata or {}), **said})
    options = {"compression": chance.choice(("none", "zstd", "snappy")), "row_group_size": chance.choice((1, 5, 1000))}
    pq.write_table(found, path, use_dictionary=chance.random() < 0.5, **options)


def arrays(path: Path, chance: random.Random) -> None:
    """An .npz with arrays of any shape and type under the names that are read."""
    with np.load(path) as honest:
        kept = {name: honest[name] for name in honest.files}
    for name in chance.sample([*kept, "label", "id", "logits"], chance.choice((1, 1, 2))):
        shape = chance.choice(((), (0,), (12,), (12, 5), (5, 12), (1, 5), (12, 0), (0, 5), (12, 1, 5), (3,), (3, 5)))
        dtype = chance.choice(("f2", "f4", "f8", "g", "i1", "i8", "u8", ">f4", "?", "c8", "U3", "S2", "M8[s]", "m8[s]"))
        values = np.zeros(shape, dtype)
        if values.dtype.kind == "f":
            values += chance.choice((0, 1, np.nan, np.inf, 60_000))
        kept[name] = np.asfortranarray(values) if chance.random() < 0.2 else values
    chance.choice((np.savez, np.savez_compressed))(path, **kept)


def values(path: Path, chance: random.Random) -> None:
    """JSON with some of its values replaced."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    for _ in range(chance.choice((1, 1, 3))):
        found = _replaced(found, chance)
    path.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


def _replaced(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        return {**value, key if chance.random() < 0.9 else chance.choice(TEXTS): _replaced(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        return [*value[:at], _replaced(value[at], chance), *value[at + 1 :]]
    return chance.choice(VALUES)


def setting(path: Path, chance: random.Random) -> None:
    """TOML with the value of one key replaced by one of another type."""
    lines = path.read_text().splitlines()
    at = chance.choice([number for number, line in enumerate(lines) if "=" in line])
    told = [value for value in VALUES if value is not None and not isinstance(value, dict)]
    value = re.sub(r"\bNaN\b", "nan", re.sub(r"\bInfinity\b", "inf", json.dumps(chance.choice(told))))
    lines[at] = f"{lines[at].partition('=')[0]} = {value}"
    path.write_text("\n".join(lines))


INVENTED: dict[str, Callable[[Path, random.Random], None]] = {
    ".parquet": table, ".npz": arrays, ".json": values, ".toml": setting,
}  # fmt: skip


def invent(files: list[Path], chance: random.Random) -> bool:
    """Put one invented file in the place of an honest one; False where none can be."""
    fit = [path for path in files if path.suffix in INVENTED]
    if fit:
        path = chance.choice(fit)
        # What cannot be written whole is a file that was cut off.
        with contextlib.suppress(pa.ArrowException, OverflowError):
            INVENTED[path.suffix](path, chance)
    return bool(fit)
