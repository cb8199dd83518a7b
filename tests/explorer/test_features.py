"""Places and neighbours by features, against float64 from beginning to end."""

import sys
import types
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hardsight.explorer.answers import Answers
from hardsight.explorer.features import nearest, principal_components, read_directions
from hardsight.files.parquet import Parquet
from hardsight.records import write_table

FEATURES = np.random.default_rng(0).normal(size=(400, 6)) * [5, 3, 1, 1, 1, 1] + [0, 0, 9, 0, 0, 0]


def table_of(features: list[list[float] | None], path: Path) -> Path:
    columns = {
        "id": np.arange(len(features)),
        "loss": np.arange(len(features)) / 7,
        "vector": pa.array(features, pa.list_(pa.float64())),
    }
    write_table(path, pa.table(columns))
    return path


def directions_of(path: Path) -> np.ndarray | None:
    with Parquet(path) as file:
        return read_directions(file, "vector")


def test_directions_do_not_depend_on_scale_and_what_is_not_finite_has_none(tmp_path: Path) -> None:
    rows = [[3.0, 4.0], [3e300, 4e300], [3e-300, 4e-300], [0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], None]
    found = directions_of(table_of(rows, tmp_path / "t.parquet"))
    assert found is not None
    np.testing.assert_allclose(found[:3], [[0.6, 0.8]] * 3, rtol=1e-6)
    assert not found[3:].any()


@pytest.mark.parametrize("rows", [[[1.0, 2.0], [1.0]], [[1.0], [2.0]], [None, None], [[], []]])
def test_lists_that_are_no_features_are_left_out(tmp_path: Path, rows: list[list[float] | None]) -> None:
    path = table_of(rows, tmp_path / "t.parquet")
    assert directions_of(path) is None
    assert "pca_x" not in Answers(path).columns.all


def test_principal_components_are_those_of_a_singular_value_decomposition() -> None:
    units = FEATURES / np.linalg.norm(FEATURES, axis=1, keepdims=True)
    found = principal_components(units.astype(np.float32))
    centred = units - units.mean(0)
    _, _, vectors = np.linalg.svd(centred, full_matrices=False)
    wanted = centred @ vectors[:2].T
    np.testing.assert_allclose(np.abs(found), np.abs(wanted), atol=1e-5)


def test_neighbours_are_the_smallest_angles_of_a_loop(tmp_path: Path) -> None:
    path = table_of(FEATURES.tolist(), tmp_path / "t.parquet")
    units = FEATURES / np.linalg.norm(FEATURES, axis=1, keepdims=True)
    answers = Answers(path)
    for row in (0, 17, 399):
        angles = np.arccos(np.clip(units @ units[row], -1, 1))
        angles[row] = np.inf
        assert [one["row"] for one in answers.sample(row)["neighbours"]] == np.argsort(angles)[:10].tolist()
    assert answers.table()["axes"] == ["pca_x", "pca_y"]


def test_few_samples_have_as_many_neighbours_as_there_are_others() -> None:
    units = np.eye(3, dtype=np.float32)
    assert sorted(nearest(units, 1, 10)) == [0, 2]
    assert nearest(np.zeros((3, 2), np.float32), 1, 10) == []


def test_umap_is_drawn_first_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class UMAP:
        def __init__(self, **options: object) -> None:
            assert options["random_state"] == 0

        def fit_transform(self, points: np.ndarray) -> np.ndarray:
            return points[:, :2] * 2

    monkeypatch.setitem(sys.modules, "umap", types.SimpleNamespace(UMAP=UMAP))
    answers = Answers(table_of(FEATURES[:30].tolist(), tmp_path / "t.parquet"))
    assert answers.table()["axes"] == ["umap_x", "umap_y"]
    assert {"pca_x", "pca_y"} <= set(answers.columns.all)
