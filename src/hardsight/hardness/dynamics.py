"""The scores of training: pure functions of a recorder's aggregates, one number per sample, registered.

A sample that was never recorded has no score: its entry is NaN. Epochs are numbered from 0.
"""

import math
from collections.abc import Callable, Iterable
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import hardsight.hardness.definitions  # noqa: F401 (it registers the scores that are followed over training)
from hardsight.hardness.mixture import small_loss_mixture
from hardsight.hardness.registry import SCORES, Score, get_score, register

_AVH = "Chen et al. 2020, Eq. 1, over training"
_ANGLE = "nearest other angle minus labelled angle, over training"
_DATA_MAPS = "Swayamdipta et al. 2020, Section 2"
_DATA_IQ = "Seedat et al. 2022"
_SPLITS = "Maini et al. 2022"
_WHOLE_SET = frozenset({"depends on the whole set"})
_TONEVA = "Toneva et al. 2019"


@runtime_checkable
class Aggregates(Protocol):
    """Numbers of every sample over the epochs, by name; `hardsight.dynamics.Aggregates` says which there are."""

    def __getitem__(self, name: str) -> Tensor: ...


def dynamics_scores() -> list[Score]:
    """The scores that a recorder gives."""
    return [score for score in SCORES.values() if score.measures is not None]


def choose_dynamics_scores(names: Iterable[str]) -> list[Score]:
    """The scores of these names that a recorder gives; unknown names and scores of a model raise."""
    names = [names] if isinstance(names, str) else list(names)
    if not names:
        raise ValueError("scores must name at least one score; got none")
    chosen = [get_score(name) for name in names]
    for score in chosen:
        if score.measures is None:
            raise ValueError(
                f"scores must be ones that a recorder gives; {score.name!r} is computed from {', '.join(score.needs)}"
            )
    return chosen


def _mean_of(measure: str, aggregates: Aggregates) -> Tensor:
    return _recorded(aggregates, aggregates[f"{measure}_mean"])


def _register_over_training(name: str, title: str, source: str, measure: str, which: Literal["mean", "last"]) -> None:
    """A score of a model, averaged over the epochs in which the sample was seen, or in the last of them."""
    one = SCORES[measure]

    @register(
        name, title, source=source, larger_is_harder=one.larger_is_harder, low=one.low, high=one.high,
        measures=(measure,),
    )  # fmt: skip
    def over_training(aggregates: Aggregates) -> Tensor:
        return _recorded(aggregates, aggregates[f"{measure}_{which}"])


_register_over_training("avh_mean", "AVH, mean", _AVH, "avh", "mean")
_register_over_training("avh_last", "AVH, last epoch", _AVH, "avh", "last")


@register(
    "avh_slope", "AVH, change an epoch", measures=("avh",), source=_AVH, larger_is_harder=True, low=-1.0, high=1.0,
)  # fmt: skip
def avh_slope(aggregates: Aggregates) -> Tensor:
    """Least-squares slope of AVH over the epochs, a change per epoch; 0 for a sample seen once.

    In [-1, 1]; larger is harder: negative while a sample is being learned.
    """
    spread = aggregates["epoch_moments"]
    slope = aggregates["avh_trend"] / torch.where(spread > 0, spread, 1.0)
    return _recorded(aggregates, torch.where(spread > 0, slope, 0.0))


_MARGIN = "Angular margin (radians)"
_register_over_training("angular_margin_mean", f"{_MARGIN}, mean", _ANGLE, "angular_margin", "mean")
_register_over_training("angular_margin_last", f"{_MARGIN}, last epoch", _ANGLE, "angular_margin", "last")
_register_over_training("aum", "Area under the margin", "Pleiss et al. 2020, Eq. 2", "margin", "mean")
_register_over_training("margin_last", "Logit margin, last epoch", "Pleiss et al. 2020, Eq. 1", "margin", "last")
_register_over_training(
    "loss_mean", "Loss area: cross-entropy (nats), mean", "mean over training, as in Huang et al. 2019", "loss", "mean"
)
_register_over_training("loss_last", "Cross-entropy (nats), last epoch", "-log of the model confidence", "loss", "last")
_register_over_training("confidence_mean", "Confidence (data map)", _DATA_MAPS, "confidence", "mean")


@register(
    "variability", "Variability (data map)", measures=("confidence",), source=_DATA_MAPS, larger_is_harder=True,
    high=0.5,
)  # fmt: skip
def variability(aggregates: Aggregates) -> Tensor:
    """Standard deviation over the epochs of the label's probability (data maps). In [0, 1/2]; larger is ambiguous."""
    return epistemic(aggregates).sqrt()


@register("correctness", "Correctness (data map)", measures=(), source=_DATA_MAPS, larger_is_harder=False, high=1.0)
def correctness(aggregates: Aggregates) -> Tensor:
    """Share of the epochs in which the label won (data maps). In [0, 1]; larger is easier."""
    return _recorded(aggregates, aggregates["correct_sum"] / aggregates["epochs"])


@register(
    "aleatoric", "Aleatoric uncertainty", measures=("confidence",), source=_DATA_IQ, larger_is_harder=True, high=0.25,
)  # fmt: skip
def aleatoric(aggregates: Aggregates) -> Tensor:
    """Mean over the epochs of p (1 - p), p the label's probability (Data-IQ). In [0, 1/4]; larger is ambiguous.

    As mean p (1 - mean p) - variance: right to a float32's rounding of 1, about 1e-7.
    """
    mean = _mean_of("confidence", aggregates)
    return (mean * (1 - mean) - epistemic(aggregates)).clamp(min=0.0)


@register(
    "epistemic", "Epistemic uncertainty", measures=("confidence",),
    source=f"{_DATA_IQ}: the square of `variability`, so both rank samples alike", larger_is_harder=True, high=0.25,
)  # fmt: skip
def epistemic(aggregates: Aggregates) -> Tensor:
    """Variance over the epochs of the label's probability (Data-IQ). In [0, 1/4]; larger is less settled.

    The square of `variability`: both rank samples alike.
    """
    return _recorded(aggregates, aggregates["confidence_moments"] / aggregates["epochs"])


@register(
    "agreement", "Confidence of the prediction, mean", measures=("agreement",),
    source="Carlini et al. 2019, confidence and agreement over training", larger_is_harder=False, high=1.0,
)  # fmt: skip
def agreement(aggregates: Aggregates) -> Tensor:
    """Probability of the most probable class averaged over the epochs, labels aside (Carlini et al. 2019).

    In [1 / classes, 1]; larger is easier.
    """
    return _mean_of("agreement", aggregates)


_register_over_training("el2n_mean", "EL2N, mean", "Paul et al. 2021, Definition 2, over training", "el2n", "mean")


@register(
    "el2n_early", "EL2N, mean of the early epochs", measures=("el2n",),
    source="Paul et al. 2021, Definition 2, early in training", larger_is_harder=True, high=math.sqrt(2),
)  # fmt: skip
def el2n_early(aggregates: Aggregates) -> Tensor:
    """EL2N averaged over the early epochs alone (Paul et al. 2021). In [0, sqrt(2)]; larger is harder."""
    return torch.where(aggregates["early_epochs"] > 0, aggregates["el2n_early"], math.nan)


@register("forgetting_events", "Forgetting events", measures=(), source=_TONEVA, larger_is_harder=True)
def forgetting_events(aggregates: Aggregates) -> Tensor:
    """How often the label, having won, lost again (Toneva et al. 2019). Larger is harder.

    A sample that was never learned cannot be forgotten and yet is the hardest: it counts one for every epoch of
    the run, more than any other can have.
    """
    return _or_never(aggregates, aggregates["forgotten"])


@register("learning_events", "Learning events", measures=(), source=_TONEVA, larger_is_harder=True)
def learning_events(aggregates: Aggregates) -> Tensor:
    """How often the label, having lost or at the start, won. Larger is harder; never learned counts every epoch."""
    return _or_never(aggregates, aggregates["learned"])


@register("first_learned", "First learned (epoch)", measures=(), source=_TONEVA, larger_is_harder=True)
def first_learned(aggregates: Aggregates) -> Tensor:
    """Epoch in which the label first won; for a sample never learned, the number of epochs. Larger is harder."""
    return _or_never(aggregates, aggregates["first_correct"])


@register("learned_for_good", "Learned for good (epoch)", measures=(), source=_SPLITS, larger_is_harder=True)
def learned_for_good(aggregates: Aggregates) -> Tensor:
    """First epoch from which on the label always won (first-split learning time, Maini et al. 2022).

    Larger is harder; wrong in its last epoch means one past that epoch.
    """
    return _recorded(aggregates, aggregates["last_wrong"] + 1)


@register(
    "second_split_forgetting", "Second-split forgetting (epoch)", measures=(), source=_SPLITS, larger_is_harder=False,
)  # fmt: skip
def second_split_forgetting(aggregates: Aggregates) -> Tensor:
    """Epoch of the second phase from which on the label never won again (Maini et al. 2022). Larger is easier.

    0: lost at once; one past the phase's last epoch: never lost. NaN without a second phase.
    """
    seen = aggregates["second_epochs"] > 0
    return torch.where(seen, (aggregates["second_last_correct"] + 1).float(), math.nan)


@register(
    "small_loss_gaussian", "Small loss, two Gaussians", measures=("loss",), source="Li et al. 2020, Section 3.1",
    larger_is_harder=True, high=1.0, tags=_WHOLE_SET,
)  # fmt: skip
def small_loss_gaussian(aggregates: Aggregates) -> Tensor:
    """Share of the high one of two Gaussians fitted to mean losses (Li et al. 2020). In [0, 1]; larger is harder."""
    return small_loss_mixture(_mean_of("loss", aggregates), "gaussian")


@register(
    "small_loss_beta", "Small loss, two Betas", measures=("loss",), source="Arazo et al. 2019, Section 3.1",
    larger_is_harder=True, high=1.0, tags=_WHOLE_SET,
)  # fmt: skip
def small_loss_beta(aggregates: Aggregates) -> Tensor:
    """Share of the high one of two Betas fitted to mean losses (Arazo et al. 2019). In [0, 1]; larger is harder."""
    return small_loss_mixture(_mean_of("loss", aggregates), "beta")


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


def _recorded(aggregates: Aggregates, values: Tensor) -> Tensor:
    return torch.where(aggregates["epochs"] > 0, values.float(), math.nan)


def _or_never(aggregates: Aggregates, values: Tensor) -> Tensor:
    """The values, and for samples never learned the number of epochs: of the run, not of those they were shown in.

    So a sample that was shown less often than others does not seem easier than one that was learned.
    """
    learned = aggregates["first_correct"] >= 0
    last_epoch = torch.maximum(aggregates["first_correct"], aggregates["last_wrong"])
    run = torch.maximum(last_epoch + 1, aggregates["epochs"]).amax()
    return _recorded(aggregates, torch.where(learned, values, run))
