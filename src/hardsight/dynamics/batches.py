"""The batches of a recorder: checked, and a few kept to be measured at once.

Measuring several steps at once leaves each step the cost of a copy instead of forty small launches. The copy is needed:
a caller may overwrite its logits, and the head's bias changes with the optimizer's step.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hardsight.dynamics.measures import Cosines
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


def check_values(ids: Tensor, labels: Tensor, num_samples: int, num_classes: int) -> None:
    """Ids and labels lie in range (or labels below it, for none); reading them waits for a GPU."""
    for name, values, count, wrong in (
        ("ids", ids, num_samples, (ids < 0) | (ids >= num_samples)),
        ("labels", labels, num_classes, labels >= num_classes),
    ):
        if bool(wrong.any()):
            first = int(wrong.nonzero()[0])
            raise ValueError(f"{name} must lie in [0, {count}); got {int(values[first])} at place {first}")
