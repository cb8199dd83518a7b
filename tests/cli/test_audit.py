"""`hardsight audit`: from scores to suspects, a list, a page; and one sentence for what cannot be audited."""

import datetime
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner, Result

from hardsight.cli.audit import audit
from hardsight.cli.score import score
from hardsight.cli.train import train

app = typer.Typer()
app.command()(audit)
app.command()(score)
app.command()(train)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    table = pa.table(
        {
            "id": [4, 5, 6, 7],
            "label": [0, 1, 1, 0],
            "predicted": [0, 0, 1, 1],
            "avh": [0.1, 0.9, 0.2, 0.6],
            "domain": ["sun", "rain", "sun", "rain"],
        }
    ).replace_schema_metadata({"class names": '["[bold]cat", "dog"]'})
    pq.write_table(table, tmp_path / "scores.parquet")
    return tmp_path / "scores.parquet"


def test_suspects_list_and_estimate(scores: Path) -> None:
    result = run("audit", scores, "--no-page", "--top", "2", "--by", "domain")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:2] == ["most suspicious first", "rank\tsample\tlabel\texpected\tsuspicion\treasons"]
    assert lines[2].split("\t")[:5] == ["1", "5", "dog", "[bold]cat", "1.0000"]
    assert lines[4:6] == ["avh by domain, hardest first", "domain\tcount\tmean\tlow\thigh\tdifference"]
    assert lines[6].split("\t")[:3] == ["rain", "2", "0.7500"]
    counted = next(line for line in result.stdout.splitlines() if "2 of 4 labels" in line)
    assert [word for word in ("50.0%", "by disagreement", "ranked by avh") if word not in counted] == []
    recorded = pq.read_table(scores).append_column("aum", [[1.0, -1.0, 1.0, 1.0]])
    pq.write_table(recorded, scores)
    assert "one look" not in run("audit", scores, "--no-page").stdout
    assert (scores.parent / "scores-audit" / "actions.csv").is_file()


def test_on_a_terminal_a_suspect_is_one_line(scores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    result = run("audit", scores, "--no-page")
    rows = [line for line in result.stdout.splitlines() if line.startswith("│")]
    assert len(rows) == 4
    assert all(len(line) <= 80 for line in rows)
    assert "the model expects" in rows[0]
    assert rows[0].rstrip("│ ").endswith("…")
    monkeypatch.setenv("COLUMNS", "60")
    narrow = [line for line in run("audit", scores, "--no-page").stdout.splitlines() if line.startswith("│")]
    assert [line.split("│")[2:6] for line in narrow] == [line.split("│")[2:6] for line in rows]
    assert "the model" not in narrow[0]


def test_json_of_days_and_of_what_is_no_number(scores: Path) -> None:
    table = pq.read_table(scores)
    days = pa.array([datetime.date(2020, 1, day) for day in (1, 2, 3, 4)])
    blur = pa.array([0.5, float("nan"), 0.5, 0.5])
    pq.write_table(table.set_column(0, "id", days).append_column("blur", blur), scores)
    result = run("audit", scores, "--no-page", "--json", "--by", "blur")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout, parse_constant=pytest.fail)
    assert summary["suspects"][0]["id"] == "2020-01-02"
    assert [group["group"] for group in summary["groups"]] == [None, 0.5]
    summary = json.loads(run("audit", scores, "--no-page", "--json", "--by", "id").stdout)
    assert summary["groups"][0]["group"] == "2020-01-02"


def test_json_for_machines(scores: Path, tmp_path: Path) -> None:
    result = run("audit", scores, "-o", tmp_path / "mine", "--no-page", "--json", "--by", "label")
    summary = json.loads(result.stdout)
    assert (summary["estimated_issues"], summary["estimate"], summary["samples"]) == (2, "disagreement", 4)
    assert [row["id"] for row in summary["suspects"]] == [5, 7, 6, 4]
    assert {row["group"]: row["count"] for row in summary["groups"]} == {"[bold]cat": 2, "dog": 2}
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["actions.csv", "audit.json", "table.parquet"]


def test_where_the_model_agrees_the_list_and_the_page_expect_the_label_itself(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    # Of three dogs one is surely a horse; the others are believed, the last one only just.
    beliefs = [[0.98, 0.01, 0.01], [0.02, 0.96, 0.02], [0.01, 0.01, 0.98], [0.02, 0.01, 0.97], [0.02, 0.01, 0.97]]
    beliefs += [[0.05, 0.15, 0.8], [0.1, 0.42, 0.48]]
    columns = {"id": list(range(7)), "label": [0, 1, 2, 2, 1, 1, 1], "probabilities": beliefs}
    columns["label"][6] = 2
    table = pa.table(columns).replace_schema_metadata({"class names": json.dumps(["cat", "dog", "horse"])})
    pq.write_table(table, tmp_path / "scores.parquet")
    result = run("audit", tmp_path / "scores.parquet")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "scores-audit"
    listed = (folder / "actions.csv").read_text(encoding="utf-8-sig").splitlines()[1:]
    assert sorted(line.split(",")[:3] for line in listed) == [["4", "dog", "horse"], ["5", "dog", "horse"]]
    samples = pq.read_table(folder / "table.parquet").to_pylist()
    assert {row["id"]: row["expected"] for row in samples} == {0: 0, 1: 1, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2}
    for row in samples:
        assert ("expects another class" in row["reasons"]) == (row["expected"] != row["label"])
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count('class="arrow"') == 2


def test_page_with_pictures_of_a_folder(tiny_vit: Path, photos: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    scored = tmp_path / "scores.parquet"
    assert run("score", "--model", f"hf:{tiny_vit}", "--data", photos, "-o", scored).exit_code == 0
    result = run("audit", scored)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "scores-audit"
    assert len(pq.read_table(folder / "thumbnails.parquet")) == 9
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "actions.csv" in page
    assert page.count("data:image/png;base64,") >= 9
    assert "cat/0.png</span>" in page
    assert "expects another class" in page
    assert "Histogram of Suspicion" not in page
    assert "frog" in page


def test_with_the_images_of_a_training_its_samples_have_their_files_names(photos: Path, tmp_path: Path) -> None:
    record = tmp_path / "run"
    record.mkdir()
    (record / "run.json").write_text(json.dumps({"name": "mine", "class_names": ["a", "b", "c"]}))
    # A part was held out: ids are positions in the sorted order of the files.
    columns = {"id": [1, 3, 8], "label": [0, 1, 2], "predicted": [1, 1, 2], "avh": [0.9, 0.2, 0.1]}
    pq.write_table(pa.table(columns), record / "samples.parquet")
    files = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))

    for page in ("--page", "--no-page"):
        result = run("audit", record, "--top", "1", "--data", photos, page)
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[2].split("\t")[1] == files[1]
        assert files[1] in (record / "audit" / "actions.csv").read_text()
    assert run("audit", record, "--apply", record / "audit" / "actions.csv", "--data", photos).exit_code == 0
    labels = pq.read_table(record / "audit" / "labels.parquet")
    assert labels["path"].to_pylist() == [files[at] for at in (1, 3, 8)]
    assert run("audit", record, "--top", "1").stdout.splitlines()[2].split("\t")[1] == "1"

    (photos / "cat" / "more.png").write_bytes((photos / files[0]).read_bytes())
    refused = run("audit", record, "--data", photos)
    assert refused.exit_code == 2
    assert "not those that were" in refused.stderr
    pq.write_table(pa.table({"label": [0], "avh": [0.1]}), tmp_path / "thin.parquet")
    actions = ("--apply", record / "audit" / "actions.csv")
    assert "must have a column 'id'" in run("audit", tmp_path / "thin.parquet", "--data", photos, *actions).stderr


def test_a_training_on_a_folder_of_images_names_its_files(photos: Path, tmp_path: Path) -> None:
    record, config = tmp_path / "run", tmp_path / "mine.toml"
    config.write_text(
        f'epochs = 1\nfolder = "{record}"\n[data]\nname = "folder"\nroot = "{photos}"\nheld_out = 0.3\n'
        'batch_size = 3\n[data.options]\nsize = 28\n[model]\nname = "resnet20"\n'
    )
    (photos / "cat" / "broken.png").write_bytes(b"no picture")
    files = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    result = run("train", config, "--quiet")
    assert result.exit_code == 0, result.output
    assert "1 image was left out: cat/broken.png:" in result.stdout
    assert json.loads(run("train", config, "--quiet", "--json").stdout)["skipped"][0].startswith("cat/broken.png: ")
    samples = pq.read_table(record / "samples.parquet")
    assert 0 < len(samples) < 9  # some were held out
    assert samples["path"].to_pylist() == [files[at] for at in samples["id"].to_pylist()]

    first = run("audit", record, "--top", "1", "--no-page").stdout.splitlines()[2].split("\t")[1]
    assert first in files
    assert run("audit", record, "--apply", record / "audit" / "actions.csv").exit_code == 0
    labels = pq.read_table(record / "audit" / "labels.parquet")
    assert labels["path"].to_pylist() == samples["path"].to_pylist()
    # With the images their pictures stand beside the names, in the folder of these files alone.
    assert run("audit", record, "--data", photos).exit_code == 0
    (photos / files[1]).rename(photos / "cat" / "another.png")
    assert "not those that were" in run("audit", record, "--data", photos).stderr


def test_a_page_without_pictures_says_what_to_add_for_them(photos: Path, tmp_path: Path) -> None:
    record = tmp_path / "run"
    record.mkdir()
    columns = {"id": [1, 3, 8], "label": [0, 1, 2], "predicted": [1, 1, 2], "avh": [0.9, 0.2, 0.1]}
    pq.write_table(pa.table(columns), record / "samples.parquet")

    def said(data: dict[str, str | None], *more: str | Path) -> list[str]:
        (record / "run.json").write_text(json.dumps({"config": {"data": data}, "class_names": ["cat", "dog", "frog"]}))
        result = run("audit", record, *more)
        assert result.exit_code == 0, result.output
        return [line for line in result.stdout.splitlines() if line.startswith("pictures: ")]

    none = "pictures: none, the images were not found: add --data"
    assert said({"name": "folder", "root": str(photos)}) == [f"{none} {photos}"]
    assert said({"name": "cifar10", "root": None, "train": "test"}) == [f"{none} FOLDER --layout cifar10 --split test"]
    assert said({"name": "digits", "root": None}) == [f"{none} . --layout digits"]
    page = record / "audit" / "report.html"
    assert "<img" not in page.read_text(encoding="utf-8")
    assert json.loads(run("audit", record, "--json").stdout)["pictures"] is False

    assert said({"name": "folder", "root": None}, "--data", photos) == []
    assert "<img" in page.read_text(encoding="utf-8")
    assert json.loads(run("audit", record, "--json", "--data", photos).stdout)["pictures"] is True
    # Pictures of an earlier audit may be of other images.
    assert said({"name": "folder", "root": None}) == [f"{none} FOLDER"]
    assert "<img" not in page.read_text(encoding="utf-8")


def test_scores_of_no_images_have_no_pictures_to_speak_of(scores: Path) -> None:
    assert "pictures" not in run("audit", scores).stdout
    table = pq.read_table(scores)
    gone = table.replace_schema_metadata({"root": "/nowhere/photos", "layout": "folder"})
    pq.write_table(gone, scores)
    assert ": add --data FOLDER" in run("audit", scores).stdout


def test_other_images_than_those_scored_are_refused(tiny_vit: Path, photos: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    scored = tmp_path / "scores.parquet"
    assert run("score", "--model", f"hf:{tiny_vit}", "--data", photos, "-o", scored).exit_code == 0
    (photos / "cat" / "1.png").rename(photos / "cat" / "renamed.png")
    result = run("audit", scored)
    assert result.exit_code == 2
    assert "not those that were" in result.stderr
    assert not (tmp_path / "scores-audit").exists()
    photos.rename(tmp_path / "moved")
    assert run("audit", scored).exit_code == 0
    (tmp_path / "moved" / "cat" / "renamed.png").rename(tmp_path / "moved" / "cat" / "1.png")
    assert run("audit", scored, "--data", tmp_path / "moved").exit_code == 0
    assert len(pq.read_table(tmp_path / "scores-audit" / "thumbnails.parquet")) == 9


def test_a_runs_own_pictures_are_kept(scores: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    scores.rename(run_folder / "samples.parquet")
    (run_folder / "run.json").write_text('{"name": "mine", "class_names": ["cat", "dog"]}')
    pictures = pa.table({"id": pa.array(["5"]), "png": pa.array([b"\x89PNG\r\n\x1a\n..."], pa.binary())})
    pq.write_table(pictures, run_folder / "thumbnails.parquet")
    result = run("audit", run_folder)
    assert result.exit_code == 0, result.output
    assert pq.read_table(run_folder / "audit" / "thumbnails.parquet").equals(pictures)
    assert "audit of mine" in (run_folder / "audit" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_without_what_draws_pages_only_the_page_is_left_out(
    package: str, scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    found = run("audit", scores, "--output", tmp_path / "audit")
    assert found.exit_code == 0, found.output
    assert f"{package}: pip install jinja2 matplotlib" in found.output
    assert (tmp_path / "audit" / "actions.csv").is_file()
    assert not (tmp_path / "audit" / "report.html").exists()


def test_an_edited_list_is_applied(scores: Path) -> None:
    run("audit", scores, "--no-page")
    actions = scores.parent / "scores-audit" / "actions.csv"
    actions.write_text(actions.read_text().replace("keep", "relabel", 1))
    result = run("audit", scores, "--apply", actions)
    assert "1 keep, 1 relabel, 0 drop; 4 samples remain" not in result.stderr
    assert "1 keep, 1 relabel, 0 drop; 4 samples remain" in result.stdout
    labels = pq.read_table(scores.parent / "scores-audit" / "labels.parquet")
    assert labels.column("new_label").to_pylist() == [0, 0, 1, 0]
    assert labels.column("new_label_name").to_pylist() == ["[bold]cat", "[bold]cat", "dog", "[bold]cat"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--score", "nope"], "table must have a column 'nope'"),
        (["--estimate", "guess"], "estimate must be one of"),
        (["--by", "nope"], "table must have a column 'nope'"),
        (["--apply", "none.csv"], "No such file or directory: none.csv"),
    ],
)
def test_refusals_leave_nothing(arguments: list[str], sentence: str, scores: Path) -> None:
    result = run("audit", scores, "--no-page", *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (scores.parent / "scores-audit").exists()


def test_a_wrong_line_is_named(scores: Path) -> None:
    run("audit", scores, "--no-page")
    actions = scores.parent / "scores-audit" / "actions.csv"
    actions.write_text(actions.read_text().replace("keep", "burn", 1))
    result = run("audit", scores, "--apply", actions)
    assert result.exit_code == 2
    assert [one for one in ("line 2", "keep, relabel, drop", "'burn'") if one not in result.stderr] == []
    assert not (actions.parent / "labels.parquet").exists()


def test_what_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "scores.parquet").write_bytes(b"PAR1 nothing")
    for path, sentence in (("scores.parquet", "is not a Parquet file"), ("none", "no run folder and no table")):
        result = run("audit", tmp_path / path)
        assert result.exit_code == 2
        assert sentence in result.stderr


def test_help_shows_examples() -> None:
    assert "hardsight audit scores.parquet" in run("audit", "--help").stdout
