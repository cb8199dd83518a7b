"""The loss of a batch: what a training follows and reports, and how a configuration says which loss that is."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardsight.distributed import sum_over_processes
from hardsight.losses.angular import MARGINS, CosineLinear, MarginLoss, margin_loss
from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.contrastive import AMCLoss, ContrastiveLoss
from hardsight.losses.correction import noisy_transition
from hardsight.losses.curriculum import D2L
from hardsight.losses.joint import JointOptimisation
from hardsight.losses.registry import LOSSES, LossEntry, Sizes
from hardsight.losses.rescaling import GradientRescaling
from hardsight.losses.robust import TruncatedGCELoss
from hardsight.losses.terms import Over, Term, mean_over, value_of, value_over
from hardsight.names import check_name, unknown_name
from hardsight.training.config import TrainingConfig
from hardsight.training.reading import about, typed

PAIR_LOSSES = (AMCLoss, ContrastiveLoss)


class Objective(nn.Module):
    """The loss of a batch: `loss(logits, labels)` plus, scaled, `feature_loss(features, labels)`.

    `pairs` says whose labels a loss on pairs compares: the model's own predictions (AMC-Loss, Eq. 3) or the given
    ones. The weight is a buffer, so that a schedule can change it under a captured step.
    """

    feature_weight: Tensor

    def __init__(
        self,
        loss: Callable[..., Tensor] | None = None,
        feature_loss: Callable[..., Tensor] | None = None,
        *,
        feature_weight: float = 1.0,
        pairs: str = "predictions",
    ) -> None:
        super().__init__()
        if pairs not in ("predictions", "labels"):
            raise ValueError(f'pairs must be "predictions" or "labels"; got {pairs!r}')
        self.loss = nn.CrossEntropyLoss() if loss is None else loss
        self.feature_loss, self.pairs, self.full_weight = feature_loss, pairs, float(feature_weight)
        self._factor = 1.0
        self.register_buffer("feature_weight", torch.tensor(self.full_weight), persistent=False)
        # A loss gets what its signature asks for: logits or features first, ids where it keeps a table of samples.
        asked = list(inspect.signature(getattr(self.loss, "forward", self.loss)).parameters)
        self._on_features, self._by_id = asked[:1] == ["features"], "ids" in asked

    @property
    def looks_at_samples(self) -> bool:
        """Whether the loss must see the training set between epochs."""
        always = isinstance(self.loss, AutomaticRescaling | JointOptimisation | D2L)
        return always or (isinstance(self.loss, TruncatedGCELoss) and self.loss.has_table)

    @property
    def needs_features(self) -> bool:
        """Whether a part of the loss looks at the features."""
        return self._on_features or self.feature_loss is not None

    def scale_features(self, factor: float) -> None:
        """Set the weight of the feature loss to this share of the full one."""
        if self.feature_loss is not None and factor != self._factor:
            self.feature_weight.fill_(factor * self.full_weight)
            self._factor = factor

    def forward(
        self, logits: Tensor, features: Tensor | None, labels: Tensor, ids: Tensor | None, part: "BatchShare"
    ) -> "Losses":
        """The loss to follow, scaled to its part of the whole step, and the loss to report, to that of its batch."""
        first, *others = (part.losses(term) for term in self._terms(logits, features, labels, ids))
        if self.feature_loss is not None:
            # Predictions go as logits, whose argmax they are; only losses on pairs know what to do with them.
            compared = logits if self.pairs == "predictions" and isinstance(self.feature_loss, PAIR_LOSSES) else labels
            extra = self.feature_weight * self.feature_loss(features, compared)
            # Each of the two losses may have a label of its own to ignore.
            own = part._replace(labels=part.feature_labels)
            others.append(own.losses(Term(extra, mean_over(self.feature_loss), value_over(self.feature_loss))))
        followed, reported = first
        for one in others:
            followed, reported = followed + one.followed, reported + one.reported
        return Losses(followed, reported)

    def _terms(self, logits: Tensor, features: Tensor | None, labels: Tensor, ids: Tensor | None) -> Sequence[Term]:
        first, names = features if self._on_features else logits, {"ids": ids} if self._by_id else {}
        terms = getattr(self.loss, "terms", None)
        if terms is not None:
            found: Sequence[Term] = terms(first, labels, **names)
            return found
        assert first is not None
        return [Term(value_of(self.loss, first, labels, **names), mean_over(self.loss), value_over(self.loss))]


class Losses(NamedTuple):
    """The loss to follow and the loss to report: summed over the processes, that is the loss of their common batch."""

    followed: Tensor
    reported: Tensor


class Fraction(NamedTuple):
    """How much of something a batch holds: of the whole step, times the processes; of the batches of all processes."""

    of_step: Tensor | float = 1.0
    of_batch: Tensor | float = 1.0


class BatchShare(NamedTuple):
    """How much a batch counts where it is a part of a larger one, so that a sum of means is the mean of all samples.

    `samples`: its share of the labelled samples; `labels` and `feature_labels`: of the labels as the loss and the loss
    on features count them. `known`: the labelled samples of the batch in all processes. `rows`: its rows here;
    `of_rows`: those of the whole step, where that has several batches.
    """

    samples: Fraction = Fraction()
    labels: Fraction = Fraction()
    feature_labels: Fraction = Fraction()
    known: Tensor | None = None
    rows: Tensor | None = None
    of_rows: Tensor | None = None
    processes: int = 1

    def losses(self, term: Term) -> Losses:
        """A summand of the loss, as it is followed and as it is reported."""
        value = term.value
        return Losses(value * self.of(term.over), self._reported(value.detach(), term.value_over or term.over))

    def of(self, over: Over) -> Tensor | float:
        """The factor for a mean over that; all processes ask together for one over all of them."""
        if over == "processes":
            if self.rows is None or self.of_rows is None:
                return 1.0
            return sum_over_processes(self.rows) / self.of_rows
        if over == "nothing":
            # The gradients of the processes will be averaged, and are to be added.
            return float(self.processes)
        return 1.0 if over == "step" else self._share(over).of_step

    def _reported(self, value: Tensor, over: Over) -> Tensor:
        if over == "nothing":
            return value
        if over in ("processes", "step"):
            # All processes have the same.
            return value / self.processes
        share = self._share(over).of_batch
        # The mean of a batch without labels is no number, and no part of anything.
        return torch.where(share > 0, value * share, 0.0) if isinstance(share, Tensor) else value

    def _share(self, over: Over) -> Fraction:
        return self.labels if over == "labels" else self.samples


# What papers and people call a loss, beside its own name.
ALIASES = {"gr": "gradient_rescaling"}


def _entry(name: str, key: str) -> LossEntry:
    name = ALIASES.get(name, name)
    if name not in LOSSES:
        raise unknown_name(f"{key}.name", name, [*LOSSES, *ALIASES], "losses")
    return LOSSES[name]


def make_loss(name: str, options: dict[str, Any], sizes: Sizes, key: str) -> nn.Module:
    """A loss of the registry with options; errors name the configuration's key."""
    entry = _entry(name, key)
    made = entry.make(sizes)
    if not options:
        return made
    kind, known = type(made), _parameters(type(made))
    if isinstance(made, GradientRescaling) and "auto" in (options.get("beta"), options.get("lam")):
        if {options.get("beta", "auto"), options.get("lam", "auto")} != {"auto"}:
            raise ValueError(f'{key}.options must have both beta and lam "auto" or neither; got {options}')
        # The rule chooses both. They are known too, so that a misspelt option is answered with them.
        kind = AutomaticRescaling
        known = _parameters(kind) | {option: known[option] for option in ("beta", "lam")}
        options = {option: value for option, value in options.items() if option not in ("beta", "lam")}
    for option, value in options.items():
        check_name(f"{key}.options of {entry.name}", option, known, "options")
        if known[option].annotation in (bool, int, float, str):
            typed(known[option].annotation, value, f"{key}.options.{option}")
    if "transition" in options:
        matrix = _transition(options["transition"], sizes.classes, f"{key}.options.transition")
        options = options | {"transition": matrix}
    taken = _parameters(kind)
    sized = {"dim": sizes.dim, "classes": sizes.classes, "num_samples": sizes.samples}
    needed: dict[str, Any] = {
        place: size
        for place, size in sized.items()
        if place in taken and taken[place].default is inspect.Parameter.empty
    }
    # Defaults that the registry chose for this name (all pairs, a transition matrix, a table of samples) stay.
    chosen = {
        place: getattr(made, place) for place in ("transition", "pairs") if place in taken and hasattr(made, place)
    }
    with about(f"{key}.options"):
        return kind(**(needed | chosen | options))


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
            if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and one.name not in found
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
