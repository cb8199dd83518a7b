"""The scores that one look at a model gives, registered."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from hardsight.hardness import definitions
from hardsight.hardness.columns import ClassSummary, Part
from hardsight.hardness.definitions import scale_within_class, share_of_sum
from hardsight.hardness.registry import Score, register

_ANGLES: frozenset[Part] = frozenset({"angles"})
_LOGITS: frozenset[Part] = frozenset({"logits"})
_SPREAD: frozenset[Part] = frozenset({"logits", "spread"})
_NORMS: frozenset[Part] = frozenset()


def _avh(of: ClassSummary) -> Tensor:
    return share_of_sum(of.label_angle, of.angle_sum, of.num_classes)


def _avc(of: ClassSummary) -> Tensor:
    return share_of_sum(math.pi - of.label_angle, of.num_classes * math.pi - of.angle_sum, of.num_classes)


def _angular_margin(of: ClassSummary) -> Tensor:
    return of.nearest_other_angle - of.label_angle


def _confidence(of: ClassSummary) -> Tensor:
    return (of.label_logit - of.log_sum_exp).exp()


def _margin(of: ClassSummary) -> Tensor:
    return of.label_logit - of.largest_other_logit


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


def _class_norm(of: ClassSummary) -> Tensor:
    return scale_within_class(of.feature_norm, of.labels, of.num_classes)


def _register(
    name: str,
    title: str,
    definition: Callable[..., Tensor],
    needs: str,
    from_summary: Callable[[ClassSummary], Tensor],
    parts: frozenset[Part],
    source: str,
    *,
    harder: bool,
    low: float = 0.0,
    high: Callable[[int], float] | float = math.inf,
    tags: frozenset[str] = frozenset(),
) -> None:
    register(
        Score(
            name,
            title,
            definition,
            needs=tuple(needs.split()),
            larger_is_harder=harder,
            low=low,
            high=high,
            source=source,
            parts=parts,
            from_summary=from_summary,
            tags=tags,
        )
    )


# fmt: off
_register(
    "avh", "Angular visual hardness", definitions.angular_visual_hardness, "features weight labels", _avh, _ANGLES,
    "Chen et al. 2020, Eq. 1", harder=True, high=1.0,
)
_register(
    "avc", "Angular visual confidence", definitions.label_visual_confidence, "features weight labels", _avc, _ANGLES,
    "Chen et al. 2020, Eq. 3", harder=False, high=1.0,
)
_register(
    "angular_margin", "Angular margin (radians)", definitions.angular_margin, "features weight labels",
    _angular_margin, _ANGLES, "nearest other angle minus labelled angle", harder=False, low=-math.pi, high=math.pi,
)
_register(
    "confidence", "Model confidence", definitions.model_confidence, "logits labels", _confidence, _LOGITS,
    "Chen et al. 2020, Definition 1", harder=False, high=1.0,
)
_register(
    "margin", "Logit margin", definitions.logit_margin, "logits labels", _margin, _LOGITS,
    "Pleiss et al. 2020, Eq. 1", harder=False, low=-math.inf,
)
_register(
    "entropy", "Entropy (nats)", definitions.entropy, "logits", lambda of: of.entropy, _SPREAD,
    "Shannon 1948", harder=True, high=math.log,
)
_register(
    "loss", "Cross-entropy (nats)", definitions.cross_entropy, "logits labels", _cross_entropy, _LOGITS,
    "-log of the model confidence", harder=True,
)
_register(
    "el2n", "EL2N, length of the error vector", definitions.el2n, "logits labels", _el2n, _SPREAD,
    "Paul et al. 2021, Definition 2", harder=True, high=math.sqrt(2),
)
_register(
    "grand", "GraNd of the last layer", definitions.last_layer_grand, "features logits labels", _grand, _SPREAD,
    "Paul et al. 2021, Definition 1, last layer in closed form", harder=True,
)
_register(
    "norm", "Feature norm", definitions.feature_norm, "features", lambda of: of.feature_norm, _NORMS,
    "Chen et al. 2020, Section 3", harder=False,
)
_register(
    "class_norm", "Feature norm within its class", definitions.class_normalised_norm, "features labels",
    _class_norm, _NORMS, "Chen et al. 2020, Table 1", harder=False, high=1.0,
    tags=frozenset({"depends on the whole set"}),
)
# fmt: on
# Two passes over the features, so no part of the chunked scoring.
register(
    Score(
        "prototype_angle",
        "Angle to the label's mean feature (radians)",
        definitions.prototype_angle,
        needs=("features", "labels"),
        larger_is_harder=True,
        low=0.0,
        high=math.pi,
        source="Sorscher et al. 2022, prototypicality, as an angle",
        tags=frozenset({"depends on the whole set"}),
    )
)
