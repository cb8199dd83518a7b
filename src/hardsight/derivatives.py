"""Gradients that are written by hand and are constants to autograd: differentiating one raises.

torch's `once_differentiable` does so only where the gradient coming in needs a gradient itself; the usual one, a loss's
own 1, does not, and then a second derivative loses this loss's part without a word.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def wants_gradient(x: Tensor) -> bool:
    """Whether autograd follows what is made of a tensor."""
    return torch.is_grad_enabled() and x.requires_grad


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward, called with ctx, the saved tensors and the gradients, whose result raises if it is differentiated.

    For that the function saves its inputs; of one that is not worth keeping in memory, `trace_of` it.
    """

    @functools.wraps(backward)
    def sealed(ctx: Any, *upstream: Any) -> Any:
        # Once: checkpointing computes them again each time.
        saved = ctx.saved_tensors
        with torch.no_grad():
            found = backward(ctx, saved, *upstream)
        # Compiled code has no second derivatives, and says so itself.
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return found
        inputs = [one for one in (*upstream, *saved) if one is not None]
        if not isinstance(found, tuple):
            return _Sealed.apply(found, *inputs)
        return tuple(None if one is None else _Sealed.apply(one, *inputs) for one in found)

    return sealed


def trace_of(*tensors: Tensor | None) -> Tensor:
    """No numbers at all, in the graph behind these tensors: what stands for them in `once_differentiable`."""
    given = [one for one in tensors if one is not None]
    return given[0].new_empty(0) if torch.compiler.is_compiling() else _Trace.apply(*given)


class _Trace(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*tensors: Tensor) -> Tensor:
        return tensors[0].new_empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.set_materialize_grads(False)
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[None, ...]:
        return (None,) * ctx.count


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
