"""Everything the hardness scores need of a sample, from features and weight, without samples x classes in memory."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from hardsight.geometry import angle_between, angles_to_classes, norms, widen
from hardsight.kernels import ops
from hardsight.kernels.dispatch import runs_fused, same_precision, tf32_is_allowed

# Elements of one block of the plain version, samples x classes: 64 MiB of float32 with what is made from it.
_PLAIN_ELEMENTS = 2**22


class AngularScores(NamedTuple):
    """Per-sample numbers over all classes, float32; "other" means every class but the labelled one. Angles in radians.

    `other_probability` is summed over the other classes alone, so it is exact where the labelled probability rounds
    to 1; `other_squares` is the sum of their squared probabilities. It and `entropy` are 0 unless `spread` was asked
    for; without `logits` all that is no angle is 0 but the norm, and -1 is predicted. With one class there is no other:
    its nearest angle is infinite, its largest logit minus infinity.
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


@torch.no_grad()
def angular_scores(
    features: Float[Tensor, "samples dim"],
    weight: Float[Tensor, "classes dim"],
    labels: Integer[Tensor, "samples"] | None,
    bias: Float[Tensor, "classes"] | None = None,
    *,
    logits: bool = True,
    spread: bool = False,
) -> AngularScores:
    """Angles, logits and top-1 of every sample in one pass; without labels, against the predicted class (two passes).

    Half precision is multiplied as it is and accumulated in float32. On a CUDA device at most 64 MiB beyond the result.
    """
    check_head(features, weight, bias)
    if labels is None:
        nothing = torch.zeros(len(features), dtype=torch.int64, device=features.device)
        labels = angular_scores(features, weight, nothing, bias).predicted
    labels = check_labels(labels, len(features), len(weight))
    features, weight = same_precision((features.detach(), weight.detach()))
    if not serves(features, weight):
        return reference(features, weight, labels, bias, logits=logits, spread=spread)
    given = (features, weight, labels, bias, logits, logits and spread)
    numbers, predicted = ops.angular_scores(*given)
    return AngularScores(*[*numbers.unbind(), predicted])


@torch.no_grad()
def reference(
    features: Float[Tensor, "samples dim"],
    weight: Float[Tensor, "classes dim"],
    labels: Integer[Tensor, "samples"],
    bias: Float[Tensor, "classes"] | None = None,
    *,
    logits: bool = True,
    spread: bool = False,
) -> AngularScores:
    """`angular_scores` in plain PyTorch, block by block: the definition, on any device and in float64 too."""
    rows = max(1, _PLAIN_ELEMENTS // max(1, len(weight)))
    weight = widen(weight)
    blocks = [
        _plain_block(widen(features[start : start + rows]), weight, labels[start : start + rows], bias, spread)
        for start in range(0, max(1, len(features)), rows)
    ]
    found = AngularScores(*(torch.cat(column) for column in zip(*blocks, strict=True)))
    return found if logits else _angles_of(found)


def _angles_of(found: AngularScores) -> AngularScores:
    """What is left where no logits were asked for."""
    nothing = torch.zeros_like(found.label_angle)
    no_angles = dict.fromkeys(AngularScores._fields[4:-1], nothing)
    return found._replace(**no_angles, predicted=torch.full_like(found.predicted, -1))


def check_labels(labels: Any, samples: int, classes: int) -> Tensor:
    """One class for each sample; their values are looked at on a CPU alone, as looking would wait for a GPU."""
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.dtype == torch.bool:
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(f"labels must be a tensor of integers, a class for each sample; got {kind}")
    if labels.shape != (samples,):
        raise ValueError(f"labels must be one class for each of the {samples} samples; got shape {list(labels.shape)}")
    # Not as they came: torch compares no unsigned integers of more than 8 bits.
    labels = labels.long()
    if labels.device.type == "cpu" and not torch.compiler.is_compiling() and labels.numel():
        least, largest = (int(one) for one in labels.aminmax())
        if least < 0 or largest >= classes:
            raise ValueError(f"labels must lie in [0, {classes}), the classes; got values from {least} to {largest}")
    found: Tensor = labels
    return found


def check_head(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Features [samples, dim] and weight [classes, dim], of one dim and at least one class; bias [classes].

    A kernel reads a number of the bias for each class, whether it is there or not.
    """
    if features.ndim != 2 or weight.ndim != 2 or features.shape[1] != weight.shape[1] or not len(weight):
        raise ValueError(
            f"features must be [samples, dim] and weight [classes, dim], of the same dim and at least one class; "
            f"got {list(features.shape)} and {list(weight.shape)}"
        )
    if not features.is_floating_point() or not features.shape[1]:
        raise ValueError(
            f"features must be [samples, dim], floating point and at least 1 wide; got {list(features.shape)} of "
            f"{features.dtype}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must be one number for each of the {len(weight)} classes; got {list(bias.shape)}")


def serves(features: Tensor, weight: Tensor) -> bool:
    """Whether the fused pass is the better one: not for float32 without TF32, where torch's own product is faster."""
    if not runs_fused(features, weight) or len(weight) < 2:
        return False
    if features.stride(1) != 1 or weight.stride(1) != 1:
        return False
    return features.device.type == "cpu" or features.dtype != torch.float32 or tf32_is_allowed()


def _plain_block(features: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None, spread: bool) -> AngularScores:
    column = labels.unsqueeze(1)
    with torch.autocast(features.device.type, enabled=False):
        angles = angles_to_classes(features, weight)
        # A quarter of the largest number: differences of two logits stay finite.
        largest = torch.finfo(features.dtype).max / 4
        logits = _products(features, weight).nan_to_num(0.0, largest, -largest).clamp(-largest, largest)
        logits = logits.to(features.dtype)
        logits = logits if bias is None else (logits + widen(bias)).clamp(-largest, largest)
    label_angle = angle_between(features, weight[labels])
    others = logits.scatter(1, column, -math.inf)
    label_logit, log_sum_exp = logits.gather(1, column).squeeze(1), logits.logsumexp(1)
    # Not from the log-sum-exp: of huge logits it cannot hold what their number adds.
    log_p = logits.log_softmax(1)
    probabilities = log_p.exp().scatter(1, column, 0.0)
    zero = torch.zeros_like(label_angle)
    squares, entropy = zero, zero
    if spread:
        squares, entropy = probabilities.square().sum(1), -(log_p.exp() * log_p).sum(1)
    return AngularScores(
        norms(features),
        label_angle,
        angles.scatter(1, column, 0.0).sum(1) + label_angle,
        angles.scatter(1, column, math.inf).amin(1),
        label_logit,
        others.amax(1),
        log_sum_exp,
        probabilities.sum(1),
        squares,
        entropy,
        logits.argmax(1),
    )


def _products(features: Tensor, weight: Tensor) -> Tensor:
    """features @ weight.T, in float64 where float32 has no room: infinities of two signs have no sum."""
    products = features @ weight.T
    if torch.compiler.is_compiling() or bool(products.isfinite().all()):
        return products
    return features.double() @ weight.double().T
