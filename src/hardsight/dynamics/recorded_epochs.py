"""All that a recorder has recorded: the open epoch, its sums and kept batches, and the finished epochs' aggregates."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from hardsight.dynamics.aggregates import MOST_EPOCHS, Aggregates
from hardsight.dynamics.batches import Batch, BatchBuffer
from hardsight.dynamics.epoch_sums import EpochSums, EpochValues, Layout
from hardsight.dynamics.history import PHASES, History, values_of
from hardsight.dynamics.measures import ANGULAR, Measured, measure

# Samples folded at a time: what is computed of them stays small beside the aggregates.
_BLOCK = 2**15
_STRAY_IDS = ": in a part of a data set, num_samples is that of the whole, or strays='ignore' leaves them out"


class RecordedEpochs:
    """The numbers of a recorder, on one device. Phase 0 is training, phase 1 the second split; each counts its epochs.

    `process` is the number of this process, and how many there are.
    """

    def __init__(
        self, layout: Layout, device: torch.device, *, repeats: str, early_epochs: int, process: tuple[int, int]
    ) -> None:
        self.layout, self.repeats, self.process = layout, repeats, process
        self.epoch_sums = EpochSums(layout.num_samples, layout.measures, repeats, device)
        self.aggregates = Aggregates(layout, device, early_epochs)
        # As tensors name it: "cuda" is not equal to "cuda:0".
        self.device = self.epoch_sums.sums.device
        self.angular = not ANGULAR.isdisjoint(layout.measures)
        self.phase, self.finished = 0, [0, 0]
        self.buffer: BatchBuffer | None = None
        # Only steps of this many samples are kept: those of the first step. A resumed run keeps the same steps as
        # before, since what is measured together may differ in the last bit.
        self.step_size: int | None = None

    @property
    def epoch(self) -> int:
        """Finished epochs of the phase."""
        return self.finished[self.phase]

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        numbers = sum(one.nbytes for part in (self.aggregates, self.epoch_sums.tensors()) for one in part.values())
        return numbers + (0 if self.buffer is None else self.buffer.nbytes)

    def put(self, batch: Batch) -> None:
        """Keep the batch, or measure it at once where it cannot be kept."""
        if torch.compiler.is_compiling() or (batch.logits.is_cuda and torch.cuda.is_current_stream_capturing()):
            # A compiled or captured step does the same every time, so it cannot wait until the buffer is full.
            return self._measure(batch, None, False)
        if self.step_size is None:
            self.step_size = len(batch.ids)
        if self.buffer is None and len(batch.ids) == self.step_size:
            self.buffer = BatchBuffer(batch)
        if self.buffer is None or not self.buffer.fits(batch):
            # In order: with repeats='last' the last presentation of a sample counts.
            self.flush()
            return self._measure(batch, None, False)
        if self.buffer.put(batch):
            self.flush()
        return None

    def flush(self) -> None:
        """Measure the kept batches."""
        if self.buffer is not None and self.buffer.filled:
            self._measure(*self.buffer.take(), True)

    def _measure(self, batch: Batch, scratch: Tensor | None, consume: bool) -> None:
        """Measure and add a batch; all of it runs on the device."""
        rows, labels = self.epoch_sums.rows_of(batch.ids, batch.labels, self.layout.num_classes)
        measured = measure(batch.logits, labels, self.layout.measures, batch.cosines, consume=consume, scratch=scratch)
        self.epoch_sums.add(rows, labels, measured, self.process)

    def add(self, ids: Tensor, labels: Tensor, measured: Measured) -> None:
        """Add a batch that is measured already."""
        self.epoch_sums.add(*self.epoch_sums.rows_of(ids, labels, self.layout.num_classes), measured, self.process)

    def clear(self) -> None:
        """Forget the open epoch."""
        self.epoch_sums.clear()
        if self.buffer is not None:
            self.buffer.filled = 0
        else:
            self.step_size = None

    def rows(self) -> Iterator[slice]:
        """All samples, block by block."""
        for start in range(0, self.layout.num_samples, _BLOCK):
            yield slice(start, min(start + _BLOCK, self.layout.num_samples))

    def blocks(self) -> Iterator[tuple[slice, EpochValues]]:
        """Each sample's values over the open epoch, block by block."""
        for rows in self.rows():
            yield rows, self.epoch_sums.epoch_values(rows.start, rows.stop)

    def check_epoch(self, strays: str) -> None:
        """Raise where the open epoch breaks a policy."""
        if self.epoch >= MOST_EPOCHS:
            raise ValueError(f"epochs must be at most {MOST_EPOCHS}, as many as are counted; got one more to end")
        sums, when = self.epoch_sums, f"in epoch {self.epoch}"
        ids, labels = sums.strays()
        for name, count, limit in (
            ("ids", 0 if strays == "ignore" else ids, self.layout.num_samples),
            ("labels", labels, self.layout.num_classes),
        ):
            if count:
                shown = "some" if sums.keep_last else count
                hint = _STRAY_IDS if name == "ids" else ""
                raise ValueError(f"{name} must lie in [0, {limit}); {when} {shown} did not{hint}")
        for rows, values in self.blocks() if self.repeats == "raise" else ():
            often = values.seen + values.flagged
            if bool((often > 1).any()):
                first = int((often > 1).nonzero()[0])
                raise ValueError(
                    f"ids must not repeat within an epoch (repeats='raise'); "
                    f"sample {rows.start + first} came {int(often[first])} times {when}"
                )
        mixed = sums.of_several_labels()
        if mixed is not None:
            raise ValueError(
                "labels must not change within an epoch (repeats='last' keeps the last); "
                f"sample {mixed} came with several {when}, so several samples may have its id"
            )

    def end_epoch(self) -> None:
        """Fold the open epoch into the aggregates, and open the next."""
        for rows, values in self.blocks():
            self._fold(rows, values)
        self.clear()
        self.finished[self.phase] += 1

    def replay(self, history: History) -> None:
        """Fold all epochs of a history, and remove what an interrupted run left after them."""
        for phase, name in enumerate(PHASES):
            for epoch in range(history.count(name)):
                layout, table = history.read(name, epoch, self.layout)
                self.phase = phase
                for rows in self.rows():
                    self._fold(rows, values_of(table, layout, rows, self.device))
                self.finished[phase] += 1
            history.trim(name, self.finished[phase])

    def _fold(self, rows: slice, values: EpochValues) -> None:
        fold = self.aggregates.fold_second if self.phase else self.aggregates.fold
        fold(rows, self.epoch, values)

    def state_dict(self) -> dict[str, Any]:
        """Copies of all numbers; of the open epoch what has been measured."""
        return {
            "phase": self.phase,
            "finished": list(self.finished),
            "aggregates": {name: tensor.clone() for name, tensor in self.aggregates.items()},
            "ledger": {name: tensor.clone() for name, tensor in self.epoch_sums.tensors().items()},
            "step_size": self.step_size,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the numbers of a saved state."""
        for own, saved in (
            (self.aggregates, state["aggregates"]),
            (self.epoch_sums.tensors(), state["ledger"]),
        ):
            check_has(saved, own)
            for name, tensor in own.items():
                tensor.copy_(saved[name])
        self.phase, self.finished = state["phase"], list(state["finished"])
        # Earlier versions did not keep it.
        self.step_size = state.get("step_size")


def check_has(state: Mapping[str, Any], names: Iterable[str]) -> None:
    """A state, or a part of it, holds all that a recorder's does."""
    missing = next((name for name in names if name not in state), None)
    if missing is not None:
        raise ValueError(f"state must be what a recorder's state_dict() gave; it has no {missing!r}")


def check_state(recorder: Any, state: Mapping[str, Any], measures: tuple[str, ...] | None) -> None:
    """A state fits a recorder of the same samples, classes and policies that needs the same measures."""
    policies = ("num_samples", "num_classes", "repeats", "early_epochs")
    check_has(state, (*policies, "measures", "phase", "finished", "aggregates", "ledger"))
    for name in policies:
        own = getattr(recorder, name)
        if own is not None and state[name] != own:
            raise ValueError(f"state must be of a recorder with {name}={own!r}; got {state[name]!r}")
    if measures is not None and tuple(state["measures"]) != measures:
        raise ValueError(f"state must hold what the scores need, {list(measures)}; got {state['measures']}")
