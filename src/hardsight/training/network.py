"""The network as a training step sees it: losses, logits and features from one call, in one process or several.

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

from hardsight.distributed import several, sum_over_processes, sum_with_gradient
from hardsight.heads import observe
from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.contrastive import AMCLoss, ContrastiveLoss
from hardsight.losses.curriculum import D2L
from hardsight.losses.joint import JointOptimisation
from hardsight.losses.robust import TruncatedGCELoss
from hardsight.losses.terms import Over, Term, mean_over, value_of, value_over
from hardsight.models.classifier import Classifier

if dist.is_available():
    # DistributedDataParallel imports it when it is made, and its functions then hold the process group of that moment
    # as a default argument, for ever: destroyed, the group would keep its threads, and one of them may abort the
    # process while the interpreter is taken down. Imported before there is a group, they hold none.
    import torch.distributed.nn.functional


Batch = tuple[Tensor, Tensor, Tensor | None]
# The label of a sample that has none, as `cross_entropy` and every loss leave it out.
IGNORED = -100


def take_apart(batch: Any, device: torch.device) -> Batch:
    """(images, labels, ids) of a batch, on the device; ids are None where the batch has none."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        kind = f"{len(batch)} parts" if isinstance(batch, tuple | list) else type(batch).__name__
        raise TypeError(f"batches must be (images, labels) or (images, labels, ids); got {kind}")
    labels, *ids = (torch.as_tensor(part).to(device, non_blocking=True) for part in batch[1:])
    return batch[0].to(device, non_blocking=True), labels, ids[0] if ids else None


class Losses(NamedTuple):
    """The loss to follow and the loss to report: summed over the processes, that is the loss of their common batch."""

    followed: Tensor
    reported: Tensor


class BatchShare(NamedTuple):
    """How much a batch counts where it is a part of a larger one, so that a sum of means is the mean of all samples.

    `of_step`: its part of the whole step's labelled samples, of the labels as the loss counts them, and as the loss on
    features does, each times the processes; `of_batch`: of the batches of all processes. `known`: labelled samples in
    all processes. `rows`: rows here; `of_rows`: those of the whole step, where that has several batches.
    """

    of_step: Tensor | None = None
    of_batch: Tensor | None = None
    known: Tensor | None = None
    rows: Tensor | None = None
    of_rows: Tensor | None = None
    processes: int = 1

    def losses(self, term: Term, labels: int = 1) -> Losses:
        """A summand of the loss, as it is followed and as it is reported; its labels are counted at place `labels`."""
        value, reported_over = term.value, term.value_over or term.over
        followed = value * self._factor(term.over, labels)
        return Losses(followed, self._reported(value.detach(), reported_over, labels))

    def _factor(self, over: Over, labels: int) -> Tensor | float:
        """The factor for a mean over that; all processes ask together for one over all of them."""
        if over == "processes" and self.rows is not None and self.of_rows is not None:
            return sum_over_processes(self.rows) / self.of_rows
        if over == "nothing":
            # The gradients of the processes will be averaged, and are to be added.
            return float(self.processes)
        if over in ("processes", "step") or self.of_step is None:
            return 1.0
        return self.of_step[labels if over == "labels" else 0]

    def _reported(self, value: Tensor, over: Over, labels: int) -> Tensor:
        if over in ("processes", "step"):
            # All processes have the same.
            return value / self.processes
        if over == "nothing" or self.of_batch is None:
            return value
        share = self.of_batch[labels if over == "labels" else 0]
        # The mean of a batch without labels is no number, and no part of anything.
        return torch.where(share > 0, value * share, 0.0)


_WHOLE = BatchShare()


class Objective(nn.Module):
    """The loss of a batch: `loss(logits, labels)` plus, scaled, `feature_loss(features, labels)`.

    `pairs` says whose labels a loss on pairs compares: the model's own predictions (AMC-Loss, Eq. 3) or the given
    ones. The weight is a buffer, so that a schedule can change it under a captured step.
    """

    feature_weight: Tensor

    def __init__(
        self,
        loss: Callable[..., Tensor] | None = None,
        feature_loss: Callable[..., Tensor] | None = None,
        *,
        feature_weight: float = 1.0,
        pairs: str = "predictions",
    ) -> None:
        super().__init__()
        if pairs not in ("predictions", "labels"):
            raise ValueError(f'pairs must be "predictions" or "labels"; got {pairs!r}')
        self.loss = nn.CrossEntropyLoss() if loss is None else loss
        self.feature_loss, self.pairs, self.full_weight = feature_loss, pairs, float(feature_weight)
        self._factor = 1.0
        self.register_buffer("feature_weight", torch.tensor(self.full_weight), persistent=False)
        # A loss gets what its signature asks for: logits or features first, ids where it keeps a table of samples.
        asked = list(inspect.signature(getattr(self.loss, "forward", self.loss)).parameters)
        self._on_features, self._by_id = asked[:1] == ["features"], "ids" in asked

    @property
    def looks_at_samples(self) -> bool:
        """Whether the loss must see the training set between epochs."""
        always = isinstance(self.loss, AutomaticRescaling | JointOptimisation | D2L)
        return always or (isinstance(self.loss, TruncatedGCELoss) and self.loss.has_table)

    @property
    def needs_features(self) -> bool:
        """Whether a part of the loss looks at the features."""
        return self._on_features or self.feature_loss is not None

    def scale_features(self, factor: float) -> None:
        """Set the weight of the feature loss to this share of the full one."""
        if self.feature_loss is not None and factor != self._factor:
            self.feature_weight.fill_(factor * self.full_weight)
            self._factor = factor

    def forward(
        self, logits: Tensor, features: Tensor | None, labels: Tensor, ids: Tensor | None, part: BatchShare
    ) -> Losses:
        """The loss to follow, scaled to its part of the whole step, and the loss to report, to that of its batch."""
        first: Any = features if self._on_features else logits
        names, terms = {"ids": ids} if self._by_id else {}, getattr(self.loss, "terms", None)
        if terms is not None:
            summed = [part.losses(term) for term in terms(first, labels, **names)]
        else:
            value = value_of(self.loss, first, labels, **names)
            summed = [part.losses(Term(value, mean_over(self.loss), value_over(self.loss)))]
        if self.feature_loss is not None:
            # Predictions go as logits, whose argmax they are; only losses on pairs know what to do with them.
            predicted = self.pairs == "predictions" and isinstance(self.feature_loss, AMCLoss | ContrastiveLoss)
            extra = self.feature_weight * self.feature_loss(features, logits if predicted else labels)
            beside = Term(extra, mean_over(self.feature_loss), value_over(self.feature_loss))
            # Each of the two losses may have a label of its own to ignore.
            summed.append(part.losses(beside, labels=2))
        followed, reported = summed[0]
        for one in summed[1:]:
            followed, reported = followed + one.followed, reported + one.reported
        return Losses(followed, reported)


class Seen(NamedTuple):
    """What one forward gives: the losses; `features` go into the head, `logits` come out of it."""

    losses: Losses
    logits: Tensor
    features: Tensor | None


class Network(nn.Module):
    """Model and objective in one call: `network(images, labels, ids)` is (losses, logits, features).

    A `Classifier` is asked for its features; any other model is watched at its last linear layer by a hook, which
    `close` takes away. Without `features` nothing is watched.
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
            with observe(self.model, self.head_name) as seen:
                logits = self.model(images)
            self.head_name = seen.name
            self._hook = seen.head.register_forward_pre_hook(self._catch)
            return logits, seen.features
        logits = self.model(images)
        features, self._caught = self._caught, None
        return logits, features

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


def share_batch_statistics(network: nn.Module) -> None:
    """Let every batch normalization use the statistics of all processes; parameters, buffers and names stay."""
    for module in network.modules():
        if isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            vars(module)["forward"] = functools.partial(_normalised_together, module)


def own_batch_statistics(network: nn.Module) -> None:
    """Undo `share_batch_statistics`."""
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            vars(module).pop("forward", None)


def _normalised_together(layer: Any, inputs: Tensor) -> Tensor:
    """A batch normalization's forward; in training mode over all processes' samples."""
    if not layer.training:
        # Evaluated batches are shared out whole, whether running statistics are kept for them or not.
        normalised: Tensor = type(layer).forward(layer, inputs)
        return normalised
    layer._check_input_dim(inputs)
    rows = inputs.transpose(0, 1).reshape(inputs.shape[1], -1).to(torch.promote_types(inputs.dtype, torch.float32))
    totals = sum_with_gradient(torch.cat([rows.sum(1), rows.new_full((1,), rows.shape[1])]))
    count = totals[-1]
    mean = totals[:-1] / count
    # Deviations from the common mean, not a difference of squares: nothing cancels.
    variance = sum_with_gradient((rows - mean.unsqueeze(1)).square().sum(1)) / count
    if layer.running_mean is not None:
        with torch.no_grad():
            # Running statistics, as torch keeps them. One value alone has no spread; torch rejects it, but checking
            # here would wait for the device.
            unbiased = variance * count / (count - 1).clamp(min=1)
            layer.num_batches_tracked.add_(1)
            momentum = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
            layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), momentum)
            layer.running_var.lerp_(unbiased.to(layer.running_var.dtype), momentum)
    normal = (rows - mean.unsqueeze(1)) * torch.rsqrt(variance + layer.eps).unsqueeze(1)
    if layer.affine:
        normal = normal * layer.weight.unsqueeze(1) + layer.bias.unsqueeze(1)
    moved = (inputs.shape[1], inputs.shape[0], *inputs.shape[2:])
    return normal.reshape(moved).transpose(0, 1).to(inputs.dtype)


@torch.no_grad()
def same_weights(network: nn.Module) -> None:
    """Give all processes the weights and buffers of the first one."""
    if several():
        for tensor in (*network.parameters(), *network.buffers()):
            dist.broadcast(tensor, 0)


def connected(network: Network) -> nn.parallel.DistributedDataParallel:
    """The network as several processes take a step with it as one.

    Gradients are averaged, batch statistics run over the whole batch, buffers are left to those who fill them alike.
    """
    share_batch_statistics(network)
    device = next(network.parameters()).device
    ids = [device] if device.type == "cuda" else None
    wrap = nn.parallel.DistributedDataParallel
    # torch renamed the switch in 2.13.
    renamed = "forward_sync_buffers" in inspect.signature(wrap).parameters
    switch: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    return wrap(network, device_ids=ids, **switch)
