"""Counts, quantiles, thresholds and ranks over shards: the same, to the bit, as of all samples in memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from hardsight.cleaning.columns import share_below_within
from hardsight.domains.selection import rank_thresholds
from hardsight.engines import statistics
from hardsight.engines.statistics import (
    class_ranks,
    counts,
    open_score_shards,
    order_statistics,
    portion_thresholds,
    quantiles,
)
from hardsight.files.parquet import MANIFEST_FILE
from hardsight.records import write_json, write_table

CLASSES, SIZES = 5, (700, 3, 1200)


def folder_of(folder: Path, columns: dict[str, np.ndarray], missing: np.ndarray) -> Path:
    """Score shards as `score_shards` leaves them; the scores of some samples are missing."""
    start, shards = 0, []
    for at, size in enumerate(SIZES):
        place = slice(start, start + size)
        held = {name: pa.array(values[place], mask=None if name == "label" else missing[place])
                for name, values in columns.items()}  # fmt: skip
        write_table(folder / f"{at}.parquet", pa.table({"id": np.arange(size) + start, **held}))
        shards.append({"output": f"{at}.parquet"})
        start += size
    write_json(folder / MANIFEST_FILE, {"kind": "score shards", "classes": CLASSES, "rows": start, "shards": shards})
    return folder


@pytest.fixture
def columns() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    total = sum(SIZES)
    # Ties, zeros of both signs, negative numbers, and a class without samples.
    score = np.round(random.normal(size=total), 1).astype(np.float32)
    score[::50] = -0.0
    label = random.integers(0, CLASSES - 1, total)
    confidence = random.random(total).astype(np.float32)
    return {"label": label, "predicted": random.integers(0, CLASSES, total), "margin": score, "confidence": confidence}


@pytest.fixture
def missing() -> np.ndarray:
    return np.random.default_rng(1).random(sum(SIZES)) < 0.01


@pytest.mark.parametrize("memory", [1 << 26, 1 << 9])
def test_the_same_as_of_all_samples_at_once(
    memory: int, columns: dict[str, np.ndarray], missing: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where few bits fit into one pass, and one class at a time."""
    monkeypatch.setattr(statistics, "_COUNTS", memory)
    monkeypatch.setattr(statistics, "_RANKED", memory >> 1)
    shards = open_score_shards(folder_of(tmp_path, columns, missing))
    label, score = columns["label"], columns["margin"]
    np.testing.assert_array_equal(counts(shards, "label"), np.bincount(label, minlength=CLASSES))
    shares = (0.0, 0.1, 0.29, 0.5, 1.0)
    wanted = np.quantile(score[~missing], shares, method="inverted_cdf")
    np.testing.assert_array_equal(quantiles(shards, "margin", shares)[0], wanted)
    by_class = quantiles(shards, "margin", shares, "label")
    for one in range(CLASSES - 1):
        own = score[(label == one) & ~missing]
        np.testing.assert_array_equal(by_class[one], np.quantile(own, shares, method="inverted_cdf"))
    assert np.isnan(by_class[CLASSES - 1]).all()
    found = order_statistics(shards, "margin", np.array([[0, 100, 10**9]]))
    ordered = np.sort(score[~missing])
    assert found.values[0, 1] == ordered[100]
    assert found.below[0, 1] == (ordered < ordered[100]).sum()
    assert found.equal[0, 1] == (ordered == ordered[100]).sum()
    assert np.isnan(found.values[0, 2])
    ranks = np.concatenate(list(class_ranks(shards, "margin")))
    values = np.where(missing, np.nan, score).astype(np.float64)
    np.testing.assert_array_equal(ranks, share_below_within(values, label))


@pytest.mark.parametrize("portion", [0.001, 0.2, 0.29, 1.0])
def test_thresholds_by_portion(
    portion: float, columns: dict[str, np.ndarray], missing: np.ndarray, tmp_path: Path
) -> None:
    shards = open_score_shards(folder_of(tmp_path, columns, missing))
    values, ranks = portion_thresholds(shards, portion)
    kept = torch.from_numpy(~missing)
    wanted = rank_thresholds(
        torch.from_numpy(columns["confidence"])[kept], torch.from_numpy(columns["predicted"])[kept], CLASSES, portion
    )
    np.testing.assert_array_equal(ranks, wanted.ranks.numpy())
    np.testing.assert_array_equal(values, wanted.values.numpy())


def test_bad_folders_and_columns(columns: dict[str, np.ndarray], missing: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=MANIFEST_FILE):
        open_score_shards(tmp_path)
    shards = open_score_shards(folder_of(tmp_path, columns, missing))
    with pytest.raises(ValueError, match="must have a column 'loss'"):
        quantiles(shards, "loss", (0.5,))
    with pytest.raises(ValueError, match=r"portion must lie in \(0, 1\]"):
        portion_thresholds(shards, 0.0)
    with pytest.raises(ValueError, match=r"shares must lie in \[0, 1\]"):
        quantiles(shards, "margin", (1.5,))
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(ValueError, match=r"1 are missing, as 1.parquet"):
        open_score_shards(tmp_path)
    write_json(tmp_path / MANIFEST_FILE, {"kind": "score shards", "shards": [{"output": "../../x"}]})
    with pytest.raises(ValueError, match="outside"):
        open_score_shards(tmp_path)
