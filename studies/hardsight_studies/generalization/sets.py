"""The domains of the study: PACS by its authors' lists, and three ways to see scikit-learn's digits."""

import dataclasses
import functools
from typing import NamedTuple

import torch
from torch import Tensor

from hardsight import datasets
from hardsight.datasets import ArrayDataset, FileDataset
from hardsight.domains.generalization import Split, leave_one_domain_out, with_backbone_features

DIGIT_DOMAINS = ("plain", "faint", "noisy")


class Domains(NamedTuple):
    """Samples to train on by domain, and those to validate on: a set of their own, or a share of the training set."""

    data: ArrayDataset
    validation: ArrayDataset | float


@functools.lru_cache(maxsize=2)
def load_domains(name: str, size: int | None, samples: int | None) -> Domains:
    """The domains of that name at that many pixels; `samples`: so many of them, drawn by a fixed seed.

    PACS comes with lists that say what to train and what to validate on; where they are missing, a tenth of each
    domain and class validates.
    """
    if name == "digits":
        return Domains(digit_domains(samples), 0.2)
    try:
        return Domains(
            _some("train", size, samples), _some("crossval", size, None if samples is None else samples // 9)
        )
    except FileNotFoundError:
        return Domains(_some("all", size, samples), 0.1)


@functools.lru_cache(maxsize=1)
def load_features(name: str, size: int | None, device: str) -> Domains:
    """The same samples as features of the ImageNet backbone; computed once a process."""
    images = load_domains(name, size, None)
    data = with_backbone_features(images.data, device)
    if isinstance(images.validation, float):
        return Domains(data, images.validation)
    return Domains(data, with_backbone_features(images.validation, device))


@functools.lru_cache(maxsize=4)
def split_of(
    name: str, size: int | None, samples: int | None, *, features: bool, held_out: str, seed: int, device: str
) -> Split:
    """The split of one domain left out, its images on the device: once for all cells that share it.

    The seed draws the validation samples where no list names them, and is of no consequence otherwise.
    """
    domains = load_features(name, size, device) if features else load_domains(name, size, samples)
    split = leave_one_domain_out(
        domains.data, held_out, validation=domains.validation, generator=torch.Generator().manual_seed(seed)
    )
    parts = {part: getattr(split, part) for part in ("train", "validation", "test")}
    return Split(
        held_out, **{part: dataclasses.replace(data, images=data.images.to(device)) for part, data in parts.items()}
    )


def digit_domains(samples: int | None = None) -> ArrayDataset:
    """scikit-learn's digits in three domains: as they are, at a third of the contrast, and under noise.

    Every digit is in one domain only; 8 x 8 pixels.
    """
    digits = datasets.load("digits")
    assert isinstance(digits, ArrayDataset)
    generator = torch.Generator().manual_seed(0)
    chosen = digits.subset(torch.randperm(len(digits), generator=generator)[:samples])
    domains = torch.arange(len(chosen)) % len(DIGIT_DOMAINS)
    images = chosen.images.float()
    seen = torch.stack([images, images / 3 + 80, images + 60 * torch.randn(images.shape, generator=generator)])
    images = seen[domains, torch.arange(len(chosen))].round().clamp(0, 255).to(torch.uint8)
    return dataclasses.replace(
        chosen, images=images, domains=domains, domain_names=DIGIT_DOMAINS, ids=torch.arange(len(chosen))
    )


def _some(split: str, size: int | None, samples: int | None) -> ArrayDataset:
    files = datasets.load("pacs", split)
    assert isinstance(files, FileDataset)
    if samples is not None:
        files = files.subset(_first_of_random(len(files), samples))
    return files.load(size)


def _first_of_random(count: int, samples: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:samples].sort().values
