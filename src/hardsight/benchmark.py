"""What the fused kernels cost beside the plain version, `torch.compile` of it, and the floor no version goes under.

The floor is the matrix products alone (classes rounded up to a multiple of 64, so that they are aligned), or one copy
of the logits. Medians with 20/80 percentiles of the time between device events, host overhead included, and the peak
of memory beyond the inputs; one row an op, shape and variant.
"""

import csv
import functools
import math
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hardsight.kernels import angular_scores
from hardsight.losses import amc_loss, avh_loss, gradient_rescaling, linear_gradient_rescaling
from hardsight.names import check_name

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
Works = dict[str, Callable[[], Any]]
ROUNDS = 3


@dataclass(frozen=True)
class Measured:
    """One row of the table: milliseconds of device time, mebibytes beyond the inputs."""

    op: str
    shape: str
    dtype: str
    variant: str
    median_ms: float
    p20_ms: float
    p80_ms: float
    peak_mib: float
    device: str
    torch: str
    triton: str
    python: str
    date: str


def scoring(samples: int, dim: int, classes: int) -> Works:
    features, weight, labels, aligned = _head(samples, dim, classes)

    def plain(features: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        cosines = F.normalize(features) @ F.normalize(weight).T
        angles = torch.acos(cosines.float().clamp(-1, 1))
        return angles.gather(1, labels[:, None]).squeeze(1) / angles.sum(1)

    compiled = torch.compile(plain)
    return {
        "floor: product": lambda: features @ aligned.T,
        "ours": lambda: angular_scores(features, weight, labels),
        "ours (AVH alone)": lambda: angular_scores(features, weight, labels, logits=False),
        "plain (AVH alone)": lambda: plain(features, weight, labels),
        "compiled (AVH alone)": lambda: compiled(features, weight, labels),
    }


def angular_loss(samples: int, dim: int, classes: int) -> Works:
    features, weight, labels, aligned = _head(samples, dim, classes)
    slopes = torch.randn(min(samples, 8192), len(aligned), device="cuda", dtype=torch.bfloat16)

    def plain(features: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        cosines = (F.normalize(features) @ F.normalize(weight).T).float().clamp(-1 + 1e-6, 1 - 1e-6)
        return F.cross_entropy(10 * (math.pi - torch.acos(cosines)), labels)

    ours = functools.partial(avh_loss, fused=True)
    recomputed = functools.partial(ours, recompute=True)
    floor = functools.partial(_three_products, features, aligned, slopes)
    variants: dict[str, Callable[..., Tensor]] = {
        "ours": ours,
        "ours, recomputed": recomputed,
        "plain": plain,
        "compiled": torch.compile(plain),
    }
    return {"floor: three products": floor, **_trained(variants, labels, features, weight)}


def from_logits(samples: int, classes: int) -> Works:
    logits = torch.randn(samples, classes, device="cuda", dtype=torch.bfloat16)
    spare, target = logits.clone(), torch.empty_like(logits)
    labels = torch.randint(0, classes, (samples,), device="cuda")
    plain = functools.partial(gradient_rescaling, fused=False)
    ours = functools.partial(gradient_rescaling, fused=True)
    variants: dict[str, Callable[..., Tensor]] = {
        "plain": plain,
        "compiled": torch.compile(plain),
        "F.cross_entropy": F.cross_entropy,
    }
    variants["F.cross_entropy, compiled"] = torch.compile(F.cross_entropy)
    return {
        "floor: copy": lambda: target.copy_(logits.detach()),
        **_trained({"ours": ours}, labels, logits),
        **_trained({"ours, in place": functools.partial(ours, in_place=True)}, labels, spare),
        **_trained(variants, labels, logits),
    }


def from_features(beside: Mapping[str, Loss], samples: int, dim: int, classes: int) -> Works:
    features, weight, labels, aligned = _head(samples, dim, classes)
    slopes = torch.randn(samples, classes, device="cuda", dtype=torch.bfloat16)

    def plain(features: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        return gradient_rescaling(F.linear(features, weight), labels, fused=False)

    def ours(features: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        return linear_gradient_rescaling(features, weight, None, labels, fused=True)

    def alone(loss: Loss) -> Tensor:
        with torch.no_grad():
            return loss(features, weight, labels)

    works: Works = {
        "floor: three products": functools.partial(_three_products, features, aligned, slopes),
        "floor: product, forward alone": lambda: features.detach() @ aligned.T,
    }
    variants: dict[str, Callable[..., Tensor]] = {
        "ours": ours,
        "plain": plain,
        "compiled": torch.compile(plain),
        **beside,
    }
    for name, work in _trained(variants, labels, features, weight).items():
        works[name] = work
        if name not in ("plain", "compiled"):
            works[f"{name}, forward alone"] = functools.partial(alone, variants[name])
    return works


def pairs(samples: int, dim: int) -> Works:
    features = torch.randn(samples, dim, device="cuda", dtype=torch.bfloat16)
    labels = torch.randint(0, 10, (samples,), device="cuda")
    slopes = torch.randn(samples, samples, device="cuda", dtype=torch.bfloat16)
    plain, ours = (functools.partial(amc_loss, pairs="all", fused=fused) for fused in (False, True))

    def products() -> None:
        _ = features.detach() @ features.detach().T
        _ = slopes @ features.detach()

    variants: dict[str, Callable[..., Tensor]] = {"ours": ours, "plain": plain, "compiled": torch.compile(plain)}
    return {"floor: two products": products, **_trained(variants, labels, features)}


_HEADS = [(65_536, 2_048, 1_000), (16_384, 2_048, 21_841), (8_192, 4_096, 131_072)]
# What makes the inputs and variants of each op, and for which shapes.
CASES: dict[str, tuple[Callable[..., Works], list[tuple[int, ...]]]] = {
    "angular_scores": (scoring, [*_HEADS, (4_096, 512, 1_048_576), (65_536, 512, 1_000)]),
    "angular_cross_entropy": (angular_loss, [*_HEADS]),
    "rescaled_cross_entropy": (from_logits, [(8_192, 131_072), (65_536, 1_000)]),
    "rescaled_linear_cross_entropy": (from_features, [(8_192, 4_096, 131_072)]),
    "pairwise_angular_contrast": (pairs, [(8_192, 512), (4_096, 128)]),
}


def cases(
    only: str | None = None, beside: Mapping[str, Loss] = MappingProxyType({})
) -> Iterator[tuple[str, str, Callable[[], Works]]]:
    """Op, shape, and a function that makes its inputs and variants; `beside`: other losses of features and weight."""
    for op, (make, shapes) in CASES.items():
        for shape in shapes if only in (None, op) else ():
            given = (beside, *shape) if make is from_features else shape
            yield op, " x ".join(f"{size:,}" for size in shape), functools.partial(make, *given)


def measure(works: Mapping[str, Callable[[], Any]]) -> dict[str, tuple[list[float], float]]:
    """Of each: median, 20 and 80 percentile in milliseconds, and the peak of memory beyond what was there, in MiB.

    In rounds, since a device slows down by a fifth as it warms up: each is timed when it is cool and when it is warm.
    """
    peaks = {name: _peak(work) for name, work in works.items()}
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            if not math.isnan(peaks[name]):
                times[name] += _times(work)
    return {name: (np.quantile(times[name] or [math.nan], [0.5, 0.2, 0.8]).tolist(), peaks[name]) for name in works}


def _peak(work: Callable[[], Any]) -> float:
    """NaN where the device does not hold it."""
    try:
        work()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        return math.nan
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def _times(work: Callable[[], Any]) -> list[float]:
    from triton.testing import do_bench

    found: list[float] = do_bench(work, warmup=50, rep=120, return_mode="all")
    return found


def run(
    only: str | None = None,
    compiled: bool = True,
    seen: Callable[[Measured], None] = lambda row: None,
    beside: Mapping[str, Loss] = MappingProxyType({}),
) -> list[Measured]:
    """Every case, or those of one op, one row a variant; `seen` gets each as it comes. See `cases`."""
    if only is not None:
        check_name("only", only, CASES, "ops")
    if not torch.cuda.is_available():
        raise ValueError("the kernels' benchmark needs a CUDA device; there is none")
    try:
        import triton
    except ImportError:
        raise ImportError("the kernels' benchmark needs triton: pip install triton") from None
    about = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    rows = []
    for op, shape, make in cases(only, beside):
        torch.compiler.reset()
        works = {variant: work for variant, work in make().items() if compiled or "compiled" not in variant}
        for variant, (times, peak) in measure(works).items():
            median, low, high = (round(one, 4) for one in times)
            row = Measured(op, shape, "bfloat16", variant, median, low, high, round(peak, 1), **about)
            rows.append(row)
            seen(row)
        torch.cuda.empty_cache()
    return rows


def append(rows: list[Measured], path: Path) -> None:
    """Add the rows to the table of all results, with its head where it is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(Measured.__dataclass_fields__))
        if new:
            writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def _head(samples: int, dim: int, classes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, weight, labels, and the weight with rows up to a multiple of 64."""
    generator = torch.Generator("cuda").manual_seed(0)
    features = torch.randn(samples, dim, device="cuda", generator=generator).bfloat16()
    weight = torch.randn(classes, dim, device="cuda", generator=generator).bfloat16()
    labels = torch.randint(0, classes, (samples,), device="cuda", generator=generator)
    return features, weight, labels, F.pad(weight, (0, 0, 0, -classes % 64))


def _trained(losses: Mapping[str, Callable[..., Tensor]], labels: Tensor, *inputs: Tensor) -> Works:
    """Each loss of the inputs and labels, with its gradients."""
    for one in inputs:
        one.requires_grad_()

    def both(loss: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss(*inputs, labels), inputs)

    return {name: functools.partial(both, loss) for name, loss in losses.items()}


def _three_products(features: Tensor, weight: Tensor, slopes: Tensor) -> None:
    for block in features.detach().split(len(slopes)):
        _ = block @ weight.T
        _ = slopes @ weight
        _ = slopes.T @ block
