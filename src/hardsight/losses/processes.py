"""What several processes must agree on, written for data-parallel training that averages the gradients.

Every function returns its input when `torch.distributed` is not in use. The losses call them only where a gradient is
wanted, so that a validation loss on one process does not wait for the others.
"""

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor

from hardsight.derivatives import once_differentiable, trace_of

Group = Any  # torch.distributed.ProcessGroup; its type does not exist where torch was built without it


def world_size(group: Group = None) -> int:
    """Number of processes in the group; 1 without `torch.distributed`."""
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def wants_gradient(x: Tensor) -> bool:
    return torch.is_grad_enabled() and x.requires_grad


def sum_over_processes(x: Tensor, group: Group = None) -> Tensor:
    """Sum over the processes; carries no gradient."""
    if world_size(group) == 1:
        return x.detach()
    total = x.detach().clone()
    dist.all_reduce(total, group=group)
    return total


def log_sum_over_processes(log_x: Float[Tensor, "*shape"], group: Group = None) -> Float[Tensor, "*shape"]:
    """log of the sum of exp over the processes, without leaving the logarithm; carries no gradient."""
    if world_size(group) == 1:
        return log_x.detach()
    own = log_x.detach().unsqueeze(0)  # compiled, a gather of scalars fails
    parts = [torch.empty_like(own) for _ in range(world_size(group))]
    dist.all_gather(parts, own, group=group)
    return torch.cat(parts).logsumexp(0)


def mean_over_processes(x: Tensor, group: Group = None) -> Tensor:
    """Mean over the processes; the averaged gradients are those of one process that held the whole batch."""
    return x if world_size(group) == 1 else _MeanOverProcesses.apply(x, trace_of(x), group)


def count_samples(x: Shaped[Tensor, "batch *rest"], group: Group = None) -> list[int]:
    """How many samples each process holds, in the order of their ranks; waits for the device."""
    if world_size(group) == 1:
        return [len(x)]
    size = torch.tensor([len(x)], device=x.device)
    sizes = [torch.empty_like(size) for _ in range(world_size(group))]
    dist.all_gather(sizes, size, group=group)
    return torch.cat(sizes).tolist()


def gather_samples(
    x: Shaped[Tensor, "batch *rest"], group: Group = None, *, counts: list[int] | None = None
) -> Shaped[Tensor, "all *rest"]:
    """All processes' samples in the order of their ranks; the batches may differ in size.

    A loss of the gathered samples has the same value on every process, and the averaged gradients are its gradient.
    `counts`: those of `count_samples`, where several tensors of the same samples are gathered.
    """
    if world_size(group) == 1:
        return x
    return _GatherSamples.apply(x, trace_of(x), count_samples(x, group) if counts is None else counts, group)


class _MeanOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, trace: Tensor, group: Group) -> Tensor:
        ctx.save_for_backward(trace)
        return sum_over_processes(x, group) / world_size(group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, None, None]:
        # d mean / d x is 1/W here, and the average over the W processes already is that 1/W.
        return grad, None, None


class _GatherSamples(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, trace: Tensor, counts: list[int], group: Group) -> Tensor:
        ctx.save_for_backward(trace)
        padded = x.new_zeros((max(counts), *x.shape[1:]))
        padded[: len(x)] = x
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=group)
        rank = dist.get_rank(group)
        ctx.mine = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
        ctx.world = len(counts)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, None, None, None]:
        # Each process follows the loss through its own samples only; times W, because the average divides by it.
        return grad[ctx.mine] * ctx.world, None, None, None
