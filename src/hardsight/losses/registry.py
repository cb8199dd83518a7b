"""How a loss is defined: one function, from which its module, its row of the registry and the docs' row follow.

    @loss("gce", "GCELoss", "(1 − p_y^q)/q", "Zhang & Sabuncu, NeurIPS 2018", high=1 / 0.7)
    def gce_loss(rows: Rows, *, q: PositiveShare = 0.7) -> Float[Tensor, "rows"]: ...

    GCELoss = gce_loss.module

The function makes one loss per row of logits; callers give logits and target, and `sample_weight`, `ignore_index` and
`reduction` as everywhere. Of a loss of another kind the module is a `LossModule` of its public function, put into the
registry by `registered`. The docs' table and the shared law tests read `LOSSES`, which is complete once
`hardsight.losses` is imported.
"""

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeVar, cast, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from hardsight.losses.inputs import REDUCTIONS, as_rows, check_range
from hardsight.names import check_name

# What a setting may be, checked when a module is made and when a function is called.
Share = Annotated[float, functools.partial(check_range, low=0.0, high=1.0)]
PositiveShare = Annotated[float, functools.partial(check_range, low=0.0, high=1.0, open_low=True)]
NotNegative = Annotated[float, functools.partial(check_range, low=0.0)]
Positive = Annotated[float, functools.partial(check_range, low=0.0, open_low=True)]


def one_of(*names: str) -> Callable[[str, str], None]:
    """The check of a setting that is one of these names."""
    return lambda value, name: check_name(name, value, names)


Reduction = Annotated[str, one_of(*REDUCTIONS)]


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
    takes: str  # the first argument of forward: "logits" or "features"
    needs_ids: bool  # forward(..., ids=) names the samples
    low: float = 0.0
    high: float = math.inf
    soft_targets: bool = True  # class probabilities are accepted as well as indices
    pairs: bool = False  # one loss a pair, not a sample
    best_at_label: bool = True  # the more the labelled class leads, the smaller the loss
    value_has_gradient: bool = True  # False: the gradient is not that of the returned value (GR)
    class_rows: tuple[str, ...] = ()  # state with a row a class
    class_squares: tuple[str, ...] = ()  # state with a row and a column a class


LOSSES: dict[str, LossEntry] = {}
Kind = TypeVar("Kind", bound=type[nn.Module])


def registered(
    name: str, formula: str, source: str, *, options: Callable[[Sizes], dict[str, Any]] = lambda sizes: {}, **laws: Any
) -> Callable[[Kind], Kind]:
    """Put a module into the registry: made with its defaults, with `options`, and with the sizes that it asks for.

    A constructor asks for a size by a parameter without default of the name dim, classes or num_samples.
    """
    if name in LOSSES:
        raise ValueError(f"name must be new to the registry of losses; got {name!r} twice")

    def define(kind: Kind) -> Kind:
        parameters = inspect.signature(kind).parameters.values()
        asked = {one.name for one in parameters if one.default is one.empty}

        def make(sizes: Sizes) -> nn.Module:
            known = {"dim": sizes.dim, "classes": sizes.classes, "num_samples": sizes.samples}
            return kind(**({key: value for key, value in known.items() if key in asked} | options(sizes)))

        first, *others = list(inspect.signature(kind.forward).parameters)[1:]
        takes = "features" if first == "features" else "logits"
        LOSSES[name] = LossEntry(name, make, formula, source, takes, **{"needs_ids": "ids" in others} | laws)
        return kind

    return define


@runtime_checkable
class LossFunction(Protocol):
    """A loss on logits: called with logits, target, and by name what all losses share and the settings."""

    module: "type[LossModule]"

    def __call__(self, logits: Tensor, target: Tensor, **settings: Any) -> Tensor: ...


Function = TypeVar("Function", bound=Callable[..., Tensor])
# What a call brings; all else that has a default is a setting of the module.
_OF_A_CALL = ("sample_weight", "normaliser", "kept")
_LAST = ("reduction", "ignore_index")


def checked(function: Function) -> Function:
    """The function, which first runs the checks that its parameters' annotations bring."""
    checks, names = _checks_of(function), list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def public(*given: Any, **named: Any) -> Tensor:
        for name, value in [*zip(names, given, strict=False), *named.items()]:
            if name in checks:
                checks[name](value, name)
        return function(*given, **named)

    return cast(Function, public)


def on_rows(per_row: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A public loss on logits from a function that gives the losses of the rows."""

    def public(
        logits: Tensor, target: Tensor, *given: Any, sample_weight: Tensor | None = None, ignore_index: int = -100,
        reduction: str = "mean", **settings: Any,
    ) -> Float[Tensor, "..."]:  # fmt: skip
        rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=ignore_index)
        return rows.reduce(checked_rows(rows, *given, **settings), reduction)

    checked_rows = checked(per_row)
    logits, target, _, *shared, _ = inspect.signature(public).parameters.values()
    _, *own = inspect.signature(per_row).parameters.values()
    functools.update_wrapper(public, per_row)
    every = [logits, target, *map(_plain, own), *shared]
    public.__signature__ = inspect.Signature(every, return_annotation=Tensor)  # type: ignore[attr-defined]
    return public


def loss(
    name: str, module: str, formula: str, source: str, *, fixed: dict[str, Any] | None = None, **laws: Any
) -> Callable[[Callable[..., Tensor]], LossFunction]:
    """A public loss, its module and its row of the registry from a function that gives the losses of the rows.

    `fixed` are settings that the module does not offer, as another one has them.
    """

    def define(per_row: Callable[..., Tensor]) -> LossFunction:
        public = cast(LossFunction, on_rows(per_row))
        public.module = registered(name, formula, source, **laws)(module_of(public, module, fixed))
        return public

    return define


def module_of(
    public: Callable[..., Tensor], name: str, fixed: dict[str, Any] | None = None, /, **defaults: Any
) -> "type[LossModule]":
    """The module of a loss on logits: `defaults` differ from the function's, and `fixed` settings are not offered."""
    chosen = "".join(f", {key}={value!r}" for key, value in {**defaults, **(fixed or {})}.items())
    body = {"__doc__": f"`{public.__name__}` as a module{chosen}.", "__module__": public.__module__}
    return types.new_class(
        name, (LossModule,), {"of": public, "fixed": fixed, **defaults}, lambda space: space.update(body)
    )


class LossModule(nn.Module):
    """A loss as a module: its function, called with the settings kept as attributes, tensors as buffers.

    `class GCELoss(LossModule, of=gce_loss)` takes whatever the function has defaults for, but settings that are `fixed`
    and those that the module has `kept` to give them itself; other defaults may be named. A constructor of its own
    hands the settings on as **settings; the buffers and parameters it makes go to the function's arguments of their
    names. What the annotations do not check, `check` does.
    """

    function: ClassVar[Callable[..., Tensor]]
    settings: ClassVar[inspect.Signature] = inspect.Signature()
    fixed: ClassVar[dict[str, Any]] = {}
    held: ClassVar[set[str]] = set()  # what of its state the function takes
    if TYPE_CHECKING:  # the settings and buffers are typed where the function is

        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(
        cls, of: Callable[..., Tensor] | None = None, fixed: dict[str, Any] | None = None, kept: tuple[str, ...] = (),
        **defaults: Any,
    ) -> None:  # fmt: skip
        super().__init_subclass__()
        if of is None:
            return
        cls.function, cls.fixed = staticmethod(of), fixed or {}
        parameters = inspect.signature(of).parameters
        cls.held = set(parameters) - set(_OF_A_CALL)
        offered = [
            _plain(one).replace(kind=one.POSITIONAL_OR_KEYWORD, default=defaults.get(one.name, one.default))
            for one in parameters.values()
            if one.name in defaults
            or (one.default is not one.empty and one.name not in (*_OF_A_CALL, *cls.fixed, *kept))
        ]
        offered.sort(key=lambda one: _LAST.index(one.name) + 1 if one.name in _LAST else 0)
        cls.settings = inspect.Signature(offered)
        _say_what_is_taken(cls, offered)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__()
        bound = self.settings.bind(*given, **named)
        bound.apply_defaults()
        checks = {"reduction": one_of(*REDUCTIONS)} | _checks_of(inspect.unwrap(type(self).function))
        for name, value in (bound.arguments | self.fixed).items():
            if name in checks:
                checks[name](value, name)
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        self.check()

    def check(self) -> None:
        """Raise where settings do not go together."""

    def forward(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        return self.call(logits, target, sample_weight=sample_weight)

    def call(self, *given: Any, **named: Any) -> Tensor:
        """The function of these arguments and the settings."""
        state = [name for name in (*self._buffers, *self._parameters) if name in self.held]
        kept = {name: getattr(self, name) for name in (*self.settings.parameters, *self.fixed, *state)}
        return type(self).function(*given, **(kept | named))

    def extra_repr(self) -> str:
        names = [name for name in self.settings.parameters if name not in (*self._buffers, "ignore_index")]
        shown = {name: getattr(self, name) for name in names}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items() if value is not None)


def _say_what_is_taken(kind: type[LossModule], offered: list[inspect.Parameter]) -> None:
    """Give a loss's constructor the signature of what it takes: its own parameters and the settings."""
    inherited = kind.__init__

    @functools.wraps(inherited)
    def construct(self: LossModule, *given: Any, **named: Any) -> None:
        inherited(self, *given, **named)

    # That of a base has its own settings in it; the function behind it has not.
    parameters = list(inspect.signature(inspect.unwrap(inherited)).parameters.values())
    own = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if len(own) > 1 and all(one.kind != one.VAR_POSITIONAL for one in parameters):
        offered = [one.replace(kind=one.KEYWORD_ONLY) for one in offered]
    named = {one.name for one in own}
    every = sorted([*own, *(one for one in offered if one.name not in named)], key=lambda one: one.kind)
    construct.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    kind.__init__ = construct  # type: ignore[method-assign]


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter without its check: of the type that it has."""
    kind = parameter.annotation
    return parameter.replace(annotation=kind.__origin__ if typing.get_origin(kind) is Annotated else kind)


def _checks_of(function: Callable[..., Tensor]) -> dict[str, Callable[..., Any]]:
    """The check that each parameter's annotation brings."""
    hints = typing.get_type_hints(function, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if typing.get_origin(hint) is Annotated}
