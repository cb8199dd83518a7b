"""Truncated generalised cross-entropy, which drops the samples it believes in too little, and its alternating pruning.

Zhang & Sabuncu (2018) alternate: train on the samples kept, then keep those whose loss is at most L_q(k). The labels'
probabilities are small at first, so all samples are kept until the first pruning (the paper: after 40 epochs, then
every 10).
"""

import math
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from hardsight import distributed
from hardsight.losses.inputs import as_rows, check_ids, check_range, check_reduction
from hardsight.losses.registry import register
from hardsight.losses.robust import box_cox, check_q


def truncated_gce_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    q: float = 0.7,
    k: float = 0.5,
    kept: Bool[Tensor, "..."] | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """(1 - p^q) / q where p > k, the constant (1 - k^q) / q elsewhere (GR, Eq. 5). In [0, 1/q].

    With `kept`, a flag a sample, the flag decides instead of p > k: the other half of the alternation.
    """
    check_q(q)
    check_range(k, "k", 0.0, 1.0, open_low=True)
    rows = as_rows(logits, labels, sample_weight=sample_weight, ignore_index=ignore_index, soft_targets=False)
    log_p = rows.at_label(rows.log_softmax())
    if kept is not None and kept.numel() != len(log_p):
        raise ValueError(f"kept must hold a flag for each of the {len(log_p)} samples; got {kept.numel()}")
    followed = log_p > math.log(k) if kept is None else kept.reshape(-1)
    return rows.reduce(torch.where(followed, box_cox(log_p, q), (1 - k**q) / q), reduction)


class TruncatedGCELoss(nn.Module):
    """`truncated_gce_loss` as a module; with `num_samples`, the alternation over a table of that many samples.

    With the table: forward(logits, labels, ids=ids), and at the end of an epoch that prunes `prune(ids, logits,
    labels)` for every batch, then `end_pruning()`, which brings the processes together. The table is in the state.
    """

    kept: Tensor
    votes: Tensor

    def __init__(
        self,
        q: float = 0.7,
        k: float = 0.5,
        num_samples: int | None = None,
        *,
        reduction: str = "mean",
        ignore_index: int = -100,
        process_group: Any = None,
    ) -> None:
        super().__init__()
        self.q, self.k = check_q(q), check_range(k, "k", 0.0, 1.0, open_low=True)
        self.reduction = check_reduction(reduction)
        self.ignore_index, self.process_group = ignore_index, process_group
        self.has_table = num_samples is not None
        if num_samples is not None:
            self.register_buffer("kept", torch.ones(num_samples, dtype=torch.bool))
            # -1: not looked at since the last pruning ended; 0: drop; 1: keep.
            self.register_buffer("votes", torch.full((num_samples,), -1, dtype=torch.int8))

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        sample_weight: Tensor | None = None,
        *,
        ids: Integer[Tensor, "..."] | None = None,
    ) -> Tensor:
        if self.has_table and ids is None:
            raise ValueError("ids must name the samples when the loss holds a table (num_samples); got None")
        kept = None
        if ids is not None and self.has_table:
            samples = logits.select(min(1, logits.ndim - 1), 0).numel()
            kept = self.kept[check_ids(ids, samples, len(self.kept))]
        return truncated_gce_loss(
            logits,
            labels,
            q=self.q,
            k=self.k,
            kept=kept,
            sample_weight=sample_weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )

    @torch.no_grad()
    def prune(self, ids: Integer[Tensor, "..."], logits: Tensor, labels: Tensor) -> None:
        """Look at these samples again: keep those whose loss is at most L_q(k), which is p >= k.

        Nothing is learnt of a sample whose label is ignored: it stays as it was.
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
        if distributed.world_size(self.process_group) > 1:
            dist.all_reduce(self.votes, op=dist.ReduceOp.MAX, group=self.process_group)
        self.kept.copy_(torch.where(self.votes < 0, self.kept, self.votes == 1))
        self.votes.fill_(-1)
        return self.kept.float().mean()

    def extra_repr(self) -> str:
        return f"q={self.q}, k={self.k}"


register(
    "truncated_gce",
    lambda n: TruncatedGCELoss(),
    "(1 − max(p_y, k)^q)/q",
    "Zhang & Sabuncu, NeurIPS 2018",
    high=(1 - 0.5**0.7) / 0.7,
    soft_targets=False,
)
register(
    "truncated_gce_pruned",
    lambda n: TruncatedGCELoss(num_samples=n.samples),
    "(1 − p_y^q)/q where kept, (1 − k^q)/q elsewhere",
    "Zhang & Sabuncu, NeurIPS 2018, Alg. 1",
    high=1 / 0.7,
    needs_ids=True,
    soft_targets=False,
)
