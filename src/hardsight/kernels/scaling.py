"""Gradients that were made in the forward pass, multiplied by what comes from above in the backward pass."""

import torch
from torch import Tensor

from hardsight.kernels.dispatch import call

# Whether the graph is kept for another backward pass; a torch that cannot say is taken to keep it.
_graph_is_kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def scaled_gradients(
    gradients: list[Tensor],
    upstream: Tensor | None,
    log_divisor: Tensor | None,
    dtype: torch.dtype,
    bias_dtype: torch.dtype | None = None,
    shift: float = 0.0,
) -> list[Tensor]:
    """One to three gradients times upstream and exp(shift) / divisor, where these are given, in one dtype.

    `bias_dtype` is that of the last one, where it has its own. For a backward pass, and gradients that nobody else
    holds: they are written over where no other pass can ask for them again.
    """
    if _dtypes(gradients, dtype, bias_dtype) == [one.dtype for one in gradients]:
        if upstream is None and log_divisor is None:
            return gradients
        if type(upstream) is Tensor and not torch.compiler.is_compiling() and not _graph_is_kept():
            from hardsight.kernels.fused import scaling as fused

            fused.scale(gradients, gradients, upstream, log_divisor, shift)
            return gradients
    return call(_scaled_op, _scaled, gradients, upstream, log_divisor, dtype, bias_dtype, shift)


def _scaled(
    gradients: list[Tensor],
    upstream: Tensor | None,
    log_divisor: Tensor | None,
    dtype: torch.dtype,
    bias_dtype: torch.dtype | None,
    shift: float,
) -> list[Tensor]:
    from hardsight.kernels.fused import scaling as fused

    out = _empty(gradients, dtype, bias_dtype)
    fused.scale(gradients, out, upstream, log_divisor, shift)
    return out


def _empty(gradients: list[Tensor], dtype: torch.dtype, bias_dtype: torch.dtype | None) -> list[Tensor]:
    dtypes = _dtypes(gradients, dtype, bias_dtype)
    return [one.new_empty(one.shape, dtype=kind) for one, kind in zip(gradients, dtypes, strict=True)]


def _dtypes(gradients: list[Tensor], dtype: torch.dtype, bias_dtype: torch.dtype | None) -> list[torch.dtype]:
    dtypes = [dtype] * len(gradients)
    return dtypes if bias_dtype is None else [*dtypes[:-1], bias_dtype]


_scaled_op = torch.library.custom_op("hardsight::scaled_gradients", _scaled, mutates_args=())


@_scaled_op.register_fake
def _(
    gradients: list[Tensor],
    upstream: Tensor | None,
    log_divisor: Tensor | None,
    dtype: torch.dtype,
    bias_dtype: torch.dtype | None,
    shift: float,
) -> list[Tensor]:
    return _empty(gradients, dtype, bias_dtype)
