"""`make demo` sets itself up: it says what takes so long, once, and is quiet and quick afterwards."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A Python whose environments hold a pip and a hardsight that only say that they were called.
PYTHON = """#!/bin/sh
case "$*" in
  "-m venv"*) mkdir -p "$3/bin"
    printf '#!/bin/sh\\necho "$@" >>pip.log\\n' >"$3/bin/pip"
    printf '#!/bin/sh\\necho "hardsight $*"\\n' >"$3/bin/hardsight"
    chmod +x "$3/bin/pip" "$3/bin/hardsight" ;;
  *) exit "${TOO_OLD:-0}" ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    if shutil.which("make") is None:
        pytest.skip("make is not at hand")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", "PYTHON=./python", *arguments],
        cwd=project,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_installation_is_announced_once(project: Path) -> None:
    first = make(project, "demo")
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [
        "installing torch and the rest into .venv (a minute or two, once)",
        "hardsight demo",
    ]
    assert make(project, "demo").stdout == "hardsight demo\n"
    assert len((project / "pip.log").read_text().splitlines()) == 1

    later = (project / "pyproject.toml").stat().st_mtime + 3600
    os.utime(project / "pyproject.toml", (later, later))
    assert make(project, "demo").stdout.splitlines() == ["bringing .venv up to date", "hardsight demo"]


def test_an_interrupted_installation_is_done_again_and_an_old_python_refused(project: Path) -> None:
    refused = make(project, "demo", TOO_OLD="1")
    assert refused.returncode != 0
    assert refused.stdout == "Python 3.11 or newer is needed: make PYTHON=python3.11 demo\n"
    assert not (project / ".venv").exists()
    make(project, "demo")
    (project / ".venv" / ".demo").unlink()
    assert make(project, "demo").stdout.startswith("installing torch")
    assert len((project / "pip.log").read_text().splitlines()) == 2
