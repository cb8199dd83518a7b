"""What makes several processes equal one: gradients averaged, and batch normalization over the batch of all of them.

Each process sees a slice of the batch, and statistics of slices are not those of the batch. Here they are: sums
travel between the processes, forward and backward. (torch's own SyncBatchNorm does this on GPUs only.)
"""

import functools
import inspect
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hardsight.distributed import several, sum_with_gradient

if dist.is_available():
    # DistributedDataParallel imports it when it is made, and its functions then hold the process group of that moment
    # as a default argument, for ever: destroyed, the group would keep its threads, and one of them may abort the
    # process while the interpreter is taken down. Imported before there is a group, they hold none.
    import torch.distributed.nn.functional


def share_batch_statistics(network: nn.Module) -> None:
    """Let every batch normalization use the statistics of all processes; parameters, buffers and names stay."""
    for module in network.modules():
        if isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm | SharedStatistics):
            module.__class__ = _shared(type(module))  # type: ignore[arg-type]


def own_batch_statistics(network: nn.Module) -> None:
    """Undo `share_batch_statistics`."""
    for module in network.modules():
        if isinstance(module, SharedStatistics):
            module.__class__ = type(module).__mro__[2]


class SharedStatistics:
    """Goes before a batch normalization's class: its forward in training mode, over all processes' samples."""

    def forward(self: Any, inputs: Tensor) -> Tensor:
        if not self.training:
            # Evaluated batches are shared out whole, whether running statistics are kept for them or not.
            normalised: Tensor = super().forward(inputs)  # type: ignore[misc]
            return normalised
        self._check_input_dim(inputs)
        rows = inputs.transpose(0, 1).reshape(inputs.shape[1], -1).to(torch.promote_types(inputs.dtype, torch.float32))
        totals = sum_with_gradient(torch.cat([rows.sum(1), rows.new_full((1,), rows.shape[1])]))
        count = totals[-1]
        mean = totals[:-1] / count
        # Deviations from the common mean, not a difference of squares: nothing cancels.
        variance = sum_with_gradient((rows - mean.unsqueeze(1)).square().sum(1)) / count
        # One value alone has no spread; torch refuses it, but to know would be to wait for the device.
        _follow(self, mean.detach(), (variance * count / (count - 1).clamp(min=1)).detach())
        normal = (rows - mean.unsqueeze(1)) * torch.rsqrt(variance + self.eps).unsqueeze(1)
        if self.affine:
            normal = normal * self.weight.unsqueeze(1) + self.bias.unsqueeze(1)
        moved = (inputs.shape[1], inputs.shape[0], *inputs.shape[2:])
        return normal.reshape(moved).transpose(0, 1).to(inputs.dtype)


@torch.no_grad()
def check_buffers(model: nn.Module) -> None:
    """Refuse a model whose buffers differ between the processes: each would evaluate its own, and one be saved."""
    named = {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point() and buffer.numel()}
    if not named or not several():
        return
    largest = torch.cat([buffer.reshape(-1).float() for buffer in named.values()])
    least = -largest
    for extreme in (largest, least):
        dist.all_reduce(extreme, dist.ReduceOp.MAX)
    # Statistics of batch normalization are of the same bits on machines that round alike.
    differ = largest + least > 1e-3 * torch.maximum(largest.abs(), least.abs()) + 1e-6
    if bool(differ.any()):
        parts = differ.split([buffer.numel() for buffer in named.values()])
        name = next(name for name, part in zip(named, parts, strict=True) if bool(part.any()))
        raise ValueError(
            "every buffer of the model must be filled alike by the processes, as those of batch normalization are; "
            f"{name} differs between them"
        )


def data_parallel(network: nn.Module, device: torch.device) -> nn.parallel.DistributedDataParallel:
    """The network in several processes: gradients are averaged, buffers are left to those who fill them alike."""
    ids = [device] if device.type == "cuda" else None
    wrap = nn.parallel.DistributedDataParallel
    # torch renamed the switch in 2.13.
    renamed = "forward_sync_buffers" in inspect.signature(wrap).parameters
    switch: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    return wrap(network, device_ids=ids, **switch)


@torch.no_grad()
def _follow(layer: Any, mean: Tensor, unbiased: Tensor) -> None:
    """Running statistics, as torch keeps them."""
    if layer.running_mean is None:
        return
    layer.num_batches_tracked.add_(1)
    momentum = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), momentum)
    layer.running_var.lerp_(unbiased.to(layer.running_var.dtype), momentum)


@functools.cache
def _shared(kind: type) -> type:
    return type(f"Shared{kind.__name__}", (SharedStatistics, kind), {})
