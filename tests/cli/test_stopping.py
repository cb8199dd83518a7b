"""Ctrl-C and SIGTERM end every command with one sentence that says how to go on; records say that they were stopped."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

import hardsight.__main__
from hardsight import records, stopping
from hardsight.cli import app_with
from hardsight.domains.rounds import Rounds
from hardsight.training import Loop, grid, list_runs, sweep
from hardsight.training.record import RunRecord

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
CONFIG = 'epochs = 3\nmodel = "digits_cnn"\ndata = { name = "digits", limit = 64, batch_size = 32 }\n'


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, list[str]]]]:
    """Runs the command line in an empty folder; its exit code and what it said of itself on stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.toml").write_text(CONFIG)

    def run(*words: object) -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["hardsight", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            hardsight.__main__.main()
        said = capsys.readouterr().err.splitlines()
        return int(end.value.code or 0), [line for line in said if line.startswith(("hardsight: ", "Traceback"))]

    before = [signal.getsignal(number) for number, _ in SIGNALS]
    yield run
    assert [signal.getsignal(number) for number, _ in SIGNALS] == before


def stop_in(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, number: int, call: int) -> None:
    """Let the process get a signal when it calls a method for the n-th time."""
    whole, calls = getattr(owner, method), []

    def stopped(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), number)
        return whole(*arguments, **options)

    monkeypatch.setattr(owner, method, stopped)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_stopped_training_says_where_it_goes_on(
    number: int, code: int, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as during:
        stop_in(during, Loop, "_close_epoch", number, 2)
        exit_code, said = command("train", "digits.toml", "--quiet")
    assert exit_code == code
    (sentence,) = said
    assert "runs/training/checkpoint/step-00000002" in sentence
    (run,) = list_runs("runs")
    assert run["status"] == "interrupted"
    assert "process" not in (records.read_run("runs/training") or {})
    assert command("train", "digits.toml", "--quiet") == (0, [])
    (run,) = list_runs("runs")
    assert (run["status"], run["epochs"]) == ("finished", 3)
    assert not list(Path("runs").rglob(".*"))


def test_a_training_that_has_kept_nothing_says_that_it_begins_again(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in(monkeypatch, Loop, "_close_epoch", signal.SIGINT, 1)
    exit_code, (sentence,) = command("train", "digits.toml", "--quiet")
    assert exit_code == 130
    assert "step-" not in sentence
    assert list_runs("runs")[0]["status"] == "interrupted"


def test_a_training_that_was_begun_again_says_how_not_to(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in(monkeypatch, Loop, "_close_epoch", signal.SIGINT, 2)
    _, (sentence,) = command("train", "digits.toml", "--quiet", "--restart")
    assert "--restart" in sentence
    assert "step-00000002" in sentence


def test_a_stopped_demo_never_promises_to_go_on(command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    stop_in(monkeypatch, Loop, "_close_epoch", signal.SIGTERM, 2)
    exit_code, (sentence,) = command("demo", "--epochs", 3)
    assert exit_code == 143
    assert "step-" not in sentence
    assert [run["status"] for run in list_runs("runs")] == ["interrupted"]


def test_a_demo_that_is_stopped_after_its_training_is_not_finished(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("hardsight.demo.find_label_issues", stop)
    assert command("demo", "--epochs", 1)[0] == 130
    assert [run["status"] for run in list_runs("runs")] == ["interrupted"]


def test_a_stopped_adaptation_goes_on(command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("adapt", "digits", "digits", "-m", "digits_cnn", "--source-epochs", 1, "--rounds", 2, "--limit", 64)
    with monkeypatch.context() as during:
        stop_in(during, Rounds, "_after_epoch", signal.SIGINT, 2)
        exit_code, (sentence,) = command(*words)
    assert exit_code == 130
    assert "adapt-digits-digits/checkpoint/step-" in sentence
    assert [run["status"] for run in list_runs("runs")] == ["interrupted"]
    assert command(*words) == (0, [])
    assert [run["status"] for run in list_runs("runs")] == ["finished"]


def test_an_adaptation_that_is_stopped_on_its_source_says_what_that_keeps(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("adapt", "digits", "digits", "-m", "digits_cnn", "--source-epochs", 2, "--rounds", 1, "--limit", 64)
    stop_in(monkeypatch, Loop, "_close_epoch", signal.SIGINT, 2)
    _, (sentence,) = command(*words)
    assert "source/checkpoint/step-" in sentence


def test_the_training_of_a_stopped_sweep_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"epochs": 2, "model": "digits_cnn", "data": {"name": "digits", "limit": 64, "batch_size": 32}}
    stop_in(monkeypatch, Loop, "_close_epoch", signal.SIGINT, 2)
    with pytest.raises(KeyboardInterrupt):
        sweep(settings, tmp_path, grid(seed=[0, 1, 2]), progress=False)
    assert [run["status"] for run in list_runs(tmp_path)] == ["interrupted"]


def brought(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> typer.Typer:
    """The command line with a command `study work`."""
    module = ModuleType("brought")
    module.app = typer.Typer()  # type: ignore[attr-defined]
    module.app.command("work")(lambda: work())
    module.app.command("other")(lambda: None)
    monkeypatch.setitem(sys.modules, "brought", module)
    return app_with([EntryPoint("study", "brought:app", "hardsight.commands")])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), KeyboardInterrupt(signal.SIGTERM)])
def test_a_command_of_another_distribution_ends_in_a_sentence_too(
    error: KeyboardInterrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        raise error

    done = CliRunner().invoke(brought(monkeypatch, work), ["study", "work"])
    assert done.exit_code == 130
    assert len(done.stderr.splitlines()) == 1


def test_an_interruption_that_comes_out_as_another_error_is_one_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it hits the import of a compiled module, that module may fail with an error of its own."""

    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise SystemError("error return without exception set") from None

    with stopping.signals_raised():
        done = CliRunner().invoke(brought(monkeypatch, work), ["study", "work"])
    assert done.exit_code == 143
    assert len(done.stderr.splitlines()) == 1


def test_interrupted_before_the_command_itself_runs(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While words are parsed typer answers Ctrl-C, and says nothing."""
    stop_in(monkeypatch, TyperGroup, "make_context", signal.SIGINT, 1)
    exit_code, said = command("runs")
    assert (exit_code, len(said)) == (130, 1)


def test_a_second_signal_does_not_disturb_the_tidying_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal and a launcher both pass on one Ctrl-C."""
    monkeypatch.setattr(stopping, "_SAME", 60.0)
    tidied = []

    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            tidied.append(True)

    with stopping.signals_raised():
        done = CliRunner().invoke(brought(monkeypatch, work), ["study", "work"])
    assert (done.exit_code, tidied) == (130, [True])


def test_a_later_signal_stops_what_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_SAME", 0.0)
    with stopping.signals_raised():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)


STUCK = """
import ctypes, os, threading
from hardsight import stopping
stopping._PATIENCE = 0.3
with stopping.signals_raised(), stopping.stop_said():
    if os.environ.get("ANSWERS"):
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            threading.Event().wait()
        os.wait()
        threading.Event().wait(1.0)
    mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    print("on", flush=True)
    for _ in range(0 if os.environ.get("ANSWERS") else 2):
        libc.pthread_mutex_lock(mutex)
"""


def test_a_process_that_cannot_answer_ends_all_the_same() -> None:
    """Waiting in C++ for a process that does not come, Python runs no handler of a signal."""
    process = subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 143
    assert len(errors.splitlines()) == 1


def test_the_signals_of_a_forked_worker_are_its_own() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"ANSWERS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    os.kill(worker, signal.SIGSTOP)
    os.kill(worker, signal.SIGTERM)
    os.kill(worker, signal.SIGCONT)
    output, _ = process.communicate(timeout=20)
    assert (process.returncode, output) == (0, "on\n")


def test_signals_that_others_handle_or_ignore_stay_as_they_are() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with stopping.signals_raised():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
            with stopping.signals_raised():
                os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_thread_leaves_signals_alone() -> None:
    seen: list[object] = []

    def work() -> None:
        with stopping.signals_raised():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


@pytest.mark.parametrize("delay", [0.0, 0.3, 1.0])
def test_stopped_while_it_starts(delay: float, tmp_path: Path) -> None:
    """From the moment the command runs at all; before it, Python itself does not listen."""
    (tmp_path / "digits.toml").write_text(CONFIG.replace("epochs = 3", "epochs = 100000"))
    code = "import hardsight.__main__ as m; print('on', flush=True); m.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "train", "digits.toml", "--quiet"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay + 0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert len(errors.splitlines()) == 1


def test_a_killed_run_is_shown_as_gone(command: Callable[..., Any]) -> None:
    RunRecord("runs/a").begin(name="a")
    details = records.read_run("runs/a") or {}
    assert details["status"] == "running"
    # A process that had this one's number before.
    records.write_json("runs/a/run.json", details | {"process": details["process"].rpartition("-")[0] + "-earlier"})
    assert [run["status"] for run in list_runs("runs")] == ["gone"]
    assert command("runs") == (0, [])


def test_a_run_of_this_process_is_running(tmp_path: Path) -> None:
    RunRecord(tmp_path / "a").begin(name="a")
    elsewhere = {"status": "running", "process": "elsewhere-1-1"}
    for name, details in (("b", elsewhere), ("c", {"status": "running"}), ("d", {"status": "running", "process": 3})):
        records.write_json(tmp_path / name / "run.json", details)
    assert [run["status"] for run in list_runs(tmp_path)] == ["running"] * 4
    # On another machine the claim tells: its owner would have touched it.
    claim = tmp_path / "b" / ".training"
    claim.write_text(elsewhere["process"])
    os.utime(claim, (0, 0))
    assert {Path(run["folder"]).name for run in list_runs(tmp_path) if run["status"] == "gone"} == {"b"}


def test_only_the_first_of_several_processes_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("RANK", "1")
    done = CliRunner().invoke(brought(monkeypatch, work), ["study", "work"])
    assert (done.exit_code, done.stderr) == (130, "")
