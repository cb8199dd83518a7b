"""`hardsight audit` of labelled data: Parquet and CSV tables, arrays beside them, and what cannot be audited."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner, Result

import hardsight as hs
from hardsight.cli.audit import audit

app = typer.Typer()
app.command()(audit)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Reviews of three kinds as CSV and Parquet, embeddings beside them; the places of the wrong labels."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 3, 150)
    features = (np.eye(3, 6)[truth] + 0.15 * generator.normal(size=(150, 6))).astype(np.float32)
    wrong = generator.permutation(150)[:8]
    kinds = np.array(["ant", "bee", "cat"])[truth]
    kinds[wrong] = np.array(["bee", "cat", "ant"])[truth[wrong]]
    table = pa.table({"kind": kinds, "review": [f"review, {at}" for at in range(150)], "shop": np.arange(150) % 7})
    np.save("embeddings.npy", features)
    raised = np.exp(6 * features[:, :3])
    np.save("said.npy", raised / raised.sum(1, keepdims=True))
    pyarrow.csv.write_csv(table, "reviews.csv")
    pq.write_table(table.append_column("vector", pa.array(list(features))), "reviews.parquet")
    return sorted(wrong.tolist())


def suspects(result: Result) -> list[int]:
    assert result.exit_code == 0, result.output
    return sorted(row["id"] for row in json.loads(result.stdout)["suspects"])


OF_CSV = ("reviews.csv", "--label", "kind", "--features", "embeddings.npy")


@pytest.mark.parametrize(
    "source",
    [
        OF_CSV,
        ("reviews.parquet", "--label", "kind", "--features", "vector"),
        ("reviews.csv", "--label", "kind", "--probabilities", "said.npy"),
        ("reviews.parquet", "--label", "kind", "--features", "vector", "--probabilities", "said.npy"),
    ],
)
def test_planted_errors_come_first(wrong: list[int], source: tuple) -> None:
    assert suspects(run(*source, "--no-page", "--json", "--top", "8")) == wrong


def test_text_and_columns_reach_list_record_and_page(wrong: list[int]) -> None:
    result = run(*OF_CSV, "--text", "review", "--show", "shop")
    assert result.exit_code == 0, result.output
    folder = Path("reviews-audit")
    samples = pq.read_table(folder / "table.parquet")
    first = samples.slice(0, 1).to_pylist()[0]
    assert (first["text"], first["shop"]) == (f"review, {first['id']}", first["id"] % 7)
    lines = (folder / "actions.csv").read_text().splitlines()
    assert lines[1].endswith(f'"review, {first["id"]}",{first["id"] % 7}')
    assert f"review, {first['id']}" in (folder / "report.html").read_text(encoding="utf-8")
    # An audit is a record like any other, and shows the same again.
    again = hs.audit(folder, text="text")
    assert again.table.column("text").to_pylist() == samples.column("text").to_pylist()


def test_an_edited_list_is_applied(wrong: list[int]) -> None:
    assert run(*OF_CSV, "--no-page").exit_code == 0
    actions = Path("reviews-audit/actions.csv")
    lines = actions.read_text().splitlines()
    first = int(lines[1].split(",")[0])
    actions.write_text("\n".join([lines[0], lines[1].replace("keep", "relabel"), lines[2].replace("keep", "drop")]))
    result = run(*OF_CSV, "--apply", actions)
    assert result.exit_code == 0, result.output
    labels = pq.read_table("reviews-audit/labels.parquet")
    assert labels.num_rows == 149
    changed = [row for row in labels.to_pylist() if row["label"] != row["new_label"]]
    assert [row["id"] for row in changed] == [first]
    assert changed[0]["new_label"] == lines[1].split(",")[2]


def test_a_table_of_scores_shows_columns_too(wrong: list[int]) -> None:
    scores = pa.table({"id": [0, 1], "label": [0, 1], "avh": [0.1, 0.9], "remark": ["fine", "blurred"]})
    pq.write_table(scores, "scores.parquet")
    pyarrow.csv.write_csv(scores, "scores.csv")
    for file in ("scores.parquet", "scores.csv"):
        assert suspects(run(file, "--show", "remark", "--json", "--no-page", "--top", "1")) == [1]
        assert (Path("scores-audit") / "actions.csv").read_text().splitlines()[0].endswith(",remark")


def test_left_out_samples_are_counted(wrong: list[int]) -> None:
    features = np.load("embeddings.npy")
    features[[3, 4]] = np.nan
    np.save("embeddings.npy", features)
    assert "left out: 2 samples, first 3" in run(*OF_CSV, "--no-page").stdout
    listed = json.loads(run(*OF_CSV, "--no-page", "--json").stdout)["left_out"]
    assert [row["id"] for row in listed] == [3, 4]
    assert json.loads(Path("reviews-audit/audit.json").read_text())["results"]["left_out"]["count"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("reviews.csv", "--label", "kind", "--text", "review"), ("--features", "probabilities", "'review'")),
        (("reviews.csv", "--label", "none", "--features", "embeddings.npy"), ("'none'", "kind")),
        (("reviews.csv", "--label", "kind", "--features", "nothing"), ("--features", ".npy", "'nothing'")),
        (("reviews.csv", "--label", "kind", "--features", "reviews.csv"), ("--features", ".npy", "reviews.csv")),
        (("reviews.parquet", "--label", "kind", "--features", "shop"), ("'shop'", "list", "int64")),
        ((*OF_CSV, "--show", "none"), ("'none'", "review")),
        ((*OF_CSV, "--probabilities", "short.npy"), ("probabilities", "150", "2")),
        (("odd.csv", "--label", "kind", "--features", "embeddings.npy"), ("odd.csv", "CSV")),
        ((".", "--features", "embeddings.npy"), ("--features", "table")),
        (("none.csv", "--features", "embeddings.npy"), ("none.csv",)),
    ],
)
def test_what_cannot_be_audited(wrong: list[int], arguments: tuple, words: tuple) -> None:
    np.save("short.npy", np.full((2, 3), 1 / 3))
    Path("odd.csv").write_text("kind,shop\n1,2,3\n")
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert all(word in result.output for word in words), result.output
    assert result.output.count("\n") == 1
