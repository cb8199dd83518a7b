"""Losses over a batch that arrives in parts: gradient accumulation, and the hook of Hugging Face's Trainer.

The weights' sum of gradient rescaling is known only after the last part, but a gradient is linear in its reciprocal:
where each part's backward begins, the gradients held so far are multiplied by (old sum) / (new sum). They are right
after every part, so clipping and the optimiser see the single-batch gradient.
"""

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hardsight import distributed
from hardsight.derivatives import applied, once_differentiable, trace_of, wants_gradient
from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.emphasis import rescale, rescaled_gradient
from hardsight.losses.inputs import as_rows, reduce
from hardsight.losses.rescaling import GradientRescaling


class AccumulatedRescaling:
    """Gradient rescaling over a batch in parts: the accumulated gradient is that of the whole batch.

    >>> model = torch.nn.Linear(3, 2)
    >>> criterion = AccumulatedRescaling(GradientRescaling(), model.parameters())
    >>> for part in torch.randn(4, 5, 3):
    ...     criterion(model(part), torch.ones(5, dtype=torch.long)).backward()

    Each part needs a backward of its own. A batch begins with the backward before which no parameter holds a gradient,
    as after `optimizer.zero_grad()`; call `reset()` where gradients are kept as zeros. The gradients must be this
    loss's alone. Lightning and accelerate divide each part's loss by the number of parts: multiply it by that number.
    """

    def __init__(self, loss: GradientRescaling, parameters: Iterable[nn.Parameter]) -> None:
        if loss.reduction != "weight":
            raise ValueError(f"loss must have reduction 'weight' to be accumulated; got {loss.reduction!r}")
        self.loss = loss
        self.parameters = list(parameters)
        self._log_total: Tensor | None = None

    def reset(self) -> None:
        """Begin a new batch."""
        self._log_total = None

    def __call__(
        self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None, *,
        num_items: Tensor | int | None = None, gradients_are_averaged: bool = True,
    ) -> Tensor:  # fmt: skip
        """The part's loss. Its value is the part's mean cross-entropy, or its sum over `num_items`."""
        loss = self.loss
        rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=loss.ignore_index, soft_targets=False)
        assert rows.labels is not None
        with torch.no_grad():
            log_p, _, log_weights, direction = rescale(rows, loss.beta, loss.lam, loss.transform, loss.epsilon)
            value = -log_p if loss.value is None else loss.value(rows.logits, rows.labels)
            value = reduce(value, "mean" if num_items is None else "sum", weight=rows.weight)
            if num_items is not None:
                value = value / num_items
        if not wants_gradient(logits):
            return value
        averaged_by = distributed.world_size() if loss.across_processes and gradients_are_averaged else 1

        def gradient() -> Tensor:
            log_divisor = self._admit(log_weights.logsumexp(0)) - math.log(averaged_by)
            return rescaled_gradient(log_weights, direction, log_divisor)

        return applied(_AttachLater, value, rows.logits, gradient, trace_of(rows.logits))

    @torch.no_grad()
    def _admit(self, log_part: Tensor) -> Tensor:
        """Add a part's weights to the sum, shrink the gradients held so far, and return the new sum's log."""
        if self.loss.across_processes:
            log_part = distributed.log_sum_over_processes(log_part)
        held = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if not held or self._log_total is None:
            self._log_total = log_part
            return log_part
        log_total = torch.logaddexp(self._log_total, log_part)
        shrink = torch.where(log_total == -math.inf, 1.0, (self._log_total - log_total).exp())
        for device in {gradient.device for gradient in held}:
            there = [gradient for gradient in held if gradient.device == device]
            torch._foreach_mul_(there, shrink.to(device))
        self._log_total = log_total
        return log_total


class _AttachLater(torch.autograd.Function):
    """`value`, with a derivative by the logits that is made when the backward asks for it.

    Only then is it known whether gradients are held: Lightning clears them between the loss and its backward.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, logits: Tensor, gradient: Callable[[], Tensor], trace: Tensor) -> Tensor:
        ctx.gradient = gradient
        ctx.save_for_backward(trace)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[None, Tensor, None, None]:
        return None, grad * ctx.gradient(), None, None


def compute_loss_func(
    loss: nn.Module, model: nn.Module, *, average_tokens_across_devices: bool = True
) -> Callable[..., Tensor]:
    """A loss on logits as Hugging Face's `Trainer(compute_loss_func=...)`: (outputs, labels, num_items_in_batch).

    Whole-batch gradients under accumulation and several processes: a `GradientRescaling` is accumulated by its
    weights, any other loss is summed and divided by `num_items_in_batch`. `average_tokens_across_devices` must be
    that of the `TrainingArguments` (where it is true, the Trainer itself multiplies by the number of processes).
    Labels to ignore must be -100, the only ones that the Trainer does not count; labels may be soft.
    `AutomaticRescaling` is rejected: no sum of it can be divided afterwards.
    """
    if isinstance(loss, AutomaticRescaling):
        raise ValueError(
            "loss must not be AutomaticRescaling, which needs the whole batch at once; GradientRescaling can"
        )
    accumulated = None
    # The same object in all but the reduction: tables and parameters are shared, not copied.
    summed = copy.copy(loss)
    summed.reduction = "sum"  # type: ignore[assignment]
    if isinstance(loss, GradientRescaling):
        accumulated = AccumulatedRescaling(loss, model.parameters())

    def compute(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else getattr(outputs, "logits", outputs)
        if accumulated is not None:
            averaged = num_items_in_batch is None or not average_tokens_across_devices
            return accumulated(logits, labels, num_items=num_items_in_batch, gradients_are_averaged=averaged)
        if num_items_in_batch is None:
            value: Tensor = loss(logits, labels)
            return value
        # Of a soft label the Trainer counts every class's probability as an item.
        items_a_label = logits.shape[1] if labels.is_floating_point() else 1
        found: Tensor = summed(logits, labels) * items_a_label / num_items_in_batch
        return found

    return compute
