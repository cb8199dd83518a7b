"""Weights of tokens and documents from scores, and the loss by which a trainer reads them."""

from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardsight.language.columns import REFERENCE, WEIGHT, take_out
from hardsight.language.head import language_head
from hardsight.language.scoring import IGNORED
from hardsight.losses.rescaling import linear_gradient_rescaling
from hardsight.names import check_name
from hardsight.validation import check_share

LOSSES = ("cross_entropy", "gradient_rescaling", "selective")


def weights_by_rank(values: Any, keep: float, *, largest: bool = False) -> np.ndarray:
    """1 for the share `keep` of smallest (or largest) values, 0 for the others; of equal values the first are kept.

    A value that is missing (NaN) is not kept.
    """
    check_share("keep", keep, "the share of rows whose weight is 1")
    numbers = np.asarray(values, dtype=np.float64)
    order = np.argsort(-numbers if largest else numbers, kind="stable")
    weights = np.zeros(len(numbers), dtype=np.float32)
    weights[order[: round(keep * len(numbers))]] = 1.0
    weights[np.isnan(numbers)] = 0.0
    return weights


def weights_by_threshold(values: Any, low: float = -np.inf, high: float = np.inf) -> np.ndarray:
    """1 for values in [low, high], 0 for the others and for missing ones."""
    if not low <= high:
        raise ValueError(f"low must not exceed high; got {low!r} and {high!r}")
    numbers = np.asarray(values, dtype=np.float64)
    return ((numbers >= low) & (numbers <= high)).astype(np.float32)


def weights_by_rescaling(log_probability: Any, *, beta: float = 6.0, lam: float = 0.5) -> np.ndarray:
    """Gradient rescaling's own weights, exp(beta p^lam (1 - p)), divided by their mean (GR, Eq. 6)."""
    p = np.exp(np.asarray(log_probability, dtype=np.float64))
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(
            f"log_probability must lie in [-inf, 0]; got {np.min(log_probability)} to {np.max(log_probability)}"
        )
    logs = beta * p**lam * (1 - p)
    weights = np.exp(logs - logs.max())
    found: np.ndarray = (weights / weights.mean()).astype(np.float32)
    return found


class TokenLoss:
    """A `compute_loss_func` for `Trainer` and `SFTTrainer` that weighs every token by the column `token_weight`.

    "cross_entropy": the weighted mean. "gradient_rescaling": `losses.linear_gradient_rescaling` from the features of
    the head, for which the model makes no logits in training. "selective": cross-entropy on the share `keep` of a
    batch's tokens whose loss exceeds the column `reference_loss` most: those that a reference model shows to be
    learnable (Lin et al. 2024, Rho-1). A batch without the column `token_weight` weighs all tokens by 1. `options` are
    those of gradient rescaling, as `beta` and `lam`.

        loss = TokenLoss(model, "gradient_rescaling", beta=6.0)
        trainer = Trainer(model, ..., compute_loss_func=loss, data_collator=TokenCollator(collator))
    """

    def __init__(self, model: nn.Module, kind: str = "cross_entropy", *, keep: float = 0.6, **options: Any) -> None:
        check_name("kind", kind, LOSSES)
        check_share("keep", keep, "the share of tokens to train on")
        if options and kind != "gradient_rescaling":
            raise ValueError(
                f"options must be given to gradient_rescaling alone; got {', '.join(options)} with {kind!r}"
            )
        self.kind, self.keep, self.options = kind, keep, options
        self.head = language_head(model)
        if kind == "gradient_rescaling" and self.head.cap is not None:
            raise ValueError("model must not cap its logits where gradients are rescaled; got one with a soft cap")
        self._columns: dict[str, Tensor] = {}
        self._features: list[Tensor] = []
        self._hooks = ExitStack()
        self._hooks.callback(take_out(self.head.model, (WEIGHT, REFERENCE), self._columns).remove)
        self._hooks.callback(self.head.linear.register_forward_pre_hook(self._at_head).remove)

    def close(self) -> None:
        """Remove the hooks from the model."""
        self._hooks.close()

    def _at_head(self, module: nn.Module, inputs: tuple[Any, ...]) -> Any:
        # A fused loss of the trainer's own may run the model again for its metrics, without gradients.
        if torch.is_grad_enabled() and self.head.model.training:
            self._features[:] = [inputs[0]]
            if self.kind == "gradient_rescaling":
                return (inputs[0][:1, :1], *inputs[1:])
        return None

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The loss of a batch; `num_items_in_batch`, where given, counts the tokens of all accumulated batches."""
        columns, features = dict(self._columns), list(self._features)
        self._features.clear()
        shift = int(self.head.causal)
        targets = labels[:, shift:]
        there = targets != IGNORED
        tokens = targets[there]
        rows = slice(None, -1 if shift else None)
        weight = (
            columns[WEIGHT][:, shift:][there] if WEIGHT in columns else torch.ones(len(tokens), device=labels.device)
        )
        if self.kind == "gradient_rescaling" and features:
            loss = self._rescaled(features[0][:, rows][there], tokens, weight)
        else:
            losses = nn.functional.cross_entropy(outputs.logits[:, rows][there].float(), tokens, reduction="none")
            if self.kind == "selective":
                if REFERENCE not in columns:
                    raise ValueError(
                        f"batches must carry {REFERENCE}: add it by with_reference_loss, and TokenCollator"
                    )
                excess = losses.detach() - columns[REFERENCE][:, shift:][there]
                weight = weight * most_learnable(excess, self.keep, weight > 0)
            loss = (weight * losses).sum() / weight.sum().clamp(min=torch.finfo(torch.float32).tiny)
        # A mean over the weights of this batch, in its share of the tokens that are accumulated.
        return loss if num_items_in_batch is None else loss * (len(tokens) / num_items_in_batch)

    def _rescaled(self, features: Tensor, tokens: Tensor, weight: Tensor) -> Tensor:
        head, scale = self.head.linear, self.head.scale
        bias = None if head.bias is None else head.bias * scale
        scaled = features if scale == 1.0 else features * scale
        found: Tensor = linear_gradient_rescaling(
            scaled, head.weight, bias, tokens, sample_weight=weight, across_processes=False, **self.options
        )
        return found


def most_learnable(excess: Tensor, keep: float, among: Tensor) -> Tensor:
    """1 for the share `keep` of tokens with the largest excess loss, of those `among` which to choose; 0 for others."""
    chosen = torch.zeros_like(excess)
    count = round(keep * int(among.sum()))
    order = torch.where(among, excess, -torch.inf).argsort(descending=True, stable=True)
    chosen[order[:count]] = 1.0
    return chosen
