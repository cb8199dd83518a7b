"""What reads the output: a pipe that closes, an encoding that lacks a letter, a program that wants JSON."""

import ast
import io
import json
import re
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from hardsight.cli import main, printing
from hardsight.cli.data import unpack_archive
from hardsight.cli.printing import one_sentence, print_table
from hardsight.cli.train import runs
from hardsight.training.progress import Progress


def test_a_reader_that_has_seen_enough_is_no_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokenPipeError), one_sentence():
        raise BrokenPipeError
    assert capsys.readouterr().err == ""


def test_a_parameter_is_called_what_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), one_sentence(rate="--noise"):
        raise ValueError("rate must be 1")
    assert capsys.readouterr().err == "hardsight: --noise must be 1\n"


def test_a_name_that_is_no_utf8_is_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), one_sentence():
        "caf\udce9".encode()
    said = capsys.readouterr().err
    assert [one for one in ("UTF-8", "'caf\\udce9'") if one not in said] == []
    assert said.count("\n") == 1


def test_a_name_that_is_taken_for_ascii_need_not_be_renamed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    with pytest.raises(typer.Exit), one_sentence():
        "d\udcc3\udcb6g".encode()
    said = "hardsight: paths and names must be UTF-8, and Python takes them for ascii here: set PYTHONUTF8=1\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("folder", ["d\xf6g \u732b \U0001f600", "caf\udce9"])
def test_letters_that_the_output_lacks_are_escaped_and_json_stays_json(
    encoding: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / folder
    record.mkdir()
    (record / "run.json").write_text('{"status": "finished"}')
    (found,) = json.loads(told(["runs", str(tmp_path), "--json"], encoding, monkeypatch))
    assert found["folder"] == str(record)
    assert "finished" in told(["runs", str(tmp_path)], encoding, monkeypatch)


def test_a_folder_without_records_is_told_beside_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--json"]):
        runs(tmp_path, as_json=bool(more))
        said = capsys.readouterr()
        assert said.out == ("[]\n" if more else "")
        assert said.err.endswith(f"record below {tmp_path}\n")


HOSTILE = "a\x1b]0;b\x07c\x00\u202ed\x9b2J\re\nf\tg\x7f \u732b"
SEEN = "a\\x1b]0;b\\x07c\\x00\\u202ed\\x9b2J\\re\\nf\\tg\\x7f \u732b"
# A folder's name holds no NUL.
FOLDER, FOLDER_SEEN = HOSTILE.replace("\x00", ""), SEEN.replace("\\x00", "")


def assert_harmless(said: str, *, colours: bool = False) -> None:
    """Nothing of what a terminal obeys is in it, but what draws the lines of a table."""
    said = re.sub("\x1b\\[[0-9;]*m", "", said) if colours else said
    assert not {letter for letter in said if letter in HOSTILE and not letter.isprintable()} - {"\n", "\t"}


@pytest.mark.parametrize("terminal", [True, False])
def test_a_name_does_not_command_the_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    print_table("suspects", ("file",), [[HOSTILE]])
    said = capsys.readouterr().out
    assert SEEN in said
    assert_harmless(said, colours=terminal)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_record_does_not_command_the_terminal(
    terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "800")
    record = tmp_path / FOLDER
    record.mkdir()
    results = {"test_accuracy": HOSTILE, "test_accuracy_best": 10**400}
    (record / "run.json").write_text(json.dumps({"status": HOSTILE, "created": HOSTILE, "results": results}))
    said = told(["runs", str(tmp_path)], "utf-8", monkeypatch, terminal=terminal)
    assert FOLDER_SEEN in said
    assert said.count(SEEN) >= 2
    assert_harmless(said, colours=terminal)
    as_json = told(["runs", str(tmp_path), "--json"], "utf-8", monkeypatch)
    assert_harmless(as_json)
    assert json.loads(as_json)[0]["status"] == HOSTILE


@pytest.mark.parametrize(
    "command", ["audit", "advise", "report", "train", "score --model hf:x --data", "data check", "runs"]
)
def test_a_path_in_an_error_does_not_command_the_terminal(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hardsight", *command.split(), str(tmp_path / FOLDER)])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert FOLDER_SEEN.partition("\\r")[0] in said
    assert len(said.splitlines()) == 1
    assert_harmless(said)


def test_what_was_unpacked_does_not_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(f"{FOLDER}/b.txt", "b")
    unpack_archive(tmp_path / "a.zip", tmp_path / "data")
    said = capsys.readouterr().out
    assert FOLDER_SEEN in said
    assert_harmless(said)


def test_a_configuration_does_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(HOSTILE, 1, 1) as progress:
        progress.epoch({"epoch": 1, "train_loss": 0.5, "seconds": 1.0})
    said = capsys.readouterr().err
    assert SEEN in said
    assert_harmless(said)


def test_commands_print_by_one_module_alone() -> None:
    """Which escapes what a terminal obeys; a bare `print` would not."""
    modules = [path for path in Path(printing.__file__).parent.glob("*.py") if path.name != "printing.py"]
    assert len(modules) > 8
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("print", "typer.echo", "click.echo", "sys.stdout.write", "sys.stderr.write"), path


def test_the_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(["--version"], "utf-8", monkeypatch) == f"hardsight {version('hardsight')}\n"


def test_on_a_narrow_terminal_a_path_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    name = "a" * 100
    output = io.StringIO()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", output)
        print_table("runs", ("folder", "status"), [[name, "finished"]])
    (tmp_path / name).mkdir()
    (tmp_path / name / "run.json").write_text('{"status": "finished", "created": "2026-11-16T11:46:42+00:00"}')
    listed = told(["runs", str(tmp_path)], "utf-8", monkeypatch, terminal=True)
    sets = told(["data", "list"], "utf-8", monkeypatch, terminal=True)
    for text in (output.getvalue(), listed):
        assert "".join(line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")).endswith(name)
    assert "…" not in output.getvalue() + listed + sets


def told(words: Sequence[str], encoding: str, monkeypatch: pytest.MonkeyPatch, *, terminal: bool = False) -> str:
    """What the command prints to an output of this encoding."""
    written = io.BytesIO()
    output = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    output.isatty = lambda: terminal  # type: ignore[method-assign]
    with monkeypatch.context() as patched:
        patched.setattr(sys, "argv", ["hardsight", *words])
        patched.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as end:
            main()
    assert not end.value.code
    return written.getvalue().decode(encoding)
