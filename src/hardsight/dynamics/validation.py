"""What the recorder refuses, each in one sentence. Shapes are checked at every update, values only on request."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor


def check_batch(ids: Tensor, logits: Tensor, labels: Tensor, num_classes: int | None) -> None:
    """Logits are [batch, classes] floats; ids and labels are [batch] integers."""
    if not (isinstance(ids, Tensor) and isinstance(logits, Tensor) and isinstance(labels, Tensor)):
        named = {"ids": ids, "logits": logits, "labels": labels}
        name, value = next((name, value) for name, value in named.items() if not isinstance(value, Tensor))
        raise TypeError(f"{name} must be a torch.Tensor; got {type(value).__name__}")
    batch, classes = logits.shape if logits.ndim == 2 else (None, None)
    right_types = ids.dtype == labels.dtype == torch.int64 and logits.is_floating_point()
    if right_types and classes == num_classes and ids.shape == labels.shape == (batch,):
        # The ordinary case, at every step.
        return
    if logits.ndim != 2 or not logits.is_floating_point():
        raise ValueError(f"logits must be floats [batch, classes]; got {logits.dtype} {list(logits.shape)}")
    if logits.shape[1] < 2:
        raise ValueError(f"logits must have a column for each of at least 2 classes; got {list(logits.shape)}")
    if num_classes is not None and logits.shape[1] != num_classes:
        raise ValueError(f"logits must have {num_classes} classes as before; got {logits.shape[1]}")
    for name, values in (("ids", ids), ("labels", labels)):
        if values.is_floating_point() or values.dtype == torch.bool:
            raise TypeError(f"{name} must be integers; got {values.dtype}")
        if values.shape != logits.shape[:1]:
            raise ValueError(
                f"{name} must have one entry for each of the {logits.shape[0]} rows of logits; got {list(values.shape)}"
            )


def check_norms(
    logits: Tensor, features_norm: Tensor | None, weight_norm: Tensor | None, bias: Tensor | None, angular: bool
) -> None:
    """Norms come both or not at all; they must come where angles are recorded."""
    if (features_norm is None) != (weight_norm is None):
        given, missing = ("weight_norm", "features_norm") if features_norm is None else ("features_norm", "weight_norm")
        raise ValueError(f"features_norm and weight_norm must come together; got {given} without {missing}")
    if angular and features_norm is None:
        raise ValueError("features_norm and weight_norm must be given, since angles are recorded; got neither")
    batch, classes = logits.shape
    for name, values, count in (
        ("features_norm", features_norm, batch),
        ("weight_norm", weight_norm, classes),
        ("bias", bias, classes),
    ):
        if values is not None and values.shape != (count,):
            raise ValueError(f"{name} must have shape [{count}]; got {list(values.shape)}")


def check_values(ids: Tensor, labels: Tensor, num_samples: int, num_classes: int) -> None:
    """Ids and labels lie in range (or labels below it, for none); looking at them waits for a GPU."""
    for name, values, count, wrong in (
        ("ids", ids, num_samples, (ids < 0) | (ids >= num_samples)),
        ("labels", labels, num_classes, labels >= num_classes),
    ):
        if bool(wrong.any()):
            first = int(wrong.nonzero()[0])
            raise ValueError(f"{name} must lie in [0, {count}); got {int(values[first])} at place {first}")


def check_strays(name: str, count: int, limit: int, epoch: int, uncounted: bool) -> None:
    """No id (or label) of the epoch was out of range."""
    if count:
        said = f"{name} must lie in [0, {limit}); in epoch {epoch} {'some' if uncounted else count} did not"
        if name == "ids":
            said += (
                ": num_samples must exceed the largest id, which in a part of a data set is that of the whole, or "
                "strays='ignore' leaves them out"
            )
        raise ValueError(said)


def check_no_repeats(often: Tensor, first_id: int, epoch: int) -> None:
    """No sample came more than once."""
    repeated = often > 1
    if bool(repeated.any()):
        first = int(repeated.nonzero()[0])
        raise ValueError(
            f"ids must not repeat within an epoch (repeats='refuse'); "
            f"sample {first_id + first} came {int(often[first])} times in epoch {epoch}"
        )


def check_one_label(sample: int | None, epoch: int) -> None:
    """No sample came with different labels."""
    if sample is not None:
        raise ValueError(
            "labels must not change within an epoch (repeats='last' keeps the last); "
            f"sample {sample} came with several in epoch {epoch}, so its id may stand for several samples"
        )


def check_has(state: Mapping[str, Any], names: Iterable[str]) -> None:
    """A state, or a part of it, holds all that a recorder's does."""
    missing = next((name for name in names if name not in state), None)
    if missing is not None:
        raise ValueError(f"state must be what a recorder's state_dict() gave; it has no {missing!r}")


def check_state(recorder: Any, state: Mapping[str, Any], measures: tuple[str, ...] | None) -> None:
    """A state fits a recorder of the same samples, classes and policies that needs the same measures."""
    policies = ("num_samples", "num_classes", "repeats", "early_epochs")
    check_has(state, (*policies, "measures", "phase", "finished", "aggregates", "ledger"))
    for name in policies:
        own = getattr(recorder, name)
        if own is not None and state[name] != own:
            raise ValueError(f"state must be of a recorder with {name}={own!r}; got {state[name]!r}")
    if measures is not None and tuple(state["measures"]) != measures:
        raise ValueError(f"state must hold what the scores need, {list(measures)}; got {state['measures']}")
