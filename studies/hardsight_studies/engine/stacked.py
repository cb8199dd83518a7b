"""Several networks of one architecture in one pass: their weights stacked, every layer computed for all at once.

`vmap` turns K convolutions into one grouped convolution, K normalizations into one over K times the channels: K times
fewer, K times larger kernels. Only forward and backward are shared. The stacked tensors are the memory of the
networks' own parameters and buffers, so that losses, optimisers, recorders, evaluation and checkpoints of each
training go on as if it were alone; on a GPU these small things of each network run beside those of the others.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from hardsight.distributed import rank_and_count
from hardsight.geometry import widen
from hardsight.training.feed import RECOMPILE_LIMIT, Place, Replay, ResidentBatches
from hardsight.training.loop import Loop
from hardsight.training.network import Batch, BatchShare, Losses
from hardsight.training.record import Fitted
from hardsight.training.step import Step
from hardsight_studies.engine.together import run_together

Result = TypeVar("Result")


def run_stacked(loops: Sequence[Loop]) -> list[Fitted]:
    """Run these trainings to their ends, all with one forward and one backward pass.

    Equals running them one after the other, up to rounding and up to the draws of dropout.
    """
    _, processes = rank_and_count()
    if processes > 1:
        raise ValueError(f"stacked must be False in several processes; got True in {processes}")
    return run_together(loops, end_round=StackedLoops(loops).end_round) if loops else []


class Stack:
    """The networks of several steps as one: `take` takes one step of each."""

    def __init__(self, steps: Sequence[Step], *, compiled: bool) -> None:
        self.steps = list(steps)
        check_alike(self.steps)
        # A network without weights: it lends its structure, the stacked tensors are what it computes with.
        self._structure = _Look(_with_plain_statistics(copy.deepcopy(steps[0].network.model).to("meta")))
        self.beside = Beside(len(self.steps), next(steps[0].network.parameters()).device)
        self.parameters = self._share("named_parameters")
        self.buffers = self._share("named_buffers")
        self.look: Callable[..., tuple[Tensor, Tensor]] = vmap(self._look, randomness="different")
        self.eager = self.look
        if compiled:
            torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILE_LIMIT)
            self.look = torch.compile(self.look, dynamic=False)

    def _share(self, kind: str) -> dict[str, Tensor]:
        """Stack each tensor over the networks and let the networks' own tensors be slices of it."""
        each = [dict(getattr(step.network.model, kind)()) for step in self.steps]
        stacked: dict[str, Tensor] = {}
        for name, first in each[0].items():
            whole = torch.stack([own[name].detach() for own in each])
            for place, own in enumerate(each):
                own[name].data = whole[place]
            stacked[f"model.{name}"] = whole.requires_grad_(first.requires_grad)
        return stacked

    def _look(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
        both: tuple[Tensor, Tensor] = functional_call(self._structure, {**parameters, **buffers}, (images,))
        return both

    def take(self, batches: Sequence[Batch], *, fast: bool = True) -> None:
        """One step of each network on its own batch; equals each taking it alone, up to rounding."""
        precision = self.steps[0].precision
        images = torch.stack([images for images, _, _ in batches])
        with torch.autocast(images.device.type, precision, enabled=precision != torch.float32):
            self._structure.train()
            logits, features = (self.look if fast else self.eager)(self.parameters, self.buffers, images)

        def judge(place: int) -> Losses:
            _, labels, ids = batches[place]
            with torch.autocast(images.device.type, precision, enabled=precision != torch.float32):
                losses: Losses = self.steps[place].network.objective(
                    logits[place], features[place], labels, ids, BatchShare()
                )
                return losses

        losses = self.beside.each(judge)
        # The gradient of a sum over networks is each network's own gradient: none sees another's weights.
        torch.stack([loss.followed for loss in losses]).sum().backward()

        def follow(place: int) -> None:
            step, (_, labels, ids) = self.steps[place], batches[place]
            for name, parameter in step.network.model.named_parameters():
                grad = self.parameters[f"model.{name}"].grad
                if grad is not None:
                    # What it holds already came from a loss that looks at the network's own weights.
                    parameter.grad = grad[place] if parameter.grad is None else grad[place] + parameter.grad
            step.account(losses[place].reported, logits[place], features[place], labels, ids)
            step.update()

        self.beside.each(follow)
        for stacked in self.parameters.values():
            stacked.grad = None


class Beside:
    """What each network does for itself, on a GPU each on a stream of its own: small kernels fill it only together."""

    def __init__(self, networks: int, device: torch.device) -> None:
        self.networks = networks
        self.streams = [torch.cuda.Stream(device) for _ in range(networks)] if device.type == "cuda" else []

    def each(self, work: Callable[[int], Result]) -> list[Result]:
        """`work(place)` for every network; what follows on the current stream waits for all of them."""
        if not self.streams:
            return [work(place) for place in range(self.networks)]
        current = torch.cuda.current_stream()
        results = []
        for place, stream in enumerate(self.streams):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                results.append(work(place))
        for stream in self.streams:
            current.wait_stream(stream)
        return results


class StackedLoops:
    """Trainings whose steps are taken together: each leaves its batch, and the last one to come sets them off.

    When one has ended the others are stacked again; the last one left goes on alone.
    """

    def __init__(self, loops: Sequence[Loop]) -> None:
        self.loops = list(loops)
        self.alone = [loop.take_step for loop in loops]
        self.together = list(range(len(self.loops)))
        self.waiting: dict[int, Batch | Place] = {}
        self.stack: Stack | None = None
        self._sources: list[ResidentBatches] = []
        self._replay: Replay | None = None
        check_alike([loop.step for loop in loops])
        for place, loop in enumerate(self.loops):
            loop.take_step = self._putter(place)

    def _putter(self, place: int) -> Callable[[Sequence[Any]], None]:
        def put(group: Sequence[Any]) -> None:
            if self.together == [place] or len(group) != 1:
                self.alone[place](group)
                return
            self.waiting[place] = group[0]
            if len(self.waiting) == len(self.together):
                self._take_waiting()

        return put

    def end_round(self) -> None:
        """Those that left no batch in this round have ended: go on without them."""
        if not self.waiting:
            return
        self.together = sorted(self.waiting)
        self.stack, self._replay, self._sources = None, None, []
        self._take_waiting()

    def _take_waiting(self) -> None:
        batches, self.waiting = [self.waiting[place] for place in self.together], {}
        if len(batches) == 1:
            self.alone[self.together[0]](batches)
            return
        loops = [self.loops[place] for place in self.together]
        on_gpu = loops[0].device.type == "cuda"
        if self.stack is None:
            # Only now: a resumed training has put back its weights in the meantime.
            self.stack = Stack([loop.step for loop in loops], compiled=on_gpu)
        places = [batch for batch in batches if isinstance(batch, Place)]
        full = len(places) == len(batches) and all(place.is_full for place in places)
        if on_gpu and full and len({(place.loader.batch_size, place.loader.images.shape[1:]) for place in places}) == 1:
            self._replayed(places)
            return
        made = [one.batch() if isinstance(one, Place) else one for one in batches]
        if len({images.shape for images, _, _ in made}) == 1:
            self.stack.take(made, fast=False)
            return
        # Not by `alone`: a graph of its own would hold on to memory that the next stack leaves behind.
        for loop, batch in zip(loops, made, strict=True):
            loop.step([batch])

    def _replayed(self, places: Sequence[Place]) -> None:
        self._sources = self._sources or [ResidentBatches(place.loader, place.plan) for place in places]
        for source, place in zip(self._sources, places, strict=True):
            source.seek(place)
        if self._replay is None:
            self._replay = Replay(self._round, self._held)
        self._replay()

    def _round(self) -> None:
        assert self.stack is not None
        self.stack.take(self.stack.beside.each(lambda place: self._sources[place].make()))

    def _held(self) -> Any:
        assert self.stack is not None
        return [step.settings() for step in self.stack.steps], [source.baked() for source in self._sources]


class _Look(nn.Module):
    """Logits and features of a model that says what its features are."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.model.forward_features(images)  # type: ignore[operator]
        return self.model.head(features), features  # type: ignore[operator]


class _PlainBatchNorm(nn.BatchNorm2d):
    """Batch normalization while training, written out: the built-in one asks for a memory layout that `vmap` hides."""

    def forward(self, input: Tensor) -> Tensor:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        wide = widen(input)
        variance, mean = torch.var_mean(wide, (0, 2, 3), correction=0)
        with torch.no_grad():
            count = input.numel() / input.shape[1]
            self.running_mean.mul_(1 - self.momentum).add_(mean * self.momentum)
            self.running_var.mul_(1 - self.momentum).add_(variance * (self.momentum * count / (count - 1)))
            self.num_batches_tracked.add_(1)
        factor = torch.rsqrt(variance + self.eps) * self.weight
        normal = (wide - mean[:, None, None]) * factor[:, None, None] + self.bias[:, None, None]
        return normal.to(input.dtype)


def _with_plain_statistics(model: nn.Module) -> nn.Module:
    """The model with every plain 2-D batch normalization written out."""
    for module in model.modules():
        if type(module) is nn.BatchNorm2d and module.affine and module.track_running_stats and module.momentum:
            module.__class__ = _PlainBatchNorm
    return model


def check_alike(steps: Sequence[Step]) -> None:
    """Reject networks that cannot be stacked, naming the first difference."""
    first = _described(steps[0].network.model)
    for place, step in enumerate(steps):
        if not step.network.direct:
            raise ValueError(
                f"networks must be a Classifier of hardsight.models, with its forward as it is, to be stacked; number "
                f"{place} is a {type(step.network.model).__name__}"
            )
        if step.precision != steps[0].precision or step.scaler is not None:
            raise ValueError(
                f"networks must share one precision, float32 or bf16, to be stacked; number {place} differs"
            )
        own = _described(step.network.model)
        differs = next((name for name in [*first, *own] if first.get(name) != own.get(name)), None)
        if differs is not None:
            raise ValueError(f"networks must be of one architecture to be stacked; number {place} differs in {differs}")


def _described(model: nn.Module) -> dict[str, Any]:
    """The shape of each tensor and whether it is trained, the layers, and each one's settings, such as `dropout.p`."""
    found: dict[str, Any] = {name: (tensor.shape, tensor.requires_grad) for name, tensor in model.named_parameters()}
    found |= {name: tensor.shape for name, tensor in model.named_buffers()}
    for layer, module in model.named_modules():
        found[layer or type(model).__name__] = type(module)
        for key, value in vars(module).items():
            if key not in _INTERNAL:
                # A function made again for each network is the same function.
                same = getattr(value, "__qualname__", None) if callable(value) else value
                found[f"{layer}.{key}".removeprefix(".")] = same if _is_plain(same) else None
    return found


# What every module has of its own: tensors, modules and hooks by name, and whether it trains.
_INTERNAL = frozenset(vars(nn.Module()))


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, str | int | float | torch.dtype)
