"""Progress of a training: sums of the epoch on the device, what a person sees, signs that it goes wrong.

`Meter` reads no value, so a step never waits for the device; the host asks when an epoch or an interval ends.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from hardsight.distributed import rank_and_count, sum_over_processes
from hardsight.losses.emphasis import largest_beta
from hardsight.losses.rescaling import GradientRescaling
from hardsight.names import visible
from hardsight.training.network import IGNORED

_SHARES = ("train_accuracy", "test_accuracy", "corrupted_accuracy", "intact_accuracy")


class Progress:
    """Shows steps and epochs. `wanted` None: a bar on a terminal and lines elsewhere; False: nothing."""

    # A terminal shows one bar; of several trainings at once the others write lines.
    _shown: ClassVar[bool] = False

    def __init__(self, name: str, epochs: int, steps: int, wanted: bool | None = None, done: int = 0) -> None:
        self.name, self.epochs, self.steps, self.done, self.wanted = visible(name), epochs, steps, done, wanted
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self.wanted is not False and sys.stderr.isatty() and not Progress._shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar
            from rich.table import Column

            # Without markup: a run may be called what rich takes for a tag.
            name = TextColumn("{task.description}", markup=False)
            columns = (name, BarColumn(16), MofNCompleteColumn(), TimeRemainingColumn())
            # The numbers get what is left of the line: else they push out the bar, and all but a letter of the name.
            latest = TextColumn("{task.fields[latest]}", table_column=Column(ratio=1, no_wrap=True))
            self._bar = Bar(*columns, latest, console=Console(stderr=True), expand=True)
            self._task = self._bar.add_task(self.name, total=self.epochs * self.steps, completed=self.done, latest="")
            self._bar.start()
            Progress._shown = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            Progress._shown = False

    def advance(self) -> None:
        """One step is done."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def epoch(self, row: Mapping[str, float | int]) -> None:
        """One epoch is done, with these numbers."""
        shares = [f"{name.replace('_', ' ')} {100 * row[name]:.2f} %" for name in _SHARES if name in row]
        line = ", ".join([f"train loss {row['train_loss']:.4f}", *shares])
        if self._bar is not None:
            self._bar.update(self._task, latest=line)
        elif self.wanted is not False:
            print(f"{self.name}: epoch {row['epoch']:g}/{self.epochs}, {line}, {row['seconds']:.1f} s", file=sys.stderr)

    def note(self, sentence: str) -> None:
        """Something that a person should know now."""
        line = visible(f"{self.name}: {sentence}")
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        elif self.wanted is not False:
            print(line, file=sys.stderr)


# So many ids of a batch fit into one line.
_IDS_SHOWN = 16


class NonFiniteLossError(ValueError):
    """A loss, a weight or an output was no finite number; the sentence says when, on which samples, what was kept."""

    @classmethod
    def at(cls, what: str, step: int, ids: list[int], per_epoch: int, kept: Path | None) -> "NonFiniteLossError":
        """`what` happened in that step, counted from 0, to the samples with these ids; `kept`: the last checkpoint."""
        more = f" and {len(ids) - _IDS_SHOWN} others" if len(ids) > _IDS_SHOWN else ""
        shown = ", ".join(map(str, ids[:_IDS_SHOWN])) + more if ids else "unknown: the batches carry no ids"
        saved = f"the last good checkpoint is {kept}" if kept else "no checkpoint was written before it"
        return cls(
            f"{what} step {step + 1} (epoch {step // per_epoch + 1}), in the batch with ids {shown}; {saved}; try a "
            "lower learning rate, or hold gradients to a norm (clip)"
        )


class Meter:
    """Sums of an epoch. `steps` counts those of the whole training, `bad_step` is -1 while every loss was finite."""

    def __init__(self, device: torch.device, batch_size: int) -> None:
        # Integers and double sums: an epoch of a million samples adds without drift.
        self.loss = torch.zeros((), dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)
        self.correct, self.count, self.steps = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(3))
        # Labels and predictions by class; as wide as the first logits.
        self.classes = torch.zeros(2, 0, dtype=torch.int64, device=device)
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
        flat, classes = labels.flatten().long(), logits.shape[1]
        if self.classes.shape[1] != classes:
            self.classes = self.classes.new_zeros(2, classes)
        one_of_them = (flat >= 0) & (flat < classes)
        self.classes[0].scatter_add_(0, flat.where(one_of_them, 0), one_of_them.long())
        self.classes[1].scatter_add_(0, predicted.flatten(), one_of_them.long())
        self.count += own
        first = ~torch.isfinite(loss) & (self.bad_step < 0)
        self.bad_step.copy_(torch.where(first, self.steps, self.bad_step))
        if ids is not None:
            kept = min(len(labels), len(self.bad_ids))
            self.bad_ids[:kept] = torch.where(first, ids[:kept].to(torch.int64), self.bad_ids[:kept])

    def first_bad(self) -> tuple[int, list[int]] | None:
        """The first step whose loss was no finite number in any process, and its samples' ids there; None if none."""
        none = torch.iinfo(torch.int64).max
        rank, world = rank_and_count()
        everywhere = torch.zeros(world, dtype=torch.int64, device=self.loss.device)
        everywhere[rank] = torch.where(self.bad_step < 0, none, self.bad_step)
        steps = sum_over_processes(everywhere).tolist()
        first = min(steps)
        if first == none:
            return None
        ids = torch.full((world, len(self.bad_ids)), -1, dtype=torch.int64, device=self.loss.device)
        ids[rank] = self.bad_ids if steps[rank] == first else -1
        if world > 1:
            torch.distributed.all_reduce(ids, torch.distributed.ReduceOp.MAX)
        return first, ids[ids >= 0].tolist()

    def begin_epoch(self) -> None:
        """Set the sums to zero."""
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


# An epoch at chance is a beginning, several are a sign: an epoch of a small set is a few steps.
PATIENCE = 5
# Above chance means so many standard deviations above it.
_DEVIATIONS = 2
# A class with fewer labels may well be predicted for none of them.
_LEAST_LABELS = 5
_NAMED = 5


class Watch:
    """Looks at every epoch's predictions on the training set; says once what a person should know."""

    def __init__(self, class_names: Sequence[str] = ()) -> None:
        self.class_names = class_names
        self.at_chance, self.told_chance, self.told_missing = 0, False, 0
        self.missing: list[int] = []

    def epoch(self, row: Mapping[str, Any], counts: Int[Tensor, "2 classes"], loss: object) -> list[str]:
        """What is to be said after this epoch; `counts` are the labels and the predictions by class."""
        if not counts.numel():
            return []
        given, predicted = counts.double()
        total, classes = float(given.sum()), len(given)
        # What labels and predictions would agree in if they had nothing to do with each other (Cohen 1960).
        chance = float(given @ predicted) / max(total, 1.0) ** 2
        bound = chance + _DEVIATIONS * math.sqrt(chance * (1 - chance) / max(total, 1.0))
        several = int((given > 0).sum()) > 1
        self.at_chance = self.at_chance + 1 if several and row["train_accuracy"] <= bound else 0
        gone = (predicted == 0) & (given >= _LEAST_LABELS)
        held = self.missing if len(self.missing) == classes else [0] * classes
        self.missing = [epochs + 1 if now else 0 for epochs, now in zip(held, gone.tolist(), strict=True)]
        rate = f"it is {row['learning_rate']:.3g}, and often too high"
        advice = f"try another learning rate ({rate}), or cross-entropy first"
        if isinstance(loss, GradientRescaling) and loss.transform == "exp":
            beta, lam, limit = loss.beta, loss.lam, largest_beta(loss.lam, classes)
            if beta > limit:
                advice = f"rescaling with beta {beta:g} rules classes out; at lam {lam:g} try less than {limit:.3g}"
        if self.at_chance >= PATIENCE:
            if self.told_chance:
                return []
            self.told_chance = True
            accuracy = f"{100 * row['train_accuracy']:.1f} %"
            return [f"the training accuracy has been at chance for {PATIENCE} epochs ({accuracy}): {advice}"]
        lasting = [number for number, epochs in enumerate(self.missing) if epochs >= PATIENCE]
        if len(lasting) < max(1, 2 * self.told_missing):
            return []
        self.told_missing = len(lasting)
        names = [str(self.class_names[one]) if one < len(self.class_names) else str(one) for one in lasting[:_NAMED]]
        more = f" and {len(lasting) - _NAMED} others" if len(lasting) > _NAMED else ""
        return [f"for {PATIENCE} epochs no training sample has been predicted as {', '.join(names)}{more}: {advice}"]

    def state_dict(self) -> dict[str, Any]:
        """What must survive an interruption."""
        return {name: value for name, value in vars(self).items() if name != "class_names"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
