"""Files that others wrote: plain files only, and none that becomes more than memory holds.

A pipe is waited for without an end, a device like /dev/zero is read without one, and a file of a few bytes may become
any number of them once it is unpacked. Whoever opens a file by a name that a person gave asks here first.

| module | what it judges before anything is allocated |
|---|---|
| `plain` | that a path is a plain file, and its size; text and JSON |
| `memory` | what a file may become: its share of the memory that is left, and how many times its own bytes |
| `csv_tables` | CSV tables, by their header and their bytes |
| `arrays` | arrays in .npy and .npz files and in safetensors, by their headers |
| `parquet` | the columns of a Parquet file, by its footer and the headers of their pages |
| `thrift` | (the protocol of that footer and these headers) |
| `inside` | that a path which a file names stays below a folder |
"""

from hardsight.files.memory import Budget, check_unpacked, memory_left
from hardsight.files.plain import (
    LARGEST_IMAGE,
    LARGEST_TEXT,
    parse_json,
    plain_file,
    read_bytes,
    read_json,
    read_text,
)
from hardsight.files.refusals import RefusedError, quoted, reading

__all__ = [
    "LARGEST_IMAGE",
    "LARGEST_TEXT",
    "Budget",
    "RefusedError",
    "check_unpacked",
    "memory_left",
    "parse_json",
    "plain_file",
    "quoted",
    "read_bytes",
    "read_json",
    "read_text",
    "reading",
]
