"""Slopes of the loss by products turned into gradients by features and weight, tangent to the sphere."""

import torch
from torch import Tensor

from hardsight.kernels.dispatch import blocks_of, held_dtype, on_device_of, padded, product
from hardsight.kernels.fused.angular_norms import can_be_described, processors_of, serves_hopper
from hardsight.kernels.fused.directions import project

# Of a tile: samples, classes that are summed at a time, dimensions; and stages of loading ahead.
_SAMPLES, _CLASSES, _DIM, _STAGES = 128, 64, 256, 3


def gradients_from_slopes(
    slopes: Tensor, along: Tensor, by_weight: Tensor | None, features: Tensor, weight: Tensor, inverses: Tensor,
    factor: Tensor, upstream: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """factor times upstream times the tangent parts of slopes @ weight and, where it is given, of `by_weight`.

    `along` says how many times the features lie in slopes @ weight. The slopes may be wider than there are classes.
    """
    features, weight = features.contiguous(), weight.contiguous()
    if _fits_hopper(slopes, features, weight):
        found = [tangent_product(slopes[:, : len(weight)], weight, features, along, factor, upstream)]
        if by_weight is not None:
            found += project([by_weight], [weight], inverses, len(features), factor, upstream)
        return found
    wide = padded(weight)
    made = torch.empty(features.shape, dtype=held_dtype(features.dtype), device=features.device)
    gradients, vectors = [product(slopes[:, : len(wide)], wide, made)], [features]
    if by_weight is not None:
        gradients, vectors = [*gradients, by_weight], [*vectors, weight]
    return project(gradients, vectors, inverses, 0, factor, upstream)


def tangent_product(
    slopes: Tensor, weight: Tensor, features: Tensor, along: Tensor, factor: Tensor, upstream: Tensor | None
) -> Tensor:
    """factor upstream (slopes @ weight - along features) in one kernel, on Hopper."""
    from hardsight.kernels.fused import tangent_product_hopper as hopper
    from hardsight.kernels.fused.angular_scan_hopper import describe

    samples, dim = features.shape
    out = torch.empty_like(features)
    # By torch, also because a thread of autograd's that has not yet used the device cannot describe tensors to it.
    scale = factor[0] if upstream is None else factor[0] * upstream
    across = blocks_of(dim, _DIM)
    items = blocks_of(samples, _SAMPLES) * across
    with on_device_of(features):
        hopper.tangent_tiles[(min(items, processors_of(features.device)),)](
            describe(slopes, _SAMPLES, _CLASSES), describe(weight, _CLASSES, _DIM), describe(features, _SAMPLES, _DIM),
            describe(out, _SAMPLES, _DIM), along, scale, samples, len(weight), across, items,
            STAGES=_STAGES, LARGEST=torch.finfo(features.dtype).max, num_warps=8,
        )  # fmt: skip
    return out


def _fits_hopper(slopes: Tensor, features: Tensor, weight: Tensor) -> bool:
    """Whether the kernel for Hopper serves: half precision that the copy engine can address, and enough of it."""
    half = features.dtype in (torch.bfloat16, torch.float16)
    enough = len(features) >= 1024 and features.shape[1] >= _DIM and len(weight) >= _CLASSES
    described = all(can_be_described(one) for one in (slopes, features, weight))
    return half and enough and described and serves_hopper(features.device)
