"""Images changed against a network: as little as they can be to be recognised wrongly."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Integer
from torch import Tensor


def adversarial(
    model: Callable[[Tensor], Tensor],
    images: Float[Tensor, "samples *shape"],
    labels: Integer[Tensor, "samples"],
    *,
    epsilon: int | float,
    steps: int = 1,
    step_size: int | float | None = None,
    low: int | float = -math.inf,
    high: int | float = math.inf,
) -> Float[Tensor, "samples *shape"]:
    """Move every value by at most `epsilon` so that the cross-entropy of the labels grows.

    One step is the fast gradient sign method (Goodfellow et al., 2015), several are projected gradient descent (Madry
    et al., 2018), from the image itself; `step_size` is then 2.5 epsilon / steps unless given. The values stay in
    [low, high]. The model is taken in the mode it is in; its parameters and their gradients are left alone.
    """
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be a number not below 0, the largest change of a value; got {epsilon!r}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1; got {steps!r}")
    if len(images) != len(labels):
        raise ValueError(f"labels must be one an image; got {len(labels)} labels for {len(images)} images")
    size = (epsilon if steps == 1 else 2.5 * epsilon / steps) if step_size is None else step_size
    moved = images.detach().clone()
    for _ in range(steps):
        moved.requires_grad_()
        with torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(model(moved), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, moved)
        moved = (moved.detach() + size * gradient.sign()).clamp(low, high)
        moved = torch.minimum(torch.maximum(moved, images - epsilon), images + epsilon)
    return moved.detach()
