"""The baselines of AVH's Table 3, one small class each: what a method does with one batch of each domain.

The source's cross-entropy is part of all of them. Source and target go through the network as one batch, so that both
share the statistics of batch normalization, in training as in evaluation.
"""

import copy
import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardsight.domains.baselines.discrepancies import (
    classifier_discrepancy,
    maximum_mean_discrepancy,
    mean_entropy,
    reversal_strength,
    reverse_gradient,
    symmetric_divergence,
)
from hardsight.training.network import Network

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Baseline(ABC):
    """One method: `begin` sees the network and a first batch's features, `step` takes one step, `ways` its optimisers.

    `step` gets the source's images and labels, the target's images, and how far the training is, in [0, 1). It returns
    its losses as tensors by name; every method has `source_loss`.
    """

    network: Network
    optimizers: list[torch.optim.Optimizer]

    def begin(self, network: Network, features: Tensor, make: MakeOptimizer) -> None:
        """Make what the method trains beside the network, and the optimisers of all of it."""
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
        if not weight >= 0:
            raise ValueError(f"weight must be at least 0, the share of the method's own term; got {weight!r}")
        self.weight = weight

    def step(self, source: Tensor, labels: Tensor, target: Tensor, progress: float) -> dict[str, Tensor]:
        logits, features, target_logits, target_features = self._together(source, target)
        loss = F.cross_entropy(logits.float(), labels)
        extra = self.term(features, target_features, target_logits, progress)
        self._follow(loss + self.weight * extra)
        return {"source_loss": loss, "adaptation_loss": extra}

    @abstractmethod
    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        """The method's own term, from the features of both domains and the target's logits."""


class MMD(_OneLoss):
    """Features of both domains brought together by `maximum_mean_discrepancy` (DAN: Long et al. 2015)."""

    def __init__(self, weight: float = 1.0, *, biased: bool = True) -> None:
        super().__init__(weight)
        self.biased = biased

    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        return maximum_mean_discrepancy(source, target, biased=self.biased)


class Entropy(_OneLoss):
    """Sure predictions on the target: their `mean_entropy` is minimised (Grandvalet & Bengio 2005)."""

    def __init__(self, weight: float = 0.1) -> None:
        super().__init__(weight)

    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        return mean_entropy(target_logits)


class DANN(_OneLoss):
    """Features that a domain classifier cannot tell apart, by a reversed gradient (Ganin et al. 2016).

    The domain classifier has one hidden layer. The reversal grows by `reversal_strength` over the training.
    """

    def __init__(self, weight: float = 1.0, *, hidden: int = 256, steepness: float = 10.0) -> None:
        super().__init__(weight)
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1 unit; got {hidden!r}")
        self.hidden, self.steepness = hidden, steepness

    def begin(self, network: Network, features: Tensor, make: MakeOptimizer) -> None:
        width = features.shape[1]
        self.judge = nn.Sequential(nn.Linear(width, self.hidden), nn.ReLU(), nn.Linear(self.hidden, 1))
        self.judge.to(features.device)
        self.network = network
        self.optimizers = [make([*network.parameters(), *self.judge.parameters()])]

    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        strength = reversal_strength(progress, self.steepness)
        judged = self.judge(reverse_gradient(torch.cat([source, target]), strength)).float().squeeze(1)
        is_target = torch.zeros_like(judged)
        is_target[len(source) :] = 1.0
        return F.binary_cross_entropy_with_logits(judged, is_target)


class _TwoPlayers(Baseline):
    """Classifier and features play against each other on the target, in three steps a batch.

    First everything learns the source; then the classifier alone is moved to where its two opinions on the target
    differ most, still right on the source; then the features alone, `repeats` times, to where they differ least.
    """

    def __init__(self, repeats: int = 4) -> None:
        if repeats < 1:
            raise ValueError(f"repeats must be at least 1, the steps of the features; got {repeats!r}")
        self.repeats = repeats

    def begin(self, network: Network, features: Tensor, make: MakeOptimizer) -> None:
        self.network = network
        heads = self.classifiers(network.head)
        own = {id(parameter) for parameter in network.head.parameters()}
        body = [parameter for parameter in network.parameters() if id(parameter) not in own]
        self.optimizers = [make(body), make([parameter for head in heads for parameter in head.parameters()])]

    def step(self, source: Tensor, labels: Tensor, target: Tensor, progress: float) -> dict[str, Tensor]:
        features_optimizer, classifiers_optimizer = self.optimizers
        split = len(source)
        _, features, _, _ = self._together(source, target)
        loss = self._wrong(features, labels)
        self._follow(loss)
        with torch.no_grad():
            fixed = self._features(torch.cat([source, target]))
        apart = self.disagreement(fixed[split:])
        self._follow(self._wrong(fixed[:split], labels) - apart, classifiers_optimizer)
        for _ in range(self.repeats):
            together = self.disagreement(self._features(torch.cat([source, target]))[split:])
            self._follow(together, features_optimizer)
        return {"source_loss": loss, "adaptation_loss": together}

    def _features(self, images: Tensor) -> Tensor:
        features = self.network.look(images)[1]
        assert features is not None
        return features

    def _wrong(self, features: Tensor, labels: Tensor) -> Tensor:
        return sum((F.cross_entropy(each.float(), labels) for each in self.opinions(features)), features.new_zeros(()))

    @abstractmethod
    def classifiers(self, head: nn.Module) -> list[nn.Module]:
        """The classifiers that play, the model's own head first."""

    @abstractmethod
    def opinions(self, features: Tensor) -> tuple[Tensor, ...]:
        """The logits of every opinion that must be right on the source."""

    @abstractmethod
    def disagreement(self, features: Tensor) -> Tensor:
        """How far two opinions on the target are apart."""


class MCD(_TwoPlayers):
    """Two classifiers that should agree on the target: `classifier_discrepancy` (Saito et al. 2018, MCD).

    The second is a copy of the model's head with weights of its own; the adapted model keeps the first.
    """

    def classifiers(self, head: nn.Module) -> list[nn.Module]:
        self.first, self.second = head, _redrawn(head)
        return [self.first, self.second]

    def opinions(self, features: Tensor) -> tuple[Tensor, ...]:
        return self.first(features), self.second(features)

    def disagreement(self, features: Tensor) -> Tensor:
        return classifier_discrepancy(*self.opinions(features))


class ADR(_TwoPlayers):
    """One classifier whose predictions on the target should survive dropout: `symmetric_divergence` (ADR, 2018).

    The head is linear, so dropout falls on the features that enter it: two draws are two classifiers.
    """

    def __init__(self, repeats: int = 4, *, dropout: float = 0.5) -> None:
        super().__init__(repeats)
        if not 0 < dropout < 1:
            raise ValueError(f"dropout must lie in (0, 1), the share of features left out; got {dropout!r}")
        self.dropout = dropout

    def classifiers(self, head: nn.Module) -> list[nn.Module]:
        self.head = head
        return [head]

    def opinions(self, features: Tensor) -> tuple[Tensor, ...]:
        return (self.head(F.dropout(features, self.dropout)),)

    def disagreement(self, features: Tensor) -> Tensor:
        return symmetric_divergence(*(self.opinions(features)[0] for _ in range(2)))


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
    if name not in BASELINES:
        near = difflib.get_close_matches(str(name), BASELINES, n=1, cutoff=0.0)
        raise ValueError(f"method must be one of {', '.join(BASELINES)}; got {name!r}, did you mean {near[0]!r}?")
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
