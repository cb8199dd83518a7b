"""The loss of the retraining: any loss on logits, under hard or soft pseudo-labels, with CRST's divergence."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hardsight.geometry import widen


class PseudoLabelLoss(nn.Module):
    """`loss(logits, labels)`, where rows of target samples may have soft labels, plus MRKLD on those rows.

    Ids below `first_target` are source samples; id `first_target + i` is row i of the target. `divergence_weight`
    times -mean_c log p_c, the divergence from the uniform distribution up to a constant, is added for each target
    row (Zou et al. 2019, MRKLD); like the loss itself it is averaged over the batch. Soft labels are one table on the
    device, written in place, so that a captured step reads new ones.
    """

    soft: Tensor | None

    def __init__(
        self,
        loss: Callable[..., Tensor] | None = None,
        *,
        first_target: int,
        soft_rows: tuple[int, int] | None = None,
        divergence_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss() if loss is None else loss
        self.first_target, self.divergence_weight = first_target, divergence_weight
        self.register_buffer("soft", None if soft_rows is None else torch.zeros(soft_rows), persistent=False)

    def set_soft(self, soft: Float[Tensor, "targets classes"]) -> None:
        """Label the target's rows by these shares from now on."""
        assert self.soft is not None
        self.soft.copy_(soft)

    def forward(
        self, logits: Float[Tensor, "batch classes"], labels: Int[Tensor, "batch"], ids: Int[Tensor, "batch"]
    ) -> Float[Tensor, ""]:
        total = self.loss(logits, labels if self.soft is None else self._shares(logits, labels, ids))
        if self.divergence_weight:
            divergence = -widen(logits).log_softmax(1).mean(1)
            total = total + self.divergence_weight * torch.where(ids >= self.first_target, divergence, 0.0).mean()
        return total

    def _shares(self, logits: Tensor, labels: Tensor, ids: Tensor) -> Tensor:
        assert self.soft is not None
        hard = nn.functional.one_hot(labels, logits.shape[1]).to(self.soft.dtype)
        rows = self.soft[(ids - self.first_target).clamp(min=0)]
        shares = torch.where((ids >= self.first_target).unsqueeze(1), rows, hard)
        return shares.to(widen(logits).dtype)
