"""Everything the hardness scores need of a sample, from features and weight, without samples x classes in memory."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from hardsight.kernels.dispatch import Op, obstacle, same_precision, tf32_is_allowed
from hardsight.validation import check_integers, check_layout


class AngularScores(NamedTuple):
    """Per-sample numbers over all classes, float32; "other" means every class but the labelled one. Angles in radians.

    `other_probability` is summed over the other classes alone, so it is exact where the labelled probability rounds
    to 1; `other_squares` is the sum of their squared probabilities. It and `entropy` are 0 unless `spread` was asked
    for; without `logits` all that is no angle is 0 but the norm, and -1 is predicted.
    """

    feature_norm: Float[Tensor, "samples"]
    label_angle: Float[Tensor, "samples"]
    angle_sum: Float[Tensor, "samples"]
    nearest_other_angle: Float[Tensor, "samples"]
    label_logit: Float[Tensor, "samples"]
    largest_other_logit: Float[Tensor, "samples"]
    log_sum_exp: Float[Tensor, "samples"]
    other_probability: Float[Tensor, "samples"]
    other_squares: Float[Tensor, "samples"]
    entropy: Float[Tensor, "samples"]
    predicted: Int[Tensor, "samples"]


def _shapes(features: Tensor, weight: Tensor, labels: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    numbers = features.new_empty(10, features.shape[0], dtype=torch.float32)
    return numbers, labels.new_empty(features.shape[0], dtype=torch.int64)


_angular_scores = Op(
    "angular_scores",
    "angular_scores.measure_and_scan",
    "(Tensor features, Tensor weight, Tensor labels, Tensor? bias, bool logits, bool spread) -> (Tensor, Tensor)",
    _shapes,
)


@torch.no_grad()
def angular_scores(
    features: Float[Tensor, "samples dim"], weight: Float[Tensor, "classes dim"],
    labels: Integer[Tensor, "samples"] | None, bias: Float[Tensor, "classes"] | None = None, *, logits: bool = True,
    spread: bool = False,
) -> AngularScores:  # fmt: skip
    """Angles, logits and top-1 of every sample in one pass; without labels, against the predicted class (two passes).

    For tensors that Triton serves, others raise: `hardness.summarise` gives the same of any, and is the plain formula.
    Half precision is multiplied as it is and accumulated in float32. At most 64 MiB beyond the result are taken. The
    values of labels are not looked at, as looking would wait for the device.
    """
    check_layout(features, weight, bias)
    features, weight = same_precision((features.detach(), weight.detach()))
    if (reason := obstacle(features, weight)) is not None:
        raise ValueError(f"features must be such that a kernel runs; got some where {reason}")
    if labels is None:
        nothing = torch.zeros(len(features), dtype=torch.int64, device=features.device)
        labels = angular_scores(features, weight, nothing, bias).predicted
    check_integers("labels", labels)
    if labels.shape != features.shape[:1]:
        raise ValueError(f"labels must be one class for each of the {len(features)} samples; got {list(labels.shape)}")
    numbers, predicted = _angular_scores(features, weight, labels.long(), bias, logits, logits and spread)
    return AngularScores(*[*numbers.unbind(), predicted])


def serves(features: Tensor, weight: Tensor) -> bool:
    """Whether the fused pass is the better one: not for float32 without TF32, where torch's own product is faster."""
    if obstacle(features, weight) is not None or features.stride(1) != 1 or weight.stride(1) != 1:
        return False
    return features.device.type == "cpu" or features.dtype != torch.float32 or tf32_is_allowed()
