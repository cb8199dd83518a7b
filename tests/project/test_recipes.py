"""docs/design.md says how a score and a loss are added: done as written in a copy, the law tests take them."""

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
    return re.findall(r"```python\n# (\S+\.py)(?:, in (\w+))?\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the library and its tests to which the recipe's score and loss are added."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("src/hardsight", "tests/hardness", "tests/losses"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "tests/conftest.py"):
        shutil.copy(ROOT / name, copy / name)
    for file, inside, code in places():
        path = copy / file
        text = path.read_text(encoding="utf-8")
        added = text.replace(f"{inside} = {{\n", f"{inside} = {{\n{code}", 1) if inside else f"{text}\n\n{code}"
        assert added != text
        path.write_text(added, encoding="utf-8")
    return copy


def test_a_score_and_a_loss_are_two_places_each() -> None:
    files = [file for file, *_ in places()]
    assert len(files) == len(set(files)) == 4


def test_what_is_added_as_written_obeys_the_laws(grown: Path) -> None:
    tests = ["tests/hardness/test_registry.py", "tests/losses/test_laws.py", "tests/losses/test_inputs.py"]
    options = ["-q", "-o", "addopts=", "--import-mode=importlib", "-p", "no:cacheprovider", f"--rootdir={grown}"]
    chosen = ["-k", "brier or every_score or every_loss or complete"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(grown / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *options, *chosen, *tests]
    done = subprocess.run(command, env=environment, cwd=grown, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 25


def test_a_score_without_its_row_is_noticed(grown: Path) -> None:
    path = grown / "tests" / "hardness" / "test_registry.py"
    path.write_text(re.sub(r'    "brier".*\n', "", path.read_text(encoding="utf-8")), encoding="utf-8")
    environment = dict(os.environ) | {"PYTHONPATH": str(grown / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "--import-mode=importlib", str(path)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-k", "every_score"], env=environment, cwd=grown, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "brier" in done.stdout
