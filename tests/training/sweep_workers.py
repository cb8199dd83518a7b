"""Run by `test_sweeps`: several processes on one sweep, one of them killed in the middle of a cell.

    python sweep_workers.py FOLDER

Each computed cell appends a line with its process to FOLDER/log; the killed one leaves its cell unfinished.
"""

import os
import signal
import sys
import time
from pathlib import Path

from hardsight import records
from hardsight.training.sweeps import grid, run_sweep

CELLS = grid(a=[1, 2, 3, 4], seed=[0, 1, 2])


def work(folder: Path, *, die: bool) -> None:
    def run(mine) -> None:
        for cell, place in mine:
            with (folder / "log").open("a") as log:
                log.write(f"{os.getpid()} {'dies' if die else 'works'} {cell.name}\n")
            if die:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.02)
            records.write_json(place / "run.json", {"status": "finished"})

    run_sweep(folder, CELLS, run)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    workers = []
    for number in range(5):
        pid = os.fork()
        if pid == 0:
            try:
                work(folder, die=number < 2)
                os._exit(0)
            finally:
                os._exit(1)
        workers.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers]
    # A dead owner's cell may have been passed over while it was still alive: one more goes through what is left.
    work(folder, die=False)
    print(codes)


if __name__ == "__main__":
    main()
