"""Several processes, each with its share of the samples: after `merge`, all hold the sums of all.

The sums are whole numbers, so it makes no difference who adds first, nor which process saw which sample.
"""

from typing import Any

import torch
import torch.distributed as dist

from hardsight.dynamics.ledger import Ledger


def several(group: Any = None) -> bool:
    """Whether there is more than one process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1


def rank_and_count(group: Any = None) -> tuple[int, int]:
    """This process's number, and how many there are."""
    return (dist.get_rank(group), dist.get_world_size(group)) if several(group) else (0, 1)


def agree(frame: Any, group: Any = None) -> Any:
    """What the processes that recorded something recorded; refuses processes that differ, None if none did."""
    frames: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(frames, frame, group=group)
    known = [one for one in frames if one is not None]
    if any(one != known[0] for one in known):
        raise ValueError(f"every process must record the same measures in the same epoch; got {frames}")
    return known[0] if known else None


def merge(ledger: Ledger, group: Any = None) -> None:
    """Replace the sums of every process by those over all processes."""
    if ledger.keep_last:
        latest = ledger.latest.clone()
        dist.all_reduce(latest, dist.ReduceOp.MAX, group=group)
        ledger.sums.mul_((ledger.latest == latest).unsqueeze(1))
        ledger.latest.copy_(latest)
    dist.all_reduce(ledger.sums, dist.ReduceOp.SUM, group=group)


def default_device(group: Any = None) -> torch.device:
    """Where this group's collectives work."""
    if dist.get_backend(group) == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
