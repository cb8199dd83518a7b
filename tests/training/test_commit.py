"""A record says the commit of the library's own checkout, and runs no program to find out."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hardsight.training import record

GIT = shutil.which("git")
needs_git = pytest.mark.skipif(GIT is None, reason="git is not installed")


def git(folder: Path, *words: str) -> str:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    own |= {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *words], cwd=folder, env=os.environ | own, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "src" / "hardsight" / "training").mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


@needs_git
def test_a_strangers_folder_runs_no_program(repository: Path, tmp_path: Path) -> None:
    """An unpacked archive may bring a `.git` whose configuration names a program that `git status` runs."""
    ran = tmp_path / "ran"
    script = repository / "monitor.sh"
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(0o755)
    (repository / "file").write_text("tracked")
    git(repository, "add", "file")
    git(repository, "config", "core.fsmonitor", str(script))
    (repository / "digits.toml").write_text(
        'epochs = 1\nmodel = "digits_cnn"\ndata = { name = "digits", limit = 32, batch_size = 32 }\n'
    )
    command = [sys.executable, "-m", "hardsight", "train", "digits.toml", "--quiet"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert not ran.exists()


def commit_of(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.setattr(record, "__file__", str(checkout / "src" / "hardsight" / "training" / "record.py"))
    return record.commit()


@needs_git
def test_the_commit_is_that_of_the_librarys_checkout(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert commit_of(repository, monkeypatch) == head
    git(repository, "pack-refs", "--all")
    assert commit_of(repository, monkeypatch) == head
    git(repository, "checkout", "-q", "--detach")
    assert commit_of(repository, monkeypatch) == head
    tree = repository.parent / "tree"
    git(repository, "worktree", "add", "-q", "-b", "topic/other", str(tree))
    git(tree, "commit", "-q", "--allow-empty", "-m", "second")
    assert commit_of(tree, monkeypatch) == git(tree, "rev-parse", "HEAD") != head


@needs_git
def test_a_repository_around_an_installed_library_is_not_its_own(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment often lies in somebody's repository."""
    assert commit_of(repository / ".venv" / "lib" / "python3" / "site-packages", monkeypatch) is None


@pytest.mark.parametrize("head", ["", "ref: ../../secret", "ref: refs/heads/none", "\xff\xfe", "g" * 40])
def test_a_damaged_repository_has_no_commit(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(head.encode("latin-1"))
    (tmp_path / "secret").write_text("not a commit")
    assert commit_of(tmp_path, monkeypatch) is None
