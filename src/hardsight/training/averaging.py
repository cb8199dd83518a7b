"""An exponential moving average of the weights: what is evaluated where a paper evaluates the average."""

import copy

import torch
from torch import Tensor, nn


class WeightAverage:
    """A copy of the model whose parameters follow: average = decay x average + (1 - decay) x weights, each step.

    Buffers (running statistics) are copied, not averaged: they are averages already.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay must lie in [0, 1), the share of the average that a step keeps; got {decay!r}")
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False)
        self._averages: list[Tensor] = list(self.model.parameters())
        self._weights: list[Tensor] = list(model.parameters())
        self._copies, self._buffers = list(self.model.buffers()), list(model.buffers())

    @torch.no_grad()
    def update(self) -> None:
        """Take one step towards the weights."""
        torch._foreach_lerp_(self._averages, self._weights, 1 - self.decay)
        for kept, buffer in zip(self._copies, self._buffers, strict=True):
            kept.copy_(buffer)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.model.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.model.load_state_dict(state)
