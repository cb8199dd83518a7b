"""The full history, on request: one Parquet file per epoch, complete or absent, from which a recorder can be rebuilt.

Columns: `id`, `label`, `seen` (measurements), `flagged` (logits not finite), `correct` (share of measurements in which
the label won) and one column per measure. Samples that an epoch did not show have no row.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from hardsight.dynamics.aggregates import EpochValues, Layout
from hardsight.dynamics.measures import MEASURES
from hardsight.records import atomic_path, read_table, remove_drafts

PHASES = ("epoch", "second")
_KEY = b"hardsight.dynamics"


class History:
    """A folder with `epoch-00000.parquet`, `epoch-00001.parquet`, ... and `second-00000.parquet`, ..."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def path(self, phase: str, epoch: int) -> Path:
        """The file of an epoch."""
        return self.folder / f"{phase}-{epoch:05d}.parquet"

    def count(self, phase: str) -> int:
        """Number of epochs of a phase; raises where one in between is missing."""
        name = re.compile(rf"{phase}-(\d{{5,}})\.parquet")
        there = self.folder.iterdir() if self.folder.is_dir() else ()
        numbers = sorted(int(match[1]) for path in there if (match := name.fullmatch(path.name)))
        missing = sorted(set(range(len(numbers))) - set(numbers))
        if missing:
            raise ValueError(
                f"history must hold every epoch in turn; {self.path(phase, missing[0]).name} "
                f"is missing in {self.folder} while {self.path(phase, numbers[-1]).name} is there"
            )
        return len(numbers)

    def write(self, phase: str, epoch: int, layout: Layout, blocks: Iterable[tuple[slice, EpochValues]]) -> None:
        """Write one epoch, block by block."""
        schema = _schema(layout)
        with (
            atomic_path(self.path(phase, epoch)) as temporary,
            pq.ParquetWriter(temporary, schema, compression="zstd") as out,
        ):
            for rows, values in blocks:
                there = ((values["seen"] + values["flagged"]) > 0).nonzero().squeeze(1)
                columns = {"id": there + rows.start} | {name: column[there] for name, column in values.items()}
                out.write_table(pa.table({name: one.cpu().numpy() for name, one in columns.items()}, schema=schema))

    def read(self, phase: str, epoch: int, expected: Layout | None = None) -> tuple[Layout, pa.Table]:
        """One epoch; raises where the file is damaged or was written by another recorder than the expected one.

        Numbers of another width are converted; unknown columns are left out.
        """
        path = self.path(phase, epoch)
        try:
            table = read_table(path)
            saved = json.loads((table.schema.metadata or {})[_KEY])
            layout = Layout(saved["num_samples"], saved["num_classes"], tuple(saved["measures"]))
            if not (layout.num_samples > 0 and layout.num_classes > 0 and {*layout.measures} <= {*MEASURES}):
                raise ValueError(f"it is of {layout}")
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"history must be whole; {path} cannot be read ({type(error).__name__}): remove it and what follows it "
                "to go on from there"
            ) from error
        if expected is not None and layout != expected:
            raise ValueError(f"history must be of one recorder; epoch {epoch} was written by another one")
        schema = _schema(layout)
        try:
            table = table.select(schema.names).cast(schema)
            ids = table.column("id").to_numpy()
            rising = (np.diff(ids) > 0).all() and (not len(ids) or (ids[0] >= 0 and ids[-1] < layout.num_samples))
            gap = next((name for name in schema.names if table.column(name).null_count), None)
            reason = f"{gap} has gaps" if gap else "" if rising else "its ids do not"
        except (pa.ArrowException, KeyError) as error:
            reason = str(error).splitlines()[0]
        if reason:
            raise ValueError(
                f"{path} must hold a number for each of {', '.join(schema.names)}, and ids that rise from 0 to "
                f"{layout.num_samples - 1}: {reason}"
            )
        return layout, table

    def trim(self, phase: str, epochs: int) -> None:
        """Remove what an interrupted run left: the epochs from number `epochs` on, and unfinished files."""
        have = self.count(phase)
        if have < epochs:
            raise ValueError(f"history must hold the {epochs} epochs recorded so far; {self.folder} holds {have}")
        for epoch in range(epochs, have):
            self.path(phase, epoch).unlink()
        remove_drafts(self.folder)

    def layout(self) -> Layout:
        """What the recorder records; a history without an epoch raises."""
        if not self.count(PHASES[0]):
            raise ValueError(f"history must hold at least one epoch; {self.folder} holds none")
        return self.read(PHASES[0], 0)[0]

    def merge_into(self, path: Path | str) -> None:
        """Write all epochs into one Parquet file, one row per sample and epoch, with `phase` (0 or 1) and `epoch`."""
        layout = self.layout()
        schema = _schema(layout)
        for name, kind in (("epoch", pa.int32()), ("phase", pa.int8())):
            schema = schema.insert(0, pa.field(name, kind))
        with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as out:
            for number, phase in enumerate(PHASES):
                for epoch in range(self.count(phase)):
                    _, table = self.read(phase, epoch, layout)
                    when = [pa.array(np.full(len(table), one)) for one in (number, epoch)]
                    out.write_table(pa.table([*when, *table.columns], schema.names).cast(schema))


def values_of(table: pa.Table, rows: slice, device: torch.device) -> EpochValues:
    """The epoch's values of samples `rows`, from its table sorted by id."""
    ids = table.column("id").to_numpy()
    start, stop = np.searchsorted(ids, (rows.start, rows.stop))
    part, found = table.slice(start, stop - start), {}
    for name in table.column_names[1:]:
        values = part.column(name).to_numpy()
        spread = np.zeros(rows.stop - rows.start, values.dtype)
        spread[ids[start:stop] - rows.start] = values
        found[name] = torch.from_numpy(spread).to(device)
    return found


def _schema(layout: Layout) -> pa.Schema:
    fields = [("id", pa.int64()), ("label", pa.int32()), ("seen", pa.int32()), ("flagged", pa.int32())]
    fields += [(name, pa.float32()) for name in ("correct", *layout.measures)]
    return pa.schema(fields, metadata={_KEY: json.dumps(layout._asdict()).encode()})
