"""Checks of arguments that several packages share; each raises one sentence: the parameter, its bound, what came."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def check_features_and_weight(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Features are [N, D] floats and finite, weight is [C, D] with C >= 2, bias is [C]."""
    check_layout(features, weight, bias)
    check_head(weight, bias)
    check_finite("features", features)


def check_layout(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """As `check_features_and_weight`, without a look at any value, which would wait for a GPU."""
    check_matrix("features", features, "[samples, dim]")
    _check_head_layout(weight, bias)
    if features.shape[1] != weight.shape[1]:
        raise ValueError(
            f"features and weight must have the same dim; got features {list(features.shape)}"
            f" and weight {list(weight.shape)}"
        )


def check_head(weight: Tensor, bias: Tensor | None = None) -> None:
    """Weight is [C, D] floats and finite with C >= 2, bias is [C] and finite."""
    _check_head_layout(weight, bias)
    check_finite("weight", weight)
    if bias is not None:
        check_finite("bias", bias)


def _check_head_layout(weight: Tensor, bias: Tensor | None) -> None:
    check_matrix("weight", weight, "[classes, dim]")
    if weight.shape[0] < 2:
        raise ValueError(f"weight must have a row for each of at least 2 classes; got {list(weight.shape)}")
    if bias is None:
        return
    check_tensor("bias", bias)
    if bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have one number for each class {list(weight[:, 0].shape)}; got {list(bias.shape)}")


def check_features(features: Tensor, name: str = "features") -> None:
    """Features are [N, D] floats, finite, and not empty."""
    check_matrix(name, features, "[samples, dim]")
    check_finite(name, features)


def check_logits(logits: Tensor) -> None:
    """Logits are [N, C] floats and finite, with C >= 2."""
    check_matrix("logits", logits, "[samples, classes]")
    if logits.shape[1] < 2:
        raise ValueError(f"logits must have a column for each of at least 2 classes; got {list(logits.shape)}")
    check_finite("logits", logits)


def check_labels(labels: Tensor, samples: int, classes: int, name: str = "labels") -> None:
    """Labels are [N] integers of any width in [0, C)."""
    check_integers(name, labels)
    if labels.shape != (samples,):
        raise ValueError(
            f"{name} must have one class for each of the {samples} samples; got shape {list(labels.shape)}"
        )
    if not may_look(labels):
        return
    # torch compares no unsigned integers of more than 8 bits.
    values = labels.long()
    wrong = (values < 0) | (values >= classes)
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        raise ValueError(
            f"{name} must lie in [0, {classes}), one for each class; "
            f"{int(wrong.sum())} do not, first {name}[{first}] = {labels[first].item()}"
        )


def check_integers(name: str, values: Tensor) -> None:
    """A tensor of integers; bool is none."""
    check_tensor(name, values)
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise TypeError(f"{name} must be integers; got {values.dtype}")


def check_finite(name: str, values: Tensor, start: int = 0) -> None:
    """No NaN and no infinity; says how many rows have one, and which is the first, counted from `start`."""
    if not may_look(values):
        return
    # A row's sum is finite when all of it is: one pass without a mask. Only a suspicion is looked into.
    rows = values.flatten(1) if values.ndim > 1 else values.unsqueeze(1)
    suspects = (~rows.sum(1).isfinite()).nonzero().squeeze(1)
    if not len(suspects):
        return
    bad = suspects[~rows[suspects].isfinite().all(1)]
    if len(bad):
        first = start + int(bad[0])
        raise ValueError(
            f"{name} must be finite; {len(bad)} of {len(rows)} rows hold NaN or infinity, first row {first}"
        )


def check_device(device: torch.device | str) -> torch.device:
    """The device of that name, if it is there and computes."""
    try:
        # Read back: a device that only pretends to compute does not give the number.
        torch.ones(1, device=device).item()
        return torch.device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        reason = str(problem).splitlines()[0][:200]
        raise ValueError(
            f"device must be one that this machine has, cpu or cuda:0, say; got {str(device)!r}: {reason}"
        ) from problem


def check_tensor(name: str, values: Any) -> None:
    """A tensor, not an array of another library, which would end up on another device."""
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; got {type(values).__name__}")


def check_matrix(name: str, values: Tensor, layout: str) -> None:
    """A matrix of floats that is not empty; `layout` names its sides."""
    check_tensor(name, values)
    if not values.is_floating_point():
        raise TypeError(f"{name} must be floating point; got {values.dtype}")
    if values.ndim != 2:
        raise ValueError(f"{name} must be a matrix {layout}; got shape {list(values.shape)}")
    if values.numel() == 0:
        raise ValueError(f"{name} must not be empty; got shape {list(values.shape)}")


def check_count(name: str, value: Any, meaning: str, least: int = 1) -> None:
    """A whole number of at least `least`; `meaning` says what it counts."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, {meaning}; got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, {meaning}; got {value!r}")


def check_share(name: str, value: float, meaning: str) -> None:
    """A number from 0 to 1; `meaning` says of what it is the share."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie in [0, 1], {meaning}; got {value!r}")


def check_classes(name: str, numbers: Tensor | np.ndarray, instead: str = "leave those samples out") -> None:
    """No negative number, which stands for no class as PyTorch's -100 does and would become a class of its own.

    `instead` says what to do with a sample that has no class.
    """
    negative = numbers[numbers < 0]
    if not len(negative):
        return
    among = f" ({len(negative)} of {len(numbers)})" if len(numbers) > 1 else ""
    raise ValueError(
        f"{name} must be 0 or larger, the number of a class; got {int(negative[0])}, which stands for none{among}: "
        f"{instead}"
    )


def may_look(values: Tensor) -> bool:
    """Whether Python may branch on the values: not while torch compiles, nor under `torch.func.vmap`."""
    if torch.compiler.is_compiling():
        return False
    functorch = torch._C._functorch
    # Transforms nest: `vmap` of `grad` wraps a batched tensor once more.
    while functorch.is_functorch_wrapped_tensor(values):
        if functorch.is_batchedtensor(values):
            return False
        values = functorch.get_unwrapped(values)
    return True
