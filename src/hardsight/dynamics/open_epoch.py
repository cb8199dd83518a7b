"""The epoch being recorded: batches are checked, a few are buffered and measured at once, and added to the sums.

Measuring several steps at once leaves each step the cost of a copy instead of forty small launches. The copy is needed:
a caller may overwrite its logits, and the head's bias changes with the optimizer's step.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from hardsight.dynamics.epoch_sums import EpochSums, EpochValues, Layout
from hardsight.dynamics.measures import Cosines, Measured, measure
from hardsight.validation import check_integers, check_tensor

# Logits buffered: on a CPU they should fit its last cache (4 MiB), on a GPU a launch should be worth it.
_BUFFERED_ON_CPU = 2**20
_BUFFERED_ON_GPU = 2**22
_MOST_STEPS = 64
# Samples folded at a time: what is computed of them stays small beside the aggregates.
_BLOCK = 2**15


class Batch(NamedTuple):
    """One step, or several of equal size, one after the other: then norms and bias have a row for each step."""

    ids: Tensor
    logits: Tensor
    labels: Tensor
    cosines: Cosines | None

    def tensors(self) -> list[Tensor]:
        """All tensors, floats first."""
        extra = [] if self.cosines is None else [part for part in self.cosines if part is not None]
        return [self.logits, *extra, self.ids, self.labels]


class BatchBuffer:
    """Memory for `steps` batches like the first one."""

    def __init__(self, first: Batch) -> None:
        on_cpu = first.logits.device.type == "cpu"
        elements = _BUFFERED_ON_CPU if on_cpu else _BUFFERED_ON_GPU
        self.steps = min(_MOST_STEPS, max(1, elements // max(1, first.logits.numel())))
        self._like = first
        self.filled = 0
        self._memory = [part.new_empty(self.steps, *part.shape) for part in first.tensors()]
        # For the cosines of all buffered logits.
        self._scratch = torch.empty_like(self._memory[0]) if first.cosines is not None else None
        # The views are made once: making them at every step would cost more than the copies.
        self._slots = [[part[step] for part in self._memory] for step in range(self.steps)]
        # A GPU copies those of one type in one launch; on a CPU one call for all is the cheapest.
        self._same_type = [slice(None)] if on_cpu else [slice(-2), slice(-2, None)]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return sum(part.nbytes for part in (*self._memory, self._scratch) if part is not None)

    def fits(self, batch: Batch) -> bool:
        """Whether the batch is like the first one."""
        like, of, norms = self._like, batch.logits, batch.cosines
        if of.shape != like.logits.shape or of.dtype != like.logits.dtype:
            return False
        if norms is None or like.cosines is None:
            return norms is like.cosines
        return all(
            (one is None) == (other is None) and (one is None or other is None or one.dtype == other.dtype)
            for one, other in zip(norms, like.cosines, strict=True)
        )

    def put(self, batch: Batch) -> bool:
        """Copy a batch into the buffer; returns whether it is full."""
        slots, parts = self._slots[self.filled], batch.tensors()
        for several in self._same_type:
            torch._foreach_copy_(slots[several], parts[several])
        self.filled += 1
        return self.filled == self.steps

    def take(self) -> tuple[Batch, Tensor | None]:
        """All buffered batches as one, and memory for their cosines; both may be overwritten."""
        scratch = None if self._scratch is None else self._scratch[: self.filled]
        logits, *norms, ids, labels = (part[: self.filled] for part in self._memory)
        self.filled = 0
        cosines = Cosines(norms[0].flatten(), norms[1], norms[2] if len(norms) == 3 else None) if norms else None
        return Batch(ids.flatten(), logits.flatten(0, 1), labels.flatten(), cosines), scratch


def check_batch(ids: Tensor, logits: Tensor, labels: Tensor, num_classes: int | None) -> None:
    """Logits are [batch, classes] floats; ids and labels are [batch] integers."""
    # As one expression: this runs at every step.
    if not (isinstance(ids, Tensor) and isinstance(logits, Tensor) and isinstance(labels, Tensor)):
        for name, given in (("ids", ids), ("logits", logits), ("labels", labels)):
            check_tensor(name, given)
    batch, classes = logits.shape if logits.ndim == 2 else (None, None)
    right_types = ids.dtype == labels.dtype == torch.int64 and logits.is_floating_point()
    if right_types and classes == num_classes and ids.shape == labels.shape == (batch,):
        # The ordinary case, at every step.
        return
    if logits.ndim != 2 or not logits.is_floating_point():
        raise ValueError(f"logits must be floats [batch, classes]; got {logits.dtype} {list(logits.shape)}")
    if logits.shape[1] < 2:
        raise ValueError(f"logits must have a column for each of at least 2 classes; got {list(logits.shape)}")
    if num_classes is not None and logits.shape[1] != num_classes:
        raise ValueError(f"logits must have {num_classes} classes as before; got {logits.shape[1]}")
    for name, values in (("ids", ids), ("labels", labels)):
        check_integers(name, values)
        if values.shape != logits.shape[:1]:
            raise ValueError(
                f"{name} must have one entry for each of the {logits.shape[0]} rows of logits; got {list(values.shape)}"
            )


def check_norms(
    logits: Tensor, features_norm: Tensor | None, weight_norm: Tensor | None, bias: Tensor | None, angular: bool
) -> None:
    """Norms come both or not at all; they must come where angles are recorded."""
    if (features_norm is None) != (weight_norm is None):
        given, missing = ("weight_norm", "features_norm") if features_norm is None else ("features_norm", "weight_norm")
        raise ValueError(f"features_norm and weight_norm must come together; got {given} without {missing}")
    if angular and features_norm is None:
        raise ValueError("features_norm and weight_norm must be given, since angles are recorded; got neither")
    batch, classes = logits.shape
    for name, values, count in (
        ("features_norm", features_norm, batch),
        ("weight_norm", weight_norm, classes),
        ("bias", bias, classes),
    ):
        if values is not None and values.shape != (count,):
            raise ValueError(f"{name} must have shape [{count}]; got {list(values.shape)}")


def check_values(ids: Tensor, labels: Tensor, num_samples: int, num_classes: int) -> None:
    """Ids and labels lie in range (or labels below it, for none); reading them waits for a GPU."""
    for name, values, count, wrong in (
        ("ids", ids, num_samples, (ids < 0) | (ids >= num_samples)),
        ("labels", labels, num_classes, labels >= num_classes),
    ):
        if bool(wrong.any()):
            first = int(wrong.nonzero()[0])
            raise ValueError(f"{name} must lie in [0, {count}); got {int(values[first])} at place {first}")


class OpenEpoch:
    """Adds batches to the epoch's sums; `blocks` gives each sample's values over the epoch so far."""

    def __init__(
        self, layout: Layout, repeats: str, device: torch.device, process: tuple[int, int], compiled: bool
    ) -> None:
        self.layout, self.process = layout, process
        self.epoch_sums = EpochSums(layout.num_samples, layout.measures, repeats, device)
        self.buffer: BatchBuffer | None = None
        # Only steps of this many samples are buffered: those of the first step. A resumed run buffers the same steps as
        # before, since what is measured together may differ in the last bit.
        self.step_size: int | None = None
        self._measure = torch.compile(self._measure_and_add) if compiled else self._measure_and_add

    @property
    def nbytes(self) -> int:
        """Bytes of the sums and of the buffer."""
        return self.epoch_sums.nbytes + (0 if self.buffer is None else self.buffer.nbytes)

    def put(self, batch: Batch) -> None:
        """Buffer the batch, or measure it at once where it cannot be buffered."""
        if torch.compiler.is_compiling() or (batch.logits.is_cuda and torch.cuda.is_current_stream_capturing()):
            # A compiled or captured step does the same every time, so it cannot wait until the buffer is full.
            return self._measure_and_add(batch, None, False)
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
        """Measure the buffered batches."""
        if self.buffer is not None and self.buffer.filled:
            batch, scratch = self.buffer.take()
            self._measure(batch, scratch, True)

    def clear(self) -> None:
        """Forget the epoch."""
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
        """Each sample's values over the epoch, block by block."""
        for rows in self.rows():
            yield rows, self.epoch_sums.epoch_values(rows.start, rows.stop)

    def _measure_and_add(self, batch: Batch, scratch: Tensor | None, consume: bool) -> None:
        """Measure and add a batch; all of it runs on the device."""
        rows, labels = self.epoch_sums.rows_of(batch.ids, batch.labels, self.layout.num_classes)
        measured = measure(batch.logits, labels, self.layout.measures, batch.cosines, consume=consume, scratch=scratch)
        self.epoch_sums.add(rows, labels, measured, self.process)

    def add(self, ids: Tensor, labels: Tensor, measured: Measured) -> None:
        """Add a batch that is measured already."""
        self.epoch_sums.add(*self.epoch_sums.rows_of(ids, labels, self.layout.num_classes), measured, self.process)
