"""Issues of score shards: those of all samples in one table, exactly."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import hardsight as hs
from hardsight.cleaning import advise, sharded
from hardsight.cleaning.issues import find_label_issues
from hardsight.cleaning.sharded import find_issues_of_shards
from hardsight.engines.shards import score_shards
from hardsight.files.parquet import MANIFEST_FILE
from hardsight.records import read_json

SIZES = (900, 5, 1300)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scored shards of which every ninth label is wrong; many scores are equal."""
    folder = tmp_path_factory.mktemp("shards")
    (folder / "in").mkdir()
    generator = torch.Generator().manual_seed(0)
    weight = torch.eye(4, 6)
    for at, size in enumerate(SIZES):
        truth = torch.randint(0, 4, (size,), generator=generator)
        features = (weight[truth] + 0.3 * torch.randn(size, 6, generator=generator)).mul(4).round().half()
        label = torch.where(torch.rand(size, generator=generator) < 1 / 9, (truth + 1) % 4, truth)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(features.numpy().reshape(-1)), 6)
        pq.write_table(pa.table({"features": lists, "label": label.numpy()}), folder / "in" / f"{at}.parquet")
    score_shards(folder / "in", folder / "out", (weight, None), ("angular_margin", "loss", "confidence"))
    return folder / "out"


def whole(shards: Path) -> pa.Table:
    tables = [pq.read_table(shards / one["output"]) for one in read_json(shards / MANIFEST_FILE)["shards"]]
    return pa.concat_tables(tables).combine_chunks()


@pytest.mark.parametrize("score", [None, "loss", "confidence"])
@pytest.mark.parametrize("fewest", [1, 40, 10_000])
def test_the_same_issues_as_of_one_table(
    score: str | None, fewest: int, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded, "_FEWEST", fewest)
    monkeypatch.setattr(sharded, "_MOST", max(fewest, 300))
    _, found = find_issues_of_shards(shards, score)
    expected = find_label_issues(whole(shards), score)
    assert (found.estimated, found.estimate, found.scores) == (expected.estimated, expected.estimate, expected.scores)
    assert found.of == sum(SIZES)
    listed = found.table.num_rows
    assert listed == min(sum(SIZES), max(fewest, min(300, expected.estimated)))
    for name in ("id", "label", "expected", "suspicion", "rank", "issue"):
        assert found.table[name].to_pylist() == expected.table[name].slice(0, listed).to_pylist(), name


def test_the_mixture_of_a_part_of_the_samples(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = find_label_issues(whole(shards), "angular_margin", estimate="mixture").estimated
    assert find_issues_of_shards(shards, estimate="mixture")[1].estimated == expected
    monkeypatch.setattr(sharded, "_FITTED", 1200)
    part = find_issues_of_shards(shards, estimate="mixture")[1].estimated
    # Four standard errors of a share among half of the samples.
    assert abs(part - expected) / sum(SIZES) < 4 * np.sqrt(0.11 * 0.89 / 1102)


def test_what_cannot_be_audited(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="score must be one of"):
        find_issues_of_shards(shards, "nonsense")
    score_shards(shards.parent / "in", tmp_path / "out", (torch.eye(4, 6), None), ("avh",), labelled=False)
    with pytest.raises(ValueError, match="must be scored against given labels"):
        find_issues_of_shards(tmp_path / "out")


def test_shards_are_audited_and_saved_but_not_advised_on(shards: Path, tmp_path: Path) -> None:
    found = hs.audit(shards)
    assert (found.issues.samples, found.issues.estimated) == (sum(SIZES), find_issues_of_shards(shards)[1].estimated)
    assert f"{sum(SIZES):,} samples" in repr(found)
    folder = found.save(tmp_path / "audit")
    assert {path.name for path in folder.iterdir()} == {"actions.csv", "audit.json", "table.parquet"}
    with pytest.raises(ValueError, match="source"):
        advise(found)
    with pytest.raises(ValueError, match="score must name one column"):
        hs.audit(shards, score=["loss", "confidence"])
