"""The network as a training step sees it: loss, logits and features from one call, ready to be wrapped.

Everything that holds parameters sits in one module, so that data-parallel wrapping, compilation and the optimiser
see the same thing, a loss with parameters of its own among them.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hardsight.distributed import sum_over_processes
from hardsight.heads import observe
from hardsight.losses.contrastive import AMCLoss, ContrastiveLoss
from hardsight.losses.terms import Over, Term, mean_over, value_of, value_over
from hardsight.models.classifier import Classifier

PAIR_LOSSES = (AMCLoss, ContrastiveLoss)


class Seen(NamedTuple):
    """What one forward gives: the losses; `features` go into the head, `logits` come out of it."""

    losses: "Losses"
    logits: Tensor
    features: Tensor | None


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
    def needs_features(self) -> bool:
        """Whether a part of the loss looks at the features."""
        return self._on_features or self.feature_loss is not None

    def scale_features(self, factor: float) -> None:
        """Set the weight of the feature loss to this share of the full one."""
        if self.feature_loss is not None and factor != self._factor:
            self.feature_weight.fill_(factor * self.full_weight)
            self._factor = factor

    def forward(
        self, logits: Tensor, features: Tensor | None, labels: Tensor, ids: Tensor | None, part: "Part"
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


class Share(NamedTuple):
    """How much of something a batch holds: of the whole step, times the processes; of the batches of all processes."""

    of_step: Tensor | float = 1.0
    of_batch: Tensor | float = 1.0


class Part(NamedTuple):
    """How much a batch counts where it is a part of a larger one, so that a sum of means is the mean of all samples.

    `samples`: its share of the labelled samples; `labels` and `feature_labels`: of the labels as the loss and the loss
    on features count them. `known`: the labelled samples of the batch in all processes. `rows`: its rows here;
    `of_rows`: those of the whole step, where that has several batches.
    """

    samples: Share = Share()
    labels: Share = Share()
    feature_labels: Share = Share()
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

    def _share(self, over: Over) -> Share:
        return self.labels if over == "labels" else self.samples


_WHOLE = Part()


class Network(nn.Module):
    """Model and objective in one call: `network(images, labels, ids)` is (losses, logits, features).

    A `Classifier`, whose logits are `head(forward_features(images))` and nothing else, is asked for its features; any
    other model is watched at its last linear layer by a hook, which `close` takes away. Without `features` nothing is
    watched.
    """

    def __init__(
        self, model: nn.Module, objective: Objective, *, features: bool = True, head: str | None = None
    ) -> None:
        super().__init__()
        self.model, self.objective, self.wanted, self.head_name = model, objective, features, head
        # Others may have `forward_features` and `head` too, as timm's have, and pool or drop between the two.
        plain = isinstance(model, Classifier) and type(model).forward is Classifier.forward
        self.direct = plain and head is None
        self._caught: Tensor | None = None
        self._hook: RemovableHandle | None = None

    @property
    def head(self) -> nn.Module:
        """The last linear layer; for a watched model, known after the first forward."""
        if self.direct:
            return self.model.head  # type: ignore[return-value]
        if self.head_name is None:
            raise RuntimeError("the head is known after the first forward")
        return self.model.get_submodule(self.head_name)

    def look(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits and, where wanted, features."""
        if self.direct:
            features = self.model.forward_features(images)  # type: ignore[operator]
            return self.model.head(features), features  # type: ignore[operator]
        if not self.wanted:
            return self.model(images), None
        if self._hook is None:
            return self._find_head(images)
        logits = self.model(images)
        features, self._caught = self._caught, None
        return logits, features

    def _find_head(self, images: Tensor) -> tuple[Tensor, Tensor]:
        with observe(self.model, self.head_name) as seen:
            logits = self.model(images)
        self.head_name = seen.name
        self._hook = seen.head.register_forward_pre_hook(self._catch)
        return logits, seen.features

    def _catch(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._caught = inputs[0]

    def close(self) -> None:
        """Leave no hook behind."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def forward(self, images: Tensor, labels: Tensor, ids: Tensor | None = None, part: Part = _WHOLE) -> Seen:
        logits, features = self.look(images)
        return Seen(self.objective(logits, features, labels, ids, part), logits, features)


class WeightAverage:
    """A copy of the model whose parameters follow: average = decay x average + (1 - decay) x weights, each step.

    Buffers (running statistics) are copied, not averaged: they are averages already.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay must lie in [0, 1), the share of the average that a step keeps; got {decay!r}")
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False)
        self._averages: list[Tensor] = list(self.model.parameters())
        self._weights: list[Tensor] = list(model.parameters())
        self._copies, self._buffers = list(self.model.buffers()), list(model.buffers())

    @torch.no_grad()
    def update(self) -> None:
        """Take one step towards the weights."""
        torch._foreach_lerp_(self._averages, self._weights, 1 - self.decay)
        for kept, buffer in zip(self._copies, self._buffers, strict=True):
            kept.copy_(buffer)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.model.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.model.load_state_dict(state)
