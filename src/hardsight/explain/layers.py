"""The layers of a model whose output is a picture: named, found, or reshaped from a transformer's tokens."""

import functools
import math
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from hardsight.explain.inputs import taking
from hardsight.heads import evaluating, observe, unwrap
from hardsight.names import unknown_name


def find_layer(model: nn.Module, layer: str | nn.Module) -> tuple[str, nn.Module]:
    """Name and module of a layer, given by either; an unknown name is refused with the nearest ones."""
    layers = dict(unwrap(model)[0].named_modules())
    if isinstance(layer, nn.Module):
        for name, module in layers.items():
            if module is layer:
                return name, module
        raise ValueError(f"layer must be a part of the model; this {type(layer).__name__} is not")
    if not isinstance(layer, str):
        raise TypeError(f"layer must be a module of the model or its dotted name; got {type(layer).__name__}")
    if layer in layers:
        return layer, layers[layer]
    raise unknown_name("layer", layer, filter(None, layers), f"layers of {type(unwrap(model)[0]).__name__}")


def last_spatial_layer(model: nn.Module, images: Tensor, head: str | None = None) -> str:
    """Name of the last layer with spatial maps, [N, channels, height, width] of more than one place, before the head.

    Found in a forward of one image, in the order in which layers finish: of a block and its last layer, the block.
    A model that goes on with tokens after its last maps, as transformers do, has no such layer and is refused.
    """
    inner, _ = unwrap(model)
    finished: list[tuple[str, tuple[int, ...]]] = []

    def note(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        tensor = first_tensor(output)
        if tensor is not None:
            finished.append((name, tuple(tensor.shape)))

    handles = [
        module.register_forward_hook(functools.partial(note, name)) for name, module in inner.named_modules() if name
    ]
    try:
        with evaluating(model), observe(model, head), taking(model, images):
            model(images[:1])
    finally:
        for handle in handles:
            handle.remove()
    spatial = [at for at, (_, shape) in enumerate(finished) if len(shape) == 4 and math.prod(shape[2:]) > 1]
    if not spatial:
        raise ValueError(f"model must have a layer with spatial maps; {type(inner).__name__} has none for these images")
    if any(len(shape) == 3 for _, shape in finished[spatial[-1] + 1 :]):
        raise ValueError(
            "layer must be named, with reshape=tokens_to_maps, for a model that works on tokens after its last "
            f"spatial maps; {type(inner).__name__} does"
        )
    return finished[spatial[-1]][0]


def tokens_to_maps(
    tokens: Tensor, *, class_tokens: int = 1, grid: tuple[int, int] | None = None
) -> Float[Tensor, "batch dim height width"]:
    """A transformer's tokens [N, tokens, dim] as maps: the leading class tokens dropped, the rest on a square grid.

    Pass it as `reshape`; for another number of leading tokens (2 for a distilled DeiT, 5 for a DINOv2 with registers)
    or a grid that is not square, through `functools.partial`.
    """
    if tokens.ndim != 3:
        raise ValueError(f"tokens must be [samples, tokens, dim]; got shape {list(tokens.shape)}")
    places = tokens.shape[1] - class_tokens
    side = math.isqrt(max(places, 0))
    height, width = grid or (side, side)
    if class_tokens < 0 or min(places, height, width) < 1 or height * width != places:
        expected = f"the {height} x {width} grid" if grid else "a square grid"
        raise ValueError(
            f"tokens must fill {expected} after {class_tokens} class tokens; {tokens.shape[1]} tokens leave {places}: "
            "pass class_tokens or grid, through functools.partial"
        )
    return tokens[:, class_tokens:].transpose(1, 2).unflatten(2, (height, width))


def first_tensor(output: Any) -> Tensor | None:
    """A layer's output where it is a tensor, its first part where it is a tuple, as in many transformers."""
    if isinstance(output, tuple | list) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None
