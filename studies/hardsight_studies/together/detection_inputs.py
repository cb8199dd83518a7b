"""The inputs of the study `detection`: features of every set, its given labels, and what is true.

Features of CIFAR-10 and texts are as distributed, those of PACS and Office by EfficientNet-Lite0 at 160 pixels; of
PACS, as of CIFAR-10, 256 principal components in half precision.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from torch import Tensor

import hardsight as hs
from hardsight.datasets.registry import data_root, source
from hardsight.engines.encoders import features_of_images
from hardsight.engines.images import open_images

BACKBONE, PIXELS = "package:efficientnet_lite0", 160


@dataclass(frozen=True)
class Inputs:
    """What every method is given, and the truth that none is."""

    features: Tensor
    labels: Tensor
    clean: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        """Which labels are wrong."""
        found: np.ndarray = self.labels.numpy() != self.clean
        return found


def inputs(name: str, seed: int, cache: Path) -> Inputs:
    """Features, given labels and the truth of a set; the seed plants, where errors are planted."""
    generator = np.random.default_rng(seed)
    if name in ("aggre", "random1", "worse"):
        people = hs.datasets.load("cifar10n", "train")
        column = {"aggre": "aggre_label", "random1": "random_label1", "worse": "worse_label"}[name]
        return Inputs(cifar10_features("train"), people.columns[column], people.labels.numpy())
    kind, _, how = name.partition("-")
    if kind == "cifar10h":
        images = hs.datasets.load("cifar10h", "test")
        given = voted(images.columns["human_votes"].double().numpy(), images.labels.numpy(), how, generator)
        return Inputs(cifar10_features("test"), torch.from_numpy(given), images.labels.numpy())
    if kind == "texts":
        return texts(even=how == "even")
    features, clean = _plain(name) if kind in ("digits", "breast") else image_features(kind, cache)
    classes = int(clean.max()) + 1
    given = lookalikes(features, clean, generator) if how == "lookalikes" else uniform(clean, classes, generator)
    return Inputs(features, torch.from_numpy(given), clean)


def uniform(clean: np.ndarray, classes: int, generator: np.random.Generator, rate: float = 0.1) -> np.ndarray:
    """A tenth of the labels, each to another class, all as likely."""
    given = clean.copy()
    chosen = generator.permutation(len(clean))[: round(rate * len(clean))]
    given[chosen] = (clean[chosen] + generator.integers(1, classes, len(chosen))) % classes
    return given


def lookalikes(features: Tensor, clean: np.ndarray, generator: np.random.Generator, rate: float = 0.1) -> np.ndarray:
    """A tenth of the labels, each to the class whose mean direction is nearest to its own."""
    units = torch.nn.functional.normalize(features.double() - features.double().mean(0), dim=1)
    means = torch.stack([units[torch.from_numpy(clean == one)].mean(0) for one in range(int(clean.max()) + 1)])
    near = torch.nn.functional.normalize(means, dim=1) @ torch.nn.functional.normalize(means, dim=1).T
    nearest = near.fill_diagonal_(-2).argmax(1).numpy()
    given = clean.copy()
    chosen = generator.permutation(len(clean))[: round(rate * len(clean))]
    given[chosen] = nearest[clean[chosen]]
    return given


def voted(votes: np.ndarray, clean: np.ndarray, how: str, generator: np.random.Generator) -> np.ndarray:
    """One person's vote; or so many per cent of votes for another class, more of them where people differ."""
    if how == "vote":
        shares = votes / votes.sum(1, keepdims=True)
        return np.array([generator.choice(len(row), p=row) for row in shares])
    other = votes.copy()
    other[np.arange(len(clean)), clean] = 0
    doubt = other.sum(1) / votes.sum(1) + 0.02
    chosen = generator.choice(len(clean), round(int(how) / 100 * len(clean)), replace=False, p=doubt / doubt.sum())
    # Where nobody voted otherwise, as people err about this class elsewhere.
    usual = np.stack([other[clean == one].sum(0) for one in range(votes.shape[1])])
    usual = usual / usual.sum(1, keepdims=True)
    given = clean.copy()
    for at in chosen:
        row = other[at] + usual[clean[at]]
        given[at] = generator.choice(len(row), p=row / row.sum())
    return given


def texts(even: bool) -> Inputs:
    """Every other text: the sign of its first rating, and that of its mean rating as the truth."""
    folder = data_root(None, source("cifar10")) / "rated_texts"
    ratings = pq.read_table(folder / "texts-with-ratings.parquet", columns=["ratings"])["ratings"].to_pylist()
    mean, first = np.array([np.mean(one) for one in ratings]), np.array([one[0] for one in ratings])
    kept = np.flatnonzero((first != 0) & (mean != 0))
    kept = kept[kept % 2 == (0 if even else 1)]
    features = torch.from_numpy(np.load(folder / "texts-minilm.npy")[kept]).float()
    return Inputs(features, torch.from_numpy((first[kept] > 0).astype(np.int64)), (mean[kept] > 0).astype(np.int64))


def cifar10_features(split: str) -> Tensor:
    """EfficientNet-Lite0's features as distributed: 256 principal components."""
    folder = data_root(None, source("cifar10")) / "cifar-10-features"
    with safe_open(folder / "efficientnet-lite0.safetensors", "pt") as file:
        features: Tensor = file.get_tensor(split)
    return features.float()


def image_features(kind: str, cache: Path) -> tuple[Tensor, np.ndarray]:
    """EfficientNet-Lite0's features of all domains' images, and their classes."""
    root = data_root(None, source("cifar10")) / {"pacs": "PACS", "office": "office_caltech10"}[kind]
    parts, classes = [], []
    for folder in sorted(one for one in root.iterdir() if one.is_dir() and one.name != "splits"):
        images = open_images(folder, "folder")
        features, unreadable = features_of_images(
            images, BACKBONE, size=PIXELS, cache=cache / f"{kind}-{folder.name}", progress=False
        )
        if unreadable:
            raise ValueError(f"all images in {folder} must be readable; {len(unreadable)} are not")
        parts.append(features)
        classes.append(images.labels)
    found = torch.cat(parts)
    return principal(found) if kind == "pacs" else found, torch.cat(classes).numpy()


def principal(features: Tensor, components: int = 256) -> Tensor:
    """The first principal components, rounded to half precision."""
    centred = (features - features.mean(0)).double()
    vectors = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -components:].flip(1)
    # A component has no sign of its own: its largest part is positive.
    signs = vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    found: Tensor = centred @ (vectors * signs)
    return found.half().float()


def _plain(name: str) -> tuple[Tensor, np.ndarray]:
    from sklearn import datasets

    table = datasets.load_digits() if name == "digits" else datasets.load_breast_cancer()
    values = table.data if name == "digits" else (table.data - table.data.mean(0)) / table.data.std(0)
    return torch.from_numpy(values.astype(np.float32)), table.target.astype(np.int64)
