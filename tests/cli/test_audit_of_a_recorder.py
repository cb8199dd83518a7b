"""`hardsight audit` of what a recorder wrote: a table without class names, and a count that needs a word of caution."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner, Result

from hardsight.cli.audit import audit

app = typer.Typer()
app.command()(audit)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Ten samples in the sorted order of the files of `photos`: three cats, three dogs, ..."""
    columns = {"id": [1, 3, 8], "label": [0, 1, 2], "predicted": [1, 1, 2], "aum": [-1.0, 2.0, 3.0]}
    pq.write_table(pa.table(columns), tmp_path / "scores.parquet")
    return tmp_path / "scores.parquet"


def test_the_folder_of_the_images_names_the_classes(photos: Path, recorded: Path) -> None:
    result = run(recorded, "--data", photos)
    assert result.exit_code == 0, result.output
    names = sorted(folder.name for folder in photos.iterdir() if folder.is_dir())
    assert result.stdout.splitlines()[2].split("\t")[2:4] == names[:2]
    actions = recorded.parent / "scores-audit" / "actions.csv"
    assert f"1,{names[0]},{names[1]},keep,{names[1]}," in actions.read_text()
    actions.write_text(actions.read_text().replace(",keep,", ",relabel,"))
    assert run(recorded, "--data", photos, "--apply", actions).exit_code == 0
    labels = pq.read_table(recorded.parent / "scores-audit" / "labels.parquet")
    assert labels["new_label_name"].to_pylist() == [names[1], names[1], names[2]]


def test_names_that_a_table_has_are_its_own_and_too_few_name_nothing(photos: Path, recorded: Path) -> None:
    table = pq.read_table(recorded)
    pq.write_table(table.replace_schema_metadata({"class names": '["one", "two", "three"]'}), recorded)
    assert run(recorded, "--data", photos).stdout.splitlines()[2].split("\t")[2:4] == ["one", "two"]
    # The model knows more classes than there are folders.
    other = table.set_column(2, "predicted", pa.array([7, 1, 2]))
    pq.write_table(other, recorded)
    assert run(recorded, "--data", photos).stdout.splitlines()[2].split("\t")[2:4] == ["0", "7"]


def audited(folder: Path, predicted: list[int], aum: list[float] | None) -> Result:
    columns = {"id": range(8), "label": [0] * 8, "predicted": predicted, "el2n": [0.1 * at for at in range(8)]}
    path = folder / "counted.parquet"
    pq.write_table(pa.table(columns | ({} if aum is None else {"aum": aum})), path)
    result = run(path, "--no-page")
    assert result.exit_code == 0, result.output
    return result


def test_suspects_that_the_model_agrees_with_by_now_are_counted(tmp_path: Path) -> None:
    behind = [1.0] * 5 + [-1.0] * 3
    said = audited(tmp_path, [0] * 6 + [1, 1], behind).stdout
    assert "agrees with 1 of" in said
    assert "agrees with" not in audited(tmp_path, [0] * 5 + [1, 1, 1], behind).stdout
    told = json.loads(run(tmp_path / "counted.parquet", "--no-page", "--json").stdout)
    assert told["suspects_agreed_with"] == 0


@pytest.mark.parametrize("aum", [None, [-1.0] * 6 + [1.0] * 2], ids=["one look", "over training"])
def test_a_model_that_disagrees_with_most_labels_may_not_have_learned_them(
    tmp_path: Path, aum: list[float] | None
) -> None:
    said = audited(tmp_path, [1] * 6 + [0, 0], aum).stdout
    assert "more than half" in said
    few = None if aum is None else [1.0] * 6 + [-1.0] * 2
    assert "more than half" not in audited(tmp_path, [0] * 6 + [1, 1], few).stdout
