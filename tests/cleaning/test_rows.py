"""A table's own columns as features: one scale for all, categories, gaps, and what is no feature."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import hardsight as hs
from hardsight.cleaning.reading import MOST_CATEGORIES, columns_of_rows, features_of_columns
from hardsight.cli import app


@pytest.fixture
def flowers() -> tuple[pa.Table, list[int]]:
    """Two measures of very different units and a colour, that together tell three classes; 10 labels are wrong."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 3, 240)
    colours = np.array(["red", "red", "blue"])[truth]
    table = {
        "id": np.arange(240),
        "grams": np.where(truth == 0, 0.01, 0.03) + 0.002 * generator.normal(size=240),
        "price": 1e6 * generator.normal(size=240),
        "colour": colours,
        "label": truth.copy(),
    }
    wrong = generator.permutation(240)[:10]
    table["label"][wrong] = (truth[wrong] + 1) % 3
    return pa.table(table), sorted(wrong.tolist())


def first(audit: hs.cleaning.Audit, count: int) -> list[int]:
    return sorted(audit.table.column("id").slice(0, count).to_pylist())


def test_rows_of_different_units_are_audited(flowers: tuple[pa.Table, list[int]]) -> None:
    table, wrong = flowers
    named = hs.audit(table, features=["grams", "price", "colour"])
    assert len(set(first(named, 10)) & set(wrong)) >= 9
    # Left as they are, the prices hide all else.
    plain = np.stack([table.column("grams").to_numpy(), table.column("price").to_numpy()], 1)
    assert len(set(first(hs.audit(labels=table.column("label"), features=plain), 10)) & set(wrong)) < 7


def test_the_largest_numbers_are_on_the_same_scale() -> None:
    grams = np.array([1.0, -3.0, np.nan, 2.0])
    huge = pa.table({"x": grams * 2.0**1022})
    np.testing.assert_array_equal(
        features_of_columns(huge, ["x"]), features_of_columns(pa.table({"x": grams}), ["x"])
    )  # fmt: skip


def test_all_columns_are_those_that_can_be_features(flowers: tuple[pa.Table, list[int]]) -> None:
    table = flowers[0].append_column("note", pa.array([f"note {at}" for at in range(240)]))
    assert columns_of_rows(table, ["label"]) == ["grams", "price", "colour"]
    shown = hs.audit(table, features="all", show="price").table.column("margin")
    assert shown.equals(hs.audit(table, features=["grams", "colour"]).table.column("margin"))
    everything = hs.audit(table, features="all")
    assert everything.table.equals(hs.audit(table, features=["grams", "price", "colour"]).table)


@pytest.mark.parametrize("named", ["grams,price,colour", "all"])
def test_the_command_takes_columns(flowers: tuple[pa.Table, list[int]], tmp_path: Path, named: str) -> None:
    csv.write_csv(flowers[0], tmp_path / "flowers.csv")
    done = CliRunner().invoke(
        app, ["audit", str(tmp_path / "flowers.csv"), "--features", named, "--no-page", "--top", "10", "--json"]
    )
    assert done.exit_code == 0, done.output
    suspects = {suspect["id"] for suspect in json.loads(done.stdout)["suspects"]}
    assert len(suspects & set(flowers[1])) >= 9


def test_units_do_not_matter() -> None:
    numbers = np.random.default_rng(1).normal(size=(50, 2))
    table = pa.table({"a": numbers[:, 0], "b": numbers[:, 1]})
    other = pa.table({"a": numbers[:, 0] * 1000 + 7, "b": numbers[:, 1] / 3})
    expected = features_of_columns(table, ["a", "b"])
    np.testing.assert_allclose(features_of_columns(other, ["a", "b"]), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(expected.var(0), 1, rtol=1e-5)


def test_categories_weigh_as_much_as_a_number_and_a_missing_one_is_its_own() -> None:
    table = pa.table({"colour": ["red", "blue", None, "red"], "constant": [3, 3, 3, 3]})
    found = features_of_columns(table, ["colour", "constant"])
    assert found.shape == (4, 3)
    np.testing.assert_allclose(found.var(0).sum(), 1, rtol=1e-5)
    encoded = table.set_column(0, "colour", table.column("colour").combine_chunks().dictionary_encode())
    np.testing.assert_array_equal(features_of_columns(encoded, ["colour"]), found)


def test_a_sample_with_a_missing_number_is_listed(flowers: tuple[pa.Table, list[int]]) -> None:
    table = flowers[0]
    grams = [None, *table.column("grams").to_pylist()[1:]]
    audit = hs.audit(table.set_column(1, "grams", pa.array(grams)), features=["grams", "colour"])
    assert audit.left_out.column("id").to_pylist() == [0]
    assert len(audit.table) == 239


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        (["weight"], "weight"),
        (["id", "note"], "note"),
        (["constant"], "constant"),
        (["vector"], "vector"),
    ],
)
def test_what_is_no_feature_is_named(columns: list[str], named: str) -> None:
    many = MOST_CATEGORIES + 1
    table = pa.table(
        {
            "id": range(many),
            "note": [f"note {at}" for at in range(many)],
            "constant": [1] * many,
            "vector": [[1.0, 2.0]] * many,
            "label": [0, 1] * (many // 2) + [0],
        }
    )
    with pytest.raises((ValueError, TypeError), match=named):
        hs.audit(table, features=columns)
