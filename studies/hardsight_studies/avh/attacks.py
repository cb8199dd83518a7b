"""Gradient attacks: FGSM (Goodfellow et al. 2015) and PGD (Madry et al. 2018), untargeted, with bounded pixels.

Images are floats in [0, 1] before normalisation, so that a radius is a share of a pixel's range; the classifier is any
function from such images to logits.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Images = Float[Tensor, "samples channels height width"]
Classify = Callable[[Tensor], Tensor]


def fgsm(classify: Classify, images: Images, labels: Int[Tensor, "samples"], radius: float) -> Images:
    """One step of `radius` along the sign of the cross-entropy's gradient, cut to [0, 1]."""
    _check(images, labels, radius=radius)
    return (images + radius * _slope(classify, images, labels).sign()).clamp(0, 1)


def fgsm_path(
    classify: Classify, images: Images, labels: Int[Tensor, "samples"], radius: float, steps: int
) -> list[Images]:
    """FGSM's images at 0, 1 / `steps`, 2 / `steps`, ... of the radius: one gradient, whose sign is that of all."""
    moved = fgsm(classify, images, labels, radius) - images
    # Cut, not shrunk: a pixel near the end of its range reaches it at a small radius already.
    return [images + moved.clamp(-radius * at / steps, radius * at / steps) for at in range(steps + 1)]


def pgd(
    classify: Classify,
    images: Images,
    labels: Int[Tensor, "samples"],
    *,
    radius: float,
    step: float,
    steps: int,
    generator: torch.Generator | None = None,
) -> list[Images]:
    """The images after 0, 1, ..., `steps` steps of `step` up the loss's sign gradient, each put back into the ball.

    The ball is that of the largest change of a pixel, `radius`, around the images, cut to [0, 1]. With a generator the
    path starts at a point drawn uniformly from the ball, otherwise at the images themselves.
    """
    _check(images, labels, radius=radius, step=step)
    if steps < 1:
        raise ValueError(f"steps must be at least 1; got {steps!r}")
    low, high = (images - radius).clamp(0, 1), (images + radius).clamp(0, 1)
    at = images.clone()
    if generator is not None:
        drawn = torch.rand(images.shape, generator=generator, device=generator.device, dtype=images.dtype)
        at = (at + radius * (2 * drawn.to(images.device) - 1)).clamp(0, 1)
    path = [at]
    for _ in range(steps):
        moved = at + step * _slope(classify, at, labels).sign()
        at = torch.minimum(torch.maximum(moved, low), high)
        path.append(at)
    return path


def _slope(classify: Classify, images: Tensor, labels: Tensor) -> Tensor:
    """Along the gradient of each image's own cross-entropy in its pixels; parameters get none."""
    leaf, column = images.detach().requires_grad_(), labels.unsqueeze(1)
    with torch.enable_grad():
        logits = classify(leaf)
        # Cross-entropy's gradient without its factor 1 - p, which is 0 in float32 where the network is sure enough.
        others = logits.scatter(1, column, -math.inf).logsumexp(1)
        # Summed, not averaged: an image's gradient must not depend on how many are attacked with it.
        (slope,) = torch.autograd.grad((others - logits.gather(1, column).squeeze(1)).sum(), leaf)
    return slope


def _check(images: Tensor, labels: Tensor, **sizes: float) -> None:
    if len(labels) != len(images):
        raise ValueError(f"labels must be one an image, {len(images)}; got {len(labels)}")
    low, high = (float(images.min()), float(images.max())) if len(images) else (0.0, 1.0)
    if not (low >= 0 and high <= 1):
        raise ValueError(f"images must lie in [0, 1], before normalisation; got {low:.3g} to {high:.3g}")
    for name, size in sizes.items():
        if not 0 < size <= 1:
            raise ValueError(f"{name} must lie in (0, 1], a share of a pixel's range; got {size!r}")
