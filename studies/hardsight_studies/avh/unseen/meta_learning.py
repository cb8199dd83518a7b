"""MLDG, meta-learning for domain generalization (Li et al. 2018): learn what also helps on a domain left out.

Every step one of the training domains, drawn at random, plays the unseen one. With F the loss on the others
(meta-train) and G the loss on it (meta-test), parameters follow the gradient of
F(w) + weight * G(w - inner_rate * grad F(w)).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from hardsight.distributed import several, sum_with_gradient, world_size
from hardsight.geometry import widen
from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.rescaling import GradientRescaling
from hardsight.training.capture import Replay, make_capturable
from hardsight.training.feed import Batch
from hardsight.training.loop import Loop
from hardsight.training.objectives import BatchShare, Losses
from hardsight.training.step import Step

# Inputs, and what the loss compares the outputs with: labels, if it is none of one's own.
Pair = tuple[Tensor, Any]
_Loss = Callable[[Tensor, Any], Tensor]


class MetaGradients(NamedTuple):
    """Gradients in the order of the model's parameters (None where a parameter takes no part), losses, logits."""

    gradients: list[Tensor | None]
    train_loss: Tensor
    test_loss: Tensor
    train_logits: Tensor
    test_logits: Tensor


def meta_gradients(
    model: nn.Module,
    meta_train: Pair,
    meta_test: Pair,
    *,
    inner_rate: float,
    weight: float = 1.0,
    second_order: bool = True,
    loss: _Loss | None = None,
) -> MetaGradients:
    """The gradient of F(w) + weight * G(w - inner_rate * grad F(w)) on (inputs, labels) of each side.

    With `second_order` it is exact: G is followed through the inner step. Without, grad G at the moved parameters is
    taken as if they were the parameters themselves (first order), which leaves out the Hessian of F and costs half.
    Nothing is changed but the statistics of batch normalization, which see both sides. Of several processes F and G
    are the means of theirs, and all get the same gradients.
    """
    measure = _cross_entropy if loss is None else loss
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    parameters = list(named.values())
    train_logits = model(meta_train[0])
    train_loss = measure(train_logits, meta_train[1])
    inner = _average_gradients(
        torch.autograd.grad(train_loss, parameters, create_graph=second_order, allow_unused=True)
    )
    moved = {
        name: parameter if slope is None else parameter - inner_rate * slope
        for (name, parameter), slope in zip(named.items(), inner, strict=True)
    }
    if not second_order:
        moved = {name: value.detach().requires_grad_() for name, value in moved.items()}
    test_logits = functional_call(model, moved, (meta_test[0],))
    test_loss = measure(test_logits, meta_test[1])
    if second_order:
        total = torch.autograd.grad(train_loss + weight * test_loss, parameters, allow_unused=True)
        return MetaGradients(_average_gradients(total), train_loss, test_loss, train_logits, test_logits)
    outer = _average_gradients(torch.autograd.grad(test_loss, list(moved.values()), allow_unused=True))
    sums = [_plus(one, other, weight) for one, other in zip(inner, outer, strict=True)]
    return MetaGradients(sums, train_loss, test_loss, train_logits, test_logits)


class MetaStep:
    """Takes the steps of a training on batches whose equal parts are domains, as `DomainBatches` makes them.

    Which domain plays the unseen one is drawn from the seed and the number of the step, so a training that was
    interrupted goes on as it would have. On CUDA the step is replayed from a graph. Several processes, each with its
    part of every domain of a batch, take the step of one.
    """

    def __init__(
        self,
        loop: Loop,
        domains: int,
        *,
        inner_rate: float,
        weight: float = 1.0,
        second_order: bool = False,
        seed: int = 0,
    ) -> None:
        _check(domains, inner_rate, weight)
        self.loop, self.step, self.domains, self.seed = loop, loop.step, domains, seed
        self.inner_rate, self.weight, self.second_order = inner_rate, weight, second_order
        self._held: list[Tensor] = []
        self._replay: Replay | None = None

    def __call__(self, group: Sequence[Batch]) -> None:
        """Take one step on a group of one batch."""
        ((images, labels, ids),) = group
        ids = torch.full_like(labels, -1) if ids is None else ids
        order = self._order(len(labels), self.left_out(self.loop.counters.step)).to(labels.device)
        batch = [part.index_select(0, order) for part in (images, labels, ids)]
        if not images.is_cuda or several():
            self._held = batch
            self._take()
            return
        if self._replay is None:
            self._held = [part.clone() for part in batch]
            self._replay = Replay(self._take, self.step.settings)
        for held, part in zip(self._held, batch, strict=True):
            held.copy_(part)
        self._replay()

    def left_out(self, step: int) -> int:
        """The place of the domain that plays the unseen one in that step."""
        return int(np.random.default_rng((self.seed, step)).integers(self.domains))

    def _order(self, samples: int, chosen: int) -> Tensor:
        """The places of a batch with the chosen domain last: one graph then fits every choice."""
        parts = list(torch.arange(samples).chunk(self.domains))
        return torch.cat([*parts[:chosen], *parts[chosen + 1 :], parts[chosen]])

    def _take(self) -> None:
        step, (images, labels, ids) = self.step, self._held
        split = len(labels) - len(labels) // self.domains
        train, test = (_Side(step, labels[some], ids[some]) for some in (slice(split), slice(split, None)))
        with torch.autocast(images.device.type, step.precision, enabled=step.precision != torch.float32):
            found = meta_gradients(
                step.network.model,
                (images[:split], train),
                (images[split:], test),
                inner_rate=self.inner_rate,
                weight=self.weight,
                second_order=self.second_order,
                loss=lambda logits, side: side.loss(logits),
            )
        trained = [parameter for parameter in step.network.model.parameters() if parameter.requires_grad]
        for parameter, slope in zip(trained, found.gradients, strict=True):
            parameter.grad = slope
        share = split / len(labels)
        step.account(
            share * train.reported + (1 - share) * test.reported,
            torch.cat([found.train_logits, found.test_logits]),
            None,
            labels,
            ids,
            None if train.part.known is None or test.part.known is None else train.part.known + test.part.known,
        )
        step.update()


class _Side:
    """One side of a batch, meta-train or meta-test: its loss to follow, and then the one to report."""

    def __init__(self, step: Step, labels: Tensor, ids: Tensor) -> None:
        self.objective, self.labels, self.ids = step.network.objective, labels, ids
        self.part: BatchShare
        (self.part,) = step.parts([labels])
        self.reported: Tensor

    def loss(self, logits: Tensor) -> Tensor:
        losses: Losses = self.objective(widen(logits), None, self.labels, self.ids, self.part)
        self.reported = losses.reported
        return losses.followed


def train_by_mldg(loop: Loop, domains: int, **options: Any) -> Loop:
    """Let a loop, made with `capture=False` and `DomainBatches`, take its steps by `MetaStep`; returns it."""
    _check_loop(loop, bool(options.get("second_order")))
    if loop.device.type == "cuda":
        make_capturable(loop.step.optimizer, loop.device)
    loop.take_step = MetaStep(loop, domains, **options)
    return loop


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(widen(logits), labels)


def _plus(one: Tensor | None, other: Tensor | None, weight: float) -> Tensor | None:
    if one is None or other is None:
        return one if other is None else weight * other
    return one + weight * other


def _check(domains: int, inner_rate: float, weight: float) -> None:
    if domains < 2:
        raise ValueError(f"domains must be at least 2, one of them to play the unseen one; got {domains}")
    if not inner_rate > 0:
        raise ValueError(f"inner_rate must be positive; got {inner_rate!r}")
    if not weight >= 0:
        raise ValueError(f"weight must be at least 0; got {weight!r}")


def _check_loop(loop: Loop, second_order: bool) -> None:
    """Refuse what the steps of MLDG would leave out without a word."""
    objective, step = loop.step.network.objective, loop.step
    if objective.needs_features:
        raise ValueError("loss must be one on logits alone for MLDG; got one that looks at features")
    if any(parameter.requires_grad for parameter in objective.parameters()):
        raise ValueError(
            f"loss must have no parameters of its own for MLDG; {type(objective.loss).__name__} learns some"
        )
    rescaled = any(isinstance(one, GradientRescaling | AutomaticRescaling) for one in objective.modules())
    if second_order and rescaled:
        raise ValueError(
            "second_order must be False with gradient rescaling, whose gradient has no derivative; got True"
        )
    if loop.feed.accumulate > 1:
        raise ValueError(f"accumulate must be 1 for MLDG; got {loop.feed.accumulate}")
    if step.scaler is not None:
        raise ValueError("precision must be float32 or bf16 for MLDG, which does not scale its losses; got fp16")


def _average_gradients(gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The mean of each over the processes, where no DistributedDataParallel averages them; None stays None.

    It can be differentiated again: what is made of it flows back to the gradients of all processes.
    """
    held = [gradient for gradient in gradients if gradient is not None]
    if not held or not several():
        return list(gradients)
    total = sum_with_gradient(torch.cat([gradient.reshape(-1) for gradient in held]))
    means = iter((total / world_size()).split([gradient.numel() for gradient in held]))
    return [None if gradient is None else next(means).view_as(gradient) for gradient in gradients]
