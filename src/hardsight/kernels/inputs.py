"""What the doors of this room refuse, each in one sentence.

Shapes and types are looked at everywhere. Values are looked at on a CPU alone: on a GPU the answer would have to be
waited for, longer than a kernel takes, and under `torch.compile` there are no values yet.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# What torch neither compares nor indexes with, and kernels need not know of.
_WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


def check_labels(labels: Any, samples: int, classes: int | None = None, *, ignore_index: int | None = None) -> Tensor:
    """One whole number for each sample; below `classes` where that is given, or `ignore_index`."""
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.dtype == torch.bool:
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(f"labels must be a tensor of integers, a class for each sample; got {kind}")
    if labels.shape != (samples,):
        raise ValueError(f"labels must be one class for each of the {samples} samples; got shape {list(labels.shape)}")
    if labels.dtype in _WIDE_UNSIGNED:
        labels = labels.long()
    if classes is None or not _may_look(labels):
        return labels
    kept = labels if ignore_index is None else labels[labels != ignore_index]
    if kept.numel() and not (int(kept.min()) >= 0 and int(kept.max()) < classes):
        ignored = "" if ignore_index is None else f", or be {ignore_index} where a sample is ignored"
        raise ValueError(
            f"labels must lie in [0, {classes}), the classes{ignored}; got values from {int(kept.min())} "
            f"to {int(kept.max())}"
        )
    return labels


def check_matrix(matrix: Tensor, name: str, shape: str) -> None:
    """Floating point numbers in rows and columns."""
    if matrix.ndim != 2 or not matrix.is_floating_point():
        raise ValueError(f"{name} must be {shape}, floating point; got {list(matrix.shape)} of {matrix.dtype}")
    if not matrix.shape[1]:
        raise ValueError(f"{name} must be {shape}, at least 1 wide; got {list(matrix.shape)}")


def check_head(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Features [samples, dim] and weight [classes, dim], of one dim and at least one class; bias [classes].

    A kernel reads a number of the bias for each class, whether it is there or not.
    """
    if features.ndim != 2 or weight.ndim != 2 or features.shape[1] != weight.shape[1] or not len(weight):
        raise ValueError(
            f"features must be [samples, dim] and weight [classes, dim], of the same dim and at least one class; "
            f"got {list(features.shape)} and {list(weight.shape)}"
        )
    check_matrix(features, "features", "[samples, dim]")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must be one number for each of the {len(weight)} classes; got {list(bias.shape)}")


def check_sample_weight(sample_weight: Tensor | None, samples: int) -> None:
    """One number for each sample, 0 or more."""
    if sample_weight is None:
        return
    if sample_weight.shape != (samples,):
        raise ValueError(
            f"sample_weight must be one number for each of the {samples} samples; got shape {list(sample_weight.shape)}"
        )
    if _may_look(sample_weight) and not bool((sample_weight >= 0).all()):
        raise ValueError(f"sample_weight must be 0 or more throughout; got {float(sample_weight.min())}")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """One of a few words."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_number(name: str, value: Any, least: float = 0.0) -> None:
    """A finite number not below `least`; a tensor of one, which may be trained, is taken as it is."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{name} must be one number; got a tensor of shape {list(value.shape)}")
    elif not least <= value < math.inf:
        raise ValueError(f"{name} must be finite and at least {least:g}; got {value!r}")


def _may_look(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
