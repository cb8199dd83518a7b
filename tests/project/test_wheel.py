"""The built wheel works without the source tree, and the source distribution carries what its own tests read."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


FOLDERS = ("benchmarks", "docs", "examples", "notebooks", "src", "studies", "tests")
FILES = (
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "conftest.py", "constraints.txt",
    "pyproject.toml",
)  # fmt: skip


def built(kind: str, ending: str, folder: Path) -> Path:
    build = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (path,) = folder.glob(f"hardsight-*{ending}")
    return path


def files_of(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", ".whl", tmp_path_factory.mktemp("wheel"))


def test_it_carries_every_module_template_and_the_type_marker(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    packed = {name for name in names if name.startswith("hardsight/")}
    source = ROOT / "src"
    assert packed == {path.relative_to(source).as_posix() for path in files_of(source / "hardsight")}
    assert "hardsight/py.typed" in packed
    assert not any("studies" in name for name in names)


def test_it_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        said = message_from_bytes(archive.read(name))
        (licence,) = [name for name in archive.namelist() if name.endswith("/LICENSE")]
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert (said["Name"], said["License-Expression"], said["Requires-Python"]) == ("hardsight", "Apache-2.0", ">=3.11")
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert "Typing :: Typed" in said.get_all("Classifier", [])


def test_the_source_distribution_carries_what_its_tests_and_pages_read(tmp_path: Path) -> None:
    with tarfile.open(built("sdist", ".tar.gz", tmp_path)) as archive:
        packed = {Path(*Path(name).parts[1:]).as_posix() for name in archive.getnames()}
    wanted = {path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in files_of(ROOT / folder)} | set(FILES)
    # The packer adds these two.
    assert packed - {".gitignore", "PKG-INFO"} == wanted


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
