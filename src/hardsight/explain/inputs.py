"""What the doors of this room refuse, each in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hardsight.geometry import directions
from hardsight.names import check_name

METRICS = ("angle", "euclidean")


def as_classes(classes: Tensor | int | None, logits: Float[Tensor, "batch classes"]) -> Int[Tensor, "batch"]:
    """One class for each image: those given, the same for all, or the predicted ones."""
    if logits.ndim != 2:
        raise ValueError(f"model must give logits [samples, classes]; got shape {list(logits.shape)}")
    if classes is None:
        return logits.detach().argmax(1)
    samples, number = logits.shape
    chosen = _numbers(classes, "classes").to(logits.device)
    if chosen.is_floating_point() or chosen.dtype == torch.bool:
        raise TypeError(f"classes must be integers; got {chosen.dtype}")
    if chosen.ndim and chosen.shape != (samples,):
        raise ValueError(f"classes must be one for each of the {samples} images; got shape {list(chosen.shape)}")
    if samples and (int(chosen.min()) < 0 or int(chosen.max()) >= number):
        raise ValueError(
            f"classes must lie in [0, {number}), one for each logit; "
            f"got values from {int(chosen.min())} to {int(chosen.max())}"
        )
    return chosen.long().expand(samples)


def check_tensor(name: str, value: Any) -> None:
    """An array of another library is refused, not turned into a tensor on another device."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch tensor; got {type(value).__name__}")


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
    if (
        not isinstance(size, tuple | list)
        or len(size) != 2
        or any(not isinstance(one, Integral) or one < 1 for one in size)
    ):
        raise ValueError(f"size must be {expected}, 1 or more each; got {size!r}")


def check_features(features: Tensor, name: str = "features") -> None:
    """Features are [N, D] floats, finite, with at least one sample."""
    if not isinstance(features, Tensor) or not features.is_floating_point():
        kind = features.dtype if isinstance(features, Tensor) else type(features).__name__
        raise TypeError(f"{name} must be a tensor of floating point; got {kind}")
    if features.ndim != 2 or features.numel() == 0:
        raise ValueError(f"{name} must be a matrix [samples, dim] and not empty; got shape {list(features.shape)}")
    bad = ~features.isfinite().all(1)
    if bool(bad.any()):
        raise ValueError(
            f"{name} must be finite; {int(bad.sum())} of {len(bad)} rows hold NaN or infinity, "
            f"first row {int(bad.nonzero()[0])}"
        )


def as_points(features: Float[Tensor, "samples dim"], metric: str) -> Float[Tensor, "samples dim"]:
    """What distances are measured between: the features' directions, or the features themselves brought near one.

    Neither clusters nor neighbours depend on scale, and a power of two is exact: no square overflows or vanishes.
    """
    check_name("metric", metric, METRICS)
    if metric == "angle":
        return directions(features)
    wide = features.double()
    exponent = torch.frexp(wide.abs().max()).exponent.clamp(-1000, 1000)
    return torch.ldexp(wide, -exponent).to(features.dtype)


def class_positions(labels: Any, samples: int | None = None, name: str = "labels") -> tuple[Tensor, Int[Tensor, "n"]]:
    """The classes that occur, in order, and each sample's position among them; any integers will do."""
    values = _numbers(labels, name).detach()
    if values.numel() == 0:
        raise ValueError(f"{name} must hold the class of at least one sample; got none")
    if values.is_floating_point() or values.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, the class of each sample; got {values.dtype}")
    if values.ndim != 1 or (samples is not None and len(values) != samples):
        expected = "" if samples is None else f" of the {samples} samples"
        raise ValueError(f"{name} must be one class for each{expected}; got shape {list(values.shape)}")
    classes, positions = values.unique(return_inverse=True)
    return classes, positions


def _numbers(values: Any, name: str) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be integers, in a tensor or a list; got {values!r:.60}") from None


def check_several(classes: Tensor, purpose: str, name: str = "labels") -> None:
    """At least two classes: with one there is nothing to tell apart."""
    if len(classes) < 2:
        raise ValueError(f"{name} must hold at least 2 classes for {purpose}; got only class {int(classes[0])}")
