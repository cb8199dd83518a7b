"""The scores that one look at a model gives, registered."""

import math

import torch
from torch import Tensor

from hardsight.hardness import definitions
from hardsight.hardness.definitions import scale_within_class, share_of_sum
from hardsight.hardness.registry import Score, register
from hardsight.hardness.summary import ClassSummary, Part

_ANGLES: frozenset[Part] = frozenset({"angles"})
_LOGITS: frozenset[Part] = frozenset({"logits"})
_SPREAD: frozenset[Part] = frozenset({"logits", "spread"})


def _avh(of: ClassSummary) -> Tensor:
    return share_of_sum(of.label_angle, of.angle_sum, of.num_classes)


def _avc(of: ClassSummary) -> Tensor:
    return share_of_sum(math.pi - of.label_angle, of.num_classes * math.pi - of.angle_sum, of.num_classes)


def _confidence(of: ClassSummary) -> Tensor:
    return (of.label_logit - of.log_sum_exp).exp()


def _cross_entropy(of: ClassSummary) -> Tensor:
    # log-sum-exp minus the logit cancels where the sample is easy; there the others' mass tells it exactly.
    easy = of.other_probability < 0.5
    return torch.where(easy, -torch.log1p(-of.other_probability.clamp(max=0.5)), of.log_sum_exp - of.label_logit)


def _el2n(of: ClassSummary) -> Tensor:
    # |p - y|^2 = (1 - p_y)^2 + the others' squares, and 1 - p_y is the others' mass.
    return (of.other_probability.square() + of.other_squares).sqrt()


def _grand(of: ClassSummary) -> Tensor:
    length = torch.hypot(of.feature_norm, torch.full_like(of.feature_norm, float(of.has_bias)))
    # The gradient of a sample with the largest finite features is longer than the largest number.
    return (_el2n(of) * length).clamp(max=torch.finfo(length.dtype).max)


AVH = register(
    Score(
        "avh",
        "Angular visual hardness",
        definitions.angular_visual_hardness,
        needs=("features", "weight", "labels"),
        larger_is_harder=True,
        low=0.0,
        high=1.0,
        source="Chen et al. 2020, Eq. 1",
        parts=_ANGLES,
        from_summary=_avh,
    )
)
AVC = register(
    Score(
        "avc",
        "Angular visual confidence",
        definitions.label_visual_confidence,
        needs=("features", "weight", "labels"),
        larger_is_harder=False,
        low=0.0,
        high=1.0,
        source="Chen et al. 2020, Eq. 3",
        parts=_ANGLES,
        from_summary=_avc,
    )
)
ANGULAR_MARGIN = register(
    Score(
        "angular_margin",
        "Angular margin (radians)",
        definitions.angular_margin,
        needs=("features", "weight", "labels"),
        larger_is_harder=False,
        low=-math.pi,
        high=math.pi,
        source="nearest other angle minus labelled angle",
        parts=_ANGLES,
        from_summary=lambda of: of.nearest_other_angle - of.label_angle,
    )
)
CONFIDENCE = register(
    Score(
        "confidence",
        "Model confidence",
        definitions.model_confidence,
        needs=("logits", "labels"),
        larger_is_harder=False,
        low=0.0,
        high=1.0,
        source="Chen et al. 2020, Definition 1",
        parts=_LOGITS,
        from_summary=_confidence,
    )
)
MARGIN = register(
    Score(
        "margin",
        "Logit margin",
        definitions.logit_margin,
        needs=("logits", "labels"),
        larger_is_harder=False,
        low=-math.inf,
        high=math.inf,
        source="Pleiss et al. 2020, Eq. 1",
        parts=_LOGITS,
        from_summary=lambda of: of.label_logit - of.largest_other_logit,
    )
)
ENTROPY = register(
    Score(
        "entropy",
        "Entropy (nats)",
        definitions.entropy,
        needs=("logits",),
        larger_is_harder=True,
        low=0.0,
        high=math.log,
        source="Shannon 1948",
        parts=_SPREAD,
        from_summary=lambda of: of.entropy,
    )
)
LOSS = register(
    Score(
        "loss",
        "Cross-entropy (nats)",
        definitions.cross_entropy,
        needs=("logits", "labels"),
        larger_is_harder=True,
        low=0.0,
        high=math.inf,
        source="-log of the model confidence",
        parts=_LOGITS,
        from_summary=_cross_entropy,
    )
)
EL2N = register(
    Score(
        "el2n",
        "EL2N, length of the error vector",
        definitions.el2n,
        needs=("logits", "labels"),
        larger_is_harder=True,
        low=0.0,
        high=math.sqrt(2),
        source="Paul et al. 2021, Definition 2",
        parts=_SPREAD,
        from_summary=_el2n,
    )
)
GRAND = register(
    Score(
        "grand",
        "GraNd of the last layer",
        definitions.last_layer_grand,
        needs=("features", "logits", "labels"),
        larger_is_harder=True,
        low=0.0,
        high=math.inf,
        source="Paul et al. 2021, Definition 1, last layer in closed form",
        parts=_SPREAD,
        from_summary=_grand,
    )
)
NORM = register(
    Score(
        "norm",
        "Feature norm",
        definitions.feature_norm,
        needs=("features",),
        larger_is_harder=False,
        low=0.0,
        high=math.inf,
        source="Chen et al. 2020, Section 3",
        from_summary=lambda of: of.feature_norm,
    )
)
CLASS_NORM = register(
    Score(
        "class_norm",
        "Feature norm within its class",
        definitions.class_normalised_norm,
        needs=("features", "labels"),
        larger_is_harder=False,
        low=0.0,
        high=1.0,
        source="Chen et al. 2020, Table 1",
        from_summary=lambda of: scale_within_class(of.feature_norm, of.labels, of.num_classes),
        tags=frozenset({"depends on the whole set"}),
    )
)
