"""Finds a classifier's final linear layer and captures its input and output in a forward pass that runs anyway.

The first forward pass shows which of the layers that could be the head made the model's output. The hooks on the others
are removed then, and the last one at the end of the `with` block.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from hardsight.heads.calls import (
    Call,
    candidates_of,
    check_only_one,
    known_head,
    maker_of,
    outputs_of,
    tensors_in,
    token_taken,
    unwrap,
    view_of,
)
from hardsight.validation import may_look


class Seen:
    """Input and output of the head in the latest forward. Tensors stay in the graph, so losses can use them."""

    def __init__(self, model: nn.Module, head: str | None, mean_of_views: bool) -> None:
        self._modules, self._mean_of_views = candidates_of(model), mean_of_views
        self._name = known_head(model, self._modules, head)
        self._guessed = head is None and len(self._modules) == 1
        # By device, because DataParallel runs one replica on each; a single device is the ordinary case.
        self._captured: dict[torch.device, tuple[Tensor, Tensor]] = {}
        self._calls: dict[torch.device, list[Call]] = {}
        # What the head held while it ran; None where it does not hold them but makes them, as a parametrisation does.
        self._held: tuple[Tensor | None, Tensor | None] = (None, None)
        self._running = self._found = self._checked = False
        watched = self._modules if self._name is None else {self._name: self._modules[self._name]}
        self._handles = {
            name: module.register_forward_hook(functools.partial(self._capture, name), with_kwargs=True)
            for name, module in watched.items()
        }
        begin = model.register_forward_pre_hook(self._start, with_kwargs=True)
        self._of_model = (begin, model.register_forward_hook(self._decide))

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
        """The head's weight, one row per class: that of the latest forward, which made the logits."""
        weight: Tensor = self.head.weight if self._held[0] is None else self._held[0]  # type: ignore[assignment]
        features, logits = next(iter(self._captured.values()))
        wanted = [logits.shape[-1], features.shape[-1]]
        if list(weight.shape) != wanted:
            # A head of dim x classes, or of several rows per class: its rows are not the classes' directions.
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

    def _start(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._running = True
        # A forward that stops before the head must not show what the one before it saw.
        for given in tensors_in((inputs, named)):
            self._captured.pop(given.device, None)

    def _capture(
        self, name: str, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> None:
        features = next(tensors_in((inputs, named)), None)
        if not isinstance(output, Tensor) or features is None:
            return
        # A temperature or a mask may be applied in place. Only tokens, which no score looks at, are too many to copy.
        logits = output.clone() if output.ndim <= 2 else output
        held = module._parameters.get("weight"), module._parameters.get("bias")
        call = Call(name, features, output, logits, *held)
        if self._running:
            self._calls.setdefault(output.device, []).append(call)
        if name == self._name:
            self._show(call)

    def _decide(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self._running = False
        tensors = outputs_of(output)
        calls = self._calls.pop(tensors[0].device, []) if tensors else []
        if self._name is None:
            if not tensors:
                return
            self._name = maker_of(tensors, calls, self._modules)
            for name in [name for name in self._handles if name != self._name]:
                self._handles.pop(name).remove()
        own = [call for call in calls if call.name == self._name]
        if own and self._guessed:
            check_only_one(tensors, own[-1], self.head.weight)  # type: ignore[arg-type]
            self._guessed = False
        if own:
            # A head shared by several branches is called for each: the one whose logits the model gives counts.
            taken = token_taken(tensors, own[-1])
            self._show(taken or (view_of(tensors, own, self._mean_of_views) if tensors else own[-1]))
        elif not self._found:
            raise ValueError(f"head must be a layer that the model calls; {self._name!r} was not in this forward")

    def _show(self, call: Call) -> None:
        self._found = True
        self._captured[call.output.device] = (call.features, call.logits)
        self._held = (call.weight, call.bias)

    def _close(self) -> None:
        for handle in (*self._of_model, *self._handles.values()):
            handle.remove()
        self._calls.clear()


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
    seen = Seen(inner, head, views == "mean")
    try:
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield seen
    finally:
        seen._close()


# How many samples and classes are looked at: enough to notice, and little to compute.
_SAMPLES, _CLASSES = 32, 1024
# How far a layer of one's own may be from its weight: a weight that is rounded to 8 bits on its way is.
_OWN_FORWARD = 0.06


@torch.no_grad()
def check_weight_made(
    logits: Tensor, features: Tensor, weight: Tensor, bias: Tensor | None, *, name: str, linear: bool
) -> None:
    """Raise where the logits are not features @ weight.T + bias, but for rounding.

    Where the layer has a forward of its own (not `linear`), logits that rise with the cosine to each class pass too.
    """
    if not may_look(features) or not may_look(logits):
        return
    tolerance = _tolerance(logits, features, weight)
    classes = torch.linspace(0, len(weight) - 1, min(len(weight), _CLASSES)).long()
    features, logits = (part.reshape(-1, part.shape[-1])[:_SAMPLES].cpu().double() for part in (features, logits))
    logits, weight = logits[:, classes], weight[classes.to(weight.device)].cpu().double()
    shift = torch.zeros(len(classes)) if bias is None else bias[classes.to(bias.device)].cpu()
    made = features @ weight.T + shift.double()
    # As large as the sum is from independently rounded summands.
    size = (features.square() @ weight.square().T).sqrt() + logits.abs() + shift.double().abs()
    # Numbers that are not finite raise elsewhere.
    known = made.isfinite() & logits.isfinite()
    error = torch.where(known, (made - logits).abs() / size.clamp_min(torch.finfo(torch.float32).tiny), 0.0)
    of_class = error.square().mean(0).sqrt()
    if bool((of_class <= (tolerance if linear else max(tolerance, _OWN_FORWARD))).all()):
        return
    if not linear:
        cosines = torch.nn.functional.normalize(features) @ torch.nn.functional.normalize(weight).T
        along = logits.gather(1, cosines.argsort(1))
        slack = tolerance * (logits.amax(1) - logits.amin(1))
        if bool((along.diff(dim=1) >= -slack.unsqueeze(1)).all()):
            return
    worst = int(of_class.argmax())
    row = int(error[:, worst].argmax())
    gives, got = float(made[row, worst]), float(logits[row, worst])
    raise ValueError(
        f"weight must be what made the logits, features @ weight.T + bias; that of {name!r} gives {gives:.4g} where "
        f"class {int(classes[worst])} got the logit {got:.4g}: observe the model while it uses this weight, or give "
        "features, weight and logits of your own"
    )


def _tolerance(logits: Tensor, features: Tensor, weight: Tensor) -> float:
    """The error that rounding may cause, in the shortest type used, that of autocast or TF32 included."""
    eps = max(torch.finfo(part.dtype).eps for part in (logits, features, weight))
    kind = logits.device.type
    if torch.is_autocast_enabled(kind):
        eps = max(eps, torch.finfo(torch.get_autocast_dtype(kind)).eps)
    if logits.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        eps = max(eps, torch.finfo(torch.bfloat16).eps)
    # In half precision it is the rounding of numbers that counts, above it that of their sums.
    return 8 * eps if eps > 1e-5 else 1e3 * eps
