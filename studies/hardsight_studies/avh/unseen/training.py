"""One training on several domains, not started: network, head, batches, optimiser and what is measured at its end."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
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
from hardsight.distributed import join_processes, rank_and_count
from hardsight.domains.data import RowBatches, fingerprint
from hardsight.domains.splits import Split
from hardsight.engines.backbone import BACKBONE_MEAN, BACKBONE_STD, EfficientNetLite0
from hardsight.heads import evaluating
from hardsight.losses.angular import AngularLinear
from hardsight.names import check_name
from hardsight.training import Details, Hooks, Loop, Plan, Steps
from hardsight.training.capture import CapturedStep
from hardsight.training.schedules import constant, cosine
from hardsight_studies.avh.baselines.adaptation import accuracy_by_class
from hardsight_studies.avh.unseen.batches import DomainBatches
from hardsight_studies.avh.unseen.meta_learning import train_by_mldg

METHODS = ("cross_entropy", "avh", "mldg")
BACKBONE, PROBE = "efficientnet_lite0", "probe"


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. The defaults are the paper's where it says something: momentum 0.9, batches of 40.

    The paper finetunes from ImageNet with a learning rate of 1e-3; from scratch the default is 0.01, by half a cosine
    down to 0. `model`: a name of `hardsight.models`; "efficientnet_lite0", with ImageNet weights from its package; or
    "probe", a head alone on features that a frozen backbone made (`with_backbone_features`). `options` go to the
    network. `shift` (pixels) and `flip` are drawn for every training image. MLDG alone uses `inner_rate` (left out: the
    learning rate), `meta_weight` and `second_order`.
    """

    model: str = "cnn10"
    epochs: int = 30
    batch_size: int = 40
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 5e-4
    decay: bool = True
    shift: int = 4
    flip: bool = True
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    inner_rate: float | None = None
    meta_weight: float = 1.0
    second_order: bool = False


def make_loop(
    method: str,
    split: Split,
    recipe: Recipe,
    *,
    scale: float | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    folder: Path | None = None,
    progress: bool | None = False,
    after_epoch: Callable[[int, dict[str, float | int]], None] | None = None,
) -> Loop:
    """A training, not started; its results hold `test_accuracy` (of the domain left out) and `validation_accuracy`."""
    _check_method(method, scale)
    device = join_processes(device)  # first of all: only then do the processes know each other
    head: Any = nn.Linear if scale is None else partial(AngularLinear, scale=scale)
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
            feeds.by_domain() if method == "mldg" else feeds.pooled(),
            None,
            torch.optim.SGD(
                model.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
            ),
            epochs=recipe.epochs,
            plan=Plan(cosine() if recipe.decay else constant),
            steps=Steps(capture=method != "mldg"),
            folder=folder,
            details=Details(title_of(method, split.held_out, scale, seed), seed, settings, split.train.class_names),
            hooks=Hooks(after_epoch, feeds.measure),
            progress=progress,
            device=device,
        )
    if method == "mldg":
        return train_by_mldg(
            loop,
            feeds.domains,
            inner_rate=recipe.lr if recipe.inner_rate is None else recipe.inner_rate,
            weight=recipe.meta_weight,
            second_order=recipe.second_order,
            seed=seed,
        )
    if isinstance(loop.take_step, CapturedStep):
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
        self.domains = len(self.present)
        self.pixels: dict[str, Any] = {}
        if split.train.images.ndim == 4:
            known = recipe.model == BACKBONE
            mean, std = (BACKBONE_MEAN, BACKBONE_STD) if known else pixel_statistics(split.train.images)
            self.pixels = {"mean": mean, "std": std, "channels_last": device.type == "cuda", "device": device}

    def pooled(self) -> DeviceLoader | RowBatches:
        """All training domains in one."""
        return self._training(self.split.train, self.recipe.batch_size, self.seed)

    def by_domain(self) -> DomainBatches:
        """The same number of samples of each training domain in every batch."""
        assert self.split.train.domains is not None
        each = self.recipe.batch_size // self.domains
        counts = torch.bincount(self.split.train.domains)
        if self.domains < 2 or each < 1 or int(counts[counts > 0].min()) < each:
            raise ValueError(
                f"mldg needs at least two training domains that fill their part of a batch of "
                f"{self.recipe.batch_size}; got {self.domains} domains of {counts[counts > 0].tolist()} samples"
            )
        parts = [self.split.train.in_domain(self.split.train.domain_names[domain]) for domain in self.present]
        # Loaders of one seed would draw alike: each domain has its own.
        return DomainBatches([self._training(part, each, self.seed + 1000 * (at + 1)) for at, part in enumerate(parts)])

    def plain(self, name: str) -> DeviceLoader | RowBatches:
        """A part of the split as it is."""
        data: ArrayDataset = getattr(self.split, name)
        return self._loader(data, 256, shuffle=False)

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """Accuracy on the domain left out, overall and by class, and on the validation samples."""
        classes = self.split.train.num_classes
        test, kept = (
            accuracy_by_class(model, self.plain(name), classes, self.device) for name in ("test", "validation")
        )
        return {
            "test_accuracy": test.overall,
            "test_accuracy_by_class": test.by_class,
            "validation_accuracy": kept.overall,
        }

    def _training(self, data: ArrayDataset, batch_size: int, seed: int) -> DeviceLoader | RowBatches:
        moved = {"augmentation": Augmentation(shift=self.recipe.shift, flip=self.recipe.flip)} if self.pixels else {}
        rank, world = rank_and_count()
        # An incomplete batch would have statistics of its own, of one sample at worst.
        return self._loader(data, batch_size, seed=seed, drop_last=True, rank=rank, world_size=world, **moved)

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


def _check_method(method: str, scale: float | None) -> None:
    check_name("method", method, METHODS)
    if (scale is None) == (method == "avh"):
        raise ValueError(f"scale must be given for avh and left out otherwise; got {scale!r} for {method}")


def title_of(method: str, held_out: str, scale: float | None, seed: int) -> str:
    """The name of a training: what is left out, how, and with which seed."""
    return f"{held_out}-{method}" + ("" if scale is None else f"-{scale:g}") + f"-{seed}"
