"""Files that others wrote: plain files only, and none that becomes more than memory holds.

A pipe is waited for without an end, a device like /dev/zero is read without one, and a file of a few bytes may become
any number of them once it is unpacked. Whoever opens a file by a name that a person gave asks here first.

| module | what it judges before anything is allocated |
|---|---|
| `plain` | that a path is a plain file, and its size; text, JSON and CSV; what a file may become |
| `arrays` | arrays in .npy and .npz files and in safetensors, by their headers |
| `parquet` | the columns of a Parquet file or of a folder of them, by footers and the headers of pages (`thrift`) |
| `pickled` | checkpoints, by what they call and store |
| `inside` | that a path which a file names stays below a folder |
"""

from hardsight.files.plain import (
    LARGEST_IMAGE,
    LARGEST_TEXT,
    Budget,
    RefusedError,
    check_unpacked,
    memory_left,
    parse_json,
    plain_file,
    quoted,
    read_bytes,
    read_json,
    read_text,
    reading,
)

__all__ = [
    "LARGEST_IMAGE", "LARGEST_TEXT", "Budget", "RefusedError", "check_unpacked", "memory_left", "parse_json",
    "plain_file", "quoted", "read_bytes", "read_json", "read_text", "reading",
]  # fmt: skip
