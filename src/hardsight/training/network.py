"""The network as a training step sees it: loss, logits and features from one call, in one process or several.

Everything that holds parameters sits in one module, so that data-parallel wrapping, compilation and the optimiser
see the same thing, a loss with parameters of its own among them.
"""

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from hardsight.distributed import several, sum_with_gradient
from hardsight.heads import observe
from hardsight.models.classifier import Classifier
from hardsight.training.objectives import BatchShare, Losses, Objective

if dist.is_available():
    # DistributedDataParallel imports it when it is made, and its functions then hold the process group of that moment
    # as a default argument, for ever: destroyed, the group would keep its threads, and one of them may abort the
    # process while the interpreter is taken down. Imported before there is a group, they hold none.
    import torch.distributed.nn.functional


class Seen(NamedTuple):
    """What one forward gives: the losses; `features` go into the head, `logits` come out of it."""

    losses: Losses
    logits: Tensor
    features: Tensor | None


_WHOLE = BatchShare()


class Network(nn.Module):
    """Model and objective in one call: `network(images, labels, ids)` is (losses, logits, features).

    A `Classifier`, whose logits are `head(forward_features(images))` and nothing else, is asked for its features; any
    other model is watched at its last linear layer by a hook, which `close` takes away. Without `features` nothing is
    watched.
    """

    def __init__(
        self, model: nn.Module, objective: Objective, *, features: bool = True, head: str | None = None
    ) -> None:
        super().__init__()
        self.model, self.objective, self.wanted, self.head_name = model, objective, features, head
        # Others may have `forward_features` and `head` too, as timm's have, and pool or drop between the two.
        plain = isinstance(model, Classifier) and type(model).forward is Classifier.forward
        self.direct = plain and head is None
        self._caught: Tensor | None = None
        self._hook: RemovableHandle | None = None

    @property
    def head(self) -> nn.Module:
        """The last linear layer; for a watched model, known after the first forward."""
        if self.direct:
            return self.model.head  # type: ignore[return-value]
        if self.head_name is None:
            raise RuntimeError("the head is known after the first forward")
        return self.model.get_submodule(self.head_name)

    def look(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits and, where wanted, features."""
        if self.direct:
            features = self.model.forward_features(images)  # type: ignore[operator]
            return self.model.head(features), features  # type: ignore[operator]
        if not self.wanted:
            return self.model(images), None
        if self._hook is None:
            return self._find_head(images)
        logits = self.model(images)
        features, self._caught = self._caught, None
        return logits, features

    def _find_head(self, images: Tensor) -> tuple[Tensor, Tensor]:
        with observe(self.model, self.head_name) as seen:
            logits = self.model(images)
        self.head_name = seen.name
        self._hook = seen.head.register_forward_pre_hook(self._catch)
        return logits, seen.features

    def _catch(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._caught = inputs[0]

    def close(self) -> None:
        """Leave no hook behind."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def forward(self, images: Tensor, labels: Tensor, ids: Tensor | None = None, part: BatchShare = _WHOLE) -> Seen:
        logits, features = self.look(images)
        return Seen(self.objective(logits, features, labels, ids, part), logits, features)


class WeightAverage:
    """A copy of the model whose parameters follow: average = decay x average + (1 - decay) x weights, each step.

    Buffers (running statistics) are copied, not averaged: they are averages already. torch's `AveragedModel` does the
    same, but reads a counter on the device at every update, which a CUDA graph cannot record.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False)
        self._averages: list[Tensor] = list(self.model.parameters())
        self._weights: list[Tensor] = list(model.parameters())
        self._copies, self._buffers = list(self.model.buffers()), list(model.buffers())

    @torch.no_grad()
    def update(self) -> None:
        """Take one step towards the weights."""
        torch._foreach_lerp_(self._averages, self._weights, 1 - self.decay)
        if self._buffers:
            torch._foreach_copy_(self._copies, self._buffers)


def make_network(
    model: nn.Module,
    loss: Callable[..., Tensor] | Objective | None,
    device: torch.device,
    *,
    samples: bool,
    recorded: bool,
    head: str | None,
    channels_last: bool | None,
) -> Network:
    """The model with its objective, on the device; its features are watched where something looks at them.

    `samples`: whether the training set is there for a loss that looks at it between epochs.
    """
    objective = loss if isinstance(loss, Objective) else Objective(loss)
    if objective.looks_at_samples and not samples:
        raise ValueError(
            f"samples must be given: {type(objective.loss).__name__} looks at the training set between epochs"
        )
    watched = recorded or objective.needs_features or objective.looks_at_samples
    network = Network(model, objective, features=watched, head=head)
    network.to(device)
    if device.type == "cuda" if channels_last is None else channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


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
        # One value alone has no spread; torch rejects it, but checking here would wait for the device.
        _follow(self, mean.detach(), (variance * count / (count - 1).clamp(min=1)).detach())
        normal = (rows - mean.unsqueeze(1)) * torch.rsqrt(variance + self.eps).unsqueeze(1)
        if self.affine:
            normal = normal * self.weight.unsqueeze(1) + self.bias.unsqueeze(1)
        moved = (inputs.shape[1], inputs.shape[0], *inputs.shape[2:])
        return normal.reshape(moved).transpose(0, 1).to(inputs.dtype)


@torch.no_grad()
def same_weights(network: nn.Module) -> None:
    """Give all processes the weights and buffers of the first one."""
    if several():
        for tensor in (*network.parameters(), *network.buffers()):
            dist.broadcast(tensor, 0)


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
