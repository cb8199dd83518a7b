"""What the rescaled losses share: the weight of a row, from two numbers of it, and what its gradient is divided by.

Arithmetic on [rows] numbers in plain PyTorch; `fused.rescaling` is the same in kernels.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.kernels.inputs import check_choice, check_number

Transform = str | Callable[[Tensor], Tensor]
REDUCTIONS = ("weight", "mean", "sum")


class RowStatistics(NamedTuple):
    """What gradient rescaling needs of a row of logits; "others" are all classes but the labelled one. float32."""

    label_logit: Float[Tensor, "rows"]
    log_others: Float[Tensor, "rows"]  # log-sum-exp of the other classes' logits

    @property
    def log_total(self) -> Float[Tensor, "rows"]:
        return torch.logaddexp(self.label_logit, self.log_others)

    @property
    def log_p(self) -> Float[Tensor, "rows"]:
        """log p_y, as -log(1 + exp(others - label)): exact where p_y rounds to 1."""
        return -torch.nn.functional.softplus(self.log_others - self.label_logit, threshold=80.0)

    @property
    def log_rest(self) -> Float[Tensor, "rows"]:
        """log (1 - p_y), exact where p_y rounds to 1."""
        return -torch.nn.functional.softplus(self.label_logit - self.log_others, threshold=80.0)


def log_weights(rows: RowStatistics, beta: float, lam: float, transform: Transform) -> Float[Tensor, "rows"]:
    """log g(beta p^lam (1 - p)) of every row."""
    log_power = rows.log_rest if lam == 0 else lam * rows.log_p + rows.log_rest
    if transform == "identity":
        return log_power + log_or_nothing(beta)
    argument = beta * log_power.exp()
    if isinstance(transform, str):
        return argument
    return transform(argument).log()


def held(rows: RowStatistics, epsilon: float) -> Float[Tensor, "rows"]:
    """2 (1 - p) / (2 (1 - p) + epsilon) of every row: what is left of the gradient of a fitted sample."""
    if epsilon == 0:
        return torch.ones_like(rows.log_others)
    return torch.sigmoid(rows.log_rest + math.log(2 / epsilon))


def log_of_divisor(log_w: Tensor, weight: Tensor, reduction: str, normaliser: Tensor | float | None) -> Tensor:
    """The log of what the gradient is divided by."""
    if reduction == "weight":
        return log_w.logsumexp(0) if normaliser is None else torch.as_tensor(normaliser).to(log_w).log()
    total = weight.sum()
    return total.log() if reduction == "mean" else torch.zeros_like(total)


def given_normaliser(
    normaliser: Tensor | float | None, device: torch.device
) -> tuple[Tensor, None] | tuple[None, float | None]:
    """A divisor that came as a tensor, on the device; or the log of one that came as a number."""
    if isinstance(normaliser, Tensor):
        return normaliser.detach().to(device), None
    return None, None if normaliser is None else log_or_nothing(normaliser)


def log_or_nothing(number: float) -> float:
    """The logarithm, minus infinity at 0."""
    return math.log(number) if number > 0 else -math.inf


def coefficients(log_w: Float[Tensor, "rows"], log_divisor: Float[Tensor, ""]) -> Float[Tensor, "rows"]:
    """w / divisor: 0 where the weight is 0, the largest number where it overflows."""
    ratio = torch.where(log_w == -math.inf, 0.0, (log_w - log_divisor).exp())
    return ratio.clamp(max=torch.finfo(ratio.dtype).max)


def check_rescaling(
    beta: float,
    lam: float,
    epsilon: float,
    transform: Transform,
    reduction: str,
    reductions: Sequence[str] = REDUCTIONS,
) -> None:
    """Refuse what no weight can be made of."""
    check_number("beta", beta)
    check_number("lam", lam)
    check_number("epsilon", epsilon)
    if not callable(transform):
        check_choice("transform", transform, ("exp", "identity"))
    check_choice("reduction", reduction, reductions)
