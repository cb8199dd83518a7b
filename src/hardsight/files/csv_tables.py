"""CSV tables of strangers: commas, semicolons and tabs separate alike, because spreadsheets save with any of them."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from hardsight.files.memory import check_unpacked
from hardsight.files.plain import plain_file
from hardsight.files.refusals import RefusedError, reading

# Of a file without an end of line, no more than this is looked at for what separates.
_LONGEST_HEADER = 1 << 20
# Every column is prepared for, be it empty; and a number of one letter takes eight bytes.
_MOST_COLUMNS, _TIMES_TEXT = 10_000, 8


def read_csv(path: Path | str, **convert: Any) -> pa.Table:
    """The table of a CSV file with a header, where memory holds it; `convert` are pyarrow's ConvertOptions."""
    # Opened by Python first: it names a missing file, or a folder, in words a person knows.
    path = plain_file(path)
    with path.open("rb") as file:
        header = file.readline(_LONGEST_HEADER)
    separator = max(b",", b";", b"\t", key=header.count)
    if header.count(separator) >= _MOST_COLUMNS:
        raise RefusedError(
            f"{path} must have at most {_MOST_COLUMNS:,} columns; it has {header.count(separator) + 1:,}"
        )
    check_unpacked(path, _TIMES_TEXT * path.stat().st_size)
    with reading(path, "a readable CSV table", reason=True):
        table = csv.read_csv(
            # As pyarrow's own: a thread that lets go of something of Python's may abort a process that ends.
            pa.OSFile(str(path)),
            parse_options=csv.ParseOptions(delimiter=separator.decode()),
            convert_options=csv.ConvertOptions(**convert),
        )
        repeated = next((name for name, count in Counter(table.column_names).items() if count > 1), None)
    if repeated is not None:
        raise RefusedError(f"{path} must name each column once; it has {repeated!r} more than once")
    return table
