"""Grad-CAM: where in the picture a layer speaks for a class (Selvaraju et al. 2017).

The map is ReLU(sum_k a_k A_k): the layer's maps A_k, each weighted by a_k, the mean over its places of the derivative
of the class's logit. The forward builds no graph before the layer, and one backward from the logits to the layer
serves the whole batch.
"""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from hardsight.geometry import full_precision, widen
from hardsight.heads import evaluating, observe, unwrap
from hardsight.names import unknown_name
from hardsight.validation import check_labels, check_tensor

Reshape = Callable[[Tensor], Tensor]

# By how much float16's slopes are scaled up, the most that nothing of overflows.
_SCALES = (2.0**15, 2.0**10, 2.0**5, 1.0)


def grad_cam(
    model: nn.Module,
    images: Tensor,
    *,
    layer: str | nn.Module | None = None,
    classes: Tensor | int | None = None,
    size: tuple[int, int] | Literal["input"] | None = None,
    normalize: bool = True,
    reshape: Reshape | None = None,
    head: str | None = None,
) -> Float[Tensor, "batch height width"]:
    """Grad-CAM of each image, in [0, 1], larger where the layer speaks more for the class; on the images' device.

    `layer`: a module or its dotted name; without it, the last layer with spatial maps, which a forward of one image
    finds (`last_spatial_layer`). Of a layer that runs several times, the last time counts.
    `classes`: one for each image, or one for all; without them, those that the model predicts.
    `size`: "input" or (height, width), to which the maps are resized bilinearly (pixel centres at one half); without
    it, they have the layer's resolution.
    `normalize`: each map is taken to least 0 and largest 1, a constant one to 0; without it, the map is the paper's,
    zero or more, in units of the logit.
    `reshape`: turns the layer's output into [N, channels, height, width]; `tokens_to_maps` for a transformer.
    `head`: that of `observe`.

    The model runs in evaluation mode and is left as it was: its mode, its parameters' gradients, its hooks.
    """
    check_images(images)
    name, module = find_layer(model, last_spatial_layer(model, images, head) if layer is None else layer)
    with torch.inference_mode(False):
        leaf, logits = _forward(model, images, name, module, head)
        activations = _spatial(leaf.detach(), name, reshape, images)
        score = logits.gather(1, as_classes(classes, logits).unsqueeze(1)).sum()
        gradients = _gradients(score, leaf, name)
        if reshape is not None:
            gradients = reshape(gradients)
            # Many transformers classify by one token: after the last attention no other changes a logit.
            if not bool(gradients.any()):
                raise ValueError(
                    "layer must be one whose maps change the logits, in a transformer before the last attention; "
                    f"those of {name!r} change none"
                )
        with full_precision(activations):
            weights = gradients.mean((2, 3))
            maps = torch.einsum("nc,nchw->nhw", weights, widen(activations)).relu()
    if size is not None:
        maps = resize(maps, tuple(images.shape[-2:]) if size == "input" else size)
    return rescale(maps) if normalize else maps


def resize(maps: Float[Tensor, "batch h w"], size: tuple[int, ...]) -> Float[Tensor, "batch height width"]:
    """Bilinear, pixel centres at one half: what image libraries call linear."""
    check_size(size, '"input" or (height, width)')
    return F.interpolate(maps.unsqueeze(1), size=list(size), mode="bilinear", align_corners=False).squeeze(1)


def rescale(maps: Float[Tensor, "batch height width"]) -> Float[Tensor, "batch height width"]:
    """Each map shifted and scaled to least 0 and largest 1; a constant one becomes 0."""
    above = maps - maps.amin((1, 2), keepdim=True)
    peak = above.amax((1, 2), keepdim=True)
    return above / torch.where(peak == 0, 1.0, peak)


def _forward(
    model: nn.Module, images: Tensor, name: str, module: nn.Module, head: str | None
) -> tuple[Tensor, Float[Tensor, "batch classes"]]:
    """The layer's output, and the logits as a function of it alone: the graph starts at the layer's latest run."""
    leaf: Tensor | None = None

    def cut_off(module: nn.Module, inputs: Any, output: Any) -> Any:
        nonlocal leaf
        tensor = first_tensor(output)
        if tensor is None or not tensor.is_floating_point():
            return None
        # The model runs without gradients until here; the caller's context takes the switch back.
        torch.set_grad_enabled(True)
        # A tensor made in inference mode can only be copied.
        leaf = (tensor.clone() if tensor.is_inference() else tensor.detach()).requires_grad_(True)
        # A copy goes on: the next layer may work in place, which a leaf does not allow and the map must not see.
        passed = leaf.clone()
        if isinstance(output, Tensor):
            return passed
        # A named tuple is made by `_make`, a plain one or a list by its type.
        return getattr(type(output), "_make", type(output))((passed, *output[1:]))

    handle = module.register_forward_hook(cut_off)
    try:
        with evaluating(model), observe(model, head) as seen, taking(images):
            model(images)
    finally:
        handle.remove()
    if leaf is None:
        raise ValueError(f"layer must run in the model's forward and give a tensor; {name!r} does not")
    return leaf, seen.logits


def _spatial(
    activations: Tensor, name: str, reshape: Reshape | None, images: Tensor
) -> Float[Tensor, "batch channels h w"]:
    maps = activations if reshape is None else reshape(activations)
    if maps.ndim == 4 and math.prod(maps.shape[2:]) > 1:
        height, width = images.shape[2:]
        first, second, third = maps.shape[1:]
        # Channels last: the first two sides have the images' proportions, and the last two have not.
        last = first > 1 and first * width == second * height and second * width != third * height
        if reshape is not None or not last:
            return maps
    raise ValueError(
        "layer must have spatial maps, [samples, channels, height, width] of more than one place, or reshape= must "
        f"make them, as tokens_to_maps of tokens; {name!r} has {list(maps.shape)}"
    )


def _gradients(score: Tensor, leaf: Tensor, name: str) -> Tensor:
    """The derivative of the score in the leaf, at least float32.

    A mean over many places makes slopes that float16 rounds to zero: the score is scaled up on the way back, as far as
    nothing overflows.
    """
    scales = _SCALES if torch.float16 in (score.dtype, leaf.dtype) else (1.0,)
    for scale in scales if score.requires_grad else ():
        start = torch.full_like(score, scale)
        (slopes,) = torch.autograd.grad(score, leaf, start, retain_graph=scale > 1, allow_unused=True)
        if slopes is None:
            break
        if scale == 1 or bool(slopes.isfinite().all()):
            return widen(slopes) / scale
    raise ValueError(f"layer must come before the head, with gradients on between them; {name!r} does not")


def find_layer(model: nn.Module, layer: str | nn.Module) -> tuple[str, nn.Module]:
    """Name and module of a layer, given by either; an unknown name is an error that names the nearest."""
    layers = dict(unwrap(model)[0].named_modules())
    if isinstance(layer, nn.Module):
        for name, module in layers.items():
            if module is layer:
                return name, module
        raise ValueError(f"layer must be a part of the model; this {type(layer).__name__} is not")
    if layer in layers:
        return layer, layers[layer]
    raise unknown_name("layer", layer, filter(None, layers), f"layers of {type(unwrap(model)[0]).__name__}")


def last_spatial_layer(model: nn.Module, images: Tensor, head: str | None = None) -> str:
    """Name of the last layer with spatial maps, [N, channels, height, width] of more than one place, before the head.

    Found in a forward of one image, in the order in which layers finish: of a block and its last layer, the block.
    A model that goes on with tokens after its last maps, as transformers do, has no such layer and raises an error.
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
        with evaluating(model), observe(model, head), taking(images):
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
    maps: Tensor = tokens[:, class_tokens:].transpose(1, 2).unflatten(2, (height, width))
    return maps


def first_tensor(output: Any) -> Tensor | None:
    """A layer's output where it is a tensor, its first part where it is a tuple, as in many transformers."""
    if isinstance(output, tuple | list) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


def as_classes(classes: Tensor | int | None, logits: Float[Tensor, "batch classes"]) -> Int[Tensor, "batch"]:
    """One class for each image: those given, the same for all, or the predicted ones."""
    if logits.ndim != 2:
        raise ValueError(f"model must give logits [samples, classes]; got shape {list(logits.shape)}")
    if classes is None:
        return logits.detach().argmax(1)
    samples, number = logits.shape
    chosen = torch.as_tensor(classes, device=logits.device)
    chosen = chosen if chosen.ndim else chosen.expand(samples)
    check_labels(chosen, samples, number, "classes")
    return chosen.long()


def check_images(images: Tensor) -> None:
    """Images are a batch."""
    check_tensor("images", images)
    if images.ndim != 4:
        raise ValueError(f"images must be [samples, channels, height, width]; got {list(images.shape)}")


@contextmanager
def taking(images: Tensor) -> Iterator[None]:
    """The model's forward over images; what torch says of those that do not fit is repeated."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, AssertionError, IndexError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            "images must be of the shape, type and scale of the model's training, most often images.float() / 255; "
            f"{list(images.shape)} of {images.dtype} ended in: {reason}"
        ) from error


def check_size(size: Any, expected: str = "(height, width)") -> None:
    """A size is two whole numbers."""
    wrong = not isinstance(size, tuple | list) or any(not isinstance(one, Integral) or one < 1 for one in size)
    if wrong or len(size) != 2:
        raise ValueError(f"size must be {expected}, 1 or more each; got {size!r}")
