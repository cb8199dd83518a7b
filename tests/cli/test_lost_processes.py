"""A killed process that works for a command, or beside it, is one sentence; the record says that the run failed."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from hardsight import training
from hardsight.distributed import LostProcessError, lost_process_named


def die_in_a_worker() -> None:
    if get_worker_info() is not None:
        os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == 40:
            die_in_a_worker()
        return torch.full((2,), float(index)), index % 2


def test_a_killed_reader_of_a_training_leaves_a_record_that_goes_on(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    batches = DataLoader(Deadly(), batch_size=8, num_workers=1)
    with pytest.raises(LostProcessError, match="workers"):
        training.fit(model, batches, epochs=1, folder=tmp_path, progress=False)
    details = json.loads((tmp_path / "run.json").read_text())
    assert (details["status"], details["retry"]) == ("failed", True)
    training.fit(model, DataLoader(Deadly(), batch_size=8), epochs=1, folder=tmp_path, progress=False)
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "finished"


def test_other_errors_of_torch_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="mat1") as raised, lost_process_named():
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert not isinstance(raised.value, OSError)


DYING = """
import os, signal
from hardsight.training.loop import Loop
import hardsight.__main__ as main
whole = Loop._close_epoch
def close(self, epoch):
    if epoch == 2 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    whole(self, epoch)
Loop._close_epoch = close
main.main()
"""


def test_a_killed_rank_is_one_sentence_in_the_others(tmp_path: Path) -> None:
    (tmp_path / "digits.toml").write_text(
        'epochs = 3\nmodel = "digits_cnn"\ndata = { name = "digits", limit = 64, batch_size = 32 }\n'
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", DYING, "train", "digits.toml", "--quiet"],
            cwd=tmp_path, env=os.environ | where | {"RANK": rank, "LOCAL_RANK": rank},
            stderr=subprocess.PIPE, text=True,
        )
        for rank in ("0", "1")
    ]  # fmt: skip
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, -signal.SIGKILL], errors
    assert [line for line in errors[0].splitlines() if line.startswith(("hardsight:", "Traceback"))] == (
        errors[0].splitlines()[-1:]
    )
    details = json.loads((tmp_path / "runs" / "training" / "run.json").read_text())
    assert (details["status"], details["retry"]) == ("failed", True)
