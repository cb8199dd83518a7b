"""Losses that forgive wrong labels by their shape: MAE, GCE, symmetric cross-entropy, focal loss, bootstrapping.

Truncated GCE (Zhang & Sabuncu, 2018) drops the samples it believes in too little and alternates: train on the samples
kept, then keep those whose loss is at most L_q(k). The labels' probabilities are small at first, so all samples are
kept until the first pruning (the paper: after 40 epochs, then every 10).
"""

import math
from typing import Annotated, Any

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from hardsight import distributed
from hardsight.losses.inputs import Rows, as_rows, bounded, check_ids
from hardsight.losses.registry import (
    LossModule,
    NotNegative,
    PositiveShare,
    Share,
    checked,
    loss,
    module_of,
    registered,
)


def _check_log_of_zero(value: float, name: str) -> None:
    if not -math.inf < value < 0:
        raise ValueError(f"{name} must be negative and finite, it replaces log 0; got {value!r}")


LogOfZero = Annotated[float, _check_log_of_zero]


@loss("mae", "MAELoss", "2(1 − p_y)", "Ghosh et al., AAAI 2017", high=2.0)
def mae_loss(rows: Rows) -> Float[Tensor, "rows"]:
    """L1 distance between softmax and target (Ghosh et al., 2017): 2 (1 - p_y) for a class index. In [0, 2]."""
    log_p = rows.log_softmax()
    if rows.probabilities is None:
        return -2 * torch.expm1(rows.at_label(log_p))
    return (log_p.exp() - rows.probabilities).abs().sum(-1)


_GCE = "Zhang & Sabuncu, NeurIPS 2018"


@loss("gce", "GCELoss", "(1 − p_y^q)/q", _GCE, high=1 / 0.7)
def gce_loss(rows: Rows, *, q: PositiveShare = 0.7) -> Float[Tensor, "rows"]:
    """Generalised cross-entropy (1 - p_y^q) / q (Zhang & Sabuncu, 2018). In [0, 1/q]; q = 1 is MAE / 2, q -> 0 CE."""
    return rows.expected(rows.log_softmax(), lambda log_p: box_cox(log_p, q))


@loss(
    "symmetric_cross_entropy",
    "SymmetricCrossEntropy",
    "−α log p_y − β A (1 − p_y), A = log 0",
    "Wang et al., ICCV 2019",
)
def symmetric_cross_entropy(
    rows: Rows, *, alpha: NotNegative = 0.1, beta: NotNegative = 1.0, log_zero: LogOfZero = -4.0
) -> Float[Tensor, "rows"]:
    """alpha CE(y, p) + beta CE(p, y), with log 0 replaced by `log_zero` (SL; Wang et al., 2019).

    For a class index the second term is -log_zero (1 - p_y): MAE times -log_zero / 2. Defaults: the paper's for
    CIFAR-10; it uses alpha = 6, beta = 0.1 for CIFAR-100.
    """
    log_p = rows.log_softmax()
    if rows.probabilities is None:
        reverse = log_zero * torch.expm1(rows.at_label(log_p))
    else:
        reverse = -(log_p.exp() * rows.probabilities.log().clamp_min(log_zero)).sum(-1)
    return -alpha * rows.expected(log_p) + beta * reverse


@loss("focal", "FocalLoss", "−(1 − p_y)^γ log p_y", "Lin et al., ICCV 2017")
def focal_loss(rows: Rows, *, gamma: NotNegative = 2.0) -> Float[Tensor, "rows"]:
    """-(1 - p_y)^gamma log p_y (Lin et al., 2017): cross-entropy that dwells on hard samples; gamma = 0 is CE."""
    if gamma == 0:
        return -rows.expected(rows.log_softmax())
    # From log(1 - p): a power of 1 - p itself has an infinite slope at p = 1 when gamma < 1.
    if rows.labels is None:
        log_p = rows.log_softmax()
        return -rows.expected((gamma * log_one_minus(log_p)).exp() * _at_least_finite(log_p))
    # Both logarithms from the log-odds: log(1 - p) by way of the softmax has as gradient a difference of nearly equal
    # shares, which a log p of many thousands lifts out of the rounding.
    shifted = rows.logits - rows.logits.detach().amax(-1, keepdim=True)
    # Not minus infinity, or a row whose other classes are all masked out has none that is finite.
    others = shifted.scatter(-1, rows.labels.unsqueeze(-1), torch.finfo(shifted.dtype).min)
    log_odds = _at_least_finite(rows.at_label(shifted) - others.logsumexp(-1))
    log_rest, log_p = nn.functional.logsigmoid(-log_odds), nn.functional.logsigmoid(log_odds)
    # So that gamma times it, in the gradient, is a number.
    log_p = bounded(log_p, torch.finfo(log_p.dtype).max * 1e-6)
    return -(gamma * log_rest).exp() * log_p


@loss(
    "bootstrapping_soft", "SoftBootstrapping", "−Σ (β y + (1−β) p) log p", "Reed et al., ICLR-W 2015",
    fixed={"hard": False},
)  # fmt: skip
def bootstrapping_loss(rows: Rows, *, beta: Share = 0.95, hard: bool = False) -> Float[Tensor, "rows"]:
    """Cross-entropy to beta target + (1 - beta) prediction (Reed et al., 2015): softmax, or its argmax when `hard`.

    The paper's beta is 0.95 for soft and 0.8 for hard. The gradient flows through the soft prediction, which makes
    that term the entropy.
    """
    log_p = rows.log_softmax()
    own = -log_p.amax(-1) if hard else entropy(log_p)
    return -beta * rows.expected(log_p) + (1 - beta) * own


MAELoss = mae_loss.module
GCELoss = gce_loss.module
SymmetricCrossEntropy = symmetric_cross_entropy.module
FocalLoss = focal_loss.module
SoftBootstrapping = bootstrapping_loss.module
HardBootstrapping = registered("bootstrapping_hard", "−β log p_y − (1−β) log max p", "Reed et al., ICLR-W 2015")(
    module_of(bootstrapping_loss, "HardBootstrapping", {"hard": True}, beta=0.8)
)


def _at_least_finite(log_p: Tensor) -> Tensor:
    """Of a class that was masked out the smallest number: times 0, minus infinity would spoil the gradient."""
    return log_p.clamp_min(torch.finfo(log_p.dtype).min)


def box_cox(log_p: Tensor, q: float) -> Tensor:
    """(1 - p^q) / q from log p, exact near p = 1."""
    return -torch.expm1(q * log_p) / q


def log_one_minus(log_p: Float[Tensor, "rows classes"]) -> Float[Tensor, "rows classes"]:
    """log(1 - p) of each class, from the other classes' probabilities where p is near 1."""
    # Up to p = 1/2 the direct form is exact; above it, where one class at most can be, 1 - p is the others' sum.
    top = log_p.argmax(-1, keepdim=True)
    others = log_p.scatter(-1, top, -math.inf).logsumexp(-1, keepdim=True)
    direct = torch.log1p(-log_p.scatter(-1, top, -math.inf).exp())
    return direct.scatter(-1, top, others)


def entropy(log_p: Float[Tensor, "rows classes"]) -> Float[Tensor, "rows"]:
    """Entropy of each row in nats, from log probabilities; a class that was masked out counts 0."""
    return -(log_p.exp() * _at_least_finite(log_p)).sum(-1)


@checked
def truncated_gce_loss(
    logits: Tensor, labels: Tensor, *, q: PositiveShare = 0.7, k: PositiveShare = 0.5,
    kept: Bool[Tensor, "..."] | None = None, sample_weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:  # fmt: skip
    """(1 - p^q) / q where p > k, the constant (1 - k^q) / q elsewhere (GR, Eq. 5). In [0, 1/q].

    With `kept`, a flag a sample, the flag decides instead of p > k: the other half of the alternation.
    """
    rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=ignore_index, soft_targets=False)
    log_p = rows.at_label(rows.log_softmax())
    if kept is not None and kept.numel() != len(log_p):
        raise ValueError(f"kept must hold a flag for each of the {len(log_p)} samples; got {kept.numel()}")
    followed = log_p > math.log(k) if kept is None else kept.reshape(-1)
    return rows.reduce(torch.where(followed, box_cox(log_p, q), (1 - k**q) / q), reduction)


@registered(
    "truncated_gce_pruned", "(1 − p_y^q)/q where kept, (1 − k^q)/q elsewhere", f"{_GCE}, Alg. 1",
    options=lambda sizes: {"num_samples": sizes.samples}, high=1 / 0.7, soft_targets=False,
)  # fmt: skip
@registered(
    "truncated_gce", "(1 − max(p_y, k)^q)/q", _GCE,
    high=(1 - 0.5**0.7) / 0.7, needs_ids=False, soft_targets=False,
)  # fmt: skip
class TruncatedGCELoss(LossModule, of=truncated_gce_loss):
    """`truncated_gce_loss` as a module; with `num_samples`, the alternation over a table of that many samples.

    With the table: forward(logits, labels, ids=ids), and at the end of an epoch that prunes `prune(ids, logits,
    labels)` for every batch, then `end_pruning()`, which brings the processes together. The table is in the state.
    """

    def __init__(self, q: float = 0.7, k: float = 0.5, num_samples: int | None = None, **settings: Any) -> None:
        super().__init__(q, k, **settings)
        self.has_table = num_samples is not None
        if num_samples is not None:
            self.register_buffer("kept", torch.ones(num_samples, dtype=torch.bool))
            # -1: not looked at since the last pruning ended; 0: drop; 1: keep.
            self.register_buffer("votes", torch.full((num_samples,), -1, dtype=torch.int8))

    def forward(
        self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None, *,
        ids: Integer[Tensor, "..."] | None = None,
    ) -> Tensor:  # fmt: skip
        kept = None
        if self.has_table:
            if ids is None:
                raise ValueError("ids must name the samples when the loss holds a table (num_samples); got None")
            samples = logits.select(min(1, logits.ndim - 1), 0).numel()
            kept = self.kept[check_ids(ids, samples, len(self.kept))]
        return self.call(logits, labels, kept=kept, sample_weight=sample_weight)

    @torch.no_grad()
    def prune(self, ids: Integer[Tensor, "..."], logits: Tensor, labels: Tensor) -> None:
        """Look at these samples again: keep those whose loss is at most L_q(k), which is p >= k.

        A sample whose label is ignored stays as it was.
        """
        if not self.has_table:
            raise ValueError("num_samples must be given to keep a table of the samples; got None")
        rows = as_rows(logits, labels, ignore_index=self.ignore_index, soft_targets=False)
        assert rows.weight is not None
        believed = rows.at_label(rows.log_softmax()) >= math.log(self.k)
        ids = check_ids(ids, len(believed), len(self.votes))
        self.votes[ids] = torch.where(rows.weight == 0, self.votes[ids], believed.to(torch.int8))

    @torch.no_grad()
    def end_pruning(self) -> Float[Tensor, ""]:
        """Make the last looks count, those of all processes; returns the share of samples kept."""
        if distributed.several():
            dist.all_reduce(self.votes, op=dist.ReduceOp.MAX)
        self.kept.copy_(torch.where(self.votes < 0, self.kept, self.votes == 1))
        self.votes.fill_(-1)
        share: Tensor = self.kept.float().mean()
        return share
