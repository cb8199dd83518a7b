"""The baselines of AVH's Table 3, one small class each: what a method does with one batch of each domain.

The source's cross-entropy is part of all of them. Source and target go through the network as one batch, so that both
share the statistics of batch normalization, in training as in evaluation.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardsight.names import check_name
from hardsight.training.network import Network
from hardsight_studies.avh.baselines.discrepancies import (
    classifier_discrepancy,
    maximum_mean_discrepancy,
    mean_entropy,
    reversal_strength,
    reverse_gradient,
    symmetric_divergence,
)

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Baseline(ABC):
    """One method: `begin` makes what it trains, `step` takes one step of all of it.

    `step` gets the source's images and labels, the target's images, and how far the training is, in [0, 1). It returns
    its losses as tensors by name; every method has `source_loss`.
    """

    network: Network
    optimizers: list[torch.optim.Optimizer]

    def begin(self, network: Network, features: Tensor, make: MakeOptimizer) -> None:
        """Make what is trained beside the network, for features such as these, and the optimisers of all of it."""
        self.network = network
        self.optimizers = [make(network.parameters())]

    @abstractmethod
    def step(self, source: Tensor, labels: Tensor, target: Tensor, progress: float) -> dict[str, Tensor]:
        """One step of everything that the method trains."""

    def _together(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Source logits and features, target logits and features, of one joint batch."""
        logits, features = self.network.look(torch.cat([source, target]))
        assert features is not None
        split = len(source)
        return logits[:split], features[:split], logits[split:], features[split:]

    def _follow(self, loss: Tensor, *optimizers: torch.optim.Optimizer) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in optimizers or self.optimizers:
            optimizer.step()


class SourceOnly(Baseline):
    """Cross-entropy on the source; the target is never looked at."""

    def step(self, source: Tensor, labels: Tensor, target: Tensor, progress: float) -> dict[str, Tensor]:
        loss = F.cross_entropy(self.network.look(source)[0].float(), labels)
        self._follow(loss)
        return {"source_loss": loss}


class _OneLoss(Baseline):
    """Cross-entropy on the source plus one term, in one step."""

    def __init__(self, weight: float) -> None:
        if not 0 <= weight < float("inf"):
            raise ValueError(f"weight must be finite and at least 0, of the method's own term; got {weight!r}")
        self.weight = weight

    def step(self, source: Tensor, labels: Tensor, target: Tensor, progress: float) -> dict[str, Tensor]:
        logits, features, target_logits, target_features = self._together(source, target)
        loss = F.cross_entropy(logits.float(), labels)
        extra = self.term(features, target_features, target_logits, progress)
        self._follow(loss + extra)
        return {"source_loss": loss, "adaptation_loss": extra}

    @abstractmethod
    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        """The method's own term, weighted, from the features of both domains and the target's logits."""


class MMD(_OneLoss):
    """Features of both domains brought together by `maximum_mean_discrepancy` (DAN: Long et al. 2015)."""

    def __init__(self, weight: float = 1.0, *, biased: bool = True) -> None:
        super().__init__(weight)
        self.biased = biased

    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        return self.weight * maximum_mean_discrepancy(source, target, biased=self.biased)


class Entropy(_OneLoss):
    """Sure predictions on the target: their `mean_entropy` is minimised (Grandvalet & Bengio 2005)."""

    def __init__(self, weight: float = 0.1) -> None:
        super().__init__(weight)

    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        return self.weight * mean_entropy(target_logits)


class DANN(_OneLoss):
    """Features that a domain classifier cannot tell apart, by a reversed gradient (Ganin et al. 2016).

    The domain classifier has one hidden layer and learns at full rate; what comes back to the features is multiplied
    by -weight times `reversal_strength`. The paper names no other weight than that strength; a tenth is what the
    authors' public code for Office puts before the domain loss, with a domain classifier that learns ten times as fast.
    """

    def __init__(self, weight: float = 0.1, *, hidden: int = 256, steepness: float = 10.0) -> None:
        super().__init__(weight)
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1 unit; got {hidden!r}")
        self.hidden, self.steepness = hidden, steepness

    def begin(self, network: Network, features: Tensor, make: MakeOptimizer) -> None:
        judge = nn.Sequential(nn.Linear(features.shape[1], self.hidden), nn.ReLU(), nn.Linear(self.hidden, 1))
        self.judge = judge.to(features.device)
        self.network = network
        self.optimizers = [make([*network.parameters(), *self.judge.parameters()])]

    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        strength = self.weight * reversal_strength(progress, self.steepness)
        judged = self.judge(reverse_gradient(torch.cat([source, target]), strength)).float().squeeze(1)
        is_target = torch.zeros_like(judged)
        is_target[len(source) :] = 1.0
        return F.binary_cross_entropy_with_logits(judged, is_target)


class _TwoPlayers(Baseline):
    """Classifiers and features play against each other on the target, in three steps a batch.

    First everything learns the source; then the classifiers alone are moved to where their two opinions on the target
    differ most, still right on the source; then the features alone, `repeats` times, to where they differ least.
    """

    def __init__(self, repeats: int = 4) -> None:
        if repeats < 1:
            raise ValueError(f"repeats must be at least 1, the steps of the features; got {repeats!r}")
        self.repeats = repeats

    def begin(self, network: Network, features: Tensor, make: MakeOptimizer) -> None:
        self.network = network
        classes = network.head(features).shape[1]
        heads = self.classifiers(network.head, features.shape[1], classes)
        own = {id(parameter) for parameter in network.head.parameters()}
        body = [parameter for parameter in network.parameters() if id(parameter) not in own]
        self.optimizers = [make(body), make([parameter for head in heads for parameter in head.parameters()])]

    def step(self, source: Tensor, labels: Tensor, target: Tensor, progress: float) -> dict[str, Tensor]:
        body, classifiers = self.optimizers
        both, split = torch.cat([source, target]), len(source)
        loss = self.wrong(self._features(both), labels)
        self._follow(loss)
        with torch.no_grad():
            fixed = self._features(both)
        self._follow(self.wrong(fixed, labels) - self.disagreement(fixed, split), classifiers)
        for _ in range(self.repeats):
            apart = self.disagreement(self._features(both), split)
            self._follow(apart, body)
        return {"source_loss": loss, "adaptation_loss": apart}

    def _features(self, images: Tensor) -> Tensor:
        features = self.network.look(images)[1]
        assert features is not None
        return features

    @abstractmethod
    def classifiers(self, head: nn.Module, dim: int, classes: int) -> list[nn.Module]:
        """All classifiers, the model's own head among them."""

    @abstractmethod
    def wrong(self, features: Tensor, labels: Tensor) -> Tensor:
        """The classifiers' cross-entropy on the source, whose features come first."""

    @abstractmethod
    def disagreement(self, features: Tensor, split: int) -> Tensor:
        """How far two opinions on the target are apart, whose features come from `split` on."""


class MCD(_TwoPlayers):
    """Two classifiers that should agree on the target: `classifier_discrepancy` (Saito et al. 2018, MCD).

    The second is a copy of the model's head with weights of its own; the adapted model keeps the first.
    """

    def classifiers(self, head: nn.Module, dim: int, classes: int) -> list[nn.Module]:
        self.both = [head, _redrawn(head)]
        return self.both

    def wrong(self, features: Tensor, labels: Tensor) -> Tensor:
        first, second = (F.cross_entropy(each(features[: len(labels)]).float(), labels) for each in self.both)
        return first + second

    def disagreement(self, features: Tensor, split: int) -> Tensor:
        return classifier_discrepancy(*(each(features[split:]) for each in self.both))


_MEASURES = {"absolute": classifier_discrepancy, "divergence": symmetric_divergence}


class ADR(_TwoPlayers):
    """A critic whose predictions on the target should survive dropout (Saito et al. 2018, ADR).

    As in the authors' public code the critic has one hidden layer, normalized, with dropout before both of its
    layers; two draws are its two opinions. The model's own head learns the source beside it, by features that it does
    not move, and is what predicts: the critic is made to be unsure. `measure` of two opinions: the paper's
    `symmetric_divergence`, "divergence", or the `classifier_discrepancy` that the authors' code offers, "absolute".
    The first has no upper bound, and on the toy of the tests it drove the target into one class: the second is the
    default.
    """

    def __init__(self, repeats: int = 4, *, dropout: float = 0.5, hidden: int = 256, measure: str = "absolute") -> None:
        super().__init__(repeats)
        check_name("measure", measure, _MEASURES)
        self.measure = measure
        if not 0 < dropout < 1:
            raise ValueError(f"dropout must lie in (0, 1), the share of features left out; got {dropout!r}")
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1 unit; got {hidden!r}")
        self.dropout, self.hidden = dropout, hidden

    def classifiers(self, head: nn.Module, dim: int, classes: int) -> list[nn.Module]:
        self.head = head
        self.critic = nn.Sequential(
            nn.Dropout(self.dropout), nn.Linear(dim, self.hidden), nn.BatchNorm1d(self.hidden), nn.ReLU(),
            nn.Dropout(self.dropout), nn.Linear(self.hidden, classes),
        ).to(next(head.parameters()).device)  # fmt: skip
        return [head, self.critic]

    def wrong(self, features: Tensor, labels: Tensor) -> Tensor:
        split = len(labels)
        kept = F.cross_entropy(self.head(features[:split].detach()).float(), labels)
        return F.cross_entropy(self.critic(features)[:split].float(), labels) + kept

    def disagreement(self, features: Tensor, split: int) -> Tensor:
        return _MEASURES[self.measure](self.critic(features)[split:], self.critic(features)[split:])


BASELINES: dict[str, type[Baseline]] = {
    "source": SourceOnly,
    "mmd": MMD,
    "dann": DANN,
    "entropy": Entropy,
    "mcd": MCD,
    "adr": ADR,
}


def make_baseline(name: str, **options: Any) -> Baseline:
    """The method of that name, with options of its class."""
    check_name("method", name, BASELINES)
    return BASELINES[name](**options)


def _redrawn(head: nn.Module) -> nn.Module:
    """A copy of the head with other weights of the same spread, and biases of zero."""
    other = copy.deepcopy(head)
    with torch.no_grad():
        for parameter in other.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, float(parameter.std()))
            elif parameter.ndim == 1:
                parameter.zero_()
    return other
