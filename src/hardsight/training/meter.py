"""What an epoch sums up while it runs, on the device: loss, accuracy, classes, the first step whose loss was no number.

Nothing here looks at a value, so a step never waits for the device; the host asks when an epoch or an interval ends.
"""

import torch
from torch import Tensor

# The label of a sample that has none, as `cross_entropy` and every loss leave it out.
IGNORED = -100


class NonFiniteLossError(ValueError):
    """A loss, a weight or an output was no finite number; the sentence says when, on which samples, what was kept."""


class Meter:
    """Sums of an epoch. `steps` counts those of the whole training, `bad_step` is -1 while every loss was finite."""

    def __init__(self, device: torch.device, batch_size: int) -> None:
        # Integers and double sums: an epoch of a million samples adds without drift.
        wide = torch.float32 if device.type == "mps" else torch.float64
        self.loss = torch.zeros((), dtype=wide, device=device)
        self.correct = torch.zeros((), dtype=torch.int64, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        # Labels and predictions by class; as wide as the first logits.
        self.classes = torch.zeros(2, 0, dtype=torch.int64, device=device)
        self.steps = torch.zeros((), dtype=torch.int64, device=device)
        self.bad_step = torch.full((), -1, dtype=torch.int64, device=device)
        self.bad_ids = torch.full((batch_size,), -1, dtype=torch.int64, device=device)

    def add(
        self, loss: Tensor, logits: Tensor, labels: Tensor, ids: Tensor | None, known: Tensor | None = None
    ) -> None:
        """Count a batch in; it counts by its samples that have a label, `known` of them in all processes.

        Of several processes each gives its summand of the loss of their common batch.
        """
        own = (labels != IGNORED).sum()
        known = own if known is None else known
        # A batch without a label has no mean, and nothing to follow.
        loss = torch.where(known > 0, loss.detach(), 0.0)
        self.loss += loss * known
        predicted = logits.detach().argmax(1)
        self.correct += (predicted == labels).sum()
        self._count_classes(labels.flatten().long(), predicted.flatten(), logits.shape[1])
        self.count += own
        first = ~torch.isfinite(loss) & (self.bad_step < 0)
        self.bad_step.copy_(torch.where(first, self.steps, self.bad_step))
        if ids is not None:
            kept = min(len(labels), len(self.bad_ids))
            self.bad_ids[:kept] = torch.where(first, ids[:kept].to(torch.int64), self.bad_ids[:kept])

    def _count_classes(self, labels: Tensor, predicted: Tensor, classes: int) -> None:
        if self.classes.shape[1] != classes:
            self.classes = self.classes.new_zeros(2, classes)
        known = (labels >= 0) & (labels < classes)
        self.classes[0].scatter_add_(0, labels.where(known, 0), known.long())
        self.classes[1].scatter_add_(0, predicted, known.long())

    def end_step(self) -> None:
        """Move on to the next optimiser step."""
        self.steps += 1

    def begin_epoch(self) -> None:
        """Start the sums anew."""
        for total in (self.loss, self.correct, self.count, self.classes):
            total.zero_()

    def state_dict(self) -> dict[str, Tensor]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, value in state.items():
            # In place: a captured step writes to these very tensors. The batch may have another size now.
            kept = getattr(self, name)
            if kept.shape == value.shape:
                kept.copy_(value)
            elif name == "classes":
                self.classes = value.to(kept.device)
