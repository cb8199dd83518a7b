"""What scoring a model refuses, each in one sentence: a device, a loader, a batch that the model does not take."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor


def check_loader(loader: Iterable[Any]) -> None:
    """A loader yields batches; one batch in its place would be taken for many."""
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        raise TypeError(f"loader must yield batches, as a DataLoader does; got {type(loader).__name__}")
    if isinstance(loader, Tensor | np.ndarray | Mapping) or _is_batch(loader):
        raise TypeError("loader must yield batches, as a DataLoader does; got one batch: give it as [batch]")


def _is_batch(loader: Any) -> bool:
    """Whether this is (images, labels) or (images, labels, ids): one whole number a sample stands second."""
    if not isinstance(loader, tuple | list) or len(loader) not in (2, 3):
        return False
    images, labels = loader[:2]
    if not isinstance(images, Tensor | np.ndarray) or images.ndim < 2:
        return False
    if isinstance(labels, list):
        return len(labels) == len(images) and all(isinstance(one, int) for one in labels)
    if not isinstance(labels, Tensor | np.ndarray) or labels.ndim != 1:
        return False
    whole = labels.dtype.kind in "iu" if isinstance(labels, np.ndarray) else not labels.is_floating_point()
    return whole and len(labels) == len(images)


@contextmanager
def taking(inputs: Any, batch: int, dtype: torch.dtype) -> Iterator[None]:
    """The model's forward over a batch of the loader: what torch says of one that does not fit, and what to do."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, AssertionError, IndexError) as error:
        raise ValueError(
            f"loader must yield batches that the model takes; {_advice(inputs, batch, dtype, error)}"
        ) from error


def reason_of(error: Exception) -> str:
    """What went wrong in a model's forward, in one line."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if "does not require grad" in reason:
        return "its forward takes derivatives, which needs `with torch.enable_grad():` around them there"
    return reason


def _advice(inputs: Any, batch: int, dtype: torch.dtype, error: Exception) -> str:
    reason = reason_of(error)
    if not isinstance(inputs, Tensor):
        return f"batch {batch}, a dictionary of {', '.join(map(str, inputs)) or 'nothing'}, ended in: {reason}"
    if inputs.dtype != dtype and ("type" in reason or "not implemented" in reason):
        floats = "floats as in its training, most often images.float() / 255"
        wanted = f"images.to({dtype})" if inputs.is_floating_point() else floats
        return f"batch {batch} is of {inputs.dtype}, the model of {dtype}: give {wanted}"
    return f"give the shape of its training, for batch {batch} of shape {list(inputs.shape)} ended in: {reason}"
