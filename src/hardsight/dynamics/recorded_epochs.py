"""What a recorder has recorded: a few kept batches, the open epoch's sums, and the finished epochs' aggregates.

Measuring several steps at once leaves each step the cost of a copy instead of forty small launches. The copy is needed:
a caller may overwrite its logits, and the head's bias changes with the optimizer's step.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hardsight.dynamics.aggregates import MOST_EPOCHS, Aggregates, EpochSums, EpochValues, Layout
from hardsight.dynamics.history import PHASES, History, values_of
from hardsight.dynamics.measures import ANGULAR, Cosines, Measured, measure
from hardsight.validation import check_integers, check_tensor

# Logits buffered: on a CPU they should fit its last cache (4 MiB), on a GPU a launch should be worth it.
_BUFFERED_ON_CPU = 2**20
_BUFFERED_ON_GPU = 2**22
_MOST_STEPS = 64


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
        self._shape, self._types = first.logits.shape, [part.dtype for part in first.tensors()]
        self.filled = 0
        self._memory = [part.new_empty(self.steps, *part.shape) for part in first.tensors()]
        # For the cosines of all buffered logits.
        self._scratch = torch.empty_like(self._memory[0]) if first.cosines is not None else None
        # The views are made once: making them at every step would cost more than the copies.
        self._slots = [[part[step] for part in self._memory] for step in range(self.steps)]
        # A GPU copies those of one type in one launch; on a CPU one call for all is the cheapest.
        self._same_type = [slice(None)] if on_cpu else [slice(-2), slice(-2, None)]

    def fits(self, batch: Batch) -> bool:
        """Whether the batch is like the first one."""
        parts = batch.tensors()
        return batch.logits.shape == self._shape and [part.dtype for part in parts] == self._types

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


# Samples folded at a time: what is computed of them stays small beside the aggregates.
_BLOCK = 2**15
_STRAY_IDS = ": in a part of a data set, num_samples is that of the whole, or strays='ignore' leaves them out"


class RecordedEpochs:
    """A recorder's numbers, on one device. Phase 0 is training, phase 1 the second split; each counts its epochs."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self.layout = layout
        self.epoch_sums = EpochSums(layout.num_samples, layout.measures, device)
        self.aggregates = Aggregates(layout, device)
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
        self.epoch_sums.add(rows, labels, measured)

    def add(self, ids: Tensor, labels: Tensor, measured: Measured) -> None:
        """Add a batch that is measured already."""
        self.epoch_sums.add(*self.epoch_sums.rows_of(ids, labels, self.layout.num_classes), measured)

    def clear(self) -> None:
        """Forget the open epoch."""
        self.epoch_sums.sums.zero_()
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

    def check_epoch(self, strays: str, repeats: str) -> None:
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
                hint = _STRAY_IDS if name == "ids" else ""
                raise ValueError(f"{name} must lie in [0, {limit}); {when} {count} did not{hint}")
        for rows, values in self.blocks() if repeats == "raise" else ():
            often = values["seen"] + values["flagged"]
            if bool((often > 1).any()):
                first = int((often > 1).nonzero()[0])
                raise ValueError(
                    f"ids must not repeat within an epoch (repeats='raise'); "
                    f"sample {rows.start + first} came {int(often[first])} times {when}"
                )
        mixed = sums.of_several_labels()
        if mixed is not None:
            raise ValueError(
                f"labels must not change within an epoch; sample {mixed} came with several {when}, so several samples "
                "may have its id"
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
                _, table = history.read(name, epoch, self.layout)
                self.phase = phase
                for rows in self.rows():
                    self._fold(rows, values_of(table, rows, self.device))
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
            "ledger": {"sums": self.epoch_sums.sums.clone()},
            "step_size": self.step_size,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the numbers of a saved state."""
        for own, saved in ((self.aggregates, state["aggregates"]), ({"sums": self.epoch_sums.sums}, state["ledger"])):
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
    policies = ("num_samples", "num_classes", "repeats")
    check_has(state, (*policies, "measures", "phase", "finished", "aggregates", "ledger"))
    for name in policies:
        own = getattr(recorder, name)
        if own is not None and state[name] != own:
            raise ValueError(f"state must be of a recorder with {name}={own!r}; got {state[name]!r}")
    if measures is not None and tuple(state["measures"]) != measures:
        raise ValueError(f"state must hold what the scores need, {list(measures)}; got {state['measures']}")


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
    if logits.ndim != 2 or not logits.is_floating_point() or logits.shape[1] < 2 or classes != (num_classes or classes):
        columns = "classes, at least 2" if num_classes is None else num_classes
        raise ValueError(f"logits must be floats [batch, {columns}]; got {logits.dtype} {list(logits.shape)}")
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
    if (features_norm is None) != (weight_norm is None) or (angular and features_norm is None):
        missing = "features_norm" if features_norm is None else "weight_norm"
        raise ValueError(f"features_norm and weight_norm must come together, and with angles; got no {missing}")
    batch, classes = logits.shape
    given = {"features_norm": (features_norm, batch), "weight_norm": (weight_norm, classes), "bias": (bias, classes)}
    for name, (values, count) in given.items():
        if values is not None and values.shape != (count,):
            raise ValueError(f"{name} must have shape [{count}]; got {list(values.shape)}")
