"""`hardsight train`: what its help says can be typed, in an empty folder."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hardsight.cli import app
from hardsight.cli.train import train


def test_the_example_runs_with_the_configuration_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = train.__doc__ or ""
    least = re.search(r"holds: (.*), a line each", told)
    example = re.search(r"Example: hardsight (.*)", told)
    assert least is not None
    assert example is not None
    command = shlex.split(example.group(1))
    (tmp_path / command[1]).write_text("\n".join(least.group(1).split(", ")))
    done = CliRunner().invoke(app, [*command, "--set", "epochs=1", "--set", "data.limit=64", "--quiet"])
    assert done.exit_code == 0, done.output
    assert "next: hardsight audit runs/training" in done.output


@pytest.mark.parametrize("options", [["--quiet"], ["--json", "--quiet"], []])
def test_a_training_at_chance_is_told(tmp_path: Path, options: list[str]) -> None:
    config = tmp_path / "all.toml"
    config.write_text('epochs = 5\ndata = "digits"\nmodel = "digits_cnn"\n')
    changes = [f"folder={tmp_path / 'run'}", "data.limit=64", "optimizer.lr=1e-12"]
    done = CliRunner().invoke(app, ["train", str(config), *options, *(f"--set={change}" for change in changes)])
    assert done.exit_code == 0, done.output
    assert re.search(r"at chance .*1e-12", done.output)


def test_all_keys_are_listed_without_a_configuration() -> None:
    done = CliRunner().invoke(app, ["train", "--show-config"])
    assert done.exit_code == 0, done.output
    assert "optimizer.lr\tnumber\t0.1\t" in done.output
    assert "data.name\ttext\trequired\t" in done.output
