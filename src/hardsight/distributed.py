"""What several processes do as one: join, count, sum, gather, wait for each other, fail with each other.

Without `torch.distributed` every function does what it means for one process alone. Sums and gathers that belong to a
loss are written for data-parallel training that averages the gradients; the losses call them only where a gradient is
wanted, so that a validation loss in one process does not wait for the others.
"""

import contextlib
import math
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor

from hardsight.derivatives import applied, once_differentiable, trace_of
from hardsight.validation import check_device

Group = Any  # torch.distributed.ProcessGroup; its type does not exist where torch was built without it

_CPU = torch.device("cpu")
# What gloo, NCCL and the store of a process group say when the other end is gone.
_CUT_OFF = re.compile(r"gloo/transport|ncclRemoteError|[Cc]onnection (was )?(closed|reset)|Broken pipe")


def world_size(group: Group = None) -> int:
    """Number of processes in the group; 1 without `torch.distributed`."""
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def several(group: Group = None) -> bool:
    """Whether there is more than one process."""
    return world_size(group) > 1


def rank_and_count(group: Group = None) -> tuple[int, int]:
    """This process's number, and how many there are."""
    return (dist.get_rank(group), dist.get_world_size(group)) if several(group) else (0, 1)


def join_processes(device: torch.device | str | None = None) -> torch.device:
    """The device of this process, which first joins the processes that torchrun or the like started with it.

    Which it is and where they meet is in the environment (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). Each
    takes a GPU of its own where there are any, unless a `device` is named.
    """
    chosen = usable_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and dist.is_available():
        on_gpu = chosen.type == "cuda"
        if on_gpu and chosen.index is None:
            chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        if not dist.is_initialized():
            if on_gpu:
                torch.cuda.set_device(chosen)
            dist.init_process_group("nccl" if on_gpu else "gloo")
    return chosen


def usable_device(name: torch.device | str | None = None) -> torch.device:
    """The device of this name, which must be there; without a name a GPU where there is one, or else the CPU."""
    if name is None:
        return (torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None) or _CPU
    return check_device(name)


def current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Make a GPU the current device: streams, graphs and the global generator are the current device's unless named.

    A step on another GPU would be captured as an empty graph, and its replays would train nothing.
    """
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def default_device(group: Group = None) -> torch.device:
    """Where this group's collectives work."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else _CPU


def wait_for_all(failure: Exception | None = None, group: Group = None) -> None:
    """Go on when every process has come here; a failure that one of them brings is raised in all.

    In the process that brings it as it is; in the others as an OSError, if it is one, or else a ValueError.
    """
    failures: list[Any] = [None] * world_size(group)
    if several(group):
        own = None if failure is None else (OSError if isinstance(failure, OSError) else ValueError, str(failure))
        dist.all_gather_object(failures, own, group=group)
    if failure is not None:
        raise failure
    for rank, theirs in enumerate(failures):
        if theirs is not None:
            kind, reason = theirs
            raise kind(f"process {rank} stopped: {reason}")


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
    except (RuntimeError, OSError, EOFError) as problem:
        calls = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(problem.__traceback__))
        # Fetching what a worker had put into shared memory fails where it took that away when it ended.
        if str(problem).startswith("DataLoader worker") or any(file.endswith("resource_sharer.py") for file in calls):
            raise LostProcessError(
                "a process that reads the data was killed: it may have been out of memory, and fewer workers or "
                "smaller batches need less"
            ) from problem
        if isinstance(problem, RuntimeError) and _CUT_OFF.search(str(problem)):
            raise LostProcessError(
                "another process of this training has ended or does not answer: look at what it said last"
            ) from problem
        raise


def sum_over_processes(x: Tensor, group: Group = None) -> Tensor:
    """Sum over the processes; carries no gradient."""
    if not several(group):
        return x.detach()
    total = x.detach().clone()
    dist.all_reduce(total, group=group)
    return total


def log_sum_over_processes(log_x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """log of the sum of exp over the processes, without leaving the logarithm; carries no gradient."""
    if not several():
        return log_x.detach()
    own = log_x.detach().unsqueeze(0)  # compiled, a gather of scalars fails
    parts = [torch.empty_like(own) for _ in range(world_size())]
    dist.all_gather(parts, own)
    return torch.cat(parts).logsumexp(0)


def log_mean_over_processes(log_x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """log of the mean of exp over all processes; carries no gradient."""
    return log_sum_over_processes(log_x) - math.log(world_size())


def mean_over_processes(x: Tensor) -> Tensor:
    """Mean over the processes; the averaged gradients are those of one process that held the whole batch."""
    return applied(_MeanOverProcesses, x, trace_of(x)) if several() else x


def count_samples(x: Shaped[Tensor, "batch *rest"]) -> list[int]:
    """How many samples each process holds, in the order of their ranks; waits for the device."""
    return gather_rows(torch.tensor([len(x)], device=x.device), [1] * world_size()).tolist()


def gather_samples(x: Shaped[Tensor, "batch *rest"], *, counts: list[int] | None = None) -> Shaped[Tensor, "all *rest"]:
    """All processes' samples in the order of their ranks; the batches may differ in size.

    A loss of the gathered samples has the same value on every process, and the averaged gradients are its gradient.
    `counts`: those of `count_samples`, where several tensors of the same samples are gathered.
    """
    return applied(_GatherSamples, x, trace_of(x), counts or count_samples(x)) if several() else x


def gather_rows(x: Shaped[Tensor, "own *rest"], counts: Sequence[int], group: Group = None) -> Tensor:
    """So many rows of each process, in the order of their ranks; carries no gradient."""
    if len(counts) == 1:
        return x
    padded = x.new_zeros((max(counts), *x.shape[1:]))
    padded[: len(x)] = x
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


def sum_with_gradient(values: Tensor) -> Tensor:
    """Sum over all processes; what each does with it flows back to all of them, as do derivatives of that."""
    return applied(_SumWithGradient, values)


class _MeanOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, trace: Tensor) -> Tensor:
        ctx.save_for_backward(trace)
        return sum_over_processes(x) / world_size()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, None]:
        # d mean / d x is 1/W here, and the average over the W processes already is that 1/W.
        return grad, None


class _GatherSamples(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, trace: Tensor, counts: list[int]) -> Tensor:
        ctx.save_for_backward(trace)
        rank = dist.get_rank()
        ctx.mine = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
        ctx.world = len(counts)
        return gather_rows(x, counts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, None, None]:
        # Each process follows the loss through its own samples only; times W, because the average divides by it.
        return grad[ctx.mine] * ctx.world, None, None


class _SumWithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return sum_with_gradient(grad.contiguous())
