"""A table in one Parquet file, or in a folder of them that a manifest names: both are read in the same way."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from hardsight.files.inside import follow
from hardsight.files.parquet import Parquet
from hardsight.files.plain import read_json
from hardsight.files.refusals import RefusedError

MANIFEST_FILE = "shards.json"
KIND = "score shards"


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
    shards = said.get("shards") if isinstance(said, dict) and said.get("kind") == KIND else None
    names = [str(one.get("output")) for one in shards if isinstance(one, dict)] if isinstance(shards, list) else []
    if not names:
        raise RefusedError(f"{manifest} must name the shards of a table of scores; it names none")
    files = [follow(path, name) for name in names]
    missing = [name for name, file in zip(names, files, strict=True) if not file.is_file()]
    if missing:
        raise ValueError(
            f"{path} must hold all {len(names):,} shards; {len(missing):,} are missing, first {missing[0]}"
        )
    return [manifest, *files]
