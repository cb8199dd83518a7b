"""What a trained network says of a set: one pass, and everything that scores and features are made from."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hardsight.datasets.epochs import Batch
from hardsight.hardness import score
from hardsight.heads import evaluating, observe


class Outputs(NamedTuple):
    """Everything of one pass over some images; float32, on the network's device."""

    ids: Tensor
    labels: Tensor
    features: Tensor
    logits: Tensor
    weight: Tensor
    bias: Tensor | None

    def scores(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Scores in double precision: a confidence near 1 must not tie with its neighbours."""
        bias = None if self.bias is None else self.bias.double()
        return score(self.features.double(), self.weight.double(), self.labels, bias, tuple(names))


def outputs_of(model: nn.Module, batches: Iterable[Batch]) -> Outputs:
    """Pass these images through the network, in evaluation mode, and keep what goes into its head and comes out."""
    parts = []
    with evaluating(model), observe(model) as seen:
        for images, labels, ids in batches:
            model(images)
            parts.append((ids, labels, seen.features.float(), seen.logits.float()))
        ids, labels, features, logits = (torch.cat(part) for part in zip(*parts, strict=True))
        bias = None if seen.bias is None else seen.bias.detach()
        return Outputs(ids, labels, features, logits, seen.weight.detach(), bias)
