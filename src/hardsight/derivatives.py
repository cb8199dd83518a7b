"""Gradients that are written by hand and are constants to autograd: differentiating one raises.

torch's `once_differentiable` does so only where the gradient coming in needs a gradient itself; the usual one, a loss's
own 1, does not, and then a second derivative loses this loss's part without a word.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def applied(function: type[torch.autograd.Function], *given: Any) -> Tensor:
    """`function.apply`, which torch leaves without types, of a function with one output."""
    output: Tensor = function.apply(*given)
    return output


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
            return applied(_Sealed, found, *inputs)
        return tuple(None if one is None else applied(_Sealed, one, *inputs) for one in found)

    return sealed


def plain_when_differentiated(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward as for `once_differentiable`; where its result is to be differentiated, a plain formula gives it.

    For that ctx has `plain`, a function of the inputs that have gradients, and `differentiated`: for each input of the
    function, which of the saved tensors it is, or None.
    """

    @functools.wraps(backward)
    def chosen(ctx: Any, upstream: Tensor) -> Any:
        saved = ctx.saved_tensors
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            with torch.no_grad():
                return backward(ctx, saved, upstream)
        held = {at: saved[place] for at, place in enumerate(ctx.differentiated) if place is not None}
        # Views: one input may be made of another, and each derivative is to be by itself alone.
        inputs: dict[int, Any] = {at: None if one is None else one.view_as(one) for at, one in held.items()}
        value = ctx.plain(*inputs.values())
        followed = [at for at in inputs if ctx.needs_input_grad[at]]
        given = value, [inputs[at] for at in followed], upstream.to(value.dtype)
        found = dict(zip(followed, torch.autograd.grad(*given, create_graph=True), strict=True))
        return tuple(found.get(at) for at in range(len(ctx.differentiated)))

    return chosen


def trace_of(*tensors: Tensor | None) -> Tensor:
    """No numbers at all, in the graph behind these tensors: what stands for them in `once_differentiable`."""
    given = [one for one in tensors if one is not None]
    return given[0].new_empty(0) if torch.compiler.is_compiling() else applied(_Trace, *given)


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
        return tuple([None] * ctx.count)


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
