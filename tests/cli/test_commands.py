"""Commands that other distributions bring."""

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

from hardsight.cli import app_with


@pytest.mark.parametrize("words", [["study"], ["study", "run", "gr-table8", "--preset", "smoke"]])
def test_without_the_studies_one_sentence_says_how_to_install_them(words: list[str]) -> None:
    answer = CliRunner().invoke(app_with([]), words)
    assert answer.exit_code == 2
    assert "pip install ./studies" in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1


def test_a_brought_command_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    brought = ModuleType("brought")
    brought.app = typer.Typer()  # type: ignore[attr-defined]
    brought.app.command("list")(lambda: print("of another distribution"))
    brought.app.command("other")(lambda: None)
    monkeypatch.setitem(sys.modules, "brought", brought)
    app = app_with([EntryPoint("study", "brought:app", "hardsight.commands")])
    assert "of another distribution" in CliRunner().invoke(app, ["study", "list"]).stdout
