"""From a configuration to the loss: one of the registry with its options, and what stands beside it."""

import functools
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.correction import noisy_transition
from hardsight.losses.margins import MARGINS, CosineLinear, MarginLoss, margin_loss
from hardsight.losses.registry import LOSSES, LossEntry, Sizes
from hardsight.losses.rescaling import GradientRescaling
from hardsight.names import check_name, unknown_name
from hardsight.training.config import TrainingConfig
from hardsight.training.network import Objective
from hardsight.training.reading import about, typed

# What papers and people call a loss, beside its own name.
ALIASES = {"gr": "gradient_rescaling"}


def _entry(name: str, key: str) -> LossEntry:
    name = ALIASES.get(name, name)
    if name not in LOSSES:
        raise unknown_name(f"{key}.name", name, [*LOSSES, *ALIASES], "losses")
    return LOSSES[name]


def make_loss(name: str, options: dict[str, Any], sizes: Sizes, key: str) -> nn.Module:
    """A loss of the registry with options; errors name the configuration's key."""
    name = _entry(name, key).name
    if name == "gradient_rescaling" and "auto" in (options.get("beta"), options.get("lam")):
        return _automatic(options, sizes, key)
    made = LOSSES[name].make(sizes)
    if not options:
        return made
    known = _parameters(type(made))
    _check_options(options, known, name, key)
    if "transition" in options:
        matrix = _transition(options["transition"], sizes.classes, f"{key}.options.transition")
        options = options | {"transition": matrix}
    sized = {"dim": sizes.dim, "classes": sizes.classes, "num_samples": sizes.samples}
    needed: dict[str, Any] = {
        place: size
        for place, size in sized.items()
        if place in known and known[place].default is inspect.Parameter.empty
    }
    # Defaults that the registry chose for this name (all pairs, a transition matrix, a table of samples) stay.
    chosen = {
        place: getattr(made, place) for place in ("transition", "pairs") if place in known and hasattr(made, place)
    }
    with about(f"{key}.options"):
        return type(made)(**(needed | chosen | options))


def _automatic(options: dict[str, Any], sizes: Sizes, key: str) -> AutomaticRescaling:
    """Gradient rescaling that chooses beta and lam; both, because its rule gives pairs."""
    chosen = {knob: options.get(knob, "auto") for knob in ("beta", "lam")}
    if set(chosen.values()) != {"auto"}:
        given = ", ".join(f"{knob} = {value!r}" for knob, value in chosen.items())
        raise ValueError(f'{key}.options must have both beta and lam "auto" or neither; got {given}')
    others = {option: value for option, value in options.items() if option not in chosen}
    # Beta and lam are known too, so that a slip of the pen is answered with them.
    known = _parameters(AutomaticRescaling) | {knob: _parameters(GradientRescaling)[knob] for knob in chosen}
    _check_options(others, known, "automatic gradient rescaling", key)
    with about(f"{key}.options"):
        return AutomaticRescaling(**({"classes": sizes.classes} | others))


def _check_options(options: dict[str, Any], known: dict[str, inspect.Parameter], name: str, key: str) -> None:
    for option, value in options.items():
        check_name(f"{key}.options of {name}", option, known, "options")
        if known[option].annotation in (bool, int, float, str):
            typed(known[option].annotation, value, f"{key}.options.{option}")


def _transition(value: Any, classes: int, key: str) -> Tensor:
    """A transition matrix as a configuration can write it: its rows, or the rate of symmetric noise."""
    if isinstance(value, int | float):
        return noisy_transition(classes, value)
    rows = typed(list[list[float]], value, key)
    if [len(row) for row in rows] != [classes] * classes:
        raise ValueError(f"{key} must be a rate or {classes} rows of {classes} numbers; got {value!r}")
    return torch.tensor(rows)


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    """What a constructor takes that a file can say, by name; that which it hands on to its base included."""
    found: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        if base is nn.Module or "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        found |= {
            one.name: one
            for one in parameters
            if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and one.name not in (*found, "process_group")
        }
        if not any(one.kind == one.VAR_KEYWORD for one in parameters):
            break
    return found


def make_objective(config: TrainingConfig, sizes: Sizes, head: nn.Module | None = None) -> Objective:
    """The loss and, where one is asked for, the loss on features; a margin loss trains `head`, the model's own."""
    loss: Any = make_loss(config.loss.name, config.loss.options, sizes, "loss")
    if isinstance(loss, MarginLoss) and isinstance(head, CosineLinear):
        loss = _MarginOfHead(loss, head)
    elif isinstance(loss, AutomaticRescaling) and config.accumulate > 1:
        raise ValueError(f'accumulate must be 1 with beta and lam "auto"; got {config.accumulate}')
    elif _entry(config.loss.name, "loss").takes == "features":
        # Trained by it, the network's own head would stay as it was drawn, and every accuracy with it.
        raise ValueError(
            f"loss.name must be a loss on logits; {config.loss.name!r} looks at features: make it feature_loss, or set "
            'model.head = "angular", with which cross-entropy is the AVH loss, or "cosine" for a margin loss'
        )
    beside = config.feature_loss
    if beside is None:
        return Objective(loss)
    if _entry(beside.name, "feature_loss").takes != "features":
        on_features = ", ".join(name for name, entry in LOSSES.items() if entry.takes == "features")
        raise ValueError(f"feature_loss.name must be a loss on features, {on_features}; got {beside.name!r}")
    extra = make_loss(beside.name, beside.options, sizes, "feature_loss")
    return Objective(loss, extra, feature_weight=beside.weight, pairs=beside.pairs)


def clip_of(config: TrainingConfig, objective: Objective) -> float | None:
    """The largest norm of the gradient; 1 for automatic gradient rescaling unless the configuration says another.

    Its rule was chosen with that limit, and without it trainings with its former rules may collapse.
    """
    if config.clip is None and isinstance(objective.loss, AutomaticRescaling):
        return 1.0
    return config.clip


class _MarginOfHead:
    """A margin loss on the weights of the model's own head. No module: the weights belong to the model alone."""

    def __init__(self, loss: MarginLoss, head: CosineLinear) -> None:
        self.head = head
        self.options: dict[str, Any] = {
            "kind": loss.kind,
            "scale": loss.scale,
            "margin": loss.margin,
            "annealing": loss.annealing,
        }

    def __call__(self, features: Tensor, labels: Tensor) -> Tensor:
        return margin_loss(features, self.head.weight, labels, **self.options)


def cosine_head(config: TrainingConfig) -> Any:
    """A head of cosines with the scale of the margin loss that trains it."""
    if config.loss.name not in MARGINS:
        return CosineLinear
    loss = make_loss(config.loss.name, config.loss.options, Sizes(2, 2, 1), "loss")
    assert isinstance(loss, MarginLoss)
    return functools.partial(CosineLinear, scale=loss.scale)
