"""Gradients that are written by hand and are constants to autograd: differentiating one raises.

torch's `once_differentiable` does so only where the gradient coming in needs a gradient itself; the usual one, a loss's
own 1, does not, and then a second derivative loses this loss's part without a word.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward whose result raises where it is differentiated again; for that the function saves its inputs.

    An input that is not worth keeping in memory is saved as `trace_of` it.
    """

    @functools.wraps(backward)
    def sealed(ctx: Any, *upstream: Any) -> Any:
        # Before the backward, which may write its gradient over them.
        inputs = [one for one in (*upstream, *ctx.saved_tensors) if one is not None]
        with torch.no_grad():
            found = backward(ctx, *upstream)
        # Compiled code has no second derivatives, and says so itself.
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return found
        if not isinstance(found, tuple):
            return _Sealed.apply(found, *inputs)
        return tuple(None if one is None else _Sealed.apply(one, *inputs) for one in found)

    return sealed


def trace_of(*tensors: Tensor | None) -> Tensor:
    """No numbers at all, in the graph behind these tensors: what stands for them in `once_differentiable`."""
    return torch.cat([one.reshape(-1)[:0].float() for one in tensors if one is not None])


class _Sealed(torch.autograd.Function):
    """A gradient, in the graph of what it was made of."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, *inputs: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None: ...

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        raise RuntimeError(
            "a second derivative must not be taken through this loss, which defines its gradient alone; got a "
            "backward through that gradient (create_graph=True, or a transform of torch.func within another)"
        )
