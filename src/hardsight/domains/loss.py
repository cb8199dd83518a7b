"""The loss of the retraining: any loss on logits, under hard or soft pseudo-labels, with CRST's divergence."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hardsight.geometry import widen
from hardsight.losses.inputs import reduce
from hardsight.losses.terms import Term, label_count, mean_over, value_of, value_over
from hardsight.training.feed import IGNORED


class PseudoLabelLoss(nn.Module):
    """`loss(logits, labels)`, where rows of target samples may have soft labels, plus MRKLD on those rows.

    Ids below `first_target` are source samples; id `first_target + i` is row i of the target. `divergence_weight`
    times -mean_c log p_c, the divergence from the uniform distribution up to a constant, is added for each target
    row (Zou et al. 2019, MRKLD); it is averaged over the samples of the batch that have a label. Soft labels are one
    table on the device, written in place, so that a captured step reads new ones.
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
        loss, *divergence = self.terms(logits, labels, ids)
        return loss.value + divergence[0].value if divergence else loss.value

    def terms(
        self, logits: Float[Tensor, "batch classes"], labels: Int[Tensor, "batch"], ids: Int[Tensor, "batch"]
    ) -> list[Term]:
        """The loss and the divergence: the one may be normalised over all processes, the other is not."""
        overs, target = (mean_over(self.loss), value_over(self.loss)), labels
        if self.soft is not None:
            # Soft labels count one each, whatever their class.
            over, of_value = ("samples" if over == "labels" else over for over in overs)
            overs, target = (over, of_value), self._shares(logits, labels, ids)
        terms = [Term(value_of(self.loss, logits, target), *overs)]
        if self.divergence_weight:
            divergence = torch.where(ids >= self.first_target, -widen(logits).log_softmax(1).mean(1), 0.0)
            mean = reduce(divergence, "mean", weight=(labels != IGNORED).to(divergence.dtype))
            terms.append(Term(self.divergence_weight * mean, "samples"))
        return terms

    def label_count(self, labels: Int[Tensor, "batch"]) -> Float[Tensor, ""]:
        """By what the mean of the loss divides."""
        return label_count(self.loss, labels)

    def _shares(self, logits: Tensor, labels: Tensor, ids: Tensor) -> Tensor:
        assert self.soft is not None
        hard = nn.functional.one_hot(labels, logits.shape[1]).to(self.soft.dtype)
        rows = self.soft[(ids - self.first_target).clamp(min=0)]
        shares = torch.where((ids >= self.first_target).unsqueeze(1), rows, hard)
        return shares.to(widen(logits).dtype)
