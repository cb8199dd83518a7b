"""From batches to the epoch's sums: a step is kept back with a few others, measured with them, and added up."""

from collections.abc import Iterator

import torch
from torch import Tensor

from hardsight.dynamics.ledger import EpochValues, Frame, Ledger
from hardsight.dynamics.measures import measure
from hardsight.dynamics.staging import Batch, Stage

# Samples handed out at a time: what is computed of them stays small beside the aggregates.
_BLOCK = 2**15


class Intake:
    """Takes batches in; `blocks` says what the epoch so far says of every sample."""

    def __init__(
        self, frame: Frame, repeats: str, device: torch.device, process: tuple[int, int], compiled: bool
    ) -> None:
        self.frame, self.process = frame, process
        self.ledger = Ledger(frame.num_samples, frame.measures, repeats, device)
        self.stage: Stage | None = None
        # Samples of a step that is kept back, as the first one has; a run that goes on keeps back what it did before,
        # since what is measured together may differ in the last bit.
        self.step_size: int | None = None
        self._measure = torch.compile(self._measure_and_add) if compiled else self._measure_and_add

    @property
    def nbytes(self) -> int:
        """Bytes of the sums and of what is kept back."""
        return self.ledger.nbytes + (0 if self.stage is None else self.stage.nbytes)

    def put(self, batch: Batch) -> None:
        """Measure the batch later, together with others like it, or at once where that cannot be."""
        if torch.compiler.is_compiling() or (batch.logits.is_cuda and torch.cuda.is_current_stream_capturing()):
            # What a compiled or captured step does, it does every time: it cannot wait for a room to fill.
            return self._measure_and_add(batch, None, False)
        if self.step_size is None:
            self.step_size = len(batch.ids)
        if self.stage is None and len(batch.ids) == self.step_size:
            self.stage = Stage(batch)
        if self.stage is None or not self.stage.fits(batch):
            # In turn, since the last of several presentations may be the one that counts.
            self.flush()
            return self._measure(batch, None, False)
        if self.stage.put(batch):
            self.flush()
        return None

    def flush(self) -> None:
        """Measure what is kept back."""
        if self.stage is not None and self.stage.filled:
            batch, scratch = self.stage.take()
            self._measure(batch, scratch, True)

    def clear(self) -> None:
        """Forget the epoch."""
        self.ledger.clear()
        if self.stage is not None:
            self.stage.filled = 0
        else:
            self.step_size = None

    def rows(self) -> Iterator[slice]:
        """All samples, block by block."""
        for start in range(0, self.frame.num_samples, _BLOCK):
            yield slice(start, min(start + _BLOCK, self.frame.num_samples))

    def blocks(self) -> Iterator[tuple[slice, EpochValues]]:
        """What the epoch says, block by block."""
        for rows in self.rows():
            yield rows, self.ledger.epoch_values(rows.start, rows.stop)

    def _measure_and_add(self, batch: Batch, scratch: Tensor | None, consume: bool) -> None:
        """The work itself, all of it on the device."""
        rows, labels = self.ledger.rows_of(batch.ids, batch.labels, self.frame.num_classes)
        measured = measure(batch.logits, labels, self.frame.measures, batch.cosines, consume=consume, scratch=scratch)
        self.ledger.add(rows, labels, measured, self.process)
