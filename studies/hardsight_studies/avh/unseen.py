"""Domain generalization: train on all domains but one, test on that one (AVH, section 5.2 and Table 5).

`generalize` trains one network for one domain left out. Methods: cross-entropy, the AVH loss (cross-entropy on an
`AngularLinear` head, its scale chosen by validation on the training domains alone), and MLDG.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight import models
from hardsight.datasets import ArrayDataset
from hardsight.datasets.augment import Augmentation, pixel_statistics
from hardsight.datasets.loader import DeviceLoader
from hardsight.distributed import usable_device
from hardsight.domains.data import RowBatches, Split, fingerprint, leave_one_domain_out
from hardsight.engines.model_spec import BACKBONE_MEAN, BACKBONE_STD, EfficientNetLite0
from hardsight.heads import evaluating
from hardsight.losses.angular import AngularLinear
from hardsight.names import check_name
from hardsight.training import Details, Hooks, Loop, Plan, Steps
from hardsight.training.evaluation import evaluate
from hardsight.training.feed import CapturedStep
from hardsight.training.schedules import cosine
from hardsight_studies.avh.mldg import DomainBatches, MetaStep
from hardsight_studies.engine.together import run_together

METHODS = ("cross_entropy", "avh", "mldg")
BACKBONE, PROBE = "efficientnet_lite0", "probe"


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. The defaults are the paper's where it says something: momentum 0.9, batches of 40.

    The paper finetunes from ImageNet with a learning rate of 1e-3; from scratch the default is 0.01, by half a cosine
    down to 0. `model`: a name of `hardsight.models`; "efficientnet_lite0", with ImageNet weights from its package; or
    "probe", a head alone on features that a frozen backbone made (`with_backbone_features`). `options` go to the
    network. `shift` (pixels) and `flip` are drawn for every training image.
    """

    model: str = "cnn10"
    epochs: int = 30
    batch_size: int = 40
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 5e-4
    shift: int = 4
    flip: bool = True
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Generalized:
    """One network trained without a domain: accuracies are shares in [0, 1]; `scale` is the AVH loss's.

    `tried`: validation and test accuracy of every scale that was trained, the chosen one among them.
    """

    accuracy: float
    validation_accuracy: float
    model: nn.Module
    scale: float | None = None
    tried: Mapping[float, tuple[float, float]] = dataclasses.field(default_factory=dict)


def generalize(
    data: ArrayDataset,
    held_out: str,
    method: str,
    *,
    recipe: Recipe,
    scales: Sequence[float],
    validation: float | ArrayDataset = 0.1,
    seed: int = 0,
    device: torch.device | str | None = None,
    folder: Path | None = None,
) -> Generalized:
    """Train by `method` on all domains but `held_out`, and test on it, which is looked at in the end alone.

    The AVH loss is trained with each of `scales`; the one with the best validation accuracy counts (the first of
    equals). `seed` draws weights, order and validation samples. `folder`: where the records go, one a training.
    """
    split = leave_one_domain_out(data, held_out, validation=validation, generator=torch.Generator().manual_seed(seed))
    found: list[Generalized] = []
    for scale in scales if method == "avh" else (None,):
        loop = make_loop(method, split, recipe, scale=scale, seed=seed, device=device, folder=folder)
        # Run as one of several: dropout then begins with the random states of the loop, not with the caller's.
        (fitted,) = run_together([loop])
        accuracies = fitted.results["test_accuracy"], fitted.results["validation_accuracy"]
        found.append(Generalized(*accuracies, fitted.evaluated, scale))
    best = max(found, key=lambda one: one.validation_accuracy)
    tried = {one.scale: (one.validation_accuracy, one.accuracy) for one in found if one.scale is not None}
    return dataclasses.replace(best, tried=tried)


def make_loop(
    method: str,
    split: Split,
    recipe: Recipe,
    *,
    scale: float | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    folder: Path | None = None,
) -> Loop:
    """A training, not started; its results hold `test_accuracy` (of the domain left out) and `validation_accuracy`."""
    check_name("method", method, METHODS)
    if (scale is None) == (method == "avh"):
        raise ValueError(f"scale must be given for avh and left out otherwise; got {scale!r} for {method}")
    device = usable_device(device)
    head: Any = nn.Linear if scale is None else partial(AngularLinear, scale=scale)
    title = f"{split.held_out}-{method}" + ("" if scale is None else f"-{scale:g}") + f"-{seed}"
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model = _make_model(recipe, split.train, head).to(device)
        feeds = _Feeds(split, recipe, seed, device)
        settings = {"method": method, "held_out": split.held_out, "scale": scale, **dataclasses.asdict(recipe)}
        if folder is not None:
            # What a record must agree on, so that it is never continued with other data.
            settings["data"] = {name: _fingerprint(getattr(split, name)) for name in ("train", "validation", "test")}
        loop = Loop(
            model,
            feeds.by_domain() if method == "mldg" else feeds.training(split.train, recipe.batch_size, seed),
            None,
            torch.optim.SGD(
                model.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
            ),
            epochs=recipe.epochs,
            plan=Plan(cosine()),
            steps=Steps(capture=method != "mldg"),
            folder=None if folder is None else folder / title,
            details=Details(title, seed, settings, split.train.class_names),
            hooks=Hooks(measure=feeds.measure),
            progress=False,
            device=device,
        )
    if method == "mldg":
        loop.take_step = MetaStep(loop, len(feeds.present), rate=recipe.lr, seed=seed)
    elif isinstance(loop.take_step, CapturedStep):
        # Trainings of seconds: compiling each network would take longer than it saves.
        loop.take_step = CapturedStep(loop.step, compiled=False)
    return loop


def with_backbone_features(data: ArrayDataset, device: torch.device | str = "cpu") -> ArrayDataset:
    """The same samples with the features of EfficientNet-Lite0 (ImageNet weights) in place of their images."""
    backbone = EfficientNetLite0(data.num_classes, image_size=data.images.shape[-1])
    # On a CPU too: its depthwise convolutions take two thirds of the time in this layout.
    backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    loader = DeviceLoader(
        data.images, data.labels, batch_size=64, shuffle=False, mean=BACKBONE_MEAN, std=BACKBONE_STD, device=device,
        channels_last=True,
    )  # fmt: skip
    return dataclasses.replace(data, images=backbone_features(backbone, loader, device).cpu())


def backbone_features(
    model: models.Classifier, batches: Iterable[Any], device: torch.device | str
) -> Float[Tensor, "samples dim"]:
    """Features of all batches in evaluation mode, float32, on the device."""
    device = torch.device(device)
    with evaluating(model.to(device)):
        return torch.cat([model.forward_features(batch[0].to(device)).float() for batch in batches])


class Probe(models.Classifier):
    """A head alone, on features that something else made: what is trained where the backbone is frozen."""

    def __init__(self, feature_dim: int, num_classes: int, head: models.Head = nn.Linear) -> None:
        super().__init__()
        self.feature_dim, self.input_shape = feature_dim, (feature_dim,)
        self.linear = head(feature_dim, num_classes)

    def forward_features(self, inputs: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        return inputs


class _Feeds:
    """The loaders of one training, and what is measured with them in the end."""

    def __init__(self, split: Split, recipe: Recipe, seed: int, device: torch.device) -> None:
        self.split, self.recipe, self.seed, self.device = split, recipe, seed, device
        assert split.train.domains is not None
        self.present = split.train.domains.unique().tolist()
        self.pixels: dict[str, Any] = {}
        if split.train.images.ndim == 4:
            known = recipe.model == BACKBONE
            mean, std = (BACKBONE_MEAN, BACKBONE_STD) if known else pixel_statistics(split.train.images)
            self.pixels = {"mean": mean, "std": std, "channels_last": device.type == "cuda", "device": device}

    def training(self, data: ArrayDataset, batch_size: int, seed: int) -> DeviceLoader | RowBatches:
        """Shuffled batches, of images moved and mirrored."""
        moved = {"augmentation": Augmentation(shift=self.recipe.shift, flip=self.recipe.flip)} if self.pixels else {}
        # An incomplete batch would have statistics of its own, of one sample at worst.
        return self._loader(data, batch_size, seed=seed, drop_last=True, **moved)

    def by_domain(self) -> DomainBatches:
        """The same number of samples of each training domain in every batch."""
        train = self.split.train
        assert train.domains is not None
        each, counts = self.recipe.batch_size // len(self.present), torch.bincount(train.domains)
        if len(self.present) < 2 or each < 1 or int(counts[counts > 0].min()) < each:
            raise ValueError(
                f"mldg needs at least two training domains that fill their part of a batch of "
                f"{self.recipe.batch_size}; got {len(self.present)} domains of {counts[counts > 0].tolist()} samples"
            )
        parts = [train.in_domain(train.domain_names[domain]) for domain in self.present]
        # Loaders of one seed would draw alike: each domain has its own.
        return DomainBatches([self.training(part, each, self.seed + 1000 * (at + 1)) for at, part in enumerate(parts)])

    def measure(self, model: nn.Module) -> dict[str, float]:
        """Accuracy on the domain left out, and on the validation samples."""
        return {
            f"{name}_accuracy": evaluate(
                model, self._loader(getattr(self.split, name), 256, shuffle=False), self.device
            )["accuracy"]
            for name in ("test", "validation")
        }

    def _loader(self, data: ArrayDataset, batch_size: int, **options: Any) -> DeviceLoader | RowBatches:
        if self.pixels:
            return DeviceLoader(data.images, data.labels, data.ids, batch_size, **self.pixels, **options)
        return RowBatches(data.images, data.labels, data.ids, batch_size, device=self.device, **options)


def _fingerprint(data: ArrayDataset) -> str | None:
    """Samples and labels in one line; of features, whose last bits depend on the device that made them, the shape."""
    pictures = data.images.dtype == torch.uint8
    return fingerprint(data if pictures else dataclasses.replace(data, images=torch.zeros_like(data.images)))


def _make_model(recipe: Recipe, data: ArrayDataset, head: Any) -> models.Classifier:
    if (recipe.model == PROBE) != (data.images.ndim == 2):
        raise ValueError(
            f"model must be {PROBE!r} for features and a network for images; got {recipe.model!r} for samples of shape "
            f"{list(data.images.shape[1:])}"
        )
    size = data.images.shape[-1]
    if recipe.model == PROBE:
        return Probe(size, data.num_classes, head)
    if recipe.model == BACKBONE:
        return EfficientNetLite0(data.num_classes, head, image_size=size)
    sized = {"image_size": size} if "image_size" in models.options(recipe.model) else {}
    return models.create(recipe.model, data.num_classes, data.images.shape[1], head, **{**sized, **recipe.options})
