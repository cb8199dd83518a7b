"""Whether probabilities can be taken at their word: calibration error, and the temperature that lowers it."""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.validation import check_count, check_finite, check_labels, check_logits

# Temperatures are looked for between exp(-_REACH) and exp(_REACH).
_REACH = 6.0


@torch.no_grad()
def calibration_error(
    probabilities: Float[Tensor, "samples classes"], labels: Integer[Tensor, "samples"], *, bins: int = 15
) -> float:
    """Expected calibration error: the gap between confidence and accuracy, averaged over bins of equal width.

    In [0, 1] (Guo et al., 2017). The confidence is the largest probability; bins are half-open, the last one closed.

    >>> calibration_error(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1])) > 0.39
    True
    """
    check_count("bins", bins, "the parts of [0, 1]", least=1)
    check_finite("probabilities", probabilities)
    check_labels(labels, *probabilities.shape)
    confidence, predicted = probabilities.double().max(1)
    if len(labels) == 0 or not bool(((confidence >= 0) & (confidence <= 1 + 1e-6)).all()):
        raise ValueError("probabilities must lie in [0, 1], one row for each of at least 1 sample")
    right = (predicted == labels.to(predicted.device)).double()
    place = (confidence * bins).long().clamp(max=bins - 1)
    gaps = torch.zeros(bins, dtype=torch.float64, device=place.device).index_add_(0, place, confidence - right)
    return float(gaps.abs().sum() / len(labels))


@torch.no_grad()
def fit_temperature(logits: Float[Tensor, "samples classes"], labels: Integer[Tensor, "samples"]) -> float:
    """The temperature T at which softmax(logits / T) has the smallest cross-entropy on these samples.

    Fit it on samples that were not trained on. The cross-entropy is convex in 1 / T, so one search finds it.
    """
    from scipy.optimize import minimize_scalar

    check_logits(logits)
    check_labels(labels, *logits.shape)
    wide, labels = logits.double(), labels.long().to(logits.device)

    def loss(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(wide / math.exp(log_temperature), labels))

    return math.exp(minimize_scalar(loss, bounds=(-_REACH, _REACH), method="bounded", options={"xatol": 1e-8}).x)
