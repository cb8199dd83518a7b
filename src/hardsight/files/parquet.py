"""Parquet files, judged before they are read: what their columns become, by the headers of the pages.

A run of one value takes a few bytes however long it is, and so does a page of zeros. The footer says how many values a
column has, but a stranger wrote it; the header of every page says it too, and these are the values that are decoded.
"""

import functools
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from hardsight.files.inside import follow
from hardsight.files.plain import ALWAYS, RefusedError, check_unpacked, plain_file, read_json, reading
from hardsight.files.thrift import INT32, INT64, read_struct

_KIND = "a Parquet file"
MANIFEST_FILE, MANIFEST_KIND = "shards.json", "score shards"
# Bytes that are read in one go: a row group may be gigabytes.
_BUFFER = 1 << 20
# A walk over pages of a few bytes each would take longer than reading them.
_MOST_PAGES, _LEAST_PAGE = 100_000, 256
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_BY_DICTIONARY, _BY_PREFIX = (2, 8), 7
_UNCOMPRESSED, _CODECS = 0, {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
# Of a footer its row groups, their columns, and of each: codec, values, compressed bytes, first page, dictionary.
_FOOTER = {4: [{1: [{3: {4: INT32, 5: INT64, 7: INT64, 9: INT64, 11: INT64}}], 3: INT64}]}
# A page's kind, bytes unpacked and packed; then for each kind its values and their encoding.
_HEADER = {
    1: INT32, 2: INT32, 3: INT32,
    5: {1: INT32, 2: INT32}, 7: {1: INT32, 2: INT32}, 8: {1: INT32, 4: INT32},
}  # fmt: skip
# As objects a footer takes some 50 times its bytes.
_LONGEST_FOOTER, _MOST_COLUMNS = 1 << 24, 100_000
# Values of a column of lists, and rows of any, that are decoded in one go.
_VALUES, _ROWS = 1 << 18, 1 << 16
# Bytes that whoever reads a whole table takes for each row of it, to order and to name them.
_A_ROW = 64


class _Page(NamedTuple):
    """What the header of a page says; `start` is where its bytes begin."""

    kind: int
    unpacked: int
    packed: int
    values: int
    encoding: int
    start: int


class _Column(NamedTuple):
    """What the footer says of one column of one row group; `start` is where its first page begins."""

    codec: int
    values: int
    packed: int
    start: int


class _Chunk(NamedTuple):
    """What one column of one row group becomes."""

    values: int
    unpacked: int
    packed: int


class Parquet:
    """A Parquet file whose columns are read when they fit, or some rows after others; names each column once."""

    def __init__(self, path: Path | str) -> None:
        self.path = plain_file(path)
        with reading(self.path, _KIND):
            # Not by pyarrow, which ends the process where what a footer says of a column contradicts itself.
            self._groups = _footer(self.path)
        with reading(self.path, _KIND, reason=True):
            # As pyarrow's own: a thread that lets go of something of Python's may abort a process that ends.
            self._file = pq.ParquetFile(pa.OSFile(str(self.path)), buffer_size=_BUFFER, pre_buffer=False)
            self.schema: pa.Schema = self._file.schema_arrow
            self._schema = self._file.schema
            self.rows: int = self._file.metadata.num_rows
            often = Counter(self.schema.names)
        repeated = next((name for name, count in often.items() if count > 1), None)
        if repeated is not None:
            raise RefusedError(f"{self.path} must name each column once; it has {repeated!r} more than once")
        self._chunk = functools.cache(self._judged)

    def __enter__(self) -> "Parquet":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close(force=True)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """These columns, or all, where memory holds them."""
        names = list(self.schema.names if columns is None else columns)
        self._check(names, range(len(self._groups)), further=_A_ROW * self.rows if columns is None else 0)
        with reading(self.path, _KIND, reason=True):
            if any(pa.types.is_nested(self.schema.field(name).type) for name in names):
                # Lists some rows after others: read at once, their numbers are held more than four times.
                schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
                return pa.Table.from_batches(self._batches(names), schema)
            return self._file.read(columns=names)

    def read_group(self, group: int, column: str) -> pa.ChunkedArray:
        """A column of one row group."""
        self._check([column], [group])
        with reading(self.path, _KIND, reason=True):
            return self._file.read_row_group(group, columns=[column])[column]

    def group_sizes(self) -> list[int]:
        """The number of rows of every row group."""
        return [rows for rows, _ in self._groups]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns, some rows after others: any number of rows in the memory of a few."""
        self._check(list(columns), range(len(self._groups)), pieces=True)
        with reading(self.path, _KIND, reason=True):
            yield from self._batches(list(columns))

    def values(self, column: str) -> int:
        """How many values the column has, those in its lists counted one by one, and gaps."""
        leaves = self._leaves([column])
        with reading(self.path, _KIND):
            return sum(self._chunk(group, leaf).values for group in range(len(self._groups)) for leaf in leaves[:1])

    def _batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        values = max((self.values(name) for name in names), default=0)
        rows = max(1, min(_ROWS, _VALUES * max(1, self.rows) // max(1, values)))
        batches: Iterator[Any] = self._file.iter_batches(rows, columns=names)
        return batches

    def _check(self, names: list[str], groups: Sequence[int], *, further: int = 0, pieces: bool = False) -> None:
        """Reject columns that become more than memory holds, or more than their bytes honestly become."""
        leaves = self._leaves(names)
        with reading(self.path, _KIND):
            chunks = [self._chunk(group, leaf) for group in groups for leaf in leaves]
        unpacked = sum(chunk.unpacked for chunk in chunks) + further
        # Several columns may name the same bytes.
        packed = min(sum(chunk.packed for chunk in chunks), self.path.stat().st_size)
        check_unpacked(self.path, unpacked, packed, held=min(unpacked, ALWAYS) if pieces else None)

    def _leaves(self, names: Sequence[str]) -> list[int]:
        """The columns of values inside these columns, whose names may have dots themselves."""
        paths = [f"{self._schema.column(leaf).path}." for leaf in range(len(self._schema))]
        ends = [[at for at, letter in enumerate(path) if letter == "."] for path in paths]
        return [leaf for leaf, path in enumerate(paths) if not {path[:at] for at in ends[leaf]}.isdisjoint(names)]

    def _judged(self, group: int, leaf: int) -> _Chunk:
        """What the pages of a column become: numbers by their width, text by its bytes or its longest word."""
        (rows, columns), described = self._groups[group], self._schema.column(leaf)
        column = columns[leaf]
        text = described.physical_type == "BYTE_ARRAY"
        width = _WIDTHS.get(described.physical_type, max(0, described.length))
        values = unpacked = packed = 0
        if not column.values and not rows:
            return _Chunk(0, 0, 0)
        with self.path.open("rb") as file:
            words: _Page | None = None
            for page in _pages(file, column, self.path):
                check_unpacked(f"a page of {self.path}", page.unpacked, page.packed)
                packed += page.packed
                if page.kind == _DICTIONARY:
                    words, unpacked = page, unpacked + page.unpacked
                    continue
                values += page.values
                if not text:
                    unpacked += page.values * width
                elif page.encoding in _BY_DICTIONARY and words is not None:
                    unpacked += page.values * (8 + _longest(file, words, page.values, column.codec))
                elif page.encoding == _BY_PREFIX:
                    unpacked += page.values * page.unpacked
                else:
                    unpacked += page.unpacked + 8 * page.values
        if values < rows:
            raise EOFError
        return _Chunk(values, unpacked, packed)


def read_table(path: Path | str) -> pa.Table:
    """The table of a Parquet file, where memory holds it."""
    with Parquet(path) as file:
        return file.read()


def text_metadata(described: pa.Schema | pa.Field) -> dict[str, str]:
    """What is written about a table or a column, as text."""
    found = described.metadata or {}
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in found.items()}


def _longest(file: io.BufferedIOBase, words: _Page, values: int, codec: int) -> int:
    """The longest word of a dictionary, or a number above it where that is small enough for all values."""
    if values * words.unpacked <= ALWAYS // 64:
        return words.unpacked
    file.seek(words.start)
    data = file.read(words.packed)
    if codec != _UNCOMPRESSED:
        data = pa.Codec(_CODECS[codec]).decompress(data, words.unpacked, asbytes=True)
    longest = at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        longest, at = max(longest, length), at + 4 + length
    return longest


def _footer(path: Path) -> list[tuple[int, list[_Column]]]:
    """The number of rows of each row group of a file, and what is said of its columns."""
    with path.open("rb") as file:
        end = file.seek(-8, io.SEEK_END)
        length, magic = int.from_bytes(file.read(4), "little"), file.read(4)
        if magic == b"PARE":
            raise RefusedError(f"{path} must not be encrypted; its footer is")
        if magic != b"PAR1":
            raise EOFError
        if length > min(end, _LONGEST_FOOTER):
            raise RefusedError(f"{path} must have a footer of at most {_LONGEST_FOOTER:,} bytes; it has {length:,}")
        file.seek(end - length)
        said = read_struct(file.read(length), 0, _FOOTER)[0][4]
    many = sum(len(group.get(1, ())) for group in said)
    if many > _MOST_COLUMNS:
        raise RefusedError(f"{path} must have at most {_MOST_COLUMNS:,} columns in its row groups; it has {many:,}")
    found = []
    for group in said:
        columns = [one[3] for one in group[1]]
        # A dictionary is before the first page, where there is one.
        starts = [one[11] if 0 < one.get(11, 0) < one[9] else one[9] for one in columns]
        found.append((group[3], [_Column(one[4], one[5], one[7], at) for one, at in zip(columns, starts, strict=True)]))
    return found


def _pages(file: io.BufferedIOBase, column: _Column, path: Path) -> Iterator[_Page]:
    """The pages of a column of a row group, in their order; as many as its reader goes through."""
    at = column.start
    end, most = at + column.packed, max(_MOST_PAGES, path.stat().st_size // _LEAST_PAGE)
    seen = count = 0
    while at < end and (seen < column.values or not count):
        page = _page(file, at)
        yield page
        at, count = page.start + page.packed, count + 1
        seen += page.values if page.kind != _DICTIONARY else 0
        if count > most:
            raise RefusedError(f"{path} must have pages of at least {_LEAST_PAGE} bytes; it has {count:,} smaller ones")


def _page(file: io.BufferedIOBase, at: int) -> _Page:
    """The header of a page, a struct in Thrift's compact protocol."""
    for size in (1 << 10, 1 << 16, 1 << 24):
        file.seek(at)
        data = file.read(size)
        try:
            said, end = read_struct(data, 0, _HEADER)
        except IndexError:
            if len(data) < size:
                raise EOFError from None
            # Statistics may make it long.
            continue
        kind, unpacked, packed = said[1], said[2], said[3]
        if min(unpacked, packed) < 0:
            raise ValueError
        details = said.get({_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}.get(kind, 0), {})
        # The second form has its number of rows before the encoding.
        return _Page(kind, unpacked, packed, details.get(1, 0), details.get(4 if kind == _DATA_V2 else 2, 0), at + end)
    raise EOFError


# ---------------------------------------------------------------------------------------------------------------------
# A folder of Parquet files that a manifest names, as one table.


class Shards:
    """The Parquet files of a folder as one table; all must have the columns of the first."""

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder)
        self.files = [Parquet(path) for path in table_files(self.path)[1:]]
        first = self.files[0]
        self.schema: pa.Schema = first.schema
        for file in self.files:
            if not file.schema.equals(first.schema):
                raise RefusedError(f"{file.path} must have the columns of {first.path}, of the same types")
        self.rows = sum(file.rows for file in self.files)

    def __enter__(self) -> "Shards":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.__exit__()

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """These columns, or all, where memory holds them."""
        return pa.concat_tables([file.read(columns).replace_schema_metadata(None) for file in self.files])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns, some rows after others."""
        for file in self.files:
            yield from file.batches(columns)


def is_sharded(path: Path) -> bool:
    """Whether a folder's manifest says that its files are the shards of one table."""
    return (path / MANIFEST_FILE).is_file()


def open_table(path: Path) -> Parquet | Shards:
    """The table of a Parquet file or of a folder of shards."""
    return Shards(path) if path.is_dir() else Parquet(path)


def table_files(path: Path) -> list[Path]:
    """The files that a table is made of: a Parquet file itself; of shards the manifest, then each in its order."""
    if not path.is_dir():
        return [path]
    manifest = path / MANIFEST_FILE
    said = read_json(manifest)
    shards = said.get("shards") if isinstance(said, dict) and said.get("kind") == MANIFEST_KIND else None
    names = [str(one.get("output")) for one in shards if isinstance(one, dict)] if isinstance(shards, list) else []
    if not names:
        raise RefusedError(f"{manifest} must name the shards of a table of scores; it names none")
    files = [follow(path, name) for name in names]
    missing = [name for name, file in zip(names, files, strict=True) if not file.is_file()]
    if missing:
        raise ValueError(f"{path} must hold all {len(names):,} shards; {len(missing):,} are missing, as {missing[0]}")
    return [manifest, *files]
