"""The noise transition matrix T, T[i, j] = probability that class i is labelled j: as noise is made, as it is seen."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.losses.inputs import check_labels, check_range


def noisy_transition(classes: int, rate: float = 0.3) -> Float[Tensor, "classes classes"]:
    """Symmetric noise: 1 - rate on the diagonal, the rest spread evenly over the other classes."""
    return torch.full((classes, classes), rate / (classes - 1)).fill_diagonal_(1 - rate)


def transition_from_predictions(
    probabilities: Float[Tensor, "samples classes"],
    *,
    quantile: float = 1.0,
    anchors: Int[Tensor, "rows points"] | None = None,
) -> Float[Tensor, "classes classes"]:
    """Row i is the prediction at class i's anchor point (Patrini et al., 2017, Eqs. 12 and 13).

    `probabilities` are a softmax trained on the noisy labels. Class i's anchor is the sample most surely of that
    class, or with `quantile` (the paper: 0.97) the one at that quantile of p_i, which outliers move less. `anchors`
    names known anchor points instead, rows of the samples' numbers; several a class are averaged.
    """
    check_range(quantile, "quantile", 0.0, 1.0)
    samples, classes = probabilities.shape
    if samples == 0:
        raise ValueError("probabilities must hold at least one sample; got 0")
    if anchors is None:
        order = probabilities.argsort(dim=0)
        anchors = order[int(quantile * (samples - 1))].unsqueeze(-1)
    elif anchors.shape[0] != classes:
        raise ValueError(f"anchors must have a row for each of {classes} classes; got {anchors.shape[0]}")
    rows = probabilities[anchors].mean(1)
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
