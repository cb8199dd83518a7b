"""What the public door of the scores refuses, each in one sentence."""

import torch
from torch import Tensor


def check_features_and_weight(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Features are [N, D] floats and finite, weight is [C, D] with C >= 2, bias is [C]."""
    _check_matrix("features", features, "[samples, dim]")
    check_head(weight, bias)
    if features.shape[1] != weight.shape[1]:
        raise ValueError(
            f"features and weight must have the same dim; got features {_shape(features)} and weight {_shape(weight)}"
        )
    check_finite("features", features)


def check_head(weight: Tensor, bias: Tensor | None = None) -> None:
    """Weight is [C, D] floats and finite with C >= 2, bias is [C] and finite."""
    _check_matrix("weight", weight, "[classes, dim]")
    if weight.shape[0] < 2:
        raise ValueError(f"weight must have a row for each of at least 2 classes; got {_shape(weight)}")
    check_finite("weight", weight)
    if bias is None:
        return
    _check_tensor("bias", bias)
    if bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have one number for each class {_shape(weight[:, 0])}; got {_shape(bias)}")
    check_finite("bias", bias)


def check_features(features: Tensor) -> None:
    """Features are [N, D] floats and finite."""
    _check_matrix("features", features, "[samples, dim]")
    check_finite("features", features)


def check_logits(logits: Tensor) -> None:
    """Logits are [N, C] floats and finite, with C >= 2."""
    _check_matrix("logits", logits, "[samples, classes]")
    if logits.shape[1] < 2:
        raise ValueError(f"logits must have a column for each of at least 2 classes; got {_shape(logits)}")
    check_finite("logits", logits)


def check_labels(labels: Tensor, samples: int, classes: int) -> None:
    """Labels are [N] integers in [0, C)."""
    _check_tensor("labels", labels)
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers, the class of each sample; got {labels.dtype}")
    if labels.shape != (samples,):
        raise ValueError(f"labels must have one class for each of the {samples} samples; got shape {_shape(labels)}")
    if torch.compiler.is_compiling():
        return
    wrong = (labels < 0) | (labels >= classes)
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        raise ValueError(
            f"labels must lie in [0, {classes}), one for each class; "
            f"{int(wrong.sum())} do not, first labels[{first}] = {int(labels[first])}"
        )


def check_finite(name: str, values: Tensor) -> None:
    """No NaN and no infinity; says how many rows have one, and which is the first."""
    if torch.compiler.is_compiling():
        return
    # A row's sum is finite when all of it is: one pass without a mask. Only a suspicion is looked into.
    rows = values.flatten(1) if values.ndim > 1 else values.unsqueeze(1)
    suspects = (~rows.sum(1).isfinite()).nonzero().squeeze(1)
    if not len(suspects):
        return
    bad = suspects[~rows[suspects].isfinite().all(1)]
    if len(bad):
        raise ValueError(
            f"{name} must be finite; {len(bad)} of {len(rows)} rows hold NaN or infinity, first row {int(bad[0])}"
        )


def _check_tensor(name: str, values: Tensor) -> None:
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; got {type(values).__name__}")


def _check_matrix(name: str, values: Tensor, layout: str) -> None:
    _check_tensor(name, values)
    if not values.is_floating_point():
        raise TypeError(f"{name} must be floating point; got {values.dtype}")
    if values.ndim != 2:
        raise ValueError(f"{name} must be a matrix {layout}; got shape {_shape(values)}")
    if values.numel() == 0:
        raise ValueError(f"{name} must not be empty; got shape {_shape(values)}")


def _shape(values: Tensor) -> str:
    return str(list(values.shape))
