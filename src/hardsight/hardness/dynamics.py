"""The scores of training: pure functions of a recorder's aggregates, one number per sample, registered.

`hardsight.dynamics.Aggregates` says which numbers there are. A sample that was never recorded has no score: its entry
is NaN. Epochs are numbered from 0.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import hardsight.hardness.definitions  # noqa: F401 (it registers the scores that are followed over training)
from hardsight.hardness.mixture import small_loss_mixture
from hardsight.hardness.registry import SCORES, Score, named_scores, register

Aggregates = Mapping[str, Tensor]

_AVH = "Chen et al. 2020, Eq. 1, over training"
_ANGLE = "nearest other angle minus labelled angle, over training"
_MARGIN = "Angular margin (radians)"
_DATA_MAPS = "Swayamdipta et al. 2020, Section 2"
_EL2N = "Paul et al. 2021, Definition 2"
_SPLITS = "Maini et al. 2022"
_TONEVA = "Toneva et al. 2019"
_WHOLE_SET = ("depends on the whole set",)
# Scores of a model, averaged over the epochs in which the sample was seen, or in the last of them: title, source and
# the aggregate.
_OVER_TRAINING = {
    "avh_mean": ("AVH, mean", _AVH, "avh_mean"),
    "avh_last": ("AVH, last epoch", _AVH, "avh_last"),
    "angular_margin_mean": (f"{_MARGIN}, mean", _ANGLE, "angular_margin_mean"),
    "angular_margin_last": (f"{_MARGIN}, last epoch", _ANGLE, "angular_margin_last"),
    "aum": ("Area under the margin", "Pleiss et al. 2020, Eq. 2", "margin_mean"),
    "margin_last": ("Logit margin, last epoch", "Pleiss et al. 2020, Eq. 1", "margin_last"),
    "loss_mean": (
        "Loss area: cross-entropy (nats), mean", "mean over training, as in Huang et al. 2019", "loss_mean",
    ),
    "loss_last": ("Cross-entropy (nats), last epoch", "-log of the model confidence", "loss_last"),
    "confidence_mean": ("Confidence (data map)", _DATA_MAPS, "confidence_mean"),
    "el2n_mean": ("EL2N, mean", f"{_EL2N}, over training", "el2n_mean"),
}  # fmt: skip


def dynamics_scores() -> list[Score]:
    """The scores that a recorder gives."""
    return [score for score in SCORES.values() if score.measures is not None]


def choose_dynamics_scores(names: Iterable[str]) -> list[Score]:
    """The scores of these names that a recorder gives; unknown names and scores of a model raise."""
    chosen = named_scores(names)
    for score in chosen:
        if score.measures is None:
            raise ValueError(
                f"scores must be ones that a recorder gives; {score.name!r} is computed from {', '.join(score.needs)}"
            )
    return chosen


def _of_training(
    name: str, title: str, source: str, *measures: str, larger_is_harder: bool = True, **about: Any
) -> Callable[[Callable[[Aggregates], Tensor]], Callable[[Aggregates], Tensor]]:
    """Register a score of samples that were recorded; the others get NaN."""

    def add(definition: Callable[[Aggregates], Tensor]) -> Callable[[Aggregates], Tensor]:
        @register(name, title, source=source, measures=measures, larger_is_harder=larger_is_harder, **about)
        @functools.wraps(definition)
        def of_recorded(aggregates: Aggregates) -> Tensor:
            return torch.where(aggregates["epochs"] > 0, definition(aggregates).float(), math.nan)

        return of_recorded

    return add


def _aggregate(name: str, aggregates: Aggregates) -> Tensor:
    return aggregates[name]


for _name, (_title, _source, _mean) in _OVER_TRAINING.items():
    _one = SCORES[_mean.rsplit("_", 1)[0]]
    _of_training(
        _name, _title, _source, _one.name, larger_is_harder=_one.larger_is_harder, low=_one.low, high=_one.high
    )(functools.partial(_aggregate, _mean))


@_of_training("avh_slope", "AVH, change an epoch", _AVH, "avh", low=-1.0, high=1.0)
def avh_slope(aggregates: Aggregates) -> Tensor:
    """Least-squares slope of AVH over the epochs; 0 for a sample seen once, negative while one is being learned."""
    spread = aggregates["epoch_moments"]
    slope = aggregates["avh_trend"] / torch.where(spread > 0, spread, 1.0)
    return torch.where(spread > 0, slope, 0.0)


@_of_training("variability", "Variability (data map)", _DATA_MAPS, "confidence", high=0.5)
def variability(aggregates: Aggregates) -> Tensor:
    """Standard deviation over the epochs of the label's probability."""
    return epistemic(aggregates).sqrt()


@_of_training("correctness", "Correctness (data map)", _DATA_MAPS, larger_is_harder=False, high=1.0)
def correctness(aggregates: Aggregates) -> Tensor:
    """Share of the epochs in which the label won."""
    return aggregates["correct_sum"] / aggregates["epochs"]


@_of_training("aleatoric", "Aleatoric uncertainty", "Seedat et al. 2022", "confidence", high=0.25)
def aleatoric(aggregates: Aggregates) -> Tensor:
    """Mean over the epochs of p (1 - p), p the label's probability.

    As mean p (1 - mean p) - variance: right to a float32's rounding of 1, about 1e-7.
    """
    mean = aggregates["confidence_mean"]
    return (mean * (1 - mean) - epistemic(aggregates)).clamp(min=0.0)


@_of_training(
    "epistemic", "Epistemic uncertainty",
    "Seedat et al. 2022: the square of `variability`, so both rank samples alike", "confidence", high=0.25,
)  # fmt: skip
def epistemic(aggregates: Aggregates) -> Tensor:
    """Variance over the epochs of the label's probability."""
    return aggregates["confidence_moments"] / aggregates["epochs"]


# The probability of the most probable class, labels aside: at least 1 / classes.
_of_training(
    "agreement", "Confidence of the prediction, mean",
    "Carlini et al. 2019, confidence and agreement over training", "agreement", larger_is_harder=False, high=1.0,
)(functools.partial(_aggregate, "agreement_mean"))  # fmt: skip


@_of_training(
    "el2n_early", "EL2N, mean of the early epochs", f"{_EL2N}, early in training", "el2n", high=math.sqrt(2)
)  # fmt: skip
def el2n_early(aggregates: Aggregates) -> Tensor:
    """EL2N averaged over the early epochs alone."""
    return torch.where(aggregates["early_epochs"] > 0, aggregates["el2n_early"], math.nan)


def _or_never(name: str, aggregates: Aggregates) -> Tensor:
    """An aggregate, and for samples never learned the number of epochs: of the run, not of those they were shown in.

    A sample that was never learned cannot be forgotten and yet is the hardest; one that was shown less often than
    others does not seem easier than one that was learned.
    """
    learned = aggregates["first_correct"] >= 0
    last_epoch = torch.maximum(aggregates["first_correct"], aggregates["last_wrong"])
    run = torch.maximum(last_epoch + 1, aggregates["epochs"]).amax()
    return torch.where(learned, aggregates[name], run)


# How often the label, having won, lost again; how often, having lost or at the start, it won; and when first.
for _name, _title, _counted in (
    ("forgetting_events", "Forgetting events", "forgotten"),
    ("learning_events", "Learning events", "learned"),
    ("first_learned", "First learned (epoch)", "first_correct"),
):
    _of_training(_name, _title, _TONEVA)(functools.partial(_or_never, _counted))


@_of_training("learned_for_good", "Learned for good (epoch)", _SPLITS)
def learned_for_good(aggregates: Aggregates) -> Tensor:
    """First epoch from which on the label always won; wrong in its last epoch means one past that epoch."""
    return aggregates["last_wrong"] + 1


@_of_training("second_split_forgetting", "Second-split forgetting (epoch)", _SPLITS, larger_is_harder=False)
def second_split_forgetting(aggregates: Aggregates) -> Tensor:
    """Epoch of the second phase from which on the label never won again.

    0: lost at once; one past the phase's last epoch: never lost. NaN without a second phase.
    """
    last = (aggregates["second_last_correct"] + 1).float()
    return torch.where(aggregates["second_epochs"] > 0, last, math.nan)


def _mixture(kind: str, aggregates: Aggregates) -> Tensor:
    """Share of the high one of two components fitted to mean losses."""
    return small_loss_mixture(torch.where(aggregates["epochs"] > 0, aggregates["loss_mean"], math.nan), kind)


for _kind, _source in (("gaussian", "Li et al. 2020, Section 3.1"), ("beta", "Arazo et al. 2019, Section 3.1")):
    _of_training(
        f"small_loss_{_kind}", f"Small loss, two {_kind.title()}s", _source, "loss", high=1.0, tags=_WHOLE_SET
    )(functools.partial(_mixture, _kind))


@register("detector", "Learned noise detector", source="Jia et al. 2023", larger_is_harder=True, high=1.0)
@torch.no_grad()
def detector_score(
    detector: Callable[[Tensor], Tensor], curves: Float[Tensor, "samples epochs"]
) -> Float[Tensor, "samples"]:
    """The detector's probability that a label is wrong. In [0, 1]; larger is harder; NaN for a sample never shown."""
    complete = without_gaps(curves).float()
    return torch.cat([torch.sigmoid(detector(part)) for part in complete.split(65_536)])


def without_gaps(curves: Float[Tensor, "samples epochs"]) -> Float[Tensor, "samples epochs"]:
    """An epoch that did not show the sample takes the value before it, or at the start the first; all-NaN rows stay."""
    values = curves.detach().cpu().numpy()
    known = ~np.isnan(values)
    at = np.maximum.accumulate(np.where(known, np.arange(values.shape[1]), -1), axis=1)
    at = np.where(at < 0, known.argmax(1)[:, None], at)
    return torch.from_numpy(np.take_along_axis(values, at, axis=1)).to(curves)
