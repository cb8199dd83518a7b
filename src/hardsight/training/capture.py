"""The step as a CUDA graph: recorded once for a fixed shape, then replayed with one launch.

A small network leaves a GPU idle while the host launches hundreds of kernels; a replay launches them all at once. The
network is compiled (fused kernels), the whole step is captured around it: the batch and its augmentation, forward,
loss, backward, update, average, sums and recorder. A batch of another shape takes the same step uncaptured.

Batches of a `DeviceLoader` are made inside the graph: the epoch's plan (order and draws) is copied once into tensors
that the graph reads, and a position on the device says which batch comes next.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hardsight.distributed import rank_and_count
from hardsight.training.feed import Batch, Place, ResidentBatches
from hardsight.training.step import Step

# Steps taken uncaptured first: compilation, lazily made optimiser state and library workspaces happen in them.
_WARM_UP = 3
# Each network that is trained at the same time may need its own compiled code.
RECOMPILE_LIMIT = 64


def can_capture(step: Step, accumulate: int, processes: int) -> bool:
    """Whether a step can be captured: on CUDA, in one process, an optimiser that can, no loss scaling."""
    known = isinstance(step.optimizer, torch.optim.SGD | torch.optim.Adam | torch.optim.AdamW)
    return (
        next(step.network.parameters()).is_cuda and processes == 1 and accumulate == 1 and known and step.scaler is None
    )


def make_capturable(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Keep on the device what each replay must read, the learning rate above all; call before any step."""
    for group in optimizer.param_groups:
        group["fused"], group["foreach"] = True, False
        if "capturable" in group:
            group["capturable"] = True
        if not isinstance(group["lr"], Tensor):
            group["lr"] = torch.tensor(float(group["lr"]), device=device)


class Replay:
    """A step as a function of tensors alone: taken a few times as it is, then replayed from its graph.

    `held` gives what a graph holds as constants; when that changes, the graph is recorded again.
    """

    def __init__(self, body: Callable[[], None], held: Callable[[], Any]) -> None:
        self.body, self.held = body, held
        self.graph: torch.cuda.CUDAGraph | None = None
        self.failed = False
        self._stream = torch.cuda.Stream()
        self._taken = 0
        self._holds: Any = None

    def __call__(self) -> None:
        """Take the step."""
        if self._taken < _WARM_UP:
            self._warm_up()
            return
        if not self.failed and (self.graph is None or self._holds != self.held()):
            self._record()
        if self.graph is not None:
            self.graph.replay()
        else:
            self.body()

    def _warm_up(self) -> None:
        # On a side stream, as capturing demands of whatever runs before it.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self.body()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._taken += 1

    def _record(self) -> None:
        self._holds, self.graph = self.held(), None
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self.body()
            self.graph = graph
        except RuntimeError as problem:
            self.failed = True
            torch.cuda.synchronize()
            reason = str(problem).splitlines()[0]
            warnings.warn(f"the step could not be captured and runs uncaptured: {reason}", stacklevel=2)


class CapturedStep:
    """Takes the step by replaying its graph; batches of another shape than the first take it as it is."""

    def __init__(self, step: Step, *, compiled: bool = True) -> None:
        self.step = step
        self.eager = step.call
        self.fast: Any = step.call
        if compiled and step.network.direct:
            torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILE_LIMIT)
            self.fast = torch.compile(step.call, dynamic=False)
        self.source: _Given | ResidentBatches | None = None
        self._replay: Replay | None = None

    @property
    def graph(self) -> torch.cuda.CUDAGraph | None:
        """The recorded graph, once there is one."""
        return None if self._replay is None else self._replay.graph

    def __call__(self, group: Sequence[Batch | Place]) -> None:
        """Take one step; equals `step(group)` up to rounding."""
        (batch,) = group
        if not self._accept(batch):
            self.step.call = self.eager
            self.step([batch.batch() if isinstance(batch, Place) else batch])
            return
        self.step.call = self.fast
        if self._replay is None:
            self._replay = Replay(self._take, self._held)
        self._replay()

    def _accept(self, batch: Batch | Place) -> bool:
        """Put a batch, or its place, where the graph reads it; the first one decides the shape."""
        if isinstance(batch, Place):
            if not batch.is_full:
                return False
            if self.source is None:
                self.source = ResidentBatches(batch.loader, batch.plan)
            assert isinstance(self.source, ResidentBatches)
            self.source.seek(batch)
            return True
        if self.source is None:
            self.source = _Given(batch)
        assert isinstance(self.source, _Given)
        return self.source.accept(batch)

    def _take(self) -> None:
        assert self.source is not None
        self.step([self.source.make()])

    def _held(self) -> Any:
        assert self.source is not None
        return self.step.settings(), self.source.baked()


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


def captured(step: Step, accumulate: int) -> CapturedStep | None:
    """The step in its captured form; None where it cannot be captured."""
    if not can_capture(step, accumulate, rank_and_count()[1]):
        return None
    make_capturable(step.optimizer, next(step.network.parameters()).device)
    return CapturedStep(step)
