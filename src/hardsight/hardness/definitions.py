"""The scores of a model as their sources define them: pure, differentiable functions, registered.

`hardsight.score` computes the same numbers by `from_summary`, without ever holding all samples x all classes; a test
compares the two for every registered score.
"""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from hardsight.geometry import angle_between, angles_to_classes, norms, widen
from hardsight.hardness.columns import ClassSummary
from hardsight.hardness.registry import register, rounded
from hardsight.validation import check_features_and_weight, may_look

Features = Float[Tensor, "samples dim"]
Weight = Float[Tensor, "classes dim"]
Logits = Float[Tensor, "samples classes"]
Labels = Integer[Tensor, "samples"]
PerSample = Float[Tensor, "samples"]


@register(
    "avh", "Angular visual hardness", source="Chen et al. 2020, Eq. 1", larger_is_harder=True, high=1.0,
    parts=["angles"], from_summary=lambda of: share_of_sum(of.label_angle, of.angle_sum, of.num_classes),
)  # fmt: skip
def angular_visual_hardness(features: Features, weight: Weight, labels: Labels) -> PerSample:
    """Angle to the labelled class over the sum of the angles to all classes (AVH, Eq. 1).

    In [0, 1]; larger is harder; chance level is 1 / classes. Over all labels of one sample it sums to 1. Unchanged
    by rotating or rescaling the features, and by rescaling any class's weights.
    """
    angles = _class_angles(features, weight)
    return share_of_sum(_of_label(angles, labels), angles.sum(1), len(weight))


def angular_visual_confidence(features: Features, weight: Weight) -> Logits:
    """(pi - angle) of each class over the sum of that over all classes (AVH, Eq. 3): rows in [0, 1] that sum to 1."""
    check_features_and_weight(features, weight)
    closeness = math.pi - _class_angles(widen(features), widen(weight))
    return rounded(share_of_sum(closeness, closeness.sum(1, keepdim=True), len(weight)), features, weight)


def _avc_from_summary(of: ClassSummary) -> Tensor:
    return share_of_sum(math.pi - of.label_angle, of.num_classes * math.pi - of.angle_sum, of.num_classes)


@register(
    "avc", "Angular visual confidence", source="Chen et al. 2020, Eq. 3", larger_is_harder=False, high=1.0,
    parts=["angles"], from_summary=_avc_from_summary,
)  # fmt: skip
def label_visual_confidence(features: Features, weight: Weight, labels: Labels) -> PerSample:
    """Angular visual confidence in the labelled class. In [0, 1]; larger is easier."""
    return _of_label(angular_visual_confidence(features, weight), labels)


@register(
    "angular_margin", "Angular margin (radians)", source="nearest other angle minus labelled angle",
    larger_is_harder=False, low=-math.pi, high=math.pi,
    parts=["angles"], from_summary=lambda of: of.nearest_other_angle - of.label_angle,
)  # fmt: skip
def angular_margin(features: Features, weight: Weight, labels: Labels) -> PerSample:
    """Angle to the nearest other class minus the angle to the labelled one, in radians.

    In [-pi, pi]; larger is easier; negative where another class is nearer.
    """
    angles = _class_angles(features, weight)
    return _without_label(angles, labels, math.inf).amin(1) - _of_label(angles, labels)


@register(
    "confidence", "Model confidence", source="Chen et al. 2020, Definition 1", larger_is_harder=False, high=1.0,
    parts=["logits"], from_summary=lambda of: (of.label_logit - of.log_sum_exp).exp(),
)  # fmt: skip
def model_confidence(logits: Logits, labels: Labels) -> PerSample:
    """Softmax probability of the labelled class (AVH, Definition 1). In [0, 1]; larger is easier."""
    return _of_label(logits.softmax(1), labels)


@register(
    "margin", "Logit margin", source="Pleiss et al. 2020, Eq. 1", larger_is_harder=False, low=-math.inf,
    parts=["logits"], from_summary=lambda of: of.label_logit - of.largest_other_logit,
)  # fmt: skip
def logit_margin(logits: Logits, labels: Labels) -> PerSample:
    """Logit of the labelled class minus the largest other logit (the margin of AUM). Larger is easier."""
    return _of_label(logits, labels) - _without_label(logits, labels, -math.inf).amax(1)


@register(
    "rank", "Rank of the label", source="place of the label among the classes by logit", larger_is_harder=True,
    low=1.0, high=float, parts=["logits", "rank"], from_summary=lambda of: of.others_above + 1,
)  # fmt: skip
def label_rank(logits: Logits, labels: Labels) -> PerSample:
    """Place of the labelled class by logit: 1 plus how many have a larger one. In [1, classes]; larger is harder."""
    return (logits > _of_label(logits, labels).unsqueeze(1)).sum(1).to(logits) + 1


@register(
    "entropy", "Entropy (nats)", source="Shannon 1948", larger_is_harder=True, high=math.log,
    parts=["logits", "spread"], from_summary=lambda of: of.entropy,
)  # fmt: skip
def entropy(logits: Logits) -> PerSample:
    """Entropy of the softmax in nats, labels not needed. In [0, log classes]; larger is harder."""
    # Of a probability of zero the log is finite here, so that their product is zero.
    log_probabilities = rounded(logits.log_softmax(1), logits)
    return -(log_probabilities.exp() * log_probabilities).sum(1)


def _cross_entropy_from_summary(of: ClassSummary) -> Tensor:
    # log-sum-exp minus the logit cancels where the sample is easy; there the others' probability is exact.
    easy = of.other_probability < 0.5
    return torch.where(easy, -torch.log1p(-of.other_probability.clamp(max=0.5)), of.log_sum_exp - of.label_logit)


@register(
    "loss", "Cross-entropy (nats)", source="-log of the model confidence", larger_is_harder=True,
    parts=["logits"], from_summary=_cross_entropy_from_summary,
)  # fmt: skip
def cross_entropy(logits: Logits, labels: Labels) -> PerSample:
    """Minus the log of the labelled class's softmax probability, in nats. Not negative; larger is harder."""
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def _el2n_from_summary(of: ClassSummary) -> Tensor:
    # |p - y|^2 = (1 - p_y)^2 + the others' squares, and 1 - p_y is the others' probability.
    return (of.other_probability.square() + of.other_squares).sqrt()


@register(
    "el2n", "EL2N, length of the error vector", source="Paul et al. 2021, Definition 2", larger_is_harder=True,
    high=math.sqrt(2), parts=["logits", "spread"], from_summary=_el2n_from_summary,
)  # fmt: skip
def el2n(logits: Logits, labels: Labels) -> PerSample:
    """Length of the softmax error vector p - y (Paul et al. 2021). In [0, sqrt(2)]; larger is harder."""
    error = logits.softmax(1) - torch.nn.functional.one_hot(labels, logits.shape[1])
    length: Tensor = torch.linalg.vector_norm(error, dim=1)
    return length


def _grand_from_summary(of: ClassSummary) -> Tensor:
    length = torch.hypot(of.feature_norm, torch.full_like(of.feature_norm, float(of.has_bias)))
    # The gradient of a sample with the largest finite features is longer than the largest number.
    return (_el2n_from_summary(of) * length).clamp(max=torch.finfo(length.dtype).max)


@register(
    "grand", "GraNd of the last layer", source="Paul et al. 2021, Definition 1, last layer in closed form",
    larger_is_harder=True, parts=["logits", "spread"], from_summary=_grand_from_summary,
)  # fmt: skip
def last_layer_grand(
    features: Features, logits: Logits,
    labels: Labels, *, bias: bool = True,
) -> PerSample:  # fmt: skip
    """Length of the cross-entropy's gradient in the last layer's parameters, in closed form: |p - y| sqrt(|x|^2 + 1).

    GraNd (Paul et al. 2021) restricted to the head. The 1 is the bias's share and is left out where there is none.
    Not negative; larger is harder.
    """
    lengths = norms(features)
    return el2n(logits, labels) * torch.hypot(lengths, lengths.new_tensor(float(bias)))


@register(
    "norm", "Feature norm", source="Chen et al. 2020, Section 3", larger_is_harder=False,
    from_summary=lambda of: of.feature_norm,
)  # fmt: skip
def feature_norm(features: Features) -> PerSample:
    """Length of the feature vector. Not negative; larger is taken to be easier."""
    return norms(features)


@register(
    "class_norm", "Feature norm within its class", source="Chen et al. 2020, Table 1", larger_is_harder=False, high=1.0,
    tags=["depends on the whole set"],
    from_summary=lambda of: scale_within_class(of.feature_norm, of.labels, of.num_classes),
)  # fmt: skip
def class_normalised_norm(features: Features, labels: Labels) -> PerSample:
    """Feature norm scaled linearly to [0, 1] within each class (AVH, Table 1). Depends on the whole set.

    A class whose norms are all equal gets 0.
    """
    # Places among the classes that occur: a class of the number 10^9 is one class.
    there, places = labels.unique(return_inverse=True)
    return scale_within_class(norms(features), places, len(there))


# Without `from_summary`: it needs two passes over the features, which scoring in chunks does not make.
@register(
    "prototype_angle", "Angle to the label's mean feature (radians)", larger_is_harder=True, high=math.pi,
    source="Sorscher et al. 2022, prototypicality, as an angle", tags=["depends on the whole set"],
)  # fmt: skip
def prototype_angle(features: Features, labels: Labels) -> PerSample:
    """Angle between a feature and the mean feature of all samples with its label. Depends on the whole set.

    Prototypicality (Sorscher et al. 2022) needs no head; the mean is over the features as they are, the sample's own
    among them. In [0, pi]; larger is harder. Unchanged by rotating the features or rescaling all of them at once.
    """
    there, places = labels.unique(return_inverse=True)
    # Means of features scaled by the largest entry of their class: a sum of large finite ones would overflow, and
    # beside another class's small ones would vanish. Angles do not see it.
    largest = features.detach().abs().amax(1)
    scale = largest.new_zeros(len(there)).scatter_reduce(0, places, largest, "amax")[places]
    scaled = features / scale.clamp_min(torch.finfo(torch.float32).tiny).unsqueeze(1)
    sums = scaled.new_zeros(len(there), features.shape[1]).index_add(0, places, scaled)
    return angle_between(features, sums[places])


def share_of_sum(part: Tensor, total: Tensor, classes: int) -> Tensor:
    """part / total, and the chance level where the total is zero, so that shares still sum to 1."""
    return torch.where(total > 0, part / torch.where(total > 0, total, 1.0), 1.0 / classes)


def scale_within_class(values: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Values scaled linearly to [0, 1] between the smallest and the largest of their class."""
    lowest = values.new_full((classes,), math.inf).scatter_reduce(0, labels, values, "amin")[labels]
    highest = values.new_full((classes,), -math.inf).scatter_reduce(0, labels, values, "amax")[labels]
    spread = highest - lowest
    return torch.where(spread > 0, (values - lowest) / torch.where(spread > 0, spread, 1.0), 0.0)


def _class_angles(features: Tensor, weight: Tensor) -> Tensor:
    if torch.compiler.is_compiling() or (may_look(features) and may_look(weight)):
        return angles_to_classes(features, weight)
    # Under vmap nothing can pick out the nearly parallel pairs, so all are measured from the vectors themselves.
    return angle_between(features.unsqueeze(1), weight)


def _of_label(values: Tensor, labels: Tensor) -> Tensor:
    return values.gather(1, labels.unsqueeze(1)).squeeze(1)


def _without_label(values: Tensor, labels: Tensor, fill: float) -> Tensor:
    return values.scatter(1, labels.unsqueeze(1), fill)
