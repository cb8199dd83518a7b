"""Label correction by a trained model, and how well a model has fitted the right and the wrong labels.

Gradient Rescaling, Appendix E: train on the noisy labels, relabel the training set by what the model predicts, train
again. These are the pure parts: the new labels, and the columns of that paper's Table 11.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hardsight.validation import check_classes


def correct_labels(
    labels: Int[Tensor, "samples"],
    predicted: Int[Tensor, "samples"],
    *,
    confidence: Float[Tensor, "samples"] | None = None,
    minimum_confidence: float = 0.0,
    among: Bool[Tensor, "samples"] | None = None,
) -> Int[Tensor, "samples"]:
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
    return torch.where(allowed, predicted, labels)


def fitting(
    predicted: Int[Tensor, "samples"], labels: Int[Tensor, "samples"], true_labels: Int[Tensor, "samples"]
) -> dict[str, float]:
    """How far the predictions follow the given labels, on the right and on the wrong ones (GR, Table 11), in [0, 1].

    `noisy_accuracy` and `intact_accuracy` are agreement with the given and with the true labels over all samples;
    `clean_fitting` and `noisy_fitting` are agreement with the given label where that is right and where it is wrong.
    A share of no samples is NaN. noisy_accuracy = (1 - r) clean_fitting + r noisy_fitting at `noise_rate` r.
    """
    check_classes("labels", labels)
    check_classes("true_labels", true_labels)
    right, follows = labels == true_labels, predicted == labels
    shares = {
        "noise_rate": ~right,
        "noisy_accuracy": follows,
        "intact_accuracy": predicted == true_labels,
        "clean_fitting": follows[right],
        "noisy_fitting": follows[~right],
    }
    return {name: float(mask.double().mean()) for name, mask in shares.items()}


def correction_report(
    labels: Int[Tensor, "samples"], corrected: Int[Tensor, "samples"], true_labels: Int[Tensor, "samples"]
) -> dict[str, int]:
    """What changing `labels` to `corrected` did, counted against the true labels: it gained `repaired - damaged`.

    Wrong labels are `repaired`, or `still_wrong` where they became another wrong class; right ones are `damaged`.
    `samples`, `wrong_before` and `wrong_after` count all of them, and the wrong ones among them.
    """
    for name, classes in (("labels", labels), ("corrected", corrected), ("true_labels", true_labels)):
        check_classes(name, classes)
    wrong, still = labels != true_labels, corrected != true_labels
    counted = {
        "wrong_before": wrong,
        "wrong_after": still,
        "repaired": wrong & ~still,
        "damaged": ~wrong & still,
        "still_wrong": wrong & still & (labels != corrected),
    }
    return {"samples": len(labels)} | {name: int(mask.sum()) for name, mask in counted.items()}
