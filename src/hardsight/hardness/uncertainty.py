"""How far predictions can be trusted: calibration, what an ensemble is unsure of, and samples of no known class."""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.geometry import angles_to_classes, norms, widen
from hardsight.validation import check_count, check_features_and_weight, check_finite, check_labels, check_logits

OPEN_SET_SCORES = ("avh", "softmax", "norm", "energy", "angular_margin")
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


@torch.no_grad()
def uncertainties(probabilities: Float[Tensor, "members samples classes"]) -> dict[str, Float[Tensor, "samples"]]:
    """Entropy of the members' mean, in nats, and its two parts.

    `aleatoric`: the mean of the members' entropies, what all of them are unsure of; `epistemic`: the rest, by which
    they disagree (mutual information, BALD). `total` is the sum of both. Members may be an ensemble, or several passes
    with dropout.

    >>> sure = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])  # two members, each sure, of different classes
    >>> {name: round(float(value), 3) for name, value in uncertainties(sure).items()}
    {'total': 0.693, 'aleatoric': 0.0, 'epistemic': 0.693}
    """
    if probabilities.ndim != 3 or not len(probabilities):
        raise ValueError(f"probabilities must be [members, samples, classes]; got {list(probabilities.shape)}")
    check_finite("probabilities", probabilities)
    wide = probabilities.double()
    if not bool((wide >= 0).all()) or not bool(((wide.sum(2) - 1).abs() < 1e-3).all()):
        raise ValueError("probabilities must be probabilities: no negative ones, rows that sum to 1")
    total = torch.special.entr(wide.mean(0)).sum(-1)
    aleatoric = torch.special.entr(wide).sum(-1).mean(0)
    return {"total": total, "aleatoric": aleatoric, "epistemic": (total - aleatoric).clamp_min(0)}


@torch.no_grad()
def open_set_scores(
    features: Float[Tensor, "samples dim"], weight: Float[Tensor, "classes dim"],
    bias: Float[Tensor, "classes"] | None = None, *, temperature: int | float = 1.0,
) -> dict[str, Float[Tensor, "samples"]]:  # fmt: skip
    """Numbers that are larger where a sample looks less known, by name; in double precision.

    `avh`: AVH of the predicted class; `softmax`: -log of its probability; `norm`: minus the features' norm; `energy`:
    -T log sum exp(logits / T) (Liu et al., 2020); `angular_margin`: the smallest angle minus the second smallest.
    """
    check_features_and_weight(features, weight)
    if not temperature > 0:
        raise ValueError(f"temperature must be positive; got {temperature!r}")
    features, weight = widen(features).double(), widen(weight).double()
    logits = features @ weight.T
    logits = logits if bias is None else logits + bias.double()
    angles = angles_to_classes(features, weight)
    predicted = logits.argmax(1, keepdim=True)
    own = angles.gather(1, predicted).squeeze(1)
    nearest = angles.topk(2, largest=False).values
    # From the others' logits: a probability that is rounded to 1 still has an order.
    others = logits.scatter(1, predicted, -torch.inf).logsumexp(1) - logits.gather(1, predicted).squeeze(1)
    return {
        "avh": own / angles.sum(1).clamp_min(torch.finfo(torch.float64).tiny),
        "softmax": torch.nn.functional.softplus(others),
        "norm": -norms(features),
        "energy": -temperature * (logits / temperature).logsumexp(1),
        "angular_margin": nearest[:, 0] - nearest[:, 1],
    }
