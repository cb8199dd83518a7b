"""`[sampler]`: the order of the training samples by the scores of an earlier run."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from hardsight.training import train
from hardsight.training.config import TrainingConfig
from hardsight.training.data import load_sets, make_loaders, sampler_of


def config(folder: Path, **sampler: Any) -> TrainingConfig:
    tree: dict[str, Any] = {
        "epochs": 1,
        "data": {"name": "digits", "limit": 128, "batch_size": 32},
        "model": {"name": "digits_cnn"},
        "record": {"scores": ["avh"], "dynamics": False},
        "folder": str(folder),
    }
    return TrainingConfig(**tree, **({"sampler": sampler} if sampler else {}))


def test_a_curriculum_draws_the_easiest_of_an_earlier_run(tmp_path: Path) -> None:
    train(config(tmp_path / "first"), progress=False)
    options = {"epochs": 4, "start": 0.25}
    later = config(tmp_path / "later", kind="curriculum", scores=str(tmp_path / "first"), options=options)
    sets = load_sets(later)
    loaders = make_loaders(later, sets, torch.device("cpu"), channels_last=False)
    seen = torch.cat([ids for _, _, ids in loaders.train])
    assert len(seen) == len(sets.labels), "an epoch keeps its length"
    table = pq.read_table(tmp_path / "first" / "samples.parquet")
    order = sorted(zip(table["avh"].to_pylist(), table["id"].to_pylist(), strict=True))
    easiest = {one for _, one in order[: -(-len(order) // 4)]}
    assert set(seen.tolist()) == easiest
    train(later, progress=False)


@pytest.mark.parametrize("kind", ["hard", "importance"])
def test_hard_samples_are_drawn_more(tmp_path: Path, kind: str) -> None:
    sets = load_sets(config(tmp_path))
    ids = sets.train.ids
    pq.write_table(
        pa.table({"id": ids.tolist(), "avh": [float(one) for one in range(len(ids))]}), tmp_path / "x.parquet"
    )
    sampler = sampler_of(config(tmp_path, kind=kind, scores=str(tmp_path / "x.parquet")), sets)
    assert sampler is not None
    drawn = sampler.order(0).double()
    assert float(drawn.mean()) > 0.6 * len(ids)


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        ({"kind": "hard", "score": "avhh"}, "score"),
        ({"kind": "hard", "options": {"shares": 1}}, "options"),
        ({"kind": "hard", "score": "norm"}, "norm"),
    ],
)
def test_bad_samplers_are_named(tmp_path: Path, sampler: dict[str, Any], said: str) -> None:
    sets = load_sets(config(tmp_path))
    pq.write_table(pa.table({"id": sets.train.ids.tolist(), "avh": [0.0] * len(sets.labels)}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=said):
        sampler_of(config(tmp_path, scores=str(tmp_path / "x.parquet"), **sampler), sets)
