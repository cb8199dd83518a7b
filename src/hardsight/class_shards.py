"""A linear head whose classes are divided among processes, for more classes than one device holds.

Every process has the weights of some classes and a batch of its own. The features of all are gathered, each process
computes with its own classes, and the few numbers per sample that run over all classes are reduced. `hs.score`,
`losses.avh_loss` and `losses.linear_gradient_rescaling` take a `ShardedHead` in the place of the weight.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Bool, Int
from torch import Tensor, nn

from hardsight import distributed
from hardsight.derivatives import applied, once_differentiable, trace_of
from hardsight.distributed import Group
from hardsight.validation import check_finite, check_matrix


def own_classes(classes: int, group: Group = None) -> range:
    """The classes of this process where they are divided evenly: the first processes have one more."""
    rank, count = distributed.rank_and_count(group)
    each, more = divmod(classes, count)
    first = rank * each + min(rank, more)
    return range(first, first + each + (rank < more))


class ShardedHead(nn.Module):
    """This process's part of a head: `weight` [own classes, dim], and `bias` where every part has one.

    The classes are numbered in the order of the processes, unless each says which its `first` is. All processes make
    it together, and call what it is given to together. The weight is a parameter if it is given as one. It must not
    be wrapped in DistributedDataParallel, which would average different classes: its gradients are already those of
    the whole batch. Gradients of features are multiplied by the number of processes, as those of what made them are
    averaged afterwards; with `gradients_are_averaged=False` they are not.
    """

    bias: Tensor | None

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, *, first: int | None = None, group: Group = None,
        gradients_are_averaged: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        with distributed.together(functools.partial(distributed.wait_for_all, group=group)):
            check_matrix("weight", weight, "[own classes, dim]")
            check_finite("weight", weight.detach())
            if bias is not None and bias.shape != weight.shape[:1]:
                raise ValueError(
                    f"bias must be one number for each of the {len(weight)} own classes; got {list(bias.shape)}"
                )
        self.group, self.averaged = group, gradients_are_averaged
        self.weight, self.bias = weight, bias
        self.rank, self.processes = distributed.rank_and_count(group)
        own = torch.tensor([-1 if first is None else first, *weight.shape, bias is not None], device=weight.device)
        layout = [tuple(one) for one in distributed.gather_rows(own.unsqueeze(0), [1] * self.processes, group).tolist()]
        firsts = _check_parts(layout)
        self.first, self.classes = firsts[self.rank], sum(count for _, count, *_ in layout)

    @property
    def dim(self) -> int:
        """Components of a feature."""
        return self.weight.shape[1]

    def extra_repr(self) -> str:
        return f"classes {self.first} to {self.first + len(self.weight) - 1} of {self.classes}, dim={self.dim}"

    def own(self, labels: Int[Tensor, "samples"]) -> tuple[Bool[Tensor, "samples"], Int[Tensor, "samples"]]:
        """Which samples have a label of this process's classes, and its place among them (0 for the others)."""
        place = labels - self.first
        mine = (place >= 0) & (place < len(self.weight))
        return mine, torch.where(mine, place, 0)

    def counts(self, features: Tensor, *others: Tensor | None) -> list[int]:
        """How many samples each process brings; `others` have a row a sample. What does not fit raises in all."""
        failure, shape = "", features.shape
        if not features.is_floating_point() or features.ndim != 2 or features.shape[1] != self.dim:
            failure = (
                f"features must be floats [samples, {self.dim}], the head's dim; got {features.dtype} {list(shape)}"
            )
        elif wrong := [list(one.shape) for one in others if one is not None and one.shape != shape[:1]]:
            failure = f"labels and sample_weight must be one number for each of the {shape[0]} samples; got {wrong[0]}"
        own = torch.tensor([[-1 if failure else len(features)]], device=self.weight.device)
        counts = [count for (count,) in distributed.gather_rows(own, [1] * self.processes, self.group).tolist()]
        if failure:
            raise ValueError(failure)
        if -1 in counts:
            raise ValueError(f"process {counts.index(-1)} stopped: its samples do not fit the head")
        return counts

    def gather(self, x: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of all processes; their gradient is summed over what every process makes of them."""
        if self.processes == 1:
            return x
        factor = self.processes if self.averaged else 1
        return applied(_GatherForShards, x, trace_of(x), list(counts), factor, self.group)

    def share(self, x: Tensor) -> Tensor:
        """What every process has alike, such as a learnt scale: its gradient is the sum over all classes."""
        return x if self.processes == 1 else applied(_SumGradients, x, trace_of(x), 1.0, self.group)

    def agree(self, x: Tensor) -> Tensor:
        """A result that every process has alike; what flows back to it is the mean over the processes."""
        return x if self.processes == 1 else applied(_SumGradients, x, trace_of(x), 1 / self.processes, self.group)

    def reduce(self, x: Tensor, how: str = "sum") -> Tensor:
        """Sum, max or min over the processes; carries no gradient."""
        found = x.detach().clone()
        if self.processes > 1:
            operation = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}[how]
            dist.all_reduce(found, op=operation, group=self.group)
        return found


def _check_parts(layout: Sequence[tuple[int, int, int, int]]) -> list[int]:
    """The first class of every process; each says its first class or -1, its classes, dim, and whether it is biased."""
    said, counts, dims, biased = zip(*layout, strict=True)
    if len(set(dims)) > 1:
        raise ValueError(f"weight must have the same dim in every process; got {', '.join(map(str, dims))}")
    if len(set(biased)) > 1:
        raise ValueError(f"bias must be given in every process or in none; process {biased.index(0)} has none")
    if sum(counts) < 2:
        raise ValueError(f"weight must have a row for each of at least 2 classes; got {sum(counts)} in all processes")
    if set(said) == {-1}:
        return [sum(counts[:rank]) for rank in range(len(counts))]
    end = 0
    for first, count in sorted(zip(said, counts, strict=True)):
        if first != end:
            raise ValueError(
                f"first must give each class to one process, or be left out in all; got {list(said)} for "
                f"{list(counts)} classes"
            )
        end = first + count
    return list(said)


class _GatherForShards(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, trace: Tensor, counts: list[int], factor: int, group: Group) -> Tensor:
        ctx.save_for_backward(trace)
        before = sum(counts[: dist.get_rank(group)])
        ctx.mine, ctx.factor, ctx.group = slice(before, before + len(x)), factor, group
        return distributed.gather_rows(x, counts, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        everyone = distributed.sum_over_processes(grad.contiguous(), ctx.group)
        return everyone[ctx.mine] * ctx.factor, None, None, None, None


class _SumGradients(torch.autograd.Function):
    """The input, whose gradient is a factor times the sum of what flows back to it in every process."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, trace: Tensor, factor: float, group: Group) -> Tensor:
        ctx.save_for_backward(trace)
        ctx.factor, ctx.group = factor, group
        return x.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, None, None, None]:
        return distributed.sum_over_processes(grad.contiguous(), ctx.group) * ctx.factor, None, None, None
