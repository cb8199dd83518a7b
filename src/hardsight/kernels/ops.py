"""Every fused computation as an op of torch's: what it takes, and the shapes of what it gives back.

An op runs a function of `hardsight.kernels.fused`, which is imported with Triton at the first call. Where something
traces (`torch.compile`, fake tensors) it goes through torch's registration; everywhere else straight, which costs less.
"""

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from hardsight.kernels.dispatch import aligned_width, held_dtype

Made = TypeVar("Made")


class Op(Generic[Made]):
    """The function `place`, a module of `fused` and a name in it, as the op `hardsight::name`.

    `shapes` takes the same arguments and gives empty tensors, which stand for the results while something traces.
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


def keeps_slopes(features: Tensor, weight: Tensor) -> bool | torch.SymBool:
    """Whether slopes, one a class, wait for the backward pass instead of a gradient, one a dimension."""
    return weight.shape[0] <= features.shape[1]


def _like(vectors: Sequence[Tensor]) -> list[Tensor]:
    return [one.new_empty(one.shape) for one in vectors]


def dtypes_of(gradients: list[Tensor], dtype: torch.dtype, bias_dtype: torch.dtype | None) -> list[torch.dtype]:
    """In which each gradient is wanted; the bias, where it is among them, is the last and may have its own."""
    return [dtype] * len(gradients) if bias_dtype is None else [dtype] * (len(gradients) - 1) + [bias_dtype]


def _shapes_of_angular_scores(features: Tensor, weight: Tensor, labels: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    numbers = features.new_empty(10, features.shape[0], dtype=torch.float32)
    return numbers, labels.new_empty(features.shape[0], dtype=torch.int64)


def _shapes_of_angular_walk(features: Tensor, weight: Tensor, *given: Any) -> tuple[Tensor, ...]:
    reduction, _, wanted = given[-3:]
    samples, classes = features.shape[0], weight.shape[0]
    wide = features.new_empty(0, dtype=torch.float32)
    slopes_wait = wanted[0] and keeps_slopes(features, weight)
    if slopes_wait:
        by_features = features.new_empty(samples, aligned_width(classes))
    else:
        by_features = wide.new_empty(features.shape if wanted[0] else (0,), dtype=held_dtype(features.dtype))
    return (
        wide.new_empty((samples,) if reduction == "none" else ()),
        wide.new_empty(samples + classes),
        by_features,
        wide.new_empty(weight.shape if wanted[1] else (0,)),
        wide.new_empty(2 if any(wanted) else 0),
        wide.new_empty(samples if slopes_wait else 0),
    )


def _shapes_of_tangent_product(
    slopes: Tensor, along: Tensor, by_weight: Tensor | None, features: Tensor, weight: Tensor, *given: Any
) -> list[Tensor]:
    return _like([features] if by_weight is None else [features, weight])


def _shapes_of_contrast(features: Tensor, *given: Any) -> tuple[Tensor, ...]:
    wide, slopes_wanted = features.new_empty((), dtype=torch.float32), given[-1]
    gradient = wide.new_empty(features.shape if slopes_wanted else (0,))
    return wide, wide.new_empty(features.shape[0]), gradient, torch.empty_like(wide)


def _shapes_of_rescaled_rows(logits: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    rows, reduction = logits.shape[0], given[-2]
    value = logits.new_empty((rows,) if reduction == "none" else (), dtype=torch.float32)
    return value, logits.new_empty(2 * rows + 1, dtype=torch.float32)


def _shapes_of_rescaled_linear(
    features: Tensor, weight: Tensor, bias: Tensor | None, *given: Any
) -> tuple[Tensor, ...]:
    value, slopes_wanted = features.new_empty((), dtype=torch.float32), given[-1]
    return (
        value,
        value.new_empty(1),
        value.new_empty(features.shape if slopes_wanted else (0,)),
        value.new_empty(weight.shape if slopes_wanted else (0,)),
        value.new_empty(weight.shape[:1] if slopes_wanted and bias is not None else (0,)),
    )


angular_scores = Op(
    "angular_scores",
    "angular_scores.measure_and_scan",
    "(Tensor features, Tensor weight, Tensor labels, Tensor? bias, bool logits, bool spread) -> (Tensor, Tensor)",
    _shapes_of_angular_scores,
)
angular_walk = Op(
    "angular_walk",
    "angular_cross_entropy.walk",
    "(Tensor features, Tensor weight, Tensor labels, Tensor? scale, float scale_value, Tensor? sample_weight,"
    " int ignore_index, str reduction, Tensor? upstream, bool[3] wanted)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _shapes_of_angular_walk,
)
gradients_from_slopes = Op(
    "gradients_from_slopes",
    "tangent_product.gradients_from_slopes",
    "(Tensor slopes, Tensor along, Tensor? by_weight, Tensor features, Tensor weight, Tensor inverses, Tensor factor,"
    " Tensor? upstream) -> Tensor[]",
    _shapes_of_tangent_product,
)
project_gradients = Op(
    "project_gradients",
    "directions.project",
    "(Tensor[] gradients, Tensor[] vectors, Tensor inverses, int offset, Tensor factor, Tensor? upstream) -> Tensor[]",
    lambda gradients, vectors, *given: _like(vectors),
)
angular_contrast = Op(
    "angular_contrast",
    "pairwise_angular_contrast.contrast",
    "(Tensor features, Tensor labels, Tensor? sample_weight, float margin, int ignore_index, str reduction,"
    " bool slopes_wanted) -> (Tensor, Tensor, Tensor, Tensor)",
    _shapes_of_contrast,
)
rescaled_rows = Op(
    "rescaled_rows",
    "rescaled_cross_entropy.weigh",
    "(Tensor logits, Tensor labels, Tensor? sample_weight, Tensor? normaliser, int ignore_index, float beta, float lam,"
    " float epsilon, bool exponential, str reduction, float? log_normaliser) -> (Tensor, Tensor)",
    _shapes_of_rescaled_rows,
)
rescaled_gradient = Op(
    "rescaled_gradient",
    "rescaled_cross_entropy.write_gradient",
    "(Tensor logits, Tensor labels, Tensor kept, Tensor upstream) -> Tensor",
    lambda logits, *given: torch.empty_like(logits),
)
rescaled_linear = Op(
    "rescaled_linear",
    "rescaled_linear_cross_entropy.walk",
    "(Tensor features, Tensor weight, Tensor? bias, Tensor labels, Tensor? sample_weight, Tensor? normaliser,"
    " int ignore_index, float beta, float lam, float epsilon, bool exponential, str reduction, float? log_normaliser,"
    " float shift, bool slopes_wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _shapes_of_rescaled_linear,
)
scaled_gradients = Op(
    "scaled_gradients",
    "rescaled_linear_cross_entropy.scaled",
    "(Tensor[] gradients, ScalarType dtype, ScalarType? bias_dtype, Tensor upstream, Tensor? log_divisor, float shift)"
    " -> Tensor[]",
    lambda gradients, dtype, bias_dtype, *given: [
        torch.empty_like(one, dtype=kind)
        for one, kind in zip(gradients, dtypes_of(gradients, dtype, bias_dtype), strict=True)
    ],
)
