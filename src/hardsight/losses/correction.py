"""Loss correction by a noise transition matrix T, T[i, j] = probability that class i is labelled j.

Forward and Backward (Patrini et al., 2017) take the matrix as known or estimated; the S-adaptation layer
(Goldberger & Ben-Reuven, 2017) learns it with the network. `transition_from_predictions` and
`transition_from_labels` estimate the matrix. At test time the network is used without them.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hardsight.geometry import full_precision
from hardsight.losses.inputs import Rows, bounded, check_floating, check_labels, check_range, sum_slack
from hardsight.losses.registry import LossModule, Sizes, on_rows, registered


@on_rows
def forward_correction_loss(rows: Rows, transition: Float[Tensor, "classes classes"]) -> Float[Tensor, "rows"]:
    """Cross-entropy of the noisy class's probability, -log (p T)_y. At least 0; T = identity is CE."""
    check_transition(transition)
    _check_classes(rows, transition)
    transition = transition.to(rows.logits.dtype)
    possible = transition > 0
    logs = torch.where(possible, torch.where(possible, transition, 1.0).log(), -math.inf)
    # Minus infinity where T is 0, except in a column of zeros: a label that cannot be has a finite loss too.
    return _forward(rows, torch.where(possible.any(0), logs, math.log(torch.finfo(transition.dtype).tiny)))


def _backward(rows: Rows, inverse: Float[Tensor, "classes classes"]) -> Float[Tensor, "rows"]:
    """Backward correction by the inverse of the matrix."""
    _check_classes(rows, inverse)
    inverse = inverse.to(rows.logits.dtype)
    if rows.probabilities is None:
        coefficients = inverse[rows.labels]
    else:
        with full_precision(inverse):
            coefficients = rows.probabilities @ inverse
    # Coefficients of both signs: of infinities there would be no sum.
    log_p = bounded(rows.log_softmax(), torch.finfo(rows.logits.dtype).max * 1e-6)
    return -(coefficients * log_p).sum(-1)


@on_rows
def backward_correction_loss(rows: Rows, transition: Float[Tensor, "classes classes"]) -> Float[Tensor, "rows"]:
    """Sum over j of T^-1[y, j] (-log p_j): its mean over noisy labels is the clean cross-entropy.

    Unbounded on both sides: a single sample's loss may be negative. T = identity is CE.
    """
    check_transition(transition)
    return _backward(rows, _inverse(transition))


class _ByMatrix(LossModule):
    def __init__(self, transition: Tensor, **settings: Any) -> None:
        check_transition(transition)
        super().__init__(**settings)
        self.register_buffer("transition", transition.detach().clone())


def _symmetric(sizes: Sizes) -> dict[str, Tensor]:
    return {"transition": noisy_transition(sizes.classes)}


@registered(
    "forward_correction", "−log (pT)_y", "Patrini et al., CVPR 2017", options=_symmetric, class_squares=("transition",)
)
class ForwardCorrection(_ByMatrix, of=forward_correction_loss):
    """`forward_correction_loss` with its matrix, which is saved with the state."""


@registered(
    "backward_correction", "−Σ_j T⁻¹_yj log p_j", "Patrini et al., CVPR 2017",
    options=_symmetric, low=-math.inf, class_squares=("transition", "inverse"),
)  # fmt: skip
class BackwardCorrection(_ByMatrix, of=on_rows(_backward)):
    """`backward_correction_loss` with its matrix and the inverse, saved with the state."""

    def __init__(self, transition: Tensor, **settings: Any) -> None:
        super().__init__(transition, **settings)
        self.register_buffer("inverse", _inverse(self.transition))


def _adapted_loss(rows: Rows, scores: Float[Tensor, "classes classes"]) -> Float[Tensor, "rows"]:
    """Forward correction by the matrix whose rows are softmaxes."""
    _check_classes(rows, scores)
    return _forward(rows, torch.log_softmax(scores.to(rows.logits.dtype), dim=-1))


@registered("s_adaptation", "−log (pT)_y, T learnt", "Goldberger & Ben-Reuven, ICLR 2017", class_squares=("scores",))
class SAdaptation(LossModule, of=on_rows(_adapted_loss)):
    """Forward correction whose matrix is learned: row i of T is the softmax of row i of `scores`.

    It starts at `initial` (an estimate, see `transition_from_predictions`), or at 1 - noise_rate on the diagonal and
    the rest spread evenly; it must not start at random, or classes may be swapped. Give `parameters()` to the
    optimiser.
    """

    def __init__(
        self, classes: int, noise_rate: float = 0.1, *, initial: Tensor | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        check_range(classes, "classes", 2.0)
        if initial is None:
            check_range(noise_rate, "noise_rate", 0.0, 1.0, open_low=True)
            initial = noisy_transition(classes, noise_rate)
        check_transition(initial)
        if len(initial) != classes:
            raise ValueError(f"initial must be a matrix of {classes} classes; got {len(initial)}")
        # A zero would be a score of minus infinity, which nothing could move.
        self.scores = nn.Parameter(initial.detach().clone().clamp_min(1e-6).log())

    @property
    def transition(self) -> Float[Tensor, "classes classes"]:
        return torch.softmax(self.scores, dim=-1)


def check_transition(transition: Tensor) -> None:
    """Raise for what is not a square matrix of probabilities whose rows sum to 1."""
    check_floating(transition, "transition")
    if transition.ndim != 2 or transition.shape[0] != transition.shape[1]:
        raise ValueError(f"transition must be a square matrix; got shape {list(transition.shape)}")
    # Looking at the values would wait for an accelerator, and would break a compiled graph.
    if transition.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if not (transition >= 0).all():
        raise ValueError(f"transition must hold probabilities; got {transition.min().item():g}")
    sums = transition.sum(-1)
    worst = int((sums - 1).abs().argmax())
    if not abs(sums[worst].item() - 1) <= sum_slack(transition):
        raise ValueError(f"transition must have rows that sum to 1; row {worst} sums to {sums[worst].item():g}")


def _forward(rows: Rows, log_transition: Float[Tensor, "classes classes"]) -> Float[Tensor, "rows"]:
    log_p = rows.log_softmax()
    if rows.probabilities is None:
        # Only the labelled column of T is needed, and in logarithms no probability is too small.
        return -(log_p + log_transition.T[rows.labels]).logsumexp(-1)
    # In float64, where a device has it, nothing above exp(-708) underflows; in logarithms each pair of classes would
    # take an exponential of its own.
    wide = log_p if log_p.device.type == "mps" else log_p.double()
    with full_precision(wide):
        noisy = wide.exp() @ log_transition.to(wide.dtype).exp()
    return -rows.expected(noisy.clamp_min(torch.finfo(noisy.dtype).tiny).log().to(log_p.dtype))


def _inverse(transition: Tensor) -> Tensor:
    inverse, failure = torch.linalg.inv_ex(transition.double())
    if not torch.compiler.is_compiling() and transition.device.type == "cpu" and failure.item():
        raise ValueError("transition must be invertible for the backward correction; got a singular matrix")
    found: Tensor = inverse.to(transition.dtype)
    return found


def _check_classes(rows: Rows, transition: Tensor) -> None:
    if len(transition) != rows.logits.shape[-1]:
        raise ValueError(f"transition must have the logits' {rows.logits.shape[-1]} classes; got {len(transition)}")


def noisy_transition(classes: int, rate: float = 0.3) -> Float[Tensor, "classes classes"]:
    """Symmetric noise: 1 - rate on the diagonal, the rest spread evenly over the other classes."""
    return torch.full((classes, classes), rate / (classes - 1)).fill_diagonal_(1 - rate)


def transition_from_predictions(
    probabilities: Float[Tensor, "samples classes"], *, quantile: float = 1.0
) -> Float[Tensor, "classes classes"]:
    """Row i is the prediction at class i's anchor point (Patrini et al., 2017, Eqs. 12 and 13).

    `probabilities` are a softmax trained on the noisy labels. Class i's anchor is the sample most surely of that
    class, or with `quantile` (the paper: 0.97) the one at that quantile of p_i, which outliers move less.
    """
    check_range(quantile, "quantile", 0.0, 1.0)
    if not len(probabilities):
        raise ValueError("probabilities must hold at least one sample; got 0")
    rows = probabilities[probabilities.argsort(dim=0)[int(quantile * (len(probabilities) - 1))]]
    return rows / rows.sum(-1, keepdim=True)


def transition_from_labels(
    clean: Int[Tensor, "samples"], noisy: Int[Tensor, "samples"], classes: int
) -> Float[Tensor, "classes classes"]:
    """Share of each clean class's samples that carry each noisy label; a class without samples is taken as clean.

    Samples with a label of -100 do not count.
    """
    clean_flat, clean_is_known = check_labels(clean, tuple(noisy.shape), classes, -100)
    noisy_flat, noisy_is_known = check_labels(noisy, tuple(clean.shape), classes, -100)
    pairs = (clean_flat * classes + noisy_flat)[clean_is_known & noisy_is_known]
    counts = torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
    totals = counts.sum(-1, keepdim=True)
    return torch.where(totals == 0, torch.eye(classes, device=counts.device), counts / totals.clamp_min(1))
