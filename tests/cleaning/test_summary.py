"""An audit as text, in a notebook, as pandas and on disk: what people see of each sample."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import hardsight as hs
from hardsight.cleaning.auditing import Audit

HOSTILE = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture
def reviews() -> Audit:
    """120 rows of three kinds, of which one is wrong and three are copies of another."""
    generator = np.random.default_rng(0)
    kinds = np.arange(120) % 3
    features = (np.eye(3, 6)[kinds] + 0.1 * generator.normal(size=(120, 6))).astype(np.float32)
    features[3:12:3] = features[0]
    names = np.array(["ant", "bee", "cat"])[kinds]
    names[7] = "cat"
    table = pa.table({"kind": names, "features": list(features), "words": [f"{HOSTILE} {at}" for at in range(120)]})
    return hs.audit(table, label="kind", text="words")


def test_texts_and_counts_are_shown(reviews: Audit) -> None:
    text, html = repr(reviews), reviews._repr_html_()
    for shown in (text, html):
        assert "near duplicate" in shown
        assert "bee for cat" not in shown
        assert "cat for bee 1" in shown
    assert "7  cat -> bee" in text
    assert html.count("<tr>") == 11
    # What a stranger wrote is text, and neither a page's program nor a terminal's command.
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "\x1b" not in text + html


def test_pandas_has_the_table(reviews: Audit) -> None:
    pandas = pytest.importorskip("pandas")
    frame = reviews.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.columns.tolist() == reviews.table.column_names
    assert frame["id"].tolist() == reviews.table.column("id").to_pylist()
    again = hs.audit(
        pandas.DataFrame({"kind": ["a", "b"] * 20, "features": [[1.0, 0.0], [0.0, 1.0]] * 20}), label="kind"
    )
    assert again.issues.estimated == 0


def test_pictures_are_shown_and_saved(tmp_path: Path) -> None:
    for at in range(12):
        path = tmp_path / "photos" / ("ant", "bee")[at % 2] / f"{at}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (255 * (at % 2), at, 0)).save(path)
    features = np.random.default_rng(0).normal(size=(12, 4)) + 3 * np.repeat(np.eye(2, 4), 6, 0)
    found = hs.audit(tmp_path / "photos", features=features, folds=2)
    assert found._repr_html_().count("data:image/png;base64,") == 10
    folder = found.save(tmp_path / "audit")
    pictures = pq.read_table(folder / "thumbnails.parquet")
    assert set(pictures.column("id").to_pylist()) <= {str(at) for at in range(12)}
    assert pictures.num_rows
    # Applied in Python as from the command line.
    done = found.apply(folder / "actions.csv", tmp_path / "cleaned", files="copy")
    assert done.samples == 12
    assert len(list((tmp_path / "cleaned").rglob("*.png"))) == 12
