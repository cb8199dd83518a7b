"""How unknown a sample looks to a classifier that nobody told its label: new classes, mistakes, attacks."""

import torch
from jaxtyping import Float
from torch import Tensor

from hardsight.geometry import angles_to_classes, norms, widen
from hardsight.validation import check_features_and_weight, check_finite

OPEN_SET_SCORES = ("avh", "softmax", "norm", "energy", "angular_margin")


@torch.no_grad()
def open_set_scores(
    features: Float[Tensor, "samples dim"],
    weight: Float[Tensor, "classes dim"],
    bias: Float[Tensor, "classes"] | None = None,
    *,
    temperature: int | float = 1.0,
) -> dict[str, Float[Tensor, "samples"]]:
    """Numbers that are larger where a sample looks less known, by name; in double precision.

    `avh`: AVH of the predicted class; `softmax`: -log of its probability; `norm`: minus the features' norm; `energy`:
    -T log sum exp(logits / T) (Liu et al., 2020); `angular_margin`: the smallest angle minus the second smallest.
    """
    check_features_and_weight(features, weight)
    check_finite("features", features)
    if len(weight) < 2:
        raise ValueError(f"weight must have a row for each of 2 classes or more; got {len(weight)}")
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
