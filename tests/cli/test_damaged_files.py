"""Files nested a thousand deep, which end a parser's patience and not its grammar, end a command in one sentence."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hardsight.cli import app

DEEP_JSON, DEEP_TOML = "[" * 100_000, "x = " + "[" * 100_000


@pytest.mark.parametrize(
    ("command", "name", "content"),
    [
        (["report", "{folder}"], "run.json", DEEP_JSON),
        (["report", "{folder}/alignment.json"], "alignment.json", DEEP_JSON),
        (["train", "{folder}/c.toml"], "c.toml", DEEP_TOML),
        (["train", "{folder}/c.toml"], "c.toml", "epochs = " + "9" * 5000),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else None,
)
def test_a_command_answers_in_one_sentence_that_names_the_file(
    command: list[str], name: str, content: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    answer = CliRunner().invoke(app, [part.format(folder=tmp_path) for part in command])
    assert answer.exit_code == 2, answer.output[-500:]
    assert name in answer.output.replace("\n", "")
    assert "Traceback" not in answer.output
    assert len(answer.output) < 600
