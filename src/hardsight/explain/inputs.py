"""What the functions on models and images check, and how a model runs on images that it may not take."""

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hardsight.validation import check_labels


def as_classes(classes: Tensor | int | None, logits: Float[Tensor, "batch classes"]) -> Int[Tensor, "batch"]:
    """One class for each image: those given, the same for all, or the predicted ones."""
    if logits.ndim != 2:
        raise ValueError(f"model must give logits [samples, classes]; got shape {list(logits.shape)}")
    if classes is None:
        return logits.detach().argmax(1)
    samples, number = logits.shape
    chosen = torch.as_tensor(classes, device=logits.device)
    chosen = chosen if chosen.ndim else chosen.expand(samples)
    check_labels(chosen, samples, number, "classes")
    return chosen.long()


def check_images(images: Tensor) -> None:
    """Images are a batch."""
    if not isinstance(images, Tensor) or images.ndim != 4:
        got = f"shape {list(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"images must be a tensor [samples, channels, height, width]; got {got}")


@contextmanager
def taking(model: nn.Module, images: Tensor) -> Iterator[None]:
    """The model's forward over images: what torch says of those that do not fit, and what to do."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, AssertionError, IndexError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        own = next((one.dtype for one in model.parameters() if one.is_floating_point()), images.dtype)
        advice = f"give the shape of its training, for {list(images.shape)} ended in: {reason}"
        if images.dtype != own and ("type" in reason or "not implemented" in reason):
            floats = "floats as in its training, most often images.float() / 255"
            wanted = f"images.to({own})" if images.is_floating_point() else floats
            advice = f"they are of {images.dtype}, the model of {own}: give {wanted}"
        raise ValueError(f"images must be such as the model takes; {advice}") from error


def check_size(size: Any, expected: str = "(height, width)") -> None:
    """A size is two whole numbers."""
    wrong = not isinstance(size, tuple | list) or any(not isinstance(one, Integral) or one < 1 for one in size)
    if wrong or len(size) != 2:
        raise ValueError(f"size must be {expected}, 1 or more each; got {size!r}")
