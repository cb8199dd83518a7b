"""docs/design.md says how to add things: done as written in a copy, the tests and the commands take them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def places() -> list[tuple[str, str, str]]:
    """File, where in it (or nothing: at its end), and what is added there."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    return re.findall(r"```(?:python|toml) \([^\n]*\)\n# (\S+\.\w+)(?:, in (\w+))?\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project to which what the recipes say is added."""
    copy = tmp_path_factory.mktemp("copy")
    folders = ("src/hardsight", "studies/hardsight_studies", "tests/hardness", "tests/losses", "tests/datasets")
    for name in folders:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "tests/conftest.py", "tests/slow.txt"):
        shutil.copy(ROOT / name, copy / name)
    for file, inside, code in places():
        path = copy / file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        added = text.replace(f"{inside} = {{\n", f"{inside} = {{\n{code}", 1) if inside else f"{text}\n\n{code}"
        assert added != text
        path.write_text(added, encoding="utf-8")
    return copy


def run(grown: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": f"{grown / 'src'}{os.pathsep}{grown / 'studies'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=grown, capture_output=True, text=True, check=False)


def run_tests(grown: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ["-q", "-o", "addopts=", "--import-mode=importlib", "-p", "no:cacheprovider", f"--rootdir={grown}"]
    return run(grown, "pytest", *options, *arguments)


def test_every_recipe_is_found_and_each_file_is_added_to_once() -> None:
    files = [file for file, *_ in places()]
    assert len(files) == len(set(files)) == 9


def test_what_is_added_as_written_obeys_the_laws(grown: Path) -> None:
    tests = ["tests/hardness/test_registry.py", "tests/losses/test_laws.py", "tests/losses/test_inputs.py"]
    chosen = ["-k", "brier or every_score or every_loss or complete or stripes or miniature"]
    done = run_tests(grown, *chosen, *tests, "tests/datasets/test_registry.py")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 30


def test_a_score_without_its_row_is_noticed(grown: Path) -> None:
    path = grown / "tests" / "hardness" / "test_registry.py"
    path.write_text(re.sub(r'    "brier".*\n', "", path.read_text(encoding="utf-8")), encoding="utf-8")
    done = run_tests(grown, "-k", "every_score", str(path))
    assert done.returncode == 1
    assert "brier" in done.stdout


def test_the_study_runs_and_prints_its_table(grown: Path, tmp_path: Path) -> None:
    # A run of it leaves a record, whose page has the new section.
    study = ("hardsight", "study")
    done = run(grown, *study, "run", "two-losses", "--output", tmp_path / "records", "--results", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    table = run(grown, *study, "table", "two-losses", "--preset", "smoke", "--results", tmp_path)
    assert table.returncode == 0, table.stderr[-2000:]
    assert "| 40 % |" in table.stdout
    record = next(tmp_path.glob("records/**/samples.parquet")).parent
    done = run(grown, "hardsight", "report", record)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Class sizes" in (record / "report.html").read_text(encoding="utf-8")
