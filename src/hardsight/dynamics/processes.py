"""The recorder in several processes, each with its share of the samples: after `merge`, all hold the sums of all.

The sums are whole numbers, so neither the order of adding them nor the split of the samples changes the result.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


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
