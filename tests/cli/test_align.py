"""`hardsight align` joins two files, prints what it found, writes results and a page; bad input is one sentence."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner, Result

from hardsight.alignment import correlate
from hardsight.cli.align import align, default_resamples

app = typer.Typer()
app.command()(align)


@app.command()
def other() -> None:
    """With a second command, typer keeps the names of both."""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["align", *(str(argument) for argument in arguments)])


def columns(n: int = 120) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    frequency = (generator.binomial(50, generator.beta(5, 1, n)) / 50).tolist()
    return {
        "id": [f"{at:04d}" for at in range(n)],
        "label": [at % 3 for at in range(n)],
        "predicted": [at % 3 if generator.random() < 0.8 else 0 for at in range(n)],
        "avh": (0.2 - 0.1 * np.array(frequency) + generator.normal(0, 0.02, n)).tolist(),
        "confidence": np.clip(frequency + generator.normal(0, 0.3, n), 0, 1).tolist(),
        "frequency": frequency,
    }


def write(folder: Path, made: dict[str, Any], human_ids: list[str] | None = None) -> tuple[Path, Path]:
    """The scores with their directions, and the human column as CSV in another order."""
    names = [name for name in made if name != "frequency"]
    directions = {"avh": "larger is harder", "confidence": "larger is easier"}
    fields = []
    for name in names:
        described = {"kind": "score", "direction": directions[name]} if name in directions else None
        fields.append(pa.field(name, pa.array(made[name]).type, metadata=described))
    schema = pa.schema(fields, metadata={"class names": '["[bold]cat", "<b>dog", "frog"]'})
    pq.write_table(pa.table([pa.array(made[name]) for name in names], schema=schema), folder / "scores.parquet")
    rows = list(zip(human_ids or made["id"], made["frequency"], strict=True))[::-1]
    text = "id,selection_frequency\n" + "".join(f"{one},{value}\n" for one, value in rows)
    (folder / "humans.csv").write_text(text, encoding="utf-8")
    return folder / "scores.parquet", folder / "humans.csv"


def test_the_whole_way(tmp_path: Path) -> None:
    made = columns()
    result = run(*write(tmp_path, made), "--resamples", "50")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "scores-align"
    found = json.loads((folder / "alignment.json").read_text(encoding="utf-8"))
    expected = correlate(made["avh"], made["frequency"])
    avh = found["scores"][0]
    assert avh["correlations"]["spearman"]["coefficient"] == pytest.approx(-expected.coefficient)
    assert avh["turned"]
    assert avh["correlations"]["kendall"]["interval"]["resamples"] == 25
    assert found["seed"] == 0
    assert found["n"] == 120
    lines = result.stdout.splitlines()
    assert lines[0].startswith("120 ids of")
    row = next(line for line in lines if line.startswith("avh\tharder"))
    assert row.split("\t")[2] == f"{-expected.coefficient:.3f}"
    assert "3 classes" in result.stdout
    assert [group["group"] for group in found["classes"]["avh"]] == ["<b>dog", "[bold]cat", "frog"]
    page = (folder / "alignment.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;dog" in page
    assert "<b>dog" not in page


def test_a_registered_name_points_as_the_registry_says(tmp_path: Path) -> None:
    made = columns(40)
    scores, humans = write(tmp_path, made)
    plain = pa.table({name: made[name] for name in ("id", "avh")} | {"mine": made["confidence"]})
    pq.write_table(plain, scores)
    found = json.loads(run(scores, humans, "--json", "--no-page", "--resamples", "0").stdout)
    assert {score["name"]: score["direction"] for score in found["scores"]} == {"avh": "harder", "mine": None}
    assert found["classes"] is None
    assert [score["given_correctness"] for score in found["scores"]] == [None, None]


def test_the_same_seed_writes_the_same_results(tmp_path: Path) -> None:
    paths = write(tmp_path, columns())
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert run(*paths, "-o", tmp_path / name, "--no-page", "--resamples", "20", "--seed", seed).exit_code == 0
    first, again, other_seed = ((tmp_path / name / "alignment.json").read_text() for name in "abc")
    assert first == again
    assert first != other_seed


def test_json_for_machines_and_chosen_columns(tmp_path: Path) -> None:
    scores, humans = write(tmp_path, columns())
    coarse = tmp_path / "coarse.csv"
    coarse.write_text("fine,coarse\n[bold]cat,animal\n<b>dog,animal\nfrog,other\n")
    arguments = [
        "--scores",
        "confidence, avh",
        "--human",
        "selection_frequency",
        "--coarse",
        coarse,
        "--resamples",
        "0",
    ]
    result = run(scores, humans, *arguments, "--json", "-o", tmp_path / "out", "--no-page")
    found = json.loads(result.stdout)
    assert {score["name"] for score in found["scores"]} == {"confidence", "avh"}
    assert found["scores"][0]["correlations"]["spearman"]["interval"] is None
    assert [(one["group"], one["fine_classes"]) for one in found["coarse"]["avh"]] == [("animal", 2), ("other", 1)]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["alignment.json"]


def test_part_of_the_samples_is_said(tmp_path: Path) -> None:
    made = columns(40)
    scores, humans = write(tmp_path, made)
    humans.write_text("".join(humans.read_text().splitlines(keepends=True)[:11]))
    result = run(scores, humans, "--no-page", "--resamples", "0")
    assert result.exit_code == 0
    assert [one for one in ("10 ids of", "30 of scores.parquet") if one not in result.stdout] == []


def test_a_useless_column_is_left_out_and_said(tmp_path: Path) -> None:
    made = columns(40)
    made["flat"] = [0.5] * 40
    paths = write(tmp_path, made)
    result = run(*paths, "--no-page", "--resamples", "0")
    assert result.exit_code == 0
    assert "left out: score 'flat' must vary" in result.stdout
    refused = run(*paths, "--no-page", "--scores", "avh,flat")
    assert refused.exit_code == 2


def test_a_perfect_score_keeps_its_interval_and_says_why_it_has_no_test(tmp_path: Path) -> None:
    made = columns(40)
    made["oracle"] = made["frequency"]
    result = run(*write(tmp_path, made), "--resamples", "20")
    row = next(line for line in result.stdout.splitlines() if line.startswith("oracle\tavh")).split("\t")
    assert " to " in row[3]
    assert row[4] == "no test"
    assert "\noracle, avh\tno test: " in result.stdout
    assert "no test" in (tmp_path / "scores-align" / "alignment.html").read_text(encoding="utf-8")


def test_what_no_class_and_no_bin_can_say(tmp_path: Path) -> None:
    """Five samples of five classes, always predicted right: nothing is promised that the page does not show."""
    made = {name: values[:5] for name, values in columns().items()}
    made["label"] = made["predicted"] = [0, 1, 2, 3, 4]
    made["frequency"] = [0.1, 0.3, 0.5, 0.7, 0.9]
    result = run(*write(tmp_path, made), "--resamples", "0")
    assert result.exit_code == 0, result.output
    assert "5 classes: too small" in result.stdout
    assert "given correctness: covariate must vary" in result.stdout
    page = (tmp_path / "scores-align" / "alignment.html").read_text(encoding="utf-8")
    assert 'id="bins"' in page
    assert "tied at 1" in page


def test_an_unknown_direction_is_explained(tmp_path: Path) -> None:
    made = columns(40)
    made["mine"] = made["avh"]
    result = run(*write(tmp_path, made), "--no-page", "--resamples", "0", "--larger-is", "easier")
    assert "\nmine\tlarger is harder" in result.stdout


def test_bins_of_large_values_are_written_out(tmp_path: Path) -> None:
    made = columns(40)
    made["frequency"] = (1000 * np.linspace(0, 1, 40)).tolist()
    result = run(*write(tmp_path, made), "--no-page", "--resamples", "0")
    edges = next(line for line in result.stdout.splitlines() if line.startswith("score\t0 to"))
    assert [int(edge) for edge in re.findall(r"\d+", edges)] == [0, 200, 200, 400, 400, 600, 600, 800, 800, 1000]


def test_large_tables_draw_less_often_unless_told() -> None:
    assert default_resamples(10_000, 20) == 1000
    assert default_resamples(1_000_000, 3) == 100
    assert default_resamples(200_000, 3) == 500
    assert default_resamples(10**9, 50) == 100


def _spoilt(kind: str, made: dict[str, Any]) -> list[str] | None:
    """Change the columns for the worse; the human ids where those change."""
    if kind == "constant":
        made["avh"] = [0.5] * len(made["id"])
        del made["confidence"]
    elif kind == "ties":
        made["frequency"] = [1.0] * len(made["id"])
    elif kind == "few":
        for name in made:
            made[name] = made[name][:3]
    elif kind == "nan":
        made["avh"] = [float("nan"), *made["avh"][1:]]
        del made["confidence"]
    elif kind == "mismatch":
        return ["x1", "x2", *made["id"][2:]]
    return None


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("constant", "score 'avh' must vary to be correlated; all 40 values are tied at 0.5"),
        ("ties", "human column 'selection_frequency' must vary to be correlated; all 40 values are tied at 1"),
        ("few", "at least 4 ids must match: 3 ids of"),
        ("nan", "score 'avh' must be finite; 1 of 40 values are not, first nan for id '0000'"),
        ("mismatch", "38 ids of"),
    ],
)
def test_bad_data_is_one_sentence(kind: str, sentence: str, tmp_path: Path) -> None:
    made = columns(40)
    result = run(*write(tmp_path, made, _spoilt(kind, made)))
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "scores-align").exists()


def test_a_mismatch_names_the_first_missing_and_partial_goes_on(tmp_path: Path) -> None:
    made = columns(40)
    paths = write(tmp_path, made, _spoilt("mismatch", made))
    refused = run(*paths)
    assert "2 of" in refused.stderr
    assert "first '0000'" in refused.stderr
    assert "first 'x2'" in refused.stderr
    result = run(*paths, "--partial", "--no-page", "--resamples", "0")
    assert result.exit_code == 0
    assert "classes: in alignment.json\n" in result.stdout, "no page"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--human", "nope"], "must have a column 'nope'"),
        (["--scores", "nope"], "hardsight: --scores must be columns of the table"),
        (["--id", "nope"], "must have a column 'nope'"),
        (["--method", "cosine"], "method must be one of spearman, pearson, kendall"),
        (["--larger-is", "up"], "--larger-is must be easier or harder; got 'up'"),
        (["--coarse", "none.csv"], "No such file or directory: none.csv"),
    ],
)
def test_bad_options_are_one_sentence(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    result = run(*write(tmp_path, columns(40)), *arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "scores-align").exists()


def test_missing_files_are_one_sentence(tmp_path: Path) -> None:
    scores, humans = write(tmp_path, columns(40))
    for pair in ((tmp_path / "no.parquet", humans), (scores, tmp_path / "no.csv")):
        result = run(*pair)
        assert result.exit_code == 2
        assert re.fullmatch(r"hardsight: [^\n]*no\.(parquet|csv)", result.stderr.strip())


def test_help_shows_examples() -> None:
    assert "hardsight align scores.parquet humans.csv" in run("--help").stdout


def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write(tmp_path, columns())
    (tmp_path / "taken").write_text("mine")
    monkeypatch.setattr("hardsight.alignment.align_scores", lambda *given, **options: pytest.fail("worked in vain"))
    refused = run(*files, "-o", tmp_path / "taken")
    assert refused.exit_code == 2
    assert str(tmp_path / "taken") in refused.stderr


def test_disagreements_are_printed_kept_and_pictured(tmp_path: Path) -> None:
    made = columns()
    # People find the first hard and the second easy; the score says the opposite.
    made["frequency"][:2], made["avh"][:2] = [0.0, 1.0], [0.0, 1.0]
    photos = tmp_path / "photos" / "cat"
    photos.mkdir(parents=True)
    for at in range(120):
        Image.new("RGB", (8, 8), (at, 0, 0)).save(photos / f"{at:03d}.png")
    made["id"] = list(range(120))
    made["label"] = [0] * 120
    files, options = write(tmp_path, made), ("--scores", "avh", "--resamples", "0", "--disagreements", "3")
    result = run(*files, *options, "--data", tmp_path / "photos")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "scores-align"
    found = json.loads((folder / "alignment.json").read_text(encoding="utf-8"))["disagreements"]["avh"]
    assert [len(found[side]) for side in ("people", "model")] == [3, 3]
    assert (found["people"][0]["id"], found["people"][0]["label"]) == (0, "[bold]cat")
    assert found["model"][0]["id"] == 1
    lines = result.stdout.splitlines()
    at = lines.index("harder for people than for avh")
    assert lines[at + 2].startswith("0\t[bold]cat\t0\t0\t")
    assert sum(line.startswith("harder for ") for line in lines) == 2
    page = (folder / "alignment.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png') == 6
    assert run(*files, *options).exit_code == 0
    assert "data:image" not in (folder / "alignment.html").read_text(encoding="utf-8"), "of other images, perhaps"
    refused = run(*files, "--data", tmp_path / "photos")
    assert refused.exit_code == 2
    assert "--disagreements" in refused.stderr
