"""Whether a computation runs fused: on CUDA with Triton, or in its interpreter; its op; and what every launch needs."""

import functools
import importlib.util
import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from hardsight.geometry import widen

Made = TypeVar("Made")
Fused = bool | str  # True, False or "auto"
FUSED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Found once, not imported: importing Triton costs more than importing this package.
_TRITON_IS_INSTALLED = importlib.util.find_spec("triton") is not None
# Triton decides at its own import whether kernels are interpreted.
_INTERPRETED = os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")
# Products of half precision that come out in float32 are in torch from 2.8 on.
_WIDE_PRODUCTS = hasattr(torch.ops.aten.mm, "dtype_out")


def chooses_fused(fused: Fused, *tensors: Tensor, unless: str | None = None) -> bool:
    """Whether these tensors are to be computed by a kernel: "auto" where one serves them, True or False by order.

    `unless` is what else keeps a kernel from this call. Ordered where it cannot run, an error says why.
    """
    if fused is False:
        return False
    if fused is not True and fused != "auto":
        raise ValueError(f"fused must be 'auto', True or False; got {fused!r}")
    unless = unless or obstacle(*tensors)
    if unless is not None and fused is True:
        raise ValueError(f"fused must be 'auto' or False where no kernel can run ({unless}); got True")
    return unless is None


def obstacle(*tensors: Tensor) -> str | None:
    """Why Triton does not serve these tensors, None where it does: all on one CUDA device, in float32 or half."""
    device = tensors[0].device
    here = device.type == "cuda" or (device.type == "cpu" and _INTERPRETED)
    if not _TRITON_IS_INSTALLED:
        return "triton is not installed"
    if not here or any(one.device != device for one in tensors):
        return f"it takes one CUDA device, the tensors are on {[one.device.type for one in tensors]}"
    if any(one.dtype not in FUSED_DTYPES for one in tensors):
        return f"it takes float32, bfloat16 and float16, the tensors are {[one.dtype for one in tensors]}"
    if any(one.numel() == 0 for one in tensors):
        return "there are no numbers to compute"
    if torch.compiler.is_compiling():
        return None
    if any(torch._C._functorch.is_functorch_wrapped_tensor(one) for one in tensors):
        return "torch.func transforms the tensors, whose vmap has no rule for a kernel"
    return "the GPU's compute capability is below 8.0" if device.type == "cuda" and not _is_capable(device) else None


@functools.cache
def _is_capable(device: torch.device) -> bool:
    # The kernels need bfloat16 and asynchronous copies.
    return torch.cuda.get_device_capability(device) >= (8, 0)


def on_device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Where Triton launches: the tensor's device, entered only where it is not the current one already."""
    if tensor.device.type != "cuda" or tensor.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(tensor.device)


class Op(Generic[Made]):
    """The function `place`, a module of `fused` and a name in it, as the op `hardsight::name` of torch's.

    `shapes` takes the same arguments and gives empty tensors, which stand for the results while something traces. Only
    then does a call go through torch's registration; straight it costs less. Triton is imported at the first call.
    """

    def __init__(self, name: str, place: str, schema: str, shapes: Callable[..., Made]) -> None:
        self.module, self.name = place.split(".")
        self.registered = torch.library.custom_op(f"hardsight::{name}", self._run, mutates_args=(), schema=schema)
        self.registered.register_fake(shapes)

    @functools.cached_property
    def function(self) -> Callable[..., Made]:
        found: Callable[..., Made] = getattr(
            importlib.import_module(f"hardsight.kernels.fused.{self.module}"), self.name
        )
        return found

    def _run(self, *given: Any) -> Made:
        return self.function(*given)

    def __call__(self, *given: Any) -> Made:
        plain = all(type(one) in (Tensor, nn.Parameter) for one in given if isinstance(one, Tensor))
        if plain and not torch.compiler.is_compiling():
            return self.function(*given)
        made: Made = self.registered(*given)
        return made


# Triton has both too, made for kernels: on the host each takes microseconds of a call that should take tens.
def blocks_of(count: int, size: int) -> int:
    """How many blocks of a size hold so many."""
    return -(-count // size)


def power_of_two(count: int) -> int:
    """The least power of two that is not below a number of 1 or more."""
    return 1 << (count - 1).bit_length() if count > 0 else 0


def same_precision(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The operands of a product in one dtype: autocast's where it is on, as `nn.Linear` would; else the widest."""
    kind = tensors[0].device.type
    if torch.is_autocast_enabled(kind) and all(one.dtype in FUSED_DTYPES for one in tensors):
        dtype = torch.get_autocast_dtype(kind)
    else:
        dtype = tensors[0].dtype
        for one in tensors[1:]:
            dtype = torch.promote_types(dtype, one.dtype)
    return [one if one.dtype == dtype else one.to(dtype) for one in tensors]


def product(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """left @ right into `out`, accumulated in float32, and kept in it unless `out` is of half precision itself.

    A float32 product is torch's own, so TF32 is used only where the user allowed it.
    """
    if out.dtype == left.dtype:
        return torch.mm(left, right, out=out)
    if _comes_out_wide(left):
        found: Tensor = torch.ops.aten.mm.dtype_out(left, right, torch.float32, out=out)
        return found
    return torch.mm(widen(left), widen(right), out=out)


def held_dtype(dtype: torch.dtype) -> torch.dtype:
    """In which a gradient waits for the backward pass: float16 might not hold it before it is scaled."""
    return torch.bfloat16 if dtype == torch.bfloat16 else torch.float32


def aligned(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """An empty matrix whose rows start at multiples of 128 bytes: a product of odd width is several times slower."""
    return torch.empty(rows, aligned_width(columns), dtype=dtype, device=device)[:, :columns]


def aligned_width(columns: Any) -> Any:
    """The width with which such a matrix lies in memory; of a traced size, a traced one."""
    return -(-columns // 64) * 64


def padded(weight: Tensor) -> Tensor:
    """The weight with zero rows up to a multiple of 64: products of odd widths run several times slower."""
    return nn.functional.pad(weight, (0, 0, 0, -len(weight) % 64)) if len(weight) % 8 else weight


def add_product(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """out += left @ right, in float32."""
    if _comes_out_wide(left):
        found: Tensor = torch.ops.aten.addmm.dtype_out(out, left, right, torch.float32, out=out)
        return found
    return out.addmm_(widen(left), widen(right))


def over_blocks(
    features: Tensor, weight: Tensor, elements: int, launch: Callable[[int, int, Tensor, Tensor | None], None],
    by_features: Tensor | None, by_weight: Tensor | None, slopes: Tensor | None = None,
) -> None:  # fmt: skip
    """About so many products of features and weight at a time, and of their slopes the gradients that are wanted.

    `launch` takes a block's first sample and its end, the products, and memory that it fills with slopes, none where
    no gradient is wanted. Where `slopes` are given, they are written there and wait.
    """
    samples, width = len(features), len(weight)
    wanted = slopes is not None or by_features is not None or by_weight is not None
    rows = max(1, min(samples, max(128, elements // width)))
    for start in range(0, samples, rows):
        end = min(samples, start + rows)
        here = features if end - start == samples else features[start:end]
        products = product(here, weight.T, aligned(end - start, width, torch.float32, features.device))
        own = None
        if wanted:
            own = aligned(end - start, width, features.dtype, features.device) if slopes is None else slopes[start:end]
        launch(start, end, products, own)
        del products
        if own is not None and by_features is not None:
            product(own, weight, by_features if end - start == samples else by_features[start:end])
        if own is not None and by_weight is not None:
            (product if start == 0 else add_product)(own.T, here, by_weight)


def _comes_out_wide(operand: Tensor) -> bool:
    return _WIDE_PRODUCTS and operand.device.type == "cuda" and operand.dtype in (torch.float16, torch.bfloat16)


def tf32_is_allowed() -> bool:
    """Whether the user lets float32 products run in TF32."""
    return torch.get_float32_matmul_precision() != "highest"


# Tracing cannot follow the question, and the answer is a setting of the process. This is all that
# `torch.compiler.assume_constant_result` does, after importing a compiler that takes seconds and few will use.
tf32_is_allowed._dynamo_marked_constant = True  # type: ignore[attr-defined]


def given_normaliser(
    normaliser: Tensor | float | None, device: torch.device
) -> tuple[Tensor, None] | tuple[None, float | None]:
    """A divisor that came as a tensor, on the device; or the log of one that came as a number."""
    if isinstance(normaliser, Tensor):
        return normaliser.detach().to(device), None
    return None, None if normaliser is None else log_or_nothing(normaliser)


def log_or_nothing(number: float) -> float:
    """The logarithm, minus infinity at 0."""
    return math.log(number) if number > 0 else -math.inf
