"""An audit as a table that other tools open: FiftyOne, Spotlight and Label Studio."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from hardsight.datasets.interface import FileDataset
from hardsight.names import check_name
from hardsight.records import atomic_path, plain, write_table, write_text

if TYPE_CHECKING:
    from hardsight.cleaning.auditing import Audit


def export(audit: "Audit", folder: Path | str, form: str) -> Path:
    """Write the audit into a folder in one of `FORMS`, and return the file.

    `fiftyone`: a CSV with `filepath` and a column for each field, for `fiftyone.types.CSVDataset`. `spotlight`: a
    Parquet table, whose columns `image` and `place` are shown as Image and Embedding. `label-studio`: tasks as JSON,
    with the expected class as a prediction.
    """
    check_name("form", form, FORMS)
    suffix, write = FORMS[form]
    path = Path(folder) / f"{form}.{suffix}"
    table = audit.table
    images = audit.opened.images
    if isinstance(images, FileDataset) and "path" in table.column_names:
        root = str(images.root.resolve())
        table = table.append_column("filepath", pc.binary_join_element_wise(root, table.column("path"), "/"))
    write(path, table)
    return path


def _fiftyone(path: Path, table: pa.Table) -> None:
    if "filepath" not in table.column_names:
        raise ValueError("form fiftyone must be of images in files; the audit has none: take spotlight")
    flat = _flat(table)
    first = ["filepath", *(name for name in flat.column_names if name != "filepath")]
    with atomic_path(path) as draft:
        pyarrow.csv.write_csv(flat.select(first), draft)


def _spotlight(path: Path, table: pa.Table) -> None:
    flat = _flat(table)
    if {"x", "y"} <= set(flat.column_names):
        place = [list(one) for one in zip(flat["x"].to_pylist(), flat["y"].to_pylist(), strict=True)]
        flat = flat.drop_columns(["x", "y"]).append_column("place", pa.array(place, pa.list_(pa.float32())))
    names = ["image" if name == "filepath" else name for name in flat.column_names]
    write_table(path, flat.rename_columns(names))


def _label_studio(path: Path, table: pa.Table) -> None:
    tasks = [_task(row) for row in _flat(table).to_pylist()]
    write_text(path, json.dumps(plain(tasks), ensure_ascii=False, indent=1, default=str) + "\n")


def _task(row: dict[str, Any]) -> dict[str, Any]:
    """Label Studio's own server gives local files at this address, below the folder that it is told to serve."""
    given, expected = row.get("label_name", row["label"]), row.get("expected_name", row["expected"])
    shown = "image" if "filepath" in row else "text"
    about = (
        f"/data/local-files/?d={row['filepath'].lstrip('/')}" if "filepath" in row else str(row.get("text", row["id"]))
    )
    data = {shown: about, "id": row["id"], "label": given, "reasons": row["reasons"]}
    if expected is None:
        return {"data": data}
    choice = {"from_name": "class", "to_name": shown, "type": "choices", "value": {"choices": [str(expected)]}}
    return {"data": data, "predictions": [{"score": row["suspicion"], "result": [choice]}]}


def _flat(table: pa.Table) -> pa.Table:
    """Without what no spreadsheet holds: kinds become one text, neighbours go."""
    flat = table.drop_columns([name for name in ("neighbours",) if name in table.column_names])
    for at, field in enumerate(flat.schema):
        if pa.types.is_list(field.type):
            texts = [" ".join(str(each) for each in one or ()) for one in flat.column(field.name).to_pylist()]
            flat = flat.set_column(at, field.name, pa.array(texts))
        elif pa.types.is_dictionary(field.type):
            flat = flat.set_column(at, field.name, flat.column(field.name).cast(field.type.value_type))
    return flat


FORMS: dict[str, tuple[str, Callable[[Path, pa.Table], None]]] = {
    "fiftyone": ("csv", _fiftyone),
    "spotlight": ("parquet", _spotlight),
    "label-studio": ("json", _label_studio),
}
