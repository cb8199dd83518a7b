"""Grad-CAM against the `grad-cam` package: the same maps of the same layer, and which is faster, in one run.

Both give maps of the input's size, each scaled to least 0 and largest 1. (The package scales a layer's map, resizes
it linearly and scales again; resizing keeps shifts and scales, so scaling once at the end gives the same. It adds 1e-7
to each divisor, which dims maps whose raw peak is below 1e-10; `faintest_raw_peak` says whether any is.)
Wanted: no place differs by more than 1e-4, and ours takes no longer. The two take turns, in shuffled order; the
package's hooks are set before the clock starts, ours within each call.

The networks: ResNet-20 on CIFAR-10, with the public weights and images where HARDSIGHT_DATA points to them, ResNet-50
with fresh weights on noise, and a small ViT through a reshape.

    pip install grad-cam
    python benchmarks/grad_cam.py [--device cpu|cuda] [--rounds 15]
"""

import argparse
import importlib
import os
import random
import statistics
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import about, save, wait
from torch import Tensor, nn

from hardsight.explain import grad_cam, tokens_to_maps
from hardsight.models import create, load_cifar10_resnet

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Logits(nn.Module):
    """A transformer's logits as a plain tensor, which the package needs."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        return self.inner(images).logits


def cases(device: torch.device) -> dict[str, tuple[nn.Module, Tensor, str, Any]]:
    """Model, images, layer and reshape by name."""
    torch.manual_seed(0)
    small, pictures, source = _cifar()
    found: dict[str, tuple[nn.Module, Tensor, str, Any]] = {
        f"ResNet-20 layer3, 64 x 32 x 32, {source}": (small, pictures, "layer3", None),
        f"ResNet-20 layer2, 64 x 32 x 32, {source}": (small, pictures, "layer2", None),
        "ResNet-50 layer4, 4 x 224 x 224, fresh": (create("resnet50"), torch.randn(4, 3, 224, 224), "layer4", None),
    }
    try:
        from transformers import ViTConfig, ViTForImageClassification
    except ImportError:
        return _on(device, found)
    shape = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "intermediate_size": 768}
    transformer = Logits(ViTForImageClassification(ViTConfig(**shape, num_labels=10)))
    layer = next(name for name, _ in reversed(list(transformer.named_modules())) if name.endswith("layernorm_before"))
    found["ViT (6 layers of 192), 4 x 224 x 224, fresh"] = (
        transformer, torch.randn(4, 3, 224, 224), layer, tokens_to_maps,
    )  # fmt: skip
    return _on(device, found)


def measure(
    model: nn.Module, images: Tensor, layer: str, reshape: Any, rounds: int, package: types.ModuleType
) -> dict[str, Any]:
    """Milliseconds of both, the ratio within each round, and the largest difference between the maps."""
    with package.GradCAM(model, [model.get_submodule(layer)], reshape_transform=reshape) as theirs:
        steps: dict[str, Callable[[], Any]] = {
            "ours": partial(grad_cam, model, images, layer=layer, size="input", reshape=reshape),
            "grad-cam": partial(theirs, images, None),
        }
        apart = np.abs(steps["grad-cam"]() - steps["ours"]().cpu().numpy())
        raw = grad_cam(model, images, layer=layer, normalize=False, reshape=reshape)
        times: dict[str, list[float]] = {name: [] for name in steps}
        order = list(steps)
        for _ in range(rounds):
            random.Random(len(times["ours"])).shuffle(order)
            for name in order:
                times[name].append(_milliseconds(steps[name], images.device))
    ratios = [mine / yours for mine, yours in zip(times["ours"], times["grad-cam"], strict=True)]
    return {
        "largest_difference": float(apart.max()),
        "faintest_raw_peak": float(raw.amax((1, 2)).min()),
        "milliseconds": {name: _percentiles(values) for name, values in times.items()},
        "ours_over_grad_cam": _percentiles(ratios),
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--save", action="store_true", help="record what is measured in results/")
    chosen = parser.parse_args()
    try:
        package, torchvision_version = _package()
    except ImportError as error:
        print(f"nothing to compare with, grad-cam does not import ({error}): pip install grad-cam")
        return
    device = torch.device(chosen.device)
    record = about("grad_cam", device, **{"grad-cam": version("grad-cam"), "torchvision": torchvision_version})
    record["cases"] = {label: measure(*case, chosen.rounds, package) for label, case in cases(device).items()}
    for label, found in record["cases"].items():
        mine, yours = (found["milliseconds"][who]["median"] for who in ("ours", "grad-cam"))
        print(
            f"{label:48} ours {mine:8.1f} ms, grad-cam {yours:8.1f} ms, ratio "
            f"{found['ours_over_grad_cam']['median']:.2f}, largest difference {found['largest_difference']:.1e}"
        )
    if chosen.save:
        print(f"written to {save(record, device).name}")


def _cifar() -> tuple[nn.Module, Tensor, str]:
    folder = Path(os.environ.get("HARDSIGHT_DATA", "")) / "cifar-10-batches-bin"
    if not (folder / "resnets.safetensors").is_file():
        return create("resnet20"), torch.randn(64, 3, 32, 32), "fresh"
    records = np.fromfile(folder / "test_batch.bin", np.uint8, 64 * 3073).reshape(-1, 3073)
    pixels = torch.from_numpy(records[:, 1:]).reshape(-1, 3, 32, 32).float() / 255
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return load_cifar10_resnet(20, folder / "resnets.safetensors"), (pixels - mean) / std, "CIFAR-10"


def _on(device: torch.device, found: dict[str, Any]) -> dict[str, Any]:
    return {name: (model.to(device).eval(), images.to(device), *rest) for name, (model, images, *rest) in found.items()}


def _package() -> tuple[types.ModuleType, str]:
    """The package, and torchvision's version.

    It imports names from torchvision that Grad-CAM does not use, and beside a CPU-only torch there is no torchvision
    that loads: an empty one stands in for the time of the import.
    """
    try:
        import torchvision
    except (ImportError, RuntimeError):
        _forget("torchvision")
    else:
        return importlib.import_module("pytorch_grad_cam"), torchvision.__version__
    for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional"):
        sys.modules[name] = types.ModuleType(name)
    for name, unused in (("", "Compose"), ("", "Normalize"), ("", "ToTensor"), (".functional", "resize")):
        setattr(sys.modules[f"torchvision.transforms{name}"], unused, None)
    try:
        return importlib.import_module("pytorch_grad_cam"), "none, an empty stand-in"
    finally:
        _forget("torchvision")


def _forget(package: str) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]


def _milliseconds(step: Callable[[], Any], device: torch.device) -> float:
    wait(device)
    start = time.perf_counter()
    step()
    wait(device)
    return 1000 * (time.perf_counter() - start)


def _percentiles(values: list[float]) -> dict[str, float]:
    low, *_, high = statistics.quantiles(values, n=5)
    return {"median": statistics.median(values), "p20": low, "p80": high}


if __name__ == "__main__":
    main()
