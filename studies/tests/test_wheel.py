"""The wheel of the studies prints published tables where there is no checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hardsight_studies.engine.rows import PUBLISHED
from hardsight_studies.engine.study import HOME, heads

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the built wheel is unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def test_it_carries_every_study_with_its_rows(installed: Path) -> None:
    packed = {path.relative_to(installed / "hardsight_studies") for path in installed.rglob("*.toml")}
    assert packed == {path.relative_to(HOME) for path in HOME.rglob("*.toml")}
    rows = {path.name for path in (installed / "hardsight_studies" / "results").iterdir()}
    assert rows == {path.name for path in PUBLISHED.iterdir()}
    assert not list(installed.rglob("test_*.py"))


def test_it_prints_a_published_table(installed: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])}
    code = (
        "import hardsight_studies.engine.command as one; print(one.__file__);"
        "one.study_app(['table', 'gr-table8'], standalone_mode=False)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(installed))
    assert next(one for one in heads() if one.id == "gr-table8").title in done.stdout
