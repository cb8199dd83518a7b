"""The built wheel carries all the package needs and works without the source tree."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (built,) = folder.glob("hardsight-*.whl")
    return built


def test_it_carries_every_module_template_and_the_type_marker(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("hardsight/")}
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "hardsight").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == wanted
    assert "hardsight/py.typed" in packed


def test_it_works_installed(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    # The unpacked wheel comes before the source tree that the environment points to.
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    where = "import hardsight, pathlib; print(pathlib.Path(hardsight.__file__).resolve())"
    found = subprocess.run([sys.executable, "-c", where], env=environment, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(tmp_path.resolve())
    command = [sys.executable, "-m", "hardsight", "demo", "--epochs", "1", "--json", "--output", str(tmp_path / "run")]
    subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "run" / "report.html").stat().st_size > 100_000
