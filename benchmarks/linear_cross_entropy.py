"""Gradient rescaling from features beside other packages' fused linear cross-entropies, those that are installed.

    python benchmarks/linear_cross_entropy.py           measure on a GPU, and print; --save appends to results.csv

All in one process and in turns, as `hardsight bench` does it. The others compute plain cross-entropy; ours weighs
every sample by its probability and divides by the sum of the weights.
"""

import argparse
import importlib
import importlib.metadata
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hardsight.benchmark import Loss, append, run

RESULTS = Path(__file__).parent / "results.csv"


def linear_cross_entropies() -> Iterator[tuple[str, Loss]]:
    """Name with version, and the mean loss from features, weight and labels; a warning names what does not run here."""
    for package, load in (
        ("liger-kernel", _liger),
        ("liger-kernel", _liger_for_hopper),
        ("cut-cross-entropy", _cut_cross_entropy),
        ("quack-kernels", _quack),
    ):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        try:
            title, loss = load()
            _try(loss)
        except Exception as reason:  # foreign code, compiled on the spot: whatever it raises, the others go on
            warnings.warn(f"{package} {version} is not timed: {reason}", stacklevel=2)
            continue
        yield f"{title} {version}", loss


def _try(loss: Loss) -> None:
    """One small step: a package may be there and not serve this device."""
    features, weight = (torch.randn(rows, 256, device="cuda", dtype=torch.bfloat16) for rows in (256, 1024))
    loss(features.requires_grad_(), weight.requires_grad_(), torch.arange(256, device="cuda")).backward()
    torch.cuda.synchronize()


def _liger() -> tuple[str, Loss]:
    loss: Any = _from("liger_kernel.transformers", "LigerFusedLinearCrossEntropyLoss")()
    return "Liger", lambda features, weight, labels: loss(weight, features, labels)


def _liger_for_hopper() -> tuple[str, Loss]:
    loss = _from("liger_kernel.ops.cutedsl.ops", "LigerFusedScaledCrossEntropySM90Function")
    return "Liger's CuTe kernel", lambda features, weight, labels: _first(loss.apply(features, weight, labels)).mean()


def _first(made: Any) -> Tensor:
    found: Tensor = made[0] if isinstance(made, tuple) else made
    return found


def _cut_cross_entropy() -> tuple[str, Loss]:
    return "cut-cross-entropy", _from("cut_cross_entropy", "linear_cross_entropy")


def _quack() -> tuple[str, Loss]:
    loss = _from("quack.linear_cross_entropy", "chunked_linear_cross_entropy")
    return "quack", lambda features, weight, labels: loss(features, weight, labels, reduction="mean")


def _from(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="append what is measured to results.csv")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing is measured")
        return
    rows = run("rescaled_linear_cross_entropy", seen=print, beside=dict(linear_cross_entropies()))
    if options.save:
        append(rows, RESULTS)


if __name__ == "__main__":
    main()
