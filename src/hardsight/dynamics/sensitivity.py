"""Local sensitivity (ALLSH): how far a prediction moves when the input is augmented. It needs several looks.

Zhang et al., "ALLSH: Active Learning Guided by Local Sensitivity and Hardness", 2022. No label is needed.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight.heads import evaluating


def local_sensitivity(
    logits: Float[Tensor, "samples classes"],
    augmented: Float[Tensor, "copies samples classes"],
    *,
    worst: bool = False,
) -> Float[Tensor, "samples"]:
    """KL divergence (nats) of the predictions on augmented copies from that on the sample: their mean, or the `worst`.

    KL(p || q) = sum_k p_k log(p_k / q_k), p on the sample, q on a copy. Not negative; larger is harder; 0 where no copy
    moves the prediction, and unchanged by adding a number to all logits of a look.
    """
    if len(augmented) == 0:
        raise ValueError("augmented must hold at least one copy of every sample; got none")
    own = logits.double().log_softmax(1)
    divergences = torch.stack([_divergence(own, copy.double().log_softmax(1)) for copy in augmented])
    answer = divergences.amax(0) if worst else divergences.mean(0)
    return answer.to(torch.promote_types(logits.dtype, torch.float32))


def _divergence(own: Float[Tensor, "samples classes"], other: Float[Tensor, "samples classes"]) -> Tensor:
    """KL from log probabilities as the sum of p (q/p - 1 - log q/p), to which q - p adds nothing.

    No term is negative, so nothing cancels: of a sure prediction p log(p/q) alone would leave rounding only.
    """
    weight, ratio = own.exp(), other - own
    terms = torch.where(ratio < 1, weight * (torch.expm1(ratio) - ratio), other.exp() - weight * (1 + ratio))
    return torch.where(weight > 0, terms, other.exp()).sum(1)


def sensitivity_to(
    model: nn.Module,
    inputs: Float[Tensor, "samples *input"],
    augment: Callable[[Tensor, torch.Generator], Tensor],
    *,
    copies: int = 4,
    worst: bool = False,
    generator: torch.Generator,
) -> Float[Tensor, "samples"]:
    """`local_sensitivity` of a model, in evaluation mode, under `copies` draws of `augment(inputs, generator)`."""
    if copies < 1:
        raise ValueError(f"copies must be at least 1, the augmented looks at every sample; got {copies!r}")
    with evaluating(model):
        logits = model(inputs)
        augmented = torch.stack([model(augment(inputs, generator)) for _ in range(copies)])
    return local_sensitivity(logits, augmented, worst=worst)
