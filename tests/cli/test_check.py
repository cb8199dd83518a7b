"""`hardsight check`: exit code 0 within all limits, 1 beyond one, 2 where a limit cannot be judged."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import typer
from typer.testing import CliRunner, Result

from hardsight.cli.results import check

app = typer.Typer()
app.command()(check)


@pytest.fixture(autouse=True)
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """150 rows, six of which have a wrong kind and one has no features."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    truth = np.arange(150) % 3
    features = (np.eye(3, 6)[truth] + 0.15 * generator.normal(size=(150, 6))).astype(np.float32)
    features[149] = np.nan
    kinds = np.array(["ant", "bee", "cat"])[truth]
    kinds[:6] = np.array(["ant", "bee", "cat"])[(truth[:6] + 1) % 3]
    np.save("embeddings.npy", features)
    pyarrow.csv.write_csv(pa.table({"kind": kinds}), "rows.csv")


def run(*limits: str) -> Result:
    return CliRunner().invoke(app, ["rows.csv", "--label", "kind", "--features", "embeddings.npy", *limits])


def test_limits_decide_the_exit_code() -> None:
    within = run("--max-mislabelled", "10%", "--max-left-out", "1")
    assert within.exit_code == 0, within.output
    assert "mislabelled" in within.stdout
    beyond = run("--max-mislabelled", "1%", "--max-left-out", "1", "--json")
    assert beyond.exit_code == 1
    said = json.loads(beyond.stdout)
    assert [row["within"] for row in said["checks"]] == [False, True]
    assert said["samples"] == 150
    assert not Path("rows-audit").exists()


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((), ("--max-mislabelled",)),
        (("--max-mislabelled", "few"), ("--max-mislabelled", "'few'")),
        (("--max-mislabelled", "0.5"), ("--max-mislabelled", "'0.5'")),
        (("--max-mislabelled", "101%"), ("--max-mislabelled", "'101%'")),
        (("--max-leakage", "0"), ("--max-leakage", "splits")),
    ],
)
def test_limits_that_cannot_be_judged(limits: tuple, words: tuple) -> None:
    result = run(*limits)
    assert result.exit_code == 2
    assert all(word in result.output for word in words), result.output
