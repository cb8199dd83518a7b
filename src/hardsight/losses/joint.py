"""Joint optimisation of network and labels (Tanaka et al., 2018): a table of labels follows the predictions."""

import math
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from hardsight import distributed
from hardsight.derivatives import wants_gradient
from hardsight.losses.inputs import (
    Rows,
    as_rows,
    bounded,
    check_floating,
    check_ids,
    check_range,
    seen_outside,
    sum_slack,
)
from hardsight.losses.registry import LossModule, NotNegative, checked, registered
from hardsight.losses.robust import entropy
from hardsight.losses.terms import Term, mean_over


@checked
def joint_optimisation_loss(
    logits: Tensor, target: Tensor, *, alpha: NotNegative = 1.2, beta: NotNegative = 0.8, prior: Tensor | None = None,
    sample_weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
    across_processes: bool = True,
) -> Float[Tensor, "..."]:  # fmt: skip
    """KL(target | p) + alpha KL(prior | mean p of the batch) + beta entropy(p). At least 0.

    The second term, which keeps all samples from one class, belongs to the batch (over all processes); every sample's
    loss contains it once. The prior is uniform unless given. Defaults: the paper's for 70 % symmetric noise. The mean
    too runs over all processes, and is the same in each of them.
    """
    rows = as_rows(logits, target, sample_weight=sample_weight, ignore_index=ignore_index)
    losses, divergence = _summands(rows, alpha, beta, prior, across_processes)
    if reduction == "none" or not (across_processes and wants_gradient(rows.logits)):
        return rows.reduce(losses + divergence, reduction)
    # The processes may hold batches of different sizes.
    total, samples = rows.reduce(losses, "sum"), distributed.mean_over_processes(_samples(rows))
    if reduction == "sum":
        return bounded(total + samples * divergence, torch.finfo(total.dtype).max)
    total = distributed.mean_over_processes(total)
    return torch.where(samples == 0, 0.0, total / torch.where(samples == 0, 1.0, samples) + divergence)


def _summands(
    rows: Rows, alpha: float, beta: float, prior: Tensor | None, across_processes: bool
) -> tuple[Float[Tensor, "rows"], Float[Tensor, ""]]:
    """What each sample brings, and the batch's divergence from the prior."""
    if prior is not None:
        _check_prior(prior, rows.logits.shape[-1])
    log_p = rows.log_softmax()
    losses = -rows.expected(log_p) + beta * entropy(log_p)
    if rows.probabilities is not None:
        losses = losses + torch.special.xlogy(rows.probabilities, rows.probabilities).sum(-1)
    synchronised = across_processes and wants_gradient(rows.logits)
    return losses, alpha * _prior_divergence(rows, log_p, prior, synchronised)


@registered(
    "joint_optimisation", "KL(ŷ‖p) + α KL(prior‖p̄) + β H(p)", "Tanaka et al., CVPR 2018",
    best_at_label=False, class_rows=("prior",),
)  # fmt: skip
class JointOptimisation(LossModule, of=joint_optimisation_loss, kept=("prior",)):
    """`joint_optimisation_loss` with a table of labels: forward(logits, labels, ids=ids).

    `record(ids, logits)` notes an epoch's predictions; `end_epoch(update=True)` then replaces the labels by the mean
    prediction of the last `window` epochs (`hard`: by its argmax), over all processes. Until a sample's label has been
    replaced, the one given counts. The table and the predictions are in the state: window * samples * classes numbers.
    """

    def __init__(
        self, num_samples: int, classes: int, *, prior: Tensor | None = None, window: int = 10, hard: bool = False,
        **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(**settings)
        check_range(window, "window", 1.0)
        self.window, self.hard = window, hard
        prior = torch.full((classes,), 1 / classes) if prior is None else prior.detach().clone()
        _check_prior(prior, classes)
        self.register_buffer("prior", prior)
        self.register_buffer("labels", torch.zeros(num_samples, classes))
        self.register_buffer("replaced", torch.zeros(num_samples, dtype=torch.bool))
        self.register_buffer("history", torch.zeros(window, num_samples, classes))
        self.register_buffer("noted", torch.zeros(window, num_samples, dtype=torch.bool))
        self.register_buffer("epoch", torch.tensor(0))

    def forward(  # type: ignore[override]
        self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None, *, ids: Integer[Tensor, "batch"]
    ) -> Tensor:
        rows = self._rows(logits, labels, sample_weight, ids)
        found = self.call(rows.logits, rows.probabilities, sample_weight=rows.weight)
        return found.reshape(rows.shape) if self.reduction == "none" else found

    def terms(self, logits: Tensor, labels: Tensor, *, ids: Integer[Tensor, "batch"]) -> list[Term]:
        """The mean over this process's samples, and the divergence, which is of all processes' samples."""
        rows = self._rows(logits, labels, None, ids)
        losses, divergence = _summands(rows, self.alpha, self.beta, self.prior, self.across_processes)
        if not self.across_processes:
            return [Term(rows.reduce(losses + divergence, self.reduction), mean_over(self))]
        if self.reduction == "mean":
            return [Term(rows.reduce(losses, "mean"), "labels"), Term(divergence, "processes")]
        samples = _samples(rows)
        if wants_gradient(logits):
            samples = distributed.sum_over_processes(samples)
        return [Term(rows.reduce(losses, self.reduction), "nothing"), Term(samples * divergence, "step")]

    def _rows(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None, ids: Tensor) -> Rows:
        """The batch, with the labels of the table where it has some."""
        rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=self.ignore_index)
        ids = check_ids(ids, len(rows.logits), len(self.replaced))
        target = torch.where(self.replaced[ids, None], self.labels[ids].to(rows.logits.dtype), rows.targets())
        return rows._replace(labels=None, probabilities=target)

    @torch.no_grad()
    def record(self, ids: Integer[Tensor, "ids"], logits: Float[Tensor, "batch classes"]) -> None:
        """Note this epoch's predictions of these samples."""
        slot = int(self.epoch) % self.window
        ids = check_ids(ids, len(logits), len(self.replaced))
        self.history[slot, ids] = torch.softmax(logits.float(), dim=-1).to(self.history.dtype)
        self.noted[slot, ids] = True

    @torch.no_grad()
    def end_epoch(self, *, update: bool = True) -> None:
        """Close the epoch's slot and, with `update`, replace the labels of all samples that have predictions."""
        slot = int(self.epoch) % self.window
        if distributed.several():
            seen = distributed.sum_over_processes(self.noted[slot].to(self.history.dtype))
            own = self.history[slot] * self.noted[slot, :, None]
            total = distributed.sum_over_processes(own)
            self.history[slot] = total / seen.clamp_min(1.0).unsqueeze(-1)
            self.noted[slot] = seen > 0
        if update:
            counts = self.noted.sum(0).unsqueeze(-1)
            mean = (self.history * self.noted.unsqueeze(-1)).sum(0) / counts.clamp_min(1)
            if self.hard:
                mean = nn.functional.one_hot(mean.argmax(-1), mean.shape[-1]).to(mean.dtype)
            known = counts.squeeze(-1) > 0
            self.labels.copy_(torch.where(known.unsqueeze(-1), mean, self.labels))
            self.replaced.logical_or_(known)
        self.epoch.add_(1)
        self.noted[int(self.epoch) % self.window] = False


def _samples(rows: Rows) -> Float[Tensor, ""]:
    """How many samples count."""
    return rows.logits.new_tensor(len(rows.logits)) if rows.weight is None else rows.weight.sum()


def _check_prior(prior: Tensor, classes: int) -> None:
    check_floating(prior, "prior")
    slack = sum_slack(prior)
    sum_is_off = seen_outside(prior.sum(), 1 - slack, 1 + slack) is not None
    if prior.shape != (classes,) or sum_is_off or seen_outside(prior, 0) is not None:
        raise ValueError(f"prior must be {classes} probabilities that sum to 1; got {prior!s:.60}")


def _prior_divergence(rows: Rows, log_p: Tensor, prior: Tensor | None, synchronised: bool) -> Float[Tensor, ""]:
    """KL from the batch's mean prediction to the prior."""
    classes = log_p.shape[-1]
    uniform = torch.full((classes,), 1 / classes, dtype=log_p.dtype, device=log_p.device)
    prior = uniform if prior is None else prior.to(log_p.dtype)
    weight = torch.ones_like(log_p[:, 0]) if rows.weight is None else rows.weight
    counted = torch.where(weight.unsqueeze(-1) == 0, -math.inf, log_p)
    # Each class's sum is measured by its own size: one that no sample believes in would underflow, and with it the
    # pull back to that class, which this term is for.
    log_size = counted.detach().logsumexp(0)
    if synchronised:
        log_size = distributed.log_sum_over_processes(log_size)
    log_size = torch.where(log_size == -math.inf, 0.0, log_size)
    total, count = ((counted - log_size).exp() * weight.unsqueeze(-1)).sum(0), weight.sum()
    if synchronised:
        total = distributed.mean_over_processes(total)
        count = distributed.mean_over_processes(count)
    mean = (total / torch.where(count == 0, 1.0, count)).clamp_min(torch.finfo(log_p.dtype).tiny)
    found: Tensor = (torch.special.xlogy(prior, prior) - prior * (mean.log() + log_size)).sum()
    return found
