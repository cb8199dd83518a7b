"""Records: what a run or a scoring leaves on disk, and the one way anything is written there.

A run is a folder of plain files:

| file | what it holds |
|---|---|
| `run.json` | configuration, seed, versions, device, status |
| `epochs.parquet` | one row an epoch: `epoch`, losses, accuracies |
| `samples.parquet` | one row per sample: `id`, `label`, `predicted`, one column per score, `path` where it is a file |
| `dynamics.parquet` | on request, one row per sample and epoch |
| `thumbnails.parquet` | `id` and `png`: small pictures of the samples that a page shows |
| `checkpoint/` | weights as safetensors |
| `figures/`, `report.html` | made from the files above |

An audit is a folder with `audit.json` and `table.parquet` in the place of `run.json` and `samples.parquet`.

Every file appears whole or not at all: it is written as a draft, synced and renamed.
"""

import contextlib
import errno
import io
import json
import math
import os
import re
import socket
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hardsight.files import parse_json
from hardsight.files import read_json as read_json
from hardsight.files.parquet import read_table as read_table

RUN_FILE, SAMPLES_FILE = "run.json", "samples.parquet"
AUDIT_FILE, TABLE_FILE = "audit.json", "table.parquet"
# What a file is called while it is written, by whom: hidden, and with its own ending.
_DRAFT = re.compile(r"\..{1,32}\.draft-([0-9a-f]{8}-\d+-\w+)-[0-9a-f]{8}(\..*)?", re.DOTALL)
# Seconds after which a draft of another machine counts as left: nobody can ask there whether its writer lives.
_LEFT = 24 * 3600
_SKIPPED = b"skipped"


def check_writable(path: Path | str) -> None:
    """Reject, before the work, a path that could not be written after it; nothing is created."""
    path = Path(path).absolute()
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """A draft beside `path` that takes its place when the block ends well, and vanishes when it does not.

    What killed writers left in the same folder goes too.
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        # /dev/null would be a file from then on, for everybody.
        raise ValueError(f"{path} is a device or a pipe, whose place a file must not take: name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_drafts(path.parent)
    draft = draft_path(path)
    try:
        draft.touch(exist_ok=False)
        yield draft
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def draft_path(path: Path) -> Path:
    """A name beside `path` to write under: readers skip it, and `remove_drafts` knows whose it is."""
    return path.with_name(f".{path.stem[:32]}.draft-{tag()}-{uuid.uuid4().hex[:8]}{path.suffix}")


def remove_drafts(folder: Path) -> None:
    """Remove the drafts in a folder whose writers are gone; those of living ones stay."""
    for draft in folder.glob(".*.draft-*"):
        match = _DRAFT.fullmatch(draft.name)
        # Who else works here may have removed it, or be the only one who may.
        with contextlib.suppress(OSError):
            if match:
                alive = lives(match[1])
                if time.time() - draft.stat().st_mtime > _LEFT if alive is None else not alive:
                    draft.unlink()


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON. NaN has no JSON: it becomes null."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n"
    # What a path holds beside UTF-8 has no bytes in it, but an escape in JSON.
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def record_files(folder: Path | str) -> tuple[Path, Path]:
    """The JSON file and the table of samples of an audit, where the folder holds one, else of a run."""
    folder = Path(folder)
    audited = (folder / AUDIT_FILE).exists()
    return (folder / AUDIT_FILE, folder / TABLE_FILE) if audited else (folder / RUN_FILE, folder / SAMPLES_FILE)


def read_run(folder: Path | str) -> dict[str, Any] | None:
    """What a run or an audit says of itself in its JSON file; None where there is none that can be read."""
    try:
        details = read_json(record_files(folder)[0])
    except (OSError, ValueError):
        return None
    return details if isinstance(details, dict) else None


def write_table(path: Path | str, table: pa.Table) -> None:
    """Write a table as Parquet."""
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def is_shown(field: pa.Field) -> bool:
    """Whether a column holds what people are to see of a sample, and no score."""
    return (field.metadata or {}).get(b"kind") == b"shown"


def require_column(table: pa.Table, name: str) -> None:
    """One sentence where a column is missing."""
    if name not in table.column_names:
        raise ValueError(f"table must have a column {name!r}; it has {', '.join(table.column_names) or 'none'}")


def check_ids(ids: pa.Array | pa.ChunkedArray) -> None:
    """Ids are single values, filled, finite, and each is there once: else nothing says which sample is meant."""
    if pa.types.is_nested(ids.type):
        raise TypeError(f"ids must be single values, numbers or text; they are {ids.type}")
    if pa.types.is_floating(ids.type):
        wrong = ids.filter(pc.invert(pc.is_finite(ids)))
        if len(wrong):
            said = str(wrong[0].as_py()).replace("nan", "NaN")
            raise ValueError(f"ids must be finite; {len(wrong)} of {len(ids)} are not, first {said}")
    if ids.null_count:
        raise ValueError(f"ids must be filled; {ids.null_count} of {len(ids)} are null")
    counted = pc.value_counts(ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids)
    often = counted.field("counts").to_numpy()
    if len(often) and often.max() > 1:
        first = counted.field("values")[int(np.argmax(often > 1))].as_py()
        raise ValueError(f"ids must be unique, or nothing says which sample is meant; {first!r} occurs twice")


def with_skipped(table: pa.Table, skipped: Iterable[str]) -> pa.Table:
    """The table, with the files that were left out of it, each with the reason, in the metadata of its schema."""
    # Once each: a split may be read twice.
    once = list(dict.fromkeys(skipped))
    if not once:
        return table
    said = {_SKIPPED: json.dumps(once, ensure_ascii=False).encode("utf-8", "backslashreplace")}
    return table.replace_schema_metadata((table.schema.metadata or {}) | said)


def skipped_in(table: pa.Table) -> list[str]:
    """The files that a table says were left out of it, each with the reason."""
    said = parse_json((table.schema.metadata or {}).get(_SKIPPED, b"[]"))
    return [str(one) for one in said] if isinstance(said, list) else []


def write_thumbnails(path: Path | str, ids: Sequence[Any], images: Iterable[np.ndarray]) -> None:
    """Write small pictures, uint8 [height, width] or [height, width, 3], as PNGs beside the ids of their samples."""
    from PIL import Image

    pictures = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, format="PNG")
        pictures.append(buffer.getvalue())
    write_table(path, pa.table({"id": pa.array(ids), "png": pa.array(pictures, pa.binary())}))


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write a file whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path | str, text: str) -> None:
    """Write text as UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def sync_folder(folder: Path) -> None:
    """Make a rename last: on POSIX it lives in the folder, not in the file."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def plain(value: Any) -> Any:
    """A value as JSON gives it back: arrays as lists, paths and keys as text, NaN and infinity as None."""
    # A measurement's own type must not lose a run its record at the very end.
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


# ---------------------------------------------------------------------------------------------------------------------
# Which process a file belongs to, and whether that process still lives.


def tag() -> str:
    """This process in a few characters: its host, its pid, and when it started, since a pid is given out again."""
    return f"{_host()}-{os.getpid()}-{_started(os.getpid())}"


def lives(owner: object) -> bool | None:
    """Whether the process of a `tag` still lives; None where that cannot be known from here, ValueError for no tag."""
    host, pid, started = str(owner).split("-")
    if host != _host() or os.name != "posix":
        return None
    if not 0 < int(pid) < 2**31:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return str(_started(int(pid))) == started


def _host() -> str:
    """A sum of the machine's name; of containers that share one, each counts processes on its own."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        name = f"{name} {os.readlink('/proc/self/ns/pid')}"
    return f"{zlib.crc32(name.encode('utf-8', 'surrogateescape')):08x}"


def _started(pid: int) -> str | None:
    """When a process started, where the system says so; a dead one whose parent has not noticed counts as gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "dead" if fields[0] == "Z" else fields[19]
