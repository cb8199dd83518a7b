"""The baselines of AVH's Table 3: source only, MMD, DANN, entropy minimisation, MCD, ADR.

`adapt_baseline` trains a classifier on a labelled source and an unlabelled target. The source's cross-entropy is part
of all methods. Source and target go through the network as one batch, so that both share the statistics of batch
normalization, in training as in evaluation.
"""

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardsight.heads import evaluating
from hardsight.names import check_name
from hardsight.training import NonFiniteLossError, Objective
from hardsight.training.network import Network, take_apart
from hardsight_studies.avh.discrepancies import (
    classifier_discrepancy,
    maximum_mean_discrepancy,
    mean_entropy,
    reversal_strength,
    reverse_gradient,
)

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
# Units of the hidden layer of DANN's domain classifier and of ADR's critic.
_HIDDEN = 256


def adapt_baseline(
    method: str,
    model: nn.Module,
    source: Iterable[Any],
    target: Iterable[Any],
    *,
    epochs: int,
    optimizer: MakeOptimizer,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> None:
    """Train `model` in place for `epochs` passes over `source` by a method of `BASELINES`.

    `source` and `target` are batches of (images, labels) or (images, labels, ids) that can be gone through again;
    `target` goes round as often as that needs, and its labels are never looked at. `optimizer` makes an optimiser of
    parameters; a method with two players has two. `seed`: weights and dropout that the method draws; the caller's
    random states stay as they are.
    """
    if epochs < 1 or not isinstance(source, Sized) or len(source) < 1:
        raise ValueError(f"epochs and the batches of source must be at least 1; got {epochs!r} and {source!r}")
    check_name("method", method, BASELINES)
    playing, device = BASELINES[method](), torch.device(device)
    network = Network(model.to(device), Objective(), features=True)
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            images, _, _ = take_apart(next(iter(source)), device)
            with evaluating(network):
                _, features = network.look(images[:2])
            assert features is not None
            playing.begin(network, features.float(), optimizer)
            unlabelled = _round_and_round(target, device)
            for epoch in range(epochs):
                _epoch(playing, network, source, unlabelled, epoch, epochs, device)
    finally:
        network.close()


def _epoch(
    method: "Baseline",
    network: Network,
    source: Any,
    target: Iterator[Tensor],
    number: int,
    epochs: int,
    device: torch.device,
) -> None:
    """One pass over the source; a loss that is no finite number at its end stops the training."""
    network.train()
    if hasattr(source, "set_epoch"):
        source.set_epoch(number)
    sums: dict[str, Tensor] = {}
    for index, batch in enumerate(source):
        images, labels, _ = take_apart(batch, device)
        losses = method.step(images, labels, next(target), (number + index / len(source)) / epochs)
        for name, loss in losses.items():
            sums[name] = sums.get(name, torch.zeros((), device=device)) + loss.detach().float()
    bad = [name for name, total in sums.items() if not math.isfinite(float(total))]
    if bad:
        raise NonFiniteLossError(f"{bad[0]} is not a finite number in epoch {number + 1} of {epochs}")


def _round_and_round(target: Iterable[Any], device: torch.device) -> Iterator[Tensor]:
    """The target's images, epoch after epoch without end."""
    for epoch in itertools.count():
        if hasattr(target, "set_epoch"):
            target.set_epoch(epoch)
        seen = False
        for batch in target:
            seen = True
            yield take_apart(batch, device)[0]
        if not seen:
            raise ValueError("target must hold at least one batch; got none")


# ---------------------------------------------------------------------------------------------------------------------
# The methods, one small class each: what a method does with one batch of each domain.


class Baseline:
    """One method: `begin` makes what it trains, `step` takes one step of all of it.

    `step` gets the source's images and labels, the target's images, and how far the training is, in [0, 1). It returns
    its losses as tensors by name; every method has `source_loss`. Here and in most methods the loss is cross-entropy on
    the source plus one `term`.
    """

    network: Network
    optimizers: list[torch.optim.Optimizer]

    def begin(self, network: Network, features: Tensor, make: MakeOptimizer) -> None:
        """Make what is trained beside the network, for features such as these, and the optimisers of all of it."""
        self.network = network
        self.optimizers = [make(network.parameters())]

    def step(self, source: Tensor, labels: Tensor, target: Tensor, progress: float) -> dict[str, Tensor]:
        """One step of everything that the method trains."""
        logits, features = self.network.look(torch.cat([source, target]))
        assert features is not None
        split = len(source)
        loss = F.cross_entropy(logits[:split].float(), labels)
        extra = self.term(features[:split], features[split:], logits[split:], progress)
        self._follow(loss + extra)
        return {"source_loss": loss, "adaptation_loss": extra}

    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        """The method's own term, weighted, from the features of both domains and the target's logits."""
        raise NotImplementedError

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


class MMD(Baseline):
    """Features of both domains brought together by `maximum_mean_discrepancy` (DAN: Long et al. 2015)."""

    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        return maximum_mean_discrepancy(source, target)


class Entropy(Baseline):
    """Sure predictions on the target: a tenth of their `mean_entropy` is minimised (Grandvalet & Bengio 2005)."""

    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        return 0.1 * mean_entropy(target_logits)


class DANN(Baseline):
    """Features that a domain classifier cannot tell apart, by a reversed gradient (Ganin et al. 2016).

    The domain classifier has one hidden layer and learns at full rate; what comes back to the features is multiplied
    by -weight times `reversal_strength`. The paper names no other weight than that strength; a tenth is what the
    authors' public code for Office puts before the domain loss, with a domain classifier that learns ten times as fast.
    """

    weight = 0.1

    def begin(self, network: Network, features: Tensor, make: MakeOptimizer) -> None:
        judge = nn.Sequential(nn.Linear(features.shape[1], _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1))
        self.judge = judge.to(features.device)
        self.network = network
        self.optimizers = [make([*network.parameters(), *self.judge.parameters()])]

    def term(self, source: Tensor, target: Tensor, target_logits: Tensor, progress: float) -> Tensor:
        strength = self.weight * reversal_strength(progress)
        judged = self.judge(reverse_gradient(torch.cat([source, target]), strength)).float().squeeze(1)
        is_target = torch.zeros_like(judged)
        is_target[len(source) :] = 1.0
        return F.binary_cross_entropy_with_logits(judged, is_target)


class MCD(Baseline):
    """Two classifiers that should agree on the target: `classifier_discrepancy` (Saito et al. 2018, MCD).

    Classifiers and features play against each other, in three steps a batch. First everything learns the source; then
    the classifiers alone are moved to where their two opinions on the target differ most, still right on the source;
    then the features alone, `repeats` times, to where they differ least. The second classifier is a copy of the model's
    head with weights of its own; the adapted model keeps the first.
    """

    repeats = 4

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

    def classifiers(self, head: nn.Module, dim: int, classes: int) -> list[nn.Module]:
        """All classifiers, the model's own head among them."""
        second = copy.deepcopy(head)
        with torch.no_grad():
            for parameter in second.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0.0, float(parameter.std()))
                elif parameter.ndim == 1:
                    parameter.zero_()
        self.both = [head, second]
        return self.both

    def wrong(self, features: Tensor, labels: Tensor) -> Tensor:
        """The classifiers' cross-entropy on the source, whose features come first."""
        first, second = (F.cross_entropy(each(features[: len(labels)]).float(), labels) for each in self.both)
        return first + second

    def disagreement(self, features: Tensor, split: int) -> Tensor:
        """How far two opinions on the target are apart, whose features come from `split` on."""
        return classifier_discrepancy(*(each(features[split:]) for each in self.both))


class ADR(MCD):
    """A critic whose predictions on the target should survive dropout (Saito et al. 2018, ADR).

    As in the authors' public code the critic has one hidden layer, normalized, with dropout before both of its
    layers; two draws are its two opinions. The model's own head learns the source beside it, by features that it does
    not move, and is what predicts: the critic is made to be unsure. Two opinions are compared by
    `classifier_discrepancy`, which the authors' code offers: the paper's divergence has no upper bound, and on the toy
    of the tests it drove the target into one class.
    """

    def classifiers(self, head: nn.Module, dim: int, classes: int) -> list[nn.Module]:
        self.head = head
        self.critic = nn.Sequential(
            nn.Dropout(0.5), nn.Linear(dim, _HIDDEN), nn.BatchNorm1d(_HIDDEN), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(_HIDDEN, classes),
        ).to(next(head.parameters()).device)  # fmt: skip
        return [head, self.critic]

    def wrong(self, features: Tensor, labels: Tensor) -> Tensor:
        split = len(labels)
        kept = F.cross_entropy(self.head(features[:split].detach()).float(), labels)
        return F.cross_entropy(self.critic(features)[:split].float(), labels) + kept

    def disagreement(self, features: Tensor, split: int) -> Tensor:
        return classifier_discrepancy(self.critic(features)[split:], self.critic(features)[split:])


BASELINES: dict[str, type[Baseline]] = {
    "source": SourceOnly, "mmd": MMD, "dann": DANN, "entropy": Entropy, "mcd": MCD, "adr": ADR,
}  # fmt: skip
