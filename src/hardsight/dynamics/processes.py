"""Several processes, each with its share of the samples: after `merge`, all hold the sums of all.

The sums are whole numbers, so it makes no difference who adds first, nor which process saw which sample.
What one process alone does, such as writing a file, it does `together` with the others: its failure is theirs.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# What gloo, NCCL and the store of a process group say when the other end is gone.
_CUT_OFF = re.compile(r"gloo/transport|ncclRemoteError|[Cc]onnection (was )?(closed|reset)|Broken pipe")


def several(group: Any = None) -> bool:
    """Whether there is more than one process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1


def rank_and_count(group: Any = None) -> tuple[int, int]:
    """This process's number, and how many there are."""
    return (dist.get_rank(group), dist.get_world_size(group)) if several(group) else (0, 1)


def wait_for_all(failure: Exception | None = None, group: Any = None) -> None:
    """Go on when every process has come here; a failure that one of them brings is raised in all.

    In the process that brings it as it is; in the others as an OSError, if it is one, or else a ValueError.
    """
    failures: list[Any] = []
    if several(group):
        failures = [None] * dist.get_world_size(group)
        own = None if failure is None else (isinstance(failure, OSError), str(failure))
        dist.all_gather_object(failures, own, group=group)
    if failure is not None:
        raise failure
    for rank, theirs in enumerate(failures):
        if theirs is not None:
            of_the_system, reason = theirs
            raise (OSError if of_the_system else ValueError)(f"process {rank} stopped: {reason}")


@contextlib.contextmanager
def together(wait: Callable[[Exception | None], object] = wait_for_all) -> Iterator[None]:
    """What is done inside is done when all processes have done theirs; what fails in one fails in all.

    Without it, the others would wait for one that has failed at their next meeting, until their patience ends. So
    inside there must be no meeting of the processes, unless nothing can fail before it.
    """
    failure = None
    try:
        yield
    except Exception as reason:
        failure = reason
    wait(failure)


class LostProcessError(OSError):
    """A process that works for this one, or beside it, has ended before its time."""


@contextlib.contextmanager
def lost_process_named() -> Iterator[None]:
    """Turn what torch raises when another process was killed into a sentence about that process."""
    try:
        yield
    except RuntimeError as problem:
        text = str(problem)
        if text.startswith("DataLoader worker"):
            raise LostProcessError(
                f"a process that reads the data ended before its time ({_first_sentence(text)}): it may have been out "
                "of memory, and fewer workers or smaller batches need less"
            ) from problem
        if _CUT_OFF.search(text):
            raise LostProcessError(
                "another process of this training has ended or does not answer: look at what it said last"
            ) from problem
        raise


def _first_sentence(text: str) -> str:
    return text.strip().partition(". ")[0].rstrip(".")


def agree(frame: Any, group: Any = None) -> Any:
    """What the processes that recorded something recorded; refuses processes that differ, None if none did."""
    frames: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(frames, frame, group=group)
    known = [one for one in frames if one is not None]
    if any(one != known[0] for one in known):
        raise ValueError(f"every process must record the same measures in the same epoch; got {frames}")
    return known[0] if known else None


def merge(ledger: Mapping[str, Tensor], group: Any = None) -> None:
    """Replace the sums of every process (`Ledger.tensors`) by those over all processes."""
    sums, own = ledger["sums"], ledger["latest"]
    if len(own):
        latest = own.clone()
        dist.all_reduce(latest, dist.ReduceOp.MAX, group=group)
        sums.mul_((own == latest).unsqueeze(1))
        own.copy_(latest)
        dist.all_reduce(ledger["clock"], dist.ReduceOp.MAX, group=group)
    dist.all_reduce(sums, dist.ReduceOp.SUM, group=group)


def no_share(ledger: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A ledger into which nothing was added; its clock goes on, or what comes next would count as earlier."""
    sums, latest, clock = ledger["sums"], ledger["latest"], ledger["clock"]
    return {"sums": torch.zeros_like(sums), "latest": torch.full_like(latest, -1), "clock": clock}


def default_device(group: Any = None) -> torch.device:
    """Where this group's collectives work."""
    if dist.get_backend(group) == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
