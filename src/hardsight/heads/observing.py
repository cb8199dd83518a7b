"""Finds a classifier's final linear layer and captures what goes in and comes out, in the forward that runs anyway.

`observe` hangs hooks on the layers that could be the head; the first forward shows which of them made the model's
output, the other hooks go at once, and the last one goes with the `with` block, whatever happens inside.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hardsight.heads.calls import (
    Call,
    check_only_one,
    maker_of,
    mean_of_views,
    only_view,
    outputs_of,
    tensors_in,
)
from hardsight.heads.candidates import candidates_of, known_head, unwrap
from hardsight.heads.stored_weight import check_weight_made


class Seen:
    """What the head saw in the latest forward. Tensors stay attached to the graph, so losses can use them."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._modules: dict[str, nn.Module] = {}
        # By device, because DataParallel runs one replica on each; a single device is the ordinary case.
        self._captured: dict[torch.device, tuple[Tensor, Tensor]] = {}
        # What the head held while it ran; None where it does not hold them but makes them, as a parametrisation does.
        self._held: tuple[Tensor | None, Tensor | None] = (None, None)
        self._checked = False

    @property
    def name(self) -> str:
        """The head's name in the model, as `named_modules` spells it."""
        self._require_forward()
        assert self._name is not None
        return self._name

    @property
    def head(self) -> nn.Module:
        """The head itself."""
        return self._modules[self.name]

    @property
    def features(self) -> Tensor:
        """Input of the head in the latest forward."""
        return self._gather(0)

    @property
    def logits(self) -> Tensor:
        """Output of the head in the latest forward."""
        return self._gather(1)

    @property
    def weight(self) -> Tensor:
        """The head's weight, one row a class: that of the latest forward, which made the logits."""
        weight: Tensor = self.head.weight if self._held[0] is None else self._held[0]  # type: ignore[assignment]
        features, logits = next(iter(self._captured.values()))
        wanted = [logits.shape[-1], features.shape[-1]]
        if list(weight.shape) != wanted:
            # A head of dim x classes, or of several rows a class: its rows are not the classes' directions.
            raise ValueError(
                f"head must hold one weight row for each class, {wanted}; {self.name!r} holds {list(weight.shape)}"
            )
        if not self._checked and isinstance(self.head, nn.Linear):
            check_weight_made(logits, features, weight, self.bias, name=self.name, linear=self.is_linear)
        self._checked = True
        return weight

    @property
    def bias(self) -> Tensor | None:
        """The head's bias, or None."""
        return getattr(self.head, "bias", None) if self._held[1] is None else self._held[1]

    @property
    def is_linear(self) -> bool:
        """Whether the logits are features @ weight.T + bias; an angular head, say, computes something else."""
        return isinstance(self.head, nn.Linear) and type(self.head).forward is nn.Linear.forward

    def _gather(self, which: int) -> Tensor:
        self._require_forward()
        parts = [self._captured[device][which] for device in sorted(self._captured, key=lambda d: d.index or 0)]
        return parts[0] if len(parts) == 1 else torch.cat([part.to(parts[0].device) for part in parts])

    def _require_forward(self) -> None:
        if not self._captured:
            raise RuntimeError(
                "nothing was seen: run the model inside the `with observe(model)` block first, its head too"
            )


@contextmanager
def observe(model: nn.Module, head: str | None = None, *, views: str | None = None) -> Iterator[Seen]:
    """Capture the input and output of the model's final linear layer; no hook is left behind.

    `head` names the layer where the model leaves a choice (`head="classifier.3"`). Of a model with several outputs
    `logits` counts where they have names, else the first that a linear layer made and no other one took as its input;
    where such outputs have different widths, `head` must be given.
    A compiled model runs eagerly inside the block, because compiled code does not call hooks.

    The first time that `weight` is asked for, the latest logits are compared with features @ weight.T + bias. A head
    that sees several views of each sample in one forward is rejected; `views="mean"` takes the mean of their features
    and logits.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> with observe(model) as seen:
    ...     _ = model(torch.zeros(2, 4))
    >>> seen.name, list(seen.features.shape), list(seen.weight.shape)
    ('2', [2, 8], [3, 8])
    """
    if views not in (None, "mean"):
        raise ValueError(f"views must be 'mean' or None, several views of a sample being rejected; got {views!r}")
    inner, compiled = unwrap(model)
    candidates = candidates_of(inner)
    known = known_head(inner, candidates, head)
    seen = Seen(known)
    seen._modules = candidates
    with ExitStack() as stack:
        if compiled:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        guessed = head is None and len(candidates) == 1
        stack.enter_context(_Watch(seen, inner, candidates, guessed, mean_of_views if views else only_view))
        yield seen


class _Watch:
    """Hooks on the layers that may be the head; the first forward shows which of them made the model's output."""

    def __init__(
        self,
        seen: Seen,
        inner: nn.Module,
        candidates: dict[str, nn.Module],
        guessed: bool,
        choose: Callable[[list[Tensor], list[Call]], Call],
    ) -> None:
        self.seen, self.running, self.found, self.guessed, self.choose = seen, False, False, guessed, choose
        # By device, as what is seen.
        self.calls: dict[torch.device, list[Call]] = {}
        watched = candidates if seen._name is None else {seen._name: candidates[seen._name]}
        self.begin = inner.register_forward_pre_hook(self.start, with_kwargs=True)
        self.handles = {
            name: module.register_forward_hook(functools.partial(self.capture, name), with_kwargs=True)
            for name, module in watched.items()
        }
        self.end = inner.register_forward_hook(self.decide)

    def start(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.running = True
        # A forward that stops before the head must not show what the one before it saw.
        for given in tensors_in((inputs, named)):
            self.seen._captured.pop(given.device, None)

    def capture(
        self, name: str, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> None:
        features = next(tensors_in((inputs, named)), None)
        if not isinstance(output, Tensor) or features is None:
            return
        # A temperature or a mask may be applied in place. Only tokens, which no score looks at, are too many to copy.
        logits = output.clone() if output.ndim <= 2 else output
        held = module._parameters.get("weight"), module._parameters.get("bias")
        call = Call(name, features, output, logits, *held)
        if self.running:
            self.calls.setdefault(output.device, []).append(call)
        if name == self.seen._name:
            self.show(call)

    def decide(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self.running = False
        tensors = outputs_of(output)
        calls = self.calls.pop(tensors[0].device, []) if tensors else []
        if self.seen._name is None:
            if not tensors:
                return
            self.seen._name = maker_of(tensors, calls, self.seen._modules)
            for name in [name for name in self.handles if name != self.seen._name]:
                self.handles.pop(name).remove()
        own = [call for call in calls if call.name == self.seen._name]
        if own and self.guessed:
            check_only_one(tensors, own[-1], self.seen.head.weight)  # type: ignore[arg-type]
            self.guessed = False
        if own:
            # A head shared by several branches is called for each: the one whose logits the model gives counts.
            self.show(self.choose(tensors, own) if tensors else own[-1])
        elif not self.found:
            raise ValueError(f"head must be a layer that the model calls; {self.seen._name!r} was not in this forward")

    def show(self, call: Call) -> None:
        self.found = True
        self.seen._captured[call.output.device] = (call.features, call.logits)
        self.seen._held = (call.weight, call.bias)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        for handle in (self.begin, *self.handles.values(), self.end):
            handle.remove()
        self.calls.clear()
