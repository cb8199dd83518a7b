"""MLDG, meta-learning for domain generalization (Li et al. 2018), first order: learn what helps on a domain unseen.

Every step one of the training domains, drawn at random, plays the unseen one. With F the loss on the others
(meta-train) and G the loss on it (meta-test), parameters follow grad F(w) + grad G(w - rate * grad F(w)): the gradient
of G is taken as if the moved parameters were the parameters themselves, which leaves out the Hessian of F.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from hardsight.datasets.epochs import EpochPlan
from hardsight.datasets.loader import DeviceLoader
from hardsight.domains.data import RowBatches
from hardsight.geometry import widen
from hardsight.training.loop import Loop
from hardsight.training.network import Batch

# Inputs and labels.
Pair = tuple[Tensor, Tensor]


class DomainBatches:
    """One batch of each domain after the other, put together in the order of the domains.

    An epoch has as many batches as all samples fill; a domain that is through begins again by itself, so that a small
    one comes more often. Which sample comes when is a function of the loaders' seeds and the number of the batch.
    """

    def __init__(self, domains: Sequence[DeviceLoader | RowBatches]) -> None:
        self.domains = list(domains)
        self.batch_size = sum(loader.batch_size for loader in self.domains)
        self._plans: list[EpochPlan | None] = [None] * len(self.domains)
        self._epoch = 0

    def __len__(self) -> int:
        return max(1, sum(loader.samples for loader in self.domains) // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Start the next pass at the beginning of `epoch`."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        first = self._epoch * len(self)
        for number in range(first, first + len(self)):
            parts = [self._part(place, number) for place in range(len(self.domains))]
            yield tuple(torch.cat(column) for column in zip(*parts, strict=True))

    def _part(self, place: int, number: int) -> tuple[Tensor, ...]:
        loader = self.domains[place]
        round_, index = divmod(number, len(loader))
        plan = self._plans[place]
        if plan is None or plan.epoch != round_:
            plan = self._plans[place] = loader.plan(round_)
        return tuple(loader.batch(plan, index))


class MetaStep:
    """Takes the steps of a training on batches whose equal parts are domains, as `DomainBatches` makes them.

    Which domain plays the unseen one is drawn from the seed and the number of the step, so a training that was
    interrupted goes on as it would have.
    """

    def __init__(self, loop: Loop, domains: int, *, rate: float, seed: int) -> None:
        self.loop, self.step, self.domains, self.rate, self.seed = loop, loop.step, domains, rate, seed

    def __call__(self, group: Sequence[Batch]) -> None:
        """Take one step on a group of one batch."""
        ((images, labels, ids),) = group
        order = self._order(len(labels)).to(labels.device)
        images, labels = images.index_select(0, order), labels.index_select(0, order)
        split = len(labels) - len(labels) // self.domains
        step = self.step
        with torch.autocast(images.device.type, step.precision, enabled=step.precision != torch.float32):
            gradients, losses, logits = meta_gradients(
                step.network.model, (images[:split], labels[:split]), (images[split:], labels[split:]), self.rate
            )
        trained = [parameter for parameter in step.network.model.parameters() if parameter.requires_grad]
        for parameter, slope in zip(trained, gradients, strict=True):
            parameter.grad = slope
        share = split / len(labels)
        ids = None if ids is None else ids.index_select(0, order)
        step.account(share * losses[0] + (1 - share) * losses[1], logits, None, labels, ids)
        step.update()

    def left_out(self, step: int) -> int:
        """The place of the domain that plays the unseen one in that step."""
        return int(np.random.default_rng((self.seed, step)).integers(self.domains))

    def _order(self, samples: int) -> Tensor:
        """The places of a batch with the chosen domain last."""
        chosen = self.left_out(self.loop.counters.step)
        parts = list(torch.arange(samples).chunk(self.domains))
        return torch.cat([*parts[:chosen], *parts[chosen + 1 :], parts[chosen]])


def meta_gradients(
    model: nn.Module, meta_train: Pair, meta_test: Pair, rate: float
) -> tuple[list[Tensor | None], tuple[Tensor, Tensor], Tensor]:
    """Gradients in the order of the trained parameters (None where one takes no part), losses F and G, and logits.

    Nothing is changed but the statistics of batch normalization, which see both sides.
    """
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    train_logits = model(meta_train[0])
    train_loss = _cross_entropy(train_logits, meta_train[1])
    inner = torch.autograd.grad(train_loss, list(named.values()), allow_unused=True)
    moved: dict[str, Any] = {}
    for (name, parameter), slope in zip(named.items(), inner, strict=True):
        moved[name] = (parameter if slope is None else parameter - rate * slope).detach().requires_grad_()
    test_logits = functional_call(model, moved, (meta_test[0],))
    test_loss = _cross_entropy(test_logits, meta_test[1])
    outer = torch.autograd.grad(test_loss, list(moved.values()), allow_unused=True)
    sums: list[Tensor | None] = [other if one is None else one if other is None else one + other
            for one, other in zip(inner, outer, strict=True)]  # fmt: skip
    return sums, (train_loss.detach(), test_loss.detach()), torch.cat([train_logits, test_logits])


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(widen(logits), labels)
