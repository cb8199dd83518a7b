"""Tables for other tools: their columns, absolute paths, and what none of them can show."""

import json
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image

import hardsight as hs


def test_images_go_to_every_tool(tmp_path: Path) -> None:
    for at in range(12):
        path = tmp_path / "photos" / ("ant", "bee")[at % 2] / f"{at}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (255 * (at % 2), at, 0)).save(path)
    features = np.random.default_rng(0).normal(size=(12, 4)) + 3 * np.repeat(np.eye(2, 4), 6, 0)
    audit = hs.audit(tmp_path / "photos", features=features, folds=2)
    table = pyarrow.csv.read_csv(audit.export(tmp_path, "fiftyone"))
    assert table.column_names[0] == "filepath"
    assert all(Path(one).is_file() and Path(one).is_absolute() for one in table["filepath"].to_pylist())
    assert {"label_name", "expected_name", "suspicion", "kinds"} <= set(table.column_names)
    shown = pq.read_table(audit.export(tmp_path, "spotlight"))
    assert shown["image"].to_pylist() == table["filepath"].to_pylist()
    assert len(shown["place"][0].as_py()) == 2
    tasks = json.loads(audit.export(tmp_path, "label-studio").read_text())
    first = audit.table.slice(0, 1).to_pylist()[0]
    assert tasks[0]["data"]["image"].endswith(first["path"])
    assert tasks[0]["predictions"][0]["result"][0]["value"]["choices"] == [first["expected_name"]]


def test_texts_have_no_files(tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    table = {"label": ["a", "b"] * 6, "features": list(features), "words": [f"text {at}" for at in range(12)]}
    audit = hs.audit(pyarrow.table(table), text="words", folds=2)
    tasks = json.loads(audit.export(tmp_path, "label-studio").read_text())
    assert sorted(one["data"]["text"] for one in tasks) == sorted(table["words"])
    for form in ("fiftyone", "excel"):
        with pytest.raises(ValueError, match="form"):
            audit.export(tmp_path, form)
