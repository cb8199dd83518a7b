"""What a person or a tracker sees: a bar on a terminal, lines in a pipe, rows in a tracker."""

import io
import sys

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from hardsight import training
from hardsight.training.config import DataConfig, ModelConfig, TrainingConfig
from hardsight.training.from_config import Tracker
from hardsight.training.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines_in_a_pipe(problem, small, capsys):
    training.fit(small(), problem.loader(), epochs=2, test=problem.loader(), details=training.Details(name="a run"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("a run: epoch 1/2, train loss ")
    assert "test accuracy" in lines[1]


def test_a_bar_on_a_terminal(problem, small, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    training.fit(small(), problem.loader(), epochs=2, details=training.Details(name="[/a] run"))
    shown = terminal.getvalue()
    assert "[/a] run" in shown
    assert "12/12" in shown
    assert "epoch 1/2" not in shown


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_numbers_of_an_epoch_leave_room_for_name_bar_and_count(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    row = dict.fromkeys(("train_accuracy", "test_accuracy", "corrupted_accuracy", "intact_accuracy"), 0.5)
    with Progress("a run", epochs=1, steps=12) as progress:
        for _ in range(12):
            progress.advance()
        progress.epoch({"epoch": 1, "train_loss": 0.25, **row, "seconds": 1.0})
    last = terminal.getvalue().rpartition("\x1b[2K")[2]
    assert "a run " in last
    assert "12/12" in last
    assert "train loss 0.2500" in last
    assert columns < 200 or "intact accuracy 50.00 %" in last


def test_silence_on_request(problem, small, capsys):
    training.fit(small(), problem.loader(), epochs=1, progress=False)
    assert capsys.readouterr().err == ""


@pytest.fixture
def config():
    return TrainingConfig(data=DataConfig(name="digits"), model=ModelConfig(name="digits_cnn"), epochs=2)


def test_a_tracker_gets_the_configuration_and_every_epoch(config, tmp_path, monkeypatch):
    logged = []

    class Own(GeneralTracker):
        name, requires_logging_directory = "tensorboard", True

        def __init__(self, run_name, logging_dir):
            logged.append(("made", run_name, str(logging_dir)))

        def start(self):
            logged.append("started")

        @property
        def tracker(self):
            return self

        def store_init_configuration(self, values):
            logged.append(("config", values["optimizer.lr"], values["data.name"]))

        def log(self, values, step=None, **_):
            logged.append((step, dict(values)))

        def finish(self):
            logged.append("finished")

    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "tensorboard", Own)
    tracker = Tracker("tensorboard", tmp_path / "run", config)
    tracker.epoch(1, {"epoch": 1, "test_accuracy": 0.5})
    tracker.close()
    assert logged == [
        ("made", "run", str(tmp_path / "run" / "tensorboard")),
        "started",
        ("config", 0.1, "digits"),
        (1, {"test_accuracy": 0.5}),
        "finished",
    ]


def test_a_tracker_whose_package_is_missing_is_one_sentence(config, tmp_path, monkeypatch):
    class Missing:
        requires_logging_directory = False

        def __init__(self, name):
            raise ModuleNotFoundError("No module named 'wandb'")

    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "wandb", Missing)
    with pytest.raises(ImportError, match=r"record\.tracker 'wandb' needs its package: pip install wandb"):
        Tracker("wandb", tmp_path, config)


def test_a_tracker_without_accelerate_says_what_to_install(config, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ImportError, match=r"record\.tracker .* pip install accelerate"):
        Tracker("tensorboard", tmp_path, config)
