"""Gradients by directions: the part of a gradient along the sphere, for the losses that see angles alone."""

from typing import Any

import torch
from torch import Tensor

from hardsight.kernels.dispatch import call


def project_gradients(
    gradients: list[Tensor],
    vectors: list[Tensor],
    inverses: Tensor,
    offset: int,
    factor: Tensor,
    upstream: Tensor | None,
) -> list[Tensor]:
    """factor times upstream times the gradients' part along the sphere at each vector, in the vectors' dtype."""
    if not vectors:
        return []
    return call(_project_gradients_op, _project_gradients, gradients, vectors, inverses, offset, factor, upstream)


def _project_gradients(
    gradients: list[Tensor],
    vectors: list[Tensor],
    inverses: Tensor,
    offset: int,
    factor: Tensor,
    upstream: Tensor | None,
) -> list[Tensor]:
    from hardsight.kernels.fused import directions as fused

    return fused.project(gradients, [one.contiguous() for one in vectors], inverses, offset, factor, upstream)


_project_gradients_op = torch.library.custom_op("hardsight::project_gradients", _project_gradients, mutates_args=())


@_project_gradients_op.register_fake
def _(gradients: list[Tensor], vectors: list[Tensor], *_: Any) -> list[Tensor]:
    return [one.new_empty(one.shape) for one in vectors]
