"""What several models of one task are unsure of: the data, or themselves."""

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.validation import check_finite


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
    total, aleatoric = _entropy(wide.mean(0)), _entropy(wide).mean(0)
    return {"total": total, "aleatoric": aleatoric, "epistemic": (total - aleatoric).clamp_min(0)}


def _entropy(probabilities: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(probabilities).sum(-1)
    return entropy
