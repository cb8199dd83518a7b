"""The step as a CUDA graph: recorded once for a fixed shape, then replayed with one launch.

A small network leaves a GPU idle while the host launches hundreds of kernels; a replay launches them all at once. The
network is compiled (fused kernels), the whole step is captured around it: the batch and its augmentation, forward,
loss, backward, update, average, sums and recorder. A batch of another shape takes the same step uncaptured.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hardsight.training.resident import Place, ResidentBatches
from hardsight.training.step import Batch, Step

# Steps taken uncaptured first: compilation, lazily made optimiser state and library workspaces happen in them.
_WARM_UP = 3
# Each network that is trained at the same time may need its own compiled code.
_RECOMPILE_LIMIT = 64


def can_capture(step: Step, accumulate: int, processes: int) -> bool:
    """Whether a step can be captured: on CUDA, in one process, an optimiser that can, no loss scaling."""
    known = isinstance(step.optimizer, torch.optim.SGD | torch.optim.Adam | torch.optim.AdamW)
    return (
        next(step.network.parameters()).is_cuda and processes == 1 and accumulate == 1 and known and step.scaler is None
    )


def make_capturable(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Keep on the device what a replay must read anew, the learning rate above all; call before any step."""
    for group in optimizer.param_groups:
        group["fused"], group["foreach"] = True, False
        if "capturable" in group:
            group["capturable"] = True
        if not isinstance(group["lr"], Tensor):
            group["lr"] = torch.tensor(float(group["lr"]), device=device)


class CapturedStep:
    """Takes the step by replaying its graph; records it again when something that the graph holds has changed."""

    def __init__(self, step: Step, *, compiled: bool = True) -> None:
        self.step, self.failed = step, False
        self.graph: torch.cuda.CUDAGraph | None = None
        self.eager = step.call
        self.fast: Any = step.call
        if compiled and step.network.direct:
            torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _RECOMPILE_LIMIT)
            self.fast = torch.compile(step.call, dynamic=False)
        self._source: _Given | ResidentBatches | None = None
        self._taken = 0
        self._baked: Any = None
        self._stream: torch.cuda.Stream | None = None

    def __call__(self, group: Sequence[Batch | Place]) -> None:
        """Take one step; equals `step(group)` up to rounding."""
        (batch,) = group
        if self.failed or not self._accept(batch):
            self.step.call = self.eager
            self.step([batch.batch() if isinstance(batch, Place) else batch])
            return
        self.step.call = self.fast
        if self._taken < _WARM_UP:
            self._warm_up()
            return
        if self.graph is None or self._baked != self._held():
            self._record()
        if self.graph is not None:
            self.graph.replay()
        else:
            self._take()

    def _accept(self, batch: Batch | Place) -> bool:
        """Put a batch, or its place, where the graph reads it; the first one decides the shape."""
        if isinstance(batch, Place):
            if not batch.is_full:
                return False
            if self._source is None:
                self._source = ResidentBatches(batch.loader, batch.plan)
            assert isinstance(self._source, ResidentBatches)
            self._source.seek(batch)
            return True
        if self._source is None:
            self._source = _Given(batch)
        assert isinstance(self._source, _Given)
        return self._source.accept(batch)

    def _take(self) -> None:
        assert self._source is not None
        self.step([self._source.make()])

    def _warm_up(self) -> None:
        # On a side stream, as capturing demands of whatever runs before it.
        self._stream = self._stream or torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._take()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._taken += 1

    def _held(self) -> Any:
        """What a graph holds as constants: the settings of the optimiser but the learning rate, and addresses."""
        assert self._source is not None
        settings = [
            {key: value for key, value in group.items() if key not in ("params", "lr", "initial_lr")}
            for group in self.step.optimizer.param_groups
        ]
        return settings, self._source.baked()

    def _record(self) -> None:
        self._baked, self.graph = self._held(), None
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._take()
            self.graph = graph
        except RuntimeError as problem:
            self.failed = True
            torch.cuda.synchronize()
            reason = str(problem).splitlines()[0]
            warnings.warn(f"the step could not be captured and runs uncaptured: {reason}", stacklevel=2)


class _Given:
    """Batches that someone else makes, copied to where the graph reads them."""

    def __init__(self, first: Batch) -> None:
        self.tensors = [torch.empty_like(part) for part in first if part is not None]

    def accept(self, batch: Batch) -> bool:
        parts = [part for part in batch if part is not None]
        if any(kept.shape != part.shape for kept, part in zip(self.tensors, parts, strict=True)):
            return False
        for kept, part in zip(self.tensors, parts, strict=True):
            kept.copy_(part)
        return True

    def make(self) -> Batch:
        images, labels, *ids = self.tensors
        return images, labels, ids[0] if ids else None

    def baked(self) -> None:
        return None
