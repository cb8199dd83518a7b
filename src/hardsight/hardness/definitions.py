"""The scores as their sources define them: pure, differentiable functions of features, weight, logits and labels.

These are the definitions. `hardsight.score` computes the same numbers for a whole data set without ever holding
all samples x all classes; a test keeps the two equal, for every registered score.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.geometry import angle_between, angles_to_classes, norms, widen
from hardsight.hardness.validation import check_features, check_features_and_weight, check_labels, check_logits


def angular_visual_hardness(
    features: Float[Tensor, "samples dim"], weight: Float[Tensor, "classes dim"], labels: Int[Tensor, "samples"]
) -> Float[Tensor, "samples"]:
    """Angle to the labelled class over the sum of the angles to all classes (AVH, Eq. 1).

    In [0, 1]; larger is harder; chance level is 1 / classes. Over all labels of one sample it sums to 1. Unchanged
    by rotating or rescaling the features, and by rescaling any class's weights.
    """
    check_features_and_weight(features, weight)
    check_labels(labels, len(features), len(weight))
    angles = angles_to_classes(features, weight)
    return share_of_sum(_of_label(angles, labels), angles.sum(1), len(weight))


def angular_visual_confidence(
    features: Float[Tensor, "samples dim"], weight: Float[Tensor, "classes dim"]
) -> Float[Tensor, "samples classes"]:
    """(pi - angle) of each class over the sum of that over all classes (AVH, Eq. 3): rows in [0, 1] that sum to 1."""
    check_features_and_weight(features, weight)
    closeness = math.pi - angles_to_classes(features, weight)
    return share_of_sum(closeness, closeness.sum(1, keepdim=True), len(weight))


def label_visual_confidence(
    features: Float[Tensor, "samples dim"], weight: Float[Tensor, "classes dim"], labels: Int[Tensor, "samples"]
) -> Float[Tensor, "samples"]:
    """Angular visual confidence in the labelled class. In [0, 1]; larger is easier."""
    check_labels(labels, len(features), len(weight))
    return _of_label(angular_visual_confidence(features, weight), labels)


def angular_margin(
    features: Float[Tensor, "samples dim"], weight: Float[Tensor, "classes dim"], labels: Int[Tensor, "samples"]
) -> Float[Tensor, "samples"]:
    """Angle to the nearest other class minus the angle to the labelled one, in radians.

    In [-pi, pi]; larger is easier; negative where another class is nearer.
    """
    check_features_and_weight(features, weight)
    check_labels(labels, len(features), len(weight))
    angles = angles_to_classes(features, weight)
    return _without_label(angles, labels, math.inf).amin(1) - _of_label(angles, labels)


def feature_norm(features: Float[Tensor, "samples dim"]) -> Float[Tensor, "samples"]:
    """Length of the feature vector. Not negative; larger is taken to be easier."""
    check_features(features)
    return norms(features)


def class_normalised_norm(
    features: Float[Tensor, "samples dim"], labels: Int[Tensor, "samples"]
) -> Float[Tensor, "samples"]:
    """Feature norm scaled linearly to [0, 1] within each class (AVH, Table 1). Depends on the whole set.

    A class whose norms are all equal gets 0.
    """
    check_features(features)
    classes = _classes_of(labels)
    check_labels(labels, len(features), classes)
    return scale_within_class(norms(features), labels.long(), classes)


def prototype_angle(features: Float[Tensor, "samples dim"], labels: Int[Tensor, "samples"]) -> Float[Tensor, "samples"]:
    """Angle between a feature and the mean feature of all samples with its label. Depends on the whole set.

    Prototypicality (Sorscher et al. 2022) needs no head; the mean is over the features as they are, the sample's own
    among them. In [0, pi]; larger is harder. Unchanged by rotating the features or rescaling all of them at once.
    """
    check_features(features)
    classes = _classes_of(labels)
    check_labels(labels, len(features), classes)
    # Means of features scaled by the largest entry: a sum of large finite ones would overflow. Angles do not see it.
    scaled = widen(features) / widen(features).abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
    sums = scaled.new_zeros(classes, features.shape[1]).index_add(0, labels.long(), scaled)
    return angle_between(scaled, sums[labels.long()]).to(features.dtype)


def model_confidence(
    logits: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"]
) -> Float[Tensor, "samples"]:
    """Softmax probability of the labelled class (AVH, Definition 1). In [0, 1]; larger is easier."""
    check_logits(logits)
    check_labels(labels, *logits.shape)
    return _of_label(logits.softmax(1), labels)


def logit_margin(logits: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"]) -> Float[Tensor, "samples"]:
    """Logit of the labelled class minus the largest other logit (the margin of AUM). Larger is easier."""
    check_logits(logits)
    check_labels(labels, *logits.shape)
    return _finite(_of_label(logits, labels) - _without_label(logits, labels, -math.inf).amax(1))


def entropy(logits: Float[Tensor, "samples classes"]) -> Float[Tensor, "samples"]:
    """Entropy of the softmax in nats, labels not needed. In [0, log classes]; larger is harder."""
    check_logits(logits)
    # Of a probability of zero the log is finite here, so that their product is zero.
    log_probabilities = _finite(logits.log_softmax(1))
    return -(log_probabilities.exp() * log_probabilities).sum(1)


def cross_entropy(logits: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"]) -> Float[Tensor, "samples"]:
    """Minus the log of the labelled class's softmax probability, in nats. Not negative; larger is harder."""
    check_logits(logits)
    check_labels(labels, *logits.shape)
    return _finite(torch.nn.functional.cross_entropy(logits, labels.long(), reduction="none"))


def el2n(logits: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"]) -> Float[Tensor, "samples"]:
    """Length of the softmax error vector p - y (Paul et al. 2021). In [0, sqrt(2)]; larger is harder."""
    check_logits(logits)
    check_labels(labels, *logits.shape)
    error = logits.softmax(1) - torch.nn.functional.one_hot(labels.long(), logits.shape[1])
    return torch.linalg.vector_norm(error, dim=1)


def last_layer_grand(
    features: Float[Tensor, "samples dim"],
    logits: Float[Tensor, "samples classes"],
    labels: Int[Tensor, "samples"],
    *,
    bias: bool = True,
) -> Float[Tensor, "samples"]:
    """Length of the cross-entropy's gradient in the last layer's parameters, in closed form: |p - y| sqrt(|x|^2 + 1).

    GraNd (Paul et al. 2021) restricted to the head. The 1 is the bias's share and is left out where there is none.
    Not negative; larger is harder.
    """
    check_features(features)
    return _finite(el2n(logits, labels) * torch.hypot(norms(features), torch.tensor(float(bias), dtype=features.dtype)))


def share_of_sum(part: Tensor, total: Tensor, classes: int) -> Tensor:
    """part / total, and the chance level where the total is zero, so that shares still sum to 1."""
    return torch.where(total > 0, part / torch.where(total > 0, total, 1.0), 1.0 / classes)


def scale_within_class(values: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Values scaled linearly to [0, 1] between the smallest and the largest of their class."""
    lowest = values.new_full((classes,), math.inf).scatter_reduce(0, labels, values, "amin")[labels]
    highest = values.new_full((classes,), -math.inf).scatter_reduce(0, labels, values, "amax")[labels]
    spread = highest - lowest
    return torch.where(spread > 0, (values - lowest) / torch.where(spread > 0, spread, 1.0), 0.0)


def _classes_of(labels: Tensor) -> int:
    return int(labels.max()) + 1 if labels.numel() else 0


def _finite(values: Tensor) -> Tensor:
    """The difference of two finite logits may exceed the largest number: it is taken instead."""
    largest = torch.finfo(values.dtype).max
    return values.clamp(-largest, largest)


def _of_label(values: Tensor, labels: Tensor) -> Tensor:
    return values.gather(1, labels.long().unsqueeze(1)).squeeze(1)


def _without_label(values: Tensor, labels: Tensor, fill: float) -> Tensor:
    return values.scatter(1, labels.long().unsqueeze(1), fill)
