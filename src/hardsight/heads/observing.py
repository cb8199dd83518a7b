"""Finds a classifier's final linear layer and captures what goes in and comes out, in the forward that runs anyway.

`observe` hangs hooks on the layers that could be the head; the first forward shows which of them made the model's
output, the other hooks go at once, and the last one goes with the `with` block, whatever happens inside.
"""

import functools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardsight.names import unknown_name


class Seen:
    """What the head saw in the latest forward. Tensors stay attached to the graph, so losses can use them."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._modules: dict[str, nn.Module] = {}
        # By device, because DataParallel runs one replica on each; a single device is the ordinary case.
        self._captured: dict[torch.device, tuple[Tensor, Tensor]] = {}

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
        """The head's weight, one row a class."""
        weight: Tensor = self.head.weight  # type: ignore[assignment]
        features, logits = next(iter(self._captured.values()))
        wanted = [logits.shape[-1], features.shape[-1]]
        if list(weight.shape) != wanted:
            # A head of dim x classes, or of several rows a class: its rows are not the classes' directions.
            raise ValueError(
                f"head must hold one weight row for each class, {wanted}; {self.name!r} holds {list(weight.shape)}"
            )
        return weight

    @property
    def bias(self) -> Tensor | None:
        """The head's bias, or None."""
        return getattr(self.head, "bias", None)

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
def observe(model: nn.Module, head: str | None = None) -> Iterator[Seen]:
    """Capture the input and output of the model's final linear layer; no hook is left behind.

    `head` names the layer where the model leaves a choice (`head="classifier.3"`). Of a model with several outputs
    `logits` counts where they have names, else the first that a linear layer made and no other one took as its input;
    where such outputs have different widths, `head` must be given.
    A compiled model runs eagerly inside the block, because compiled code does not call hooks.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> with observe(model) as seen:
    ...     _ = model(torch.zeros(2, 4))
    >>> seen.name, list(seen.features.shape), list(seen.weight.shape)
    ('2', [2, 8], [3, 8])
    """
    inner, compiled = unwrap(model)
    candidates = _candidates(inner)
    known = _known_head(inner, candidates, head)
    seen = Seen(known)
    seen._modules = candidates
    with ExitStack() as stack:
        if compiled:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_Watch(seen, inner, candidates, guessed=head is None and len(candidates) == 1))
        yield seen


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no gradients; afterwards each module trains or not as before."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def find_head(model: nn.Module, head: str | None = None) -> tuple[str, nn.Module]:
    """Name and module of the final linear layer, as far as the model's structure alone tells it."""
    inner, _ = unwrap(model)
    candidates = _candidates(inner)
    name = _known_head(inner, candidates, head)
    if name is None:
        raise ValueError(_which_one(candidates, "head must be chosen where a model has several linear layers"))
    return name, candidates[name]


class _Call(NamedTuple):
    """One call of a layer: what went in, what came out, and what came out as it was before anything changed it."""

    name: str
    features: Tensor
    output: Tensor
    logits: Tensor


class _Watch:
    """Hooks on the layers that may be the head; the first forward shows which of them made the model's output."""

    def __init__(self, seen: Seen, inner: nn.Module, candidates: dict[str, nn.Module], guessed: bool) -> None:
        self.seen, self.running, self.found, self.guessed = seen, False, False, guessed
        # By device, as what is seen.
        self.calls: dict[torch.device, list[_Call]] = {}
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
        for given in _tensors((inputs, named)):
            self.seen._captured.pop(given.device, None)

    def capture(
        self, name: str, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> None:
        features = next(_tensors((inputs, named)), None)
        if not isinstance(output, Tensor) or features is None:
            return
        # A temperature or a mask may be applied in place. Only tokens, which no score looks at, are too many to copy.
        call = _Call(name, features, output, output.clone() if output.ndim <= 2 else output)
        if self.running:
            self.calls.setdefault(output.device, []).append(call)
        if name == self.seen._name:
            self.show(call)

    def decide(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self.running = False
        tensors = _outputs(output)
        calls = self.calls.pop(tensors[0].device, []) if tensors else []
        if self.seen._name is None:
            if not tensors:
                return
            self.seen._name = _maker_of(tensors, calls, self.seen._modules)
            for name in [name for name in self.handles if name != self.seen._name]:
                self.handles.pop(name).remove()
        own = [call for call in calls if call.name == self.seen._name]
        if own and self.guessed:
            _check_only_one(tensors, own[-1], self.seen.head.weight)  # type: ignore[arg-type]
            self.guessed = False
        if own:
            # A head shared by several branches is called for each: the one whose logits the model gives counts.
            self.show(_made_first(tensors, own) or own[-1])
        elif not self.found:
            raise ValueError(f"head must be a layer that the model calls; {self.seen._name!r} was not in this forward")

    def show(self, call: _Call) -> None:
        self.found = True
        self.seen._captured[call.output.device] = (call.features, call.logits)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        for handle in (self.begin, *self.handles.values(), self.end):
            handle.remove()
        self.calls.clear()


def _made_first(outputs: list[Tensor], calls: list[_Call]) -> _Call | None:
    """The call whose output is the first of the model's outputs that any of them made."""
    return next((call for output in outputs for call in reversed(calls) if _made(call, output)), None)


def _made(call: _Call, output: Tensor) -> bool:
    return call.output is output or _same_memory(call.output, output)


def _maker_of(outputs: list[Tensor], calls: list[_Call], candidates: dict[str, nn.Module]) -> str:
    """The layer whose output is the model's output, or was its last step before something like a softmax."""
    makers = [call for call in (_made_first([output], calls) for output in outputs) if call is not None]
    # What another one of them takes in are the features, given beside the logits.
    makers = [call for call in makers if not any(_same_memory(call.output, other.features) for other in makers)]
    if len({call.output.shape[-1] for call in makers}) > 1:
        several = {call.name: candidates[call.name] for call in calls if call.name in {one.name for one in makers}}
        raise ValueError(_which_one(several, "head must be chosen, several layers make this model's outputs"))
    if makers:
        return makers[0].name
    fitting = {call.name for call in calls if call.output.shape == outputs[0].shape}
    if len(fitting) == 1:
        return fitting.pop()
    if not calls:
        raise ValueError("model must end in a linear layer; none of its layers ran in this forward")
    raise ValueError(_which_one(candidates, "head must be chosen, no single linear layer makes this model's output"))


def _check_only_one(outputs: list[Tensor], call: _Call, weight: Tensor) -> None:
    """Refuse a model's only linear layer where the model gives as many rows, but none of that layer's width."""
    rows, width = len(call.output), call.output.shape[-1]
    others = [output for output in outputs if output.ndim == 2 and len(output) == rows]
    if others and not any(output.shape[-1] == width or _made(call, output) for output in others):
        raise ValueError(
            f"model must end in a linear layer; its only one, {call.name!r} {list(weight.shape)}, makes no output of "
            f"shape {list(others[0].shape)}: score features and weight, or say head={call.name!r} if it is the head"
        )


def unwrap(model: nn.Module) -> tuple[nn.Module, bool]:
    """The model inside DataParallel, DistributedDataParallel and torch.compile, and whether it was compiled."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
    compiled = getattr(model, "_compiled_call_impl", None) is not None
    while True:
        if hasattr(model, "_orig_mod"):
            model, compiled = model._orig_mod, True  # type: ignore[assignment]
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model, compiled or getattr(model, "_compiled_call_impl", None) is not None


def _candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Every layer that could be a head: a leaf with a weight row for each output (Linear, angular and cosine heads)."""
    found = {name: module for name, module in model.named_modules() if _is_linear_like(module)}
    if not found:
        raise ValueError(f"model must end in a linear layer; {type(model).__name__} has none")
    return found


def _is_linear_like(module: nn.Module) -> bool:
    if isinstance(module, nn.Linear):
        return True
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) or next(module.children(), None) is not None:
        return False
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim == 2


def _known_head(model: nn.Module, candidates: dict[str, nn.Module], head: str | None) -> str | None:
    if head is not None:
        if head not in candidates:
            raise unknown_name("head", head, candidates, "linear layers of the model")
        return head
    if len(candidates) == 1:
        return next(iter(candidates))
    # timm's models say it themselves.
    own = getattr(model, "get_classifier", None)
    if callable(own):
        chosen = own()
        return next((name for name, module in candidates.items() if module is chosen), None)
    return None


def _which_one(candidates: dict[str, nn.Module], sentence: str) -> str:
    names = list(candidates)
    shown = [f"{name} {list(candidates[name].weight.shape)}" for name in names[-6:]]  # type: ignore[arg-type, union-attr]
    more = f" and {len(names) - 6} earlier ones" if len(names) > 6 else ""
    return f'{sentence}; candidates are {", ".join(shown)}{more}: choose with head="{names[-1]}"'


def _outputs(output: Any) -> list[Tensor]:
    """Tensors of a model's output: its `logits` alone where it names them."""
    if isinstance(output, tuple) and hasattr(output, "_asdict"):
        output = output._asdict()
    elif is_dataclass(output) and not isinstance(output, Mapping):
        output = vars(output)
    logits = list(_tensors(output.get("logits"))) if isinstance(output, Mapping) else []
    return logits or list(_tensors(output))


def _tensors(values: Any) -> Iterator[Tensor]:
    """Every tensor in what a model takes or gives, in order."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from _tensors(value)
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)


def _same_memory(one: Tensor, other: Tensor) -> bool:
    # A view (squeeze, reshape) of the logits is still the logits.
    return one.numel() > 0 and one.numel() == other.numel() and one.data_ptr() == other.data_ptr()
