"""What our own commands have written, as a stranger may hand it on: stopped runs, rows of studies, benchmarks."""

import os
import shutil
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

STUDIES = Path(__file__).parents[2] / "studies" / "results"
# The third step is after the first epoch's checkpoint.
STOPPED_IN_STEP = 3
TRAINED = """
name = "mine"
epochs = 2
folder = "run"
data = { name = "digits", limit = 40, batch_size = 20 }
model = "digits_cnn"
optimizer = { lr = 0.01, momentum = 0.9 }
record = { scores = ["avh"], fit_every = 1 }
"""
Build = Callable[[Path], None]


def stopped_run(folder: Path) -> None:
    """A training that was stopped in its second epoch, with its checkpoint, and a whole one beside it."""
    (folder / "c.toml").write_text(TRAINED)
    _apart(folder, ["train", "c.toml", "--quiet", "--set", "folder=whole"])
    _apart(folder, ["train", "c.toml", "--quiet"], stopped=True)
    assert list(folder.glob("run/checkpoint/step-*/shared.json"))


def demo(folder: Path) -> None:
    """Where the demo was stopped, or has been."""
    _apart(folder, ["demo", "--epochs", "1"])


def rows(folder: Path) -> None:
    (folder / "results").mkdir()
    for name in ("gr-table8.jsonl", "gr-figure1.jsonl", "gr-figure1.parquet", "amc-figure4.jsonl"):
        shutil.copy(STUDIES / name, folder / "results")


def measured(folder: Path) -> None:
    (folder / "results.csv").write_text("op,shape,variant,median_ms\nangular_scores,64x10,ours,0.5\n")


def _apart(folder: Path, command: Iterable[str], *, stopped: bool = False) -> None:
    """Run a command in a process split off this one; `stopped` as by Ctrl-C in one of its steps."""
    child = os.fork()
    if child == 0:
        try:
            _run(folder, list(command), stopped)
        finally:
            os._exit(70)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == (130 if stopped else 0), f"{command} ended with {code}"


def _run(folder: Path, command: list[str], stopped: bool) -> None:
    import sys

    import torch

    from hardsight.cli import main

    os.chdir(folder)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    if stopped:
        # Whoever is started in the background ignores it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        steps, step = [0], torch.optim.SGD.step

        def counted(*given: object, **options: object) -> object:
            steps[0] += 1
            if steps[0] == STOPPED_IN_STEP:
                os.kill(os.getpid(), signal.SIGINT)
            return step(*given, **options)  # type: ignore[arg-type]

        torch.optim.SGD.step = counted  # type: ignore[method-assign,assignment]
    sys.argv = ["hardsight", *command]
    try:
        main()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 0)


# By name: how a folder is filled, the commands that are run in it, how those end over honest files, and how often they
# are run: some train for seconds.
WRITTEN: dict[str, tuple[Build, list[list[str]], tuple[int, ...], float]] = {
    "stopped run": (
        stopped_run,
        [["train", "c.toml", "--quiet"]] * 3
        + [["runs", "."], ["report", "run"], ["report", "whole"], ["audit", "whole", "-o", "out", "--no-page"]],
        (0,),
        0.5,
    ),
    "demo": (demo, [["demo", "--epochs", "1"], ["report", "runs/demo"], ["audit", "runs/demo"]], (0,), 0.1),
    "study": (
        rows,
        [["study", "table", name, "--results", "results"] for name in ("gr-table8", "amc-figure4")]
        + [["study", "table", "gr-table8", "--results", "results", "--json"]]
        + [["study", "figures", "gr-figure1", "--results", "results", "-o", "out"]]
        + [["study", "run", "gr-table8", "--results", "results", "--preset", "cpu", "--limit-seconds", "0.01"]],
        (0, 1, 2),
        0.5,
    ),
    # Without a GPU it says so.
    "bench": (measured, [["bench", "--save", "results.csv", "--only", "angular_scores"]], (0, 2), 0.1),
}
