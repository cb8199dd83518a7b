"""The scores of training dynamics: pure functions of the recorder's aggregates, one number a sample.

A sample that was never recorded has no score: its entry is NaN. Epochs are numbered from 0.
"""

import math

import torch
from torch import Tensor

from hardsight.dynamics.aggregates import Aggregates
from hardsight.dynamics.mixture import small_loss_mixture


def mean_of(measure: str, aggregates: Aggregates) -> Tensor:
    """Average of a measure over the epochs in which the sample was seen."""
    return _recorded(aggregates, aggregates[f"{measure}_mean"])


def last_of(measure: str, aggregates: Aggregates) -> Tensor:
    """A measure's value in the last epoch in which the sample was seen."""
    return _recorded(aggregates, aggregates[f"{measure}_last"])


def avh_mean(aggregates: Aggregates) -> Tensor:
    """AVH averaged over the epochs. In [0, 1]; larger is harder."""
    return mean_of("avh", aggregates)


def avh_last(aggregates: Aggregates) -> Tensor:
    """AVH in the last epoch. In [0, 1]; larger is harder."""
    return last_of("avh", aggregates)


def avh_slope(aggregates: Aggregates) -> Tensor:
    """Least-squares slope of AVH over the epochs, a change per epoch; 0 for a sample seen once.

    In [-1, 1]; larger is harder: negative while a sample is being learned.
    """
    spread = aggregates["epoch_moments"]
    slope = aggregates["avh_trend"] / torch.where(spread > 0, spread, 1.0)
    return _recorded(aggregates, torch.where(spread > 0, slope, 0.0))


def angular_margin_mean(aggregates: Aggregates) -> Tensor:
    """Angular margin (radians) averaged over the epochs. In [-pi, pi]; larger is easier."""
    return mean_of("angular_margin", aggregates)


def angular_margin_last(aggregates: Aggregates) -> Tensor:
    """Angular margin (radians) in the last epoch. In [-pi, pi]; larger is easier."""
    return last_of("angular_margin", aggregates)


def area_under_margin(aggregates: Aggregates) -> Tensor:
    """Logit margin averaged over the epochs (Pleiss et al. 2020). Larger is easier; mislabelled ones are negative."""
    return mean_of("margin", aggregates)


def margin_last(aggregates: Aggregates) -> Tensor:
    """Logit margin in the last epoch. Larger is easier."""
    return last_of("margin", aggregates)


def loss_mean(aggregates: Aggregates) -> Tensor:
    """Cross-entropy averaged over the epochs: the area under the loss curve, per epoch. Larger is harder."""
    return mean_of("loss", aggregates)


def loss_last(aggregates: Aggregates) -> Tensor:
    """Cross-entropy in the last epoch. Larger is harder."""
    return last_of("loss", aggregates)


def confidence_mean(aggregates: Aggregates) -> Tensor:
    """Probability of the label averaged over the epochs (data maps). In [0, 1]; larger is easier."""
    return mean_of("confidence", aggregates)


def variability(aggregates: Aggregates) -> Tensor:
    """Standard deviation over the epochs of the label's probability (data maps). In [0, 1/2]; larger is ambiguous."""
    return epistemic(aggregates).sqrt()


def correctness(aggregates: Aggregates) -> Tensor:
    """Share of the epochs in which the label won (data maps). In [0, 1]; larger is easier."""
    return _recorded(aggregates, aggregates["correct_sum"] / aggregates["epochs"])


def aleatoric(aggregates: Aggregates) -> Tensor:
    """Mean over the epochs of p (1 - p), p the label's probability (Data-IQ). In [0, 1/4]; larger is ambiguous.

    As mean p (1 - mean p) - variance: right to a float32's rounding of 1, about 1e-7.
    """
    mean = mean_of("confidence", aggregates)
    return (mean * (1 - mean) - epistemic(aggregates)).clamp(min=0.0)


def epistemic(aggregates: Aggregates) -> Tensor:
    """Variance over the epochs of the label's probability (Data-IQ). In [0, 1/4]; larger is less settled.

    The square of `variability`: both rank samples alike.
    """
    return _recorded(aggregates, aggregates["confidence_moments"] / aggregates["epochs"])


def agreement(aggregates: Aggregates) -> Tensor:
    """Probability of the most probable class averaged over the epochs, labels aside (Carlini et al. 2019).

    In [1 / classes, 1]; larger is easier.
    """
    return mean_of("agreement", aggregates)


def el2n_mean(aggregates: Aggregates) -> Tensor:
    """EL2N averaged over all epochs. In [0, sqrt(2)]; larger is harder."""
    return mean_of("el2n", aggregates)


def el2n_early(aggregates: Aggregates) -> Tensor:
    """EL2N averaged over the early epochs alone (Paul et al. 2021). In [0, sqrt(2)]; larger is harder."""
    return torch.where(aggregates["early_epochs"] > 0, aggregates["el2n_early"], math.nan)


def forgetting_events(aggregates: Aggregates) -> Tensor:
    """How often the label, having won, lost again (Toneva et al. 2019). Larger is harder.

    A sample that was never learned cannot be forgotten and yet is the hardest: it counts one for every epoch of
    the run, more than any other can have.
    """
    return _or_never(aggregates, aggregates["forgotten"])


def learning_events(aggregates: Aggregates) -> Tensor:
    """How often the label, having lost or at the start, won. Larger is harder; never learned counts every epoch."""
    return _or_never(aggregates, aggregates["learned"])


def first_learned(aggregates: Aggregates) -> Tensor:
    """Epoch in which the label first won; for a sample never learned, the number of epochs. Larger is harder."""
    return _or_never(aggregates, aggregates["first_correct"])


def learned_for_good(aggregates: Aggregates) -> Tensor:
    """First epoch from which on the label always won (first-split learning time, Maini et al. 2022).

    Larger is harder; wrong in its last epoch means one past that epoch.
    """
    return _recorded(aggregates, aggregates["last_wrong"] + 1)


def second_split_forgetting(aggregates: Aggregates) -> Tensor:
    """Epoch of the second phase from which on the label never won again (Maini et al. 2022). Larger is easier.

    0: lost at once; one past the phase's last epoch: never lost. NaN without a second phase.
    """
    seen = aggregates["second_epochs"] > 0
    return torch.where(seen, (aggregates["second_last_correct"] + 1).float(), math.nan)


def small_loss_gaussian(aggregates: Aggregates) -> Tensor:
    """Share of the high one of two Gaussians fitted to mean losses (Li et al. 2020). In [0, 1]; larger is harder."""
    return small_loss_mixture(loss_mean(aggregates), "gaussian")


def small_loss_beta(aggregates: Aggregates) -> Tensor:
    """Share of the high one of two Betas fitted to mean losses (Arazo et al. 2019). In [0, 1]; larger is harder."""
    return small_loss_mixture(loss_mean(aggregates), "beta")


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
