"""Label correction by a trained model, and how well a model has fitted the right and the wrong labels.

Gradient Rescaling, Appendix E: train on the noisy labels, relabel the training set by what the model predicts, train
again. These are the pure parts: the new labels, and the columns of that paper's Table 11.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hardsight.validation import check_classes


@dataclass(frozen=True)
class Correction:
    """Corrected labels and where they differ from the given ones."""

    labels: Tensor
    changed: Tensor

    @property
    def count(self) -> int:
        """How many labels were changed."""
        return int(self.changed.sum())


@dataclass(frozen=True)
class Fitting:
    """What a model has learned of a training set whose true labels are known; shares in [0, 1].

    `noisy_accuracy` and `intact_accuracy` are agreement with the given and with the true labels over all samples;
    `clean_fitting` and `noisy_fitting` are agreement with the given label where that is right and where it is wrong.
    A share of no samples is NaN. noisy_accuracy = (1 - r) clean_fitting + r noisy_fitting at noise rate r.
    """

    noise_rate: float
    noisy_accuracy: float
    intact_accuracy: float
    clean_fitting: float
    noisy_fitting: float


@dataclass(frozen=True)
class CorrectionReport:
    """What a correction did, counted against the true labels. `repaired - damaged` is what it gained.

    Wrong labels are `repaired`, or `still_wrong` where they became another wrong class; right ones are `damaged`.
    """

    samples: int
    wrong_before: int
    wrong_after: int
    repaired: int
    damaged: int
    still_wrong: int


def correct_labels(
    labels: Int[Tensor, "samples"],
    predicted: Int[Tensor, "samples"],
    *,
    confidence: Float[Tensor, "samples"] | None = None,
    minimum_confidence: float = 0.0,
    among: Bool[Tensor, "samples"] | None = None,
) -> Correction:
    """The model's prediction in place of each label; with `minimum_confidence` only where the model is that sure.

    `among` limits the change to suspected samples. With neither, this is the paper's correction: every label becomes
    the prediction. The given labels are not changed. A negative prediction is none, and is rejected where it would be
    taken over.
    """
    if not 0 <= minimum_confidence <= 1:
        raise ValueError(f"minimum_confidence must lie in [0, 1], a probability; got {minimum_confidence!r}")
    if minimum_confidence > 0 and confidence is None:
        raise ValueError("confidence must be given where minimum_confidence is, the probability of each prediction")
    allowed = torch.ones_like(labels, dtype=torch.bool) if among is None else among.clone()
    if confidence is not None:
        allowed &= confidence >= minimum_confidence
    check_classes("predicted", predicted[allowed])
    corrected = torch.where(allowed, predicted, labels)
    return Correction(corrected, corrected != labels)


def fitting(
    predicted: Int[Tensor, "samples"], labels: Int[Tensor, "samples"], true_labels: Int[Tensor, "samples"]
) -> Fitting:
    """How far the predictions follow the given labels, on the right and on the wrong ones (GR, Table 11)."""
    check_classes("labels", labels)
    check_classes("true_labels", true_labels)
    right = labels == true_labels
    follows = predicted == labels
    return Fitting(
        noise_rate=_share(~right),
        noisy_accuracy=_share(follows),
        intact_accuracy=_share(predicted == true_labels),
        clean_fitting=_share(follows[right]),
        noisy_fitting=_share(follows[~right]),
    )


def correction_report(
    labels: Int[Tensor, "samples"], corrected: Int[Tensor, "samples"], true_labels: Int[Tensor, "samples"]
) -> CorrectionReport:
    """What changing `labels` to `corrected` repaired and damaged."""
    for name, classes in (("labels", labels), ("corrected", corrected), ("true_labels", true_labels)):
        check_classes(name, classes)
    wrong, still = labels != true_labels, corrected != true_labels
    return CorrectionReport(
        samples=len(labels),
        wrong_before=int(wrong.sum()),
        wrong_after=int(still.sum()),
        repaired=int((wrong & ~still).sum()),
        damaged=int((~wrong & still).sum()),
        still_wrong=int((wrong & still & (labels != corrected)).sum()),
    )


def _share(mask: Tensor) -> float:
    return float(mask.double().mean())
