"""Every Python and shell example of the README and the docs is run, in order, page by page."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from hardsight.cli import app
from hardsight.training import TrainingConfig

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A fence may say why it is not run: ```console (with files of your own)
FENCE = re.compile(r"^```(python|console)[ \t]*(\([^)\n]*\))?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples(page: Path, language: str) -> list[str]:
    return [code for kind, excuse, code in FENCE.findall(page.read_text()) if kind == language and not excuse]


def anchors(page: Path) -> set[str]:
    """What a heading is linked by: its words in small letters, joined by hyphens."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def run_python(arguments: list[str], folder: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "error", *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_run(page: Path, tmp_path: Path) -> None:
    blocks = examples(page, "python")
    if not blocks:
        pytest.skip("no Python example on this page")
    if any(block.startswith(">>>") for block in blocks):
        assert all(block.startswith(">>>") for block in blocks), "doctest passes over others"
        return run_python(["-m", "doctest", str(page)], tmp_path)
    script = tmp_path / "example.py"
    script.write_text("import torch\ntorch.set_num_threads(1)\n" + "\n".join(blocks))
    return run_python([str(script)], tmp_path)


def test_the_readme_shows_what_its_first_example_prints(tmp_path: Path) -> None:
    text = PAGES[0].read_text()
    shown = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0].splitlines()
    script = [sys.executable, "-c", examples(PAGES[0], "python")[0]]
    printed = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line for line in shown if line not in printed] == ["  ..."]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_console_examples_run(page: Path, tmp_path: Path) -> None:
    """Lines that start with `$ hardsight`; each must succeed, in one folder, in order."""
    commands = [
        line.removeprefix("$ ")
        for block in examples(page, "console")
        for line in block.splitlines()
        if line.startswith("$ hardsight")
    ]
    if not commands:
        pytest.skip("no command on this page")
    program = Path(sys.executable).with_name("hardsight")
    for command in commands:
        done = subprocess.run(
            [str(program), *shlex.split(command, comments=True)[1:]], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"


def parse_commands(text: str) -> None:
    """Those that are not run, too: each command and its options exist."""
    root = typer.main.get_command(app)
    for line in re.findall(r"^\$ hardsight ((?:.*\\\n)*.*)", text, re.MULTILINE):
        command, words = root, shlex.split(line, comments=True)
        # By what it has: newer releases of typer bring a click of their own.
        while hasattr(command, "get_command"):
            name = words.pop(0)
            command = command.get_command(typer.Context(command), name)
            assert command is not None, name
        command.make_parser(typer.Context(command)).parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_marked_and_have_known_options(page: Path) -> None:
    text = page.read_text()
    assert not re.search(r"^hardsight ", text, re.MULTILINE), "write `$ hardsight` in a console fence"
    parse_commands(text)


@pytest.mark.parametrize("command", ["demo --nonsense", "nonsense", "data nonsense"])
def test_an_unknown_command_or_option_is_noticed(command: str) -> None:
    with pytest.raises(Exception, match="nonsense"):
        parse_commands(f"$ hardsight {command}\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configurations_have_known_keys_and_values(page: Path) -> None:
    for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        # An example may leave out what every configuration needs.
        needed = {"epochs": 1, "data": {"name": "digits"}, "model": {"name": "digits_cnn"}}
        assert TrainingConfig(**(needed | tomllib.loads(block)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]+)(?:#([^)]*))?\)", page.read_text()):
        if "://" not in target:
            there = page.parent / target
            assert there.exists(), f"{page.name} links to {target}, which is not there"
            assert not anchor or anchor in anchors(there), f"{target}: no heading #{anchor}"
