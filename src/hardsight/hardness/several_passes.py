"""Scores of several passes through a model: gradients at several checkpoints, predictions on augmented copies.

Variance of gradients (VoG) measures how much the gradient in the input changes between checkpoints; local sensitivity
(Zhang et al., "ALLSH: Active Learning Guided by Local Sensitivity and Hardness", 2022) how far a prediction moves when
the input is augmented, and needs no label. A recorder sees one forward pass, so it gives neither.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from hardsight.geometry import widen
from hardsight.hardness.registry import register


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no gradients; afterwards each module trains or not as before."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


class GradientVariance:
    """Collects input gradients checkpoint by checkpoint, in twice the memory of the inputs.

    Call `update` with the same inputs at every checkpoint (the end of an epoch, say), then `scores`.
    """

    def __init__(self) -> None:
        self.checkpoints = 0
        self._mean: Tensor | None = None
        self._moments: Tensor | None = None

    def update(self, gradients: Float[Tensor, "samples *input"]) -> None:
        """Add the gradients of one checkpoint, in the order of the samples."""
        # The square of a small half-precision gradient is 0.
        gradients = widen(gradients.detach())
        if self._mean is None or self._moments is None:
            self._mean, self._moments = torch.zeros_like(gradients), torch.zeros_like(gradients)
        if gradients.shape != self._mean.shape:
            raise ValueError(
                f"gradients must have the shape of the first checkpoint's, {list(self._mean.shape)}; "
                f"got {list(gradients.shape)}"
            )
        self.checkpoints += 1
        ahead = gradients - self._mean
        self._mean += ahead / self.checkpoints
        self._moments += ahead * (gradients - self._mean)

    def scores(self, labels: Integer[Tensor, "samples"] | None = None) -> Float[Tensor, "samples"]:
        """Standard deviation over the checkpoints, averaged over an input's entries. Not negative; larger is harder.

        With labels, standardised within each class (mean 0, standard deviation 1), as the source does: then it may be
        negative, and a class of one sample, or of equal ones, gets 0.
        """
        if self._moments is None or self.checkpoints < 2:
            raise ValueError(f"gradients must have come from at least 2 checkpoints; got {self.checkpoints}")
        spread = (self._moments / self.checkpoints).sqrt().flatten(1).mean(1)
        if labels is None:
            return spread
        result, labels = torch.zeros_like(spread), labels.long()
        for label in labels.unique().tolist():
            members = labels == label
            deviation = spread[members].std(correction=0)
            if deviation > 0:
                result[members] = (spread[members] - spread[members].mean()) / deviation
        return result


def input_gradients(
    model: Callable[[Tensor], Tensor], inputs: Float[Tensor, "samples *input"], labels: Integer[Tensor, "samples"]
) -> Float[Tensor, "samples *input"]:
    """Gradient of the labelled class's logit in the input, for each sample by itself; parameters get none.

    The model must treat samples apart from each other: put it in evaluation mode if it normalises over the batch.
    """
    watched = inputs.detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = model(watched)
        # Samples do not touch each other, so the sum's gradient holds each sample's own.
        chosen = logits.gather(1, labels.long().unsqueeze(1)).sum()
        (gradients,) = torch.autograd.grad(chosen, watched)
    return gradients


@register(
    "vog", "Variance of gradients", source="Agarwal et al. 2022", larger_is_harder=True, low=-math.inf,
    tags=["depends on the whole set"],
)  # fmt: skip
def variance_of_gradients(
    model: nn.Module, checkpoints: Iterable[Mapping[str, Tensor]], inputs: Float[Tensor, "samples *input"],
    labels: Integer[Tensor, "samples"], *, within_class: bool = True,
) -> Float[Tensor, "samples"]:  # fmt: skip
    """VoG (Agarwal et al. 2022) over state dictionaries of one model, whose own weights stay. Larger is harder."""
    gathered = GradientVariance()
    with evaluating(model):
        for state in checkpoints:
            one = functools.partial(torch.func.functional_call, model, dict(state), strict=True)
            gathered.update(input_gradients(one, inputs, labels))
    return gathered.scores(labels if within_class else None)


@register(
    "allsh", "Local sensitivity to augmentation (nats)", source="Zhang et al. 2022 (ALLSH)", larger_is_harder=True
)
def local_sensitivity(
    logits: Float[Tensor, "samples classes"], augmented: Float[Tensor, "copies samples classes"]
) -> Float[Tensor, "samples"]:
    """Mean KL divergence (nats) of the predictions on augmented copies from that on the sample.

    KL(p || q) = sum_k p_k log(p_k / q_k), p on the sample, q on a copy. Not negative; larger is harder; 0 where no copy
    moves the prediction, and unchanged by adding a number to all logits of a forward pass.
    """
    if len(augmented) == 0:
        raise ValueError("augmented must hold at least one copy of every sample; got none")
    own = logits.double().log_softmax(1)
    divergences = torch.stack([_divergence(own, copy.double().log_softmax(1)) for copy in augmented])
    return divergences.mean(0).to(torch.promote_types(logits.dtype, torch.float32))


def _divergence(own: Float[Tensor, "samples classes"], other: Float[Tensor, "samples classes"]) -> Tensor:
    """KL from log probabilities as the sum of p (q/p - 1 - log q/p), to which q - p adds nothing.

    No term is negative, so nothing cancels: of a sure prediction p log(p/q) alone would leave rounding only.
    """
    weight, ratio = own.exp(), other - own
    terms = torch.where(ratio < 1, weight * (torch.expm1(ratio) - ratio), other.exp() - weight * (1 + ratio))
    return torch.where(weight > 0, terms, other.exp()).sum(1)
