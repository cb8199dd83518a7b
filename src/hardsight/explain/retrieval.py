"""Whether the nearest samples by angle are of the same class: how embeddings of classes that are new are judged."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.geometry import directions, widen
from hardsight.validation import check_features, check_labels

_BLOCK = 1024


@torch.no_grad()
def recall_at_k(
    features: Float[Tensor, "samples dim"], labels: Integer[Tensor, "samples"], k: Sequence[int] = (1,)
) -> dict[int, float]:
    """The share of samples with one of their own class among the k others at the smallest angles.

    Samples that are alone in their class count as not found. Unchanged by rotating the features or rescaling any.

    >>> recall_at_k(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), torch.tensor([0, 0, 1]))[1]
    0.6666666666666666
    """
    check_features(features)
    check_labels(labels, len(features), int(labels.max()) + 1 if len(labels) else 1)
    if not len(k) or min(k) < 1 or max(k) >= len(features):
        raise ValueError(f"k must be numbers from 1 to {len(features) - 1}, the other samples; got {list(k)}")
    unit = directions(widen(features))
    found = torch.zeros(len(k), dtype=torch.int64)
    for start in range(0, len(unit), _BLOCK):
        rows = torch.arange(start, min(start + _BLOCK, len(unit)), device=unit.device)
        cosines = unit[rows] @ unit.T
        cosines[torch.arange(len(rows)), rows] = -torch.inf
        nearest = labels.to(unit.device)[cosines.topk(max(k)).indices]
        same = nearest == labels.to(unit.device)[rows, None]
        found += torch.tensor([int(same[:, :one].any(1).sum()) for one in k])
    return {one: float(count) / len(unit) for one, count in zip(k, found, strict=True)}
