"""The batches of a training, grouped for gradient accumulation; and the step as a CUDA graph that makes its own.

A loader that knows its position (`state_dict`, `load_state_dict`) is asked to continue in the middle of an epoch. Any
other is replayed: the random states of the epoch's start are put back, and the batches already used are thrown away.

A small network leaves a GPU idle while the host launches hundreds of kernels; a replayed graph launches the whole step
at once, batch and augmentation included. A batch of another shape takes the same step uncaptured. Of a `DeviceLoader`
the epoch's plan is copied into tensors that the graph reads, and a position on the device says which batch comes next.
"""

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hardsight.datasets.augment import Draws, normalise, shift_and_flip
from hardsight.datasets.epochs import EpochPlan
from hardsight.datasets.loader import DeviceLoader
from hardsight.distributed import rank_and_count
from hardsight.training.checkpoints import random_states, restore_random_states
from hardsight.training.network import Batch, take_apart
from hardsight.training.step import Step

# Steps taken uncaptured first: compilation, lazily made optimiser state and library workspaces happen in them.
_WARM_UP = 3
# Each network that is trained at the same time may need its own compiled code.
RECOMPILE_LIMIT = 64


@dataclass(frozen=True)
class Place:
    """A batch that is not made yet: number `index` of the planned epoch."""

    loader: DeviceLoader
    plan: EpochPlan
    index: int

    def batch(self) -> Batch:
        """The batch itself."""
        batch: Batch = self.loader.batch(self.plan, self.index)
        return batch

    @property
    def is_full(self) -> bool:
        """Whether it has the size of all batches but the last."""
        return (self.index + 1) * self.loader.batch_size <= len(self.plan.order)


class Feed:
    """Groups of `accumulate` batches on the device, epoch by epoch."""

    def __init__(self, batches: Iterable[Any], device: torch.device, accumulate: int = 1) -> None:
        self.batches, self.device, self.accumulate = batches, device, accumulate
        # Set by who makes the batches itself, inside a captured step: places are handed out instead of batches.
        self.places = False
        self._position: tuple[int, int] | None = None
        # A loader that Accelerate prepared has these methods also where the loader inside it has not.
        inside = getattr(batches, "base_dataloader", batches)
        self._positioned = hasattr(inside, "state_dict") and hasattr(inside, "load_state_dict")
        self._start: dict[str, Any] | None = None

    def steps(self) -> int:
        """Optimiser steps of an epoch."""
        try:
            count = len(self.batches)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError("batches must have a length, the number of batches of an epoch") from None
        if count == 0:
            raise ValueError("batches must hold at least one batch; got none")
        return -(-count // self.accumulate)

    def epoch(self, number: int, done: int = 0) -> Iterator[list[Batch] | list[Place]]:
        """The groups of epoch `number`, counted from 0, that come after the first `done`."""
        if self.places:
            yield from self._placed(number, done)
            return
        stream = self._stream(number, done)
        while group := [take_apart(batch, self.device) for batch in itertools.islice(stream, self.accumulate)]:
            yield group

    def _placed(self, number: int, done: int) -> Iterator[list[Place]]:
        loader = self.batches
        assert isinstance(loader, DeviceLoader)
        loader.set_epoch(number)
        plan = loader.plan(number)
        for index in range(done, len(loader)):
            self._position = (number, index + 1) if index + 1 < len(loader) else (number + 1, 0)
            yield [Place(loader, plan, index)]

    def _stream(self, number: int, done: int) -> Iterator[Any]:
        """The batches of an epoch that come after the first `done` groups."""
        if done and self._positioned:
            return iter(self.batches)
        set_epoch = getattr(self.batches, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(number)
        if not done:
            self._start = None if self._positioned else self._random()
            return iter(self.batches)
        now, start = random_states(), self._start
        assert start is not None
        restore_random_states(start["global"])
        if start["own"] is not None:
            self.batches.generator.set_state(start["own"])  # type: ignore[attr-defined]
        stream = iter(self.batches)
        for _ in itertools.islice(stream, done * self.accumulate):
            pass
        restore_random_states(now)
        return stream

    def _random(self) -> dict[str, Any]:
        generator = getattr(self.batches, "generator", None)
        own = generator.get_state() if isinstance(generator, torch.Generator) else None
        return {"global": random_states(), "own": own}

    def state_dict(self) -> dict[str, Any]:
        loader = self.batches.state_dict() if self._positioned else None  # type: ignore[attr-defined]
        if loader is not None and self._position is not None:
            loader |= dict(zip(("epoch", "batches"), self._position, strict=True))
        # Between epochs a plain loader's own generator is all there is to remember.
        return {"loader": loader, "start": self._start, "own": None if self._positioned else self._random()["own"]}

    def load_state_dict(self, state: dict[str, Any], *, within_epoch: bool) -> None:
        if self._positioned:
            # Between epochs too: a loader may count them by itself, and reject other data.
            self.batches.load_state_dict(state["loader"])  # type: ignore[attr-defined]
        elif within_epoch:
            self._start = state["start"]
        elif state["own"] is not None:
            self.batches.generator.set_state(state["own"])  # type: ignore[attr-defined]


def can_reside(batches: object) -> bool:
    """Whether batches can be made in the graph: a whole `DeviceLoader` whose augmentation draws all per epoch."""
    return isinstance(batches, DeviceLoader) and batches.world_size == 1 and batches.augmentation.noise_std == 0


class ResidentBatches:
    """The next batch as a function of tensors alone."""

    def __init__(self, loader: DeviceLoader, plan: EpochPlan) -> None:
        self.loader = loader
        self.order = torch.empty_like(plan.order)
        self.draws = Draws(*(torch.empty_like(column) for column in plan.draws))
        self.position = torch.zeros((), dtype=torch.int64, device=loader.device)
        self.offsets = torch.arange(loader.batch_size, device=loader.device)
        self._plan: EpochPlan | None = None
        self._next = -1

    def seek(self, place: Any) -> bool:
        """Make `place` the next batch, if it is a full one; nothing is done where it is that already."""
        if not place.is_full:
            return False
        if place.plan is not self._plan:
            self.order.copy_(place.plan.order)
            for kept, column in zip(self.draws, place.plan.draws, strict=True):
                kept.copy_(column)
            self._plan = place.plan
        if place.index != self._next:
            self.position.fill_(place.index * self.loader.batch_size)
        self._next = place.index + 1
        return True

    def make(self) -> Batch:
        """The next batch; equals `loader.batch` of its place."""
        loader = self.loader
        places = self.position + self.offsets
        where = self.order[places]
        pixels = loader.images.index_select(0, where)
        if loader.augmentation.moves:
            pixels = shift_and_flip(pixels, Draws(*(column[places] for column in self.draws)), loader.augmentation)
        images = normalise(pixels, loader.scale, dtype=loader.dtype, channels_last=loader.channels_last)
        self.position += loader.batch_size
        return images, loader.labels.index_select(0, where), loader.ids.index_select(0, where)

    def baked(self) -> int:
        """What a graph of `make` holds by address and what may be replaced: the labels."""
        return self.loader.labels.data_ptr()


def make_capturable(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Keep on the device what each replay must read, the learning rate above all; call before any step."""
    for group in optimizer.param_groups:
        group["fused"], group["foreach"] = True, False
        if "capturable" in group:
            group["capturable"] = True
        if not isinstance(group["lr"], Tensor):
            group["lr"] = torch.tensor(float(group["lr"]), device=device)


class Replay:
    """A step taken a few times as it is, then replayed from its graph; that is recorded again when `held()` changes."""

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
            # On a side stream, as capturing demands of whatever runs before it.
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                self.body()
            torch.cuda.current_stream().wait_stream(self._stream)
            self._taken += 1
            return
        if not self.failed and (self.graph is None or self._holds != self.held()):
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
        if self.graph is not None:
            self.graph.replay()
        else:
            self.body()


class CapturedStep:
    """Takes the step by replaying its graph; batches of another shape than the first take it as it is."""

    def __init__(self, step: Step, *, compiled: bool = True) -> None:
        self.step, self.eager = step, step.call
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
        if self.source is None and (not isinstance(batch, Place) or batch.is_full):
            # The first one decides the shape.
            self.source = ResidentBatches(batch.loader, batch.plan) if isinstance(batch, Place) else _Given(batch)
        if self.source is None or not self.source.seek(batch):
            self.step.call = self.eager
            self.step([batch.batch() if isinstance(batch, Place) else batch])
            return
        self.step.call = self.fast
        if self._replay is None:
            self._replay = Replay(self._take, self._held)
        self._replay()

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

    def seek(self, batch: Any) -> bool:
        """Make `batch` the next one; whether its shape allows that."""
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
    """The step in its captured form: on CUDA, in one process, with an optimiser that can; None where it cannot be."""
    known = isinstance(step.optimizer, torch.optim.SGD | torch.optim.Adam | torch.optim.AdamW)
    alone = rank_and_count()[1] == 1 and accumulate == 1
    if not (next(step.network.parameters()).is_cuda and alone and known and step.scaler is None):
        return None
    make_capturable(step.optimizer, next(step.network.parameters()).device)
    return CapturedStep(step)
