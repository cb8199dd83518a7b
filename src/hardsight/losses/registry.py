"""How a loss is defined: one function, from which its module, its row of the registry and the docs' row follow.

    @loss("gce", "GCELoss", "(1 − p_y^q)/q", "Zhang & Sabuncu, NeurIPS 2018", high=1 / 0.7)
    def gce_loss(rows: Rows, *, q: PositiveShare = 0.7) -> Float[Tensor, "rows"]: ...

    GCELoss = gce_loss.module

The function makes one loss per row of logits; callers give logits and target, and `sample_weight`, `ignore_index` and
`reduction` as everywhere. A loss with a state of its own is a class, put into the registry by `register`. The docs'
table and the shared law tests read `LOSSES`, which is complete when `hardsight.losses` is imported.
"""

import functools
import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, cast, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from hardsight.losses.inputs import as_rows, check_range, check_reduction

# What a setting may be, checked when a module is made and when a function is called.
Share = Annotated[float, functools.partial(check_range, low=0.0, high=1.0)]
PositiveShare = Annotated[float, functools.partial(check_range, low=0.0, high=1.0, open_low=True)]
NotNegative = Annotated[float, functools.partial(check_range, low=0.0)]
Positive = Annotated[float, functools.partial(check_range, low=0.0, open_low=True)]


@dataclass(frozen=True)
class Sizes:
    """What a loss may need to know when it is made."""

    dim: int
    classes: int
    samples: int


@dataclass(frozen=True)
class LossEntry:
    """One loss: how to make it with its defaults, and which laws hold for it."""

    name: str
    make: Callable[[Sizes], nn.Module]
    formula: str
    source: str
    low: float = 0.0
    high: float = math.inf
    takes: str = "logits"  # or "features": the first argument of forward
    needs_ids: bool = False  # forward(..., ids=) names the samples
    soft_targets: bool = True  # class probabilities are accepted as well as indices
    pairs: bool = False  # one loss a pair, not a sample
    best_at_label: bool = True  # the more the labelled class leads, the smaller the loss
    value_has_gradient: bool = True  # False: the gradient is not that of the returned value (GR)
    class_rows: tuple[str, ...] = ()  # state with a row a class
    class_squares: tuple[str, ...] = ()  # state with a row and a column a class


LOSSES: dict[str, LossEntry] = {}


def register(name: str, make: Callable[[Sizes], nn.Module], formula: str, source: str, **laws: Any) -> None:
    """Put a loss into the registry."""
    if name in LOSSES:
        raise ValueError(f"name must be new to the registry of losses; got {name!r} twice")
    LOSSES[name] = LossEntry(name, make, formula, source, **laws)


@runtime_checkable
class LossFunction(Protocol):
    """A loss on logits: called with logits, target and the settings by name."""

    module: "type[LogitLoss]"

    def __call__(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        sample_weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        **settings: Any,
    ) -> Tensor: ...


# What every loss on logits takes around its settings.
_SHARED = {
    name: inspect.Parameter(name, kind, default=default, annotation=annotation)
    for name, kind, default, annotation in (
        ("logits", inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty, Tensor),
        ("target", inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty, Tensor),
        ("sample_weight", inspect.Parameter.KEYWORD_ONLY, None, Tensor | None),
        ("ignore_index", inspect.Parameter.KEYWORD_ONLY, -100, int),
        ("reduction", inspect.Parameter.KEYWORD_ONLY, "mean", str),
    )
}


def on_rows(per_row: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A public loss on logits from a function that gives the losses of the rows."""
    checks = _checks_of(per_row)

    @functools.wraps(per_row)
    def public(
        logits: Tensor,
        target: Tensor,
        *given: Any,
        sample_weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        **settings: Any,
    ) -> Float[Tensor, "..."]:
        for name, value in settings.items():
            _checked(checks, name, value)
        rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=ignore_index)
        return rows.reduce(per_row(rows, *given, **settings), reduction)

    _, *settings = inspect.signature(per_row).parameters.values()
    plain = [one.replace(annotation=getattr(one.annotation, "__origin__", one.annotation)) for one in settings]
    first, last = list(_SHARED.values())[:2], list(_SHARED.values())[2:]
    public.__signature__ = inspect.Signature([*first, *plain, *last], return_annotation=Tensor)  # type: ignore[attr-defined]
    return public


def loss(
    name: str, module: str, formula: str, source: str, *, fixed: Mapping[str, Any] | None = None, **laws: Any
) -> Callable[[Callable[..., Tensor]], LossFunction]:
    """A public loss, its module and its row of the registry from a function that gives the losses of the rows.

    `fixed` are settings that the module does not offer, as another one has them.
    """

    def define(per_row: Callable[..., Tensor]) -> LossFunction:
        public = on_rows(per_row)
        made = module_of(public, module, fixed)
        public.module = made  # type: ignore[attr-defined]
        register(name, lambda sizes: made(), formula, source, **laws)
        return cast(LossFunction, public)

    return define


def module_of(
    public: Callable[..., Tensor], name: str, fixed: Mapping[str, Any] | None = None, /, **defaults: Any
) -> "type[LogitLoss]":
    """The module of a loss: `defaults` differ from the function's, and `fixed` settings are not offered."""
    fixed = fixed or {}
    offered = [
        one.replace(kind=one.POSITIONAL_OR_KEYWORD, default=defaults.get(one.name, one.default))
        for one in inspect.signature(public).parameters.values()
        if one.name not in (*_SHARED, *fixed) and one.default is not one.empty
    ]
    shared = [_SHARED["reduction"], _SHARED["ignore_index"]]
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([this, *offered, *shared])
    checks = _checks_of(inspect.unwrap(public))

    def construct(self: LogitLoss, *given: Any, **named: Any) -> None:
        bound = signature.bind(self, *given, **named)
        bound.apply_defaults()
        settings = {key: value for key, value in bound.arguments.items() if key != "self"}
        LogitLoss.__init__(self, **{key: _checked(checks, key, value) for key, value in settings.items()}, **fixed)

    construct.__signature__ = signature  # type: ignore[attr-defined]
    chosen = "".join(f", {key}={value!r}" for key, value in {**defaults, **fixed}.items())
    doc = f"`{public.__name__}` as a module{chosen}."
    body = {"__init__": construct, "__doc__": doc, "__module__": public.__module__, "function": staticmethod(public)}
    return type(name, (LogitLoss,), body)


class LogitLoss(nn.Module):
    """A loss on logits as a module: its `function`, called with the settings kept as attributes, tensors as buffers."""

    function: Callable[..., Tensor]

    def __init__(self, *, reduction: str = "mean", ignore_index: int = -100, **settings: Any) -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)
        self.ignore_index = ignore_index
        self._settings = tuple(settings)
        for name, value in settings.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        return type(self).function(
            logits,
            target,
            sample_weight=sample_weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            **{name: getattr(self, name) for name in self._settings},
        )

    def extra_repr(self) -> str:
        settings = [f"{name}={getattr(self, name)!r}" for name in self._settings if name not in self._buffers]
        return ", ".join([*settings, f"reduction={self.reduction!r}"])


def _checks_of(per_row: Callable[..., Tensor]) -> dict[str, Callable[..., Any]]:
    """The check that each setting's annotation brings."""
    hints = typing.get_type_hints(per_row, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if typing.get_origin(hint) is Annotated}


def _checked(checks: dict[str, Callable[..., Any]], name: str, value: Any) -> Any:
    if name in checks:
        checks[name](value, name)
    return value
