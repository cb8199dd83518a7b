"""Variance of gradients (VoG): how much the picture of what matters in an input changes from checkpoint to checkpoint.

It needs the inputs' gradients, a backward pass a checkpoint, and so is no part of the recorder.
"""

from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from hardsight.geometry import widen


class GradientVariance:
    """Gathers input gradients checkpoint by checkpoint; memory is twice the inputs', whatever their number.

    Call `update` with the same inputs at every checkpoint (the end of an epoch, say), then `scores`.
    """

    def __init__(self) -> None:
        self.checkpoints = 0
        self._mean: Tensor | None = None
        self._moments: Tensor | None = None

    def update(self, gradients: Float[Tensor, "samples *input"]) -> None:
        """Take in the gradients of one checkpoint, in the order of the samples."""
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
    model: nn.Module, inputs: Float[Tensor, "samples *input"], labels: Integer[Tensor, "samples"]
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


def variance_of_gradients(
    model: nn.Module,
    checkpoints: Iterable[Mapping[str, Tensor]],
    inputs: Float[Tensor, "samples *input"],
    labels: Integer[Tensor, "samples"],
    *,
    within_class: bool = True,
) -> Float[Tensor, "samples"]:
    """VoG (Agarwal et al. 2022) over state dictionaries of one model. Larger is harder.

    The model's own weights and mode are put back afterwards.
    """
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    training = model.training
    gathered = GradientVariance()
    try:
        model.eval()
        for state in checkpoints:
            model.load_state_dict(state)
            gathered.update(input_gradients(model, inputs, labels))
    finally:
        model.load_state_dict(before)
        model.train(training)
    return gathered.scores(labels if within_class else None)
