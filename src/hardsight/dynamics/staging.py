"""A few steps kept back and then measured at once: a step's own cost is a copy, not forty small launches.

The copies are the point: a caller may overwrite its logits, and the head's bias changes with the optimizer's step.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hardsight.dynamics.measures import Cosines

# Logits kept back: on a CPU they should stay in its last cache (4 MiB), on a GPU a launch should be worth it.
_KEPT_ON_CPU = 2**20
_KEPT_ON_GPU = 2**22
_MOST_STEPS = 64


class Batch(NamedTuple):
    """One step, or several of equal size, one after the other: then norms and bias have a row for each step."""

    ids: Tensor
    logits: Tensor
    labels: Tensor
    cosines: Cosines | None

    def tensors(self) -> list[Tensor]:
        """All there is, floats first."""
        extra = [] if self.cosines is None else [part for part in self.cosines if part is not None]
        return [self.logits, *extra, self.ids, self.labels]


class Stage:
    """Room for `steps` batches like the first one."""

    def __init__(self, first: Batch) -> None:
        kept = _KEPT_ON_CPU if first.logits.device.type == "cpu" else _KEPT_ON_GPU
        self.steps = min(_MOST_STEPS, max(1, kept // max(1, first.logits.numel())))
        self._like = first
        self.filled = 0
        self.room = [part.new_empty(self.steps, *part.shape) for part in first.tensors()]
        # For the cosines of all logits kept back.
        self._scratch = torch.empty_like(self.room[0]) if first.cosines is not None else None
        # The views are made once: making them at every step would cost more than the copies.
        self._slots = [[part[step] for part in self.room] for step in range(self.steps)]
        # A GPU copies those of one type in one launch; on a CPU one call for all is the cheapest.
        on_cpu = first.logits.device.type == "cpu"
        self._kinds = [slice(None)] if on_cpu else [slice(-2), slice(-2, None)]

    @property
    def nbytes(self) -> int:
        """Bytes kept back at most."""
        return sum(part.nbytes for part in (*self.room, self._scratch) if part is not None)

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
        """Keep a batch back; says whether the room is full."""
        slots, parts = self._slots[self.filled], batch.tensors()
        for kind in self._kinds:
            torch._foreach_copy_(slots[kind], parts[kind])
        self.filled += 1
        return self.filled == self.steps

    def take(self) -> tuple[Batch, Tensor | None]:
        """All batches kept back, as one, and room for their cosines; both may be overwritten."""
        scratch = None if self._scratch is None else self._scratch[: self.filled]
        logits, *norms, ids, labels = (part[: self.filled] for part in self.room)
        self.filled = 0
        cosines = Cosines(norms[0].flatten(), norms[1], norms[2] if len(norms) == 3 else None) if norms else None
        return Batch(ids.flatten(), logits.flatten(0, 1), labels.flatten(), cosines), scratch
