"""GR, Table 6: Clothing1M, a million photographs of clothes from shops, about 38 % of them with a wrong label.

Section 4.3: images squashed to 256 x 256, crops of 224, flips. The data is at `$HARDSIGHT_DATA/clothing1M`,
ImageNet's weights at `$HARDSIGHT_DATA/weights/resnet50.safetensors` under torchvision's names.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from hardsight import datasets, models
from hardsight.datasets import FileDataset
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.epochs import Batch
from hardsight.datasets.loader import StreamingLoader
from hardsight.losses.registry import Sizes
from hardsight.training import Details, Hooks, Loop, Plan, Samples, Steps
from hardsight.training.checkpoints import read_tensors
from hardsight.training.from_config import make_loss
from hardsight.training.schedules import steps
from hardsight_studies.engine.clock import EpochWatch, Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.gr.learned import choice

# Of ImageNet, on which the networks were trained before.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Crops:
    """Batches of squares of `side` pixels out of images squashed to `resized` x `resized`.

    For training the square is anywhere and half of the images are mirrored, otherwise it is the middle. Moving an image
    by up to the margin and then cutting out the middle is a random crop; where the margin is odd the last of its
    places is left out.
    """

    def __init__(
        self, data: FileDataset, batch_size: int, *, resized: int, side: int, training: bool, seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        if not 0 < side <= resized:
            raise ValueError(f"side must lie in [1, {resized}], the size of the images; got {side}")
        self.start, self.side = (resized - side) // 2, side
        augmentation = Augmentation(shift=self.start, flip=True) if training else Augmentation()
        self.loader = StreamingLoader(
            data.resized(resized, "squash"), batch_size, device=device, shuffle=training, drop_last=training, seed=seed,
            augmentation=augmentation, mean=MEAN, std=STD,
        )  # fmt: skip
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        inside = slice(self.start, self.start + self.side)
        for images, labels, ids in self.loader:
            yield Batch(images[:, :, inside, inside], labels, ids)

    def state_dict(self) -> dict[str, Any]:
        """Where the pass stands."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a pass stood."""
        self.loader.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Start the next pass at the beginning of `epoch`."""
        self.loader.set_epoch(epoch)


# Torchvision's name of a ResNet's last layer.
_HEAD = "fc."


def load_backbone(model: nn.Module, path: Path | str) -> nn.Module:
    """Put weights of an ImageNet network (safetensors, torchvision's names) into all but the model's head."""
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path} is not there: it must hold an ImageNet network's weights, safetensors under torchvision's names"
        )
    found = read_tensors(path)
    own = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(_HEAD)}
    lacking = sorted(name for name in own.keys() - found.keys() if not name.endswith("num_batches_tracked"))
    if lacking:
        raise ValueError(f"{path} must hold the network's weights; {lacking[0]} is missing")
    for name in own.keys() & found.keys():
        if found[name].shape != own[name].shape:
            raise ValueError(
                f"{path} must hold the network's weights; {name} must have shape {list(own[name].shape)}, got "
                f"{list(found[name].shape)}"
            )
    model.load_state_dict({name: tensor for name, tensor in found.items() if name in own}, strict=False)
    return model


def compute(runs: Sequence[Run], preset: str, options: Options) -> None:
    """Train these runs one after the other: each fills a GPU."""
    for run in runs:
        root = tiny(run.folder.parent / "tiny") if preset == "smoke" else None
        limit = run.config["data"].get("limit")
        train, test = (_split(split, root, limit) for split in ("noisy_train", "clean_test"))
        loop_of(run, train, test, options).run()


def _split(split: str, root: Path | None, limit: int | None) -> FileDataset:
    data = datasets.load("clothing1m", split, root)
    assert isinstance(data, FileDataset)
    return data if limit is None else data.subset(torch.arange(min(limit, len(data))))


def loop_of(run: Run, train: FileDataset, test: FileDataset, options: Options) -> Loop:
    """One training on the noisy labels, tested on the clean ones after every epoch."""
    config, device = run.config, options.torch_device
    data, loss, chooses = config["data"], config["loss"], run.settings["method"] == "auto"
    torch.manual_seed(run.seed)
    model = models.create(config["model"]["name"], num_classes=train.num_classes)
    if "weights" in config["model"]:
        load_backbone(model, Path(os.environ.get("HARDSIGHT_DATA", ".")) / config["model"]["weights"])
    sizes = Sizes(model.feature_dim, train.num_classes, int(train.ids.max()) + 1)
    crops: dict[str, Any] = {"resized": data["resized"], "side": data["side"], "device": device}
    watch = EpochWatch(options.clock, config["epochs"])
    return Loop(
        model,
        Crops(train, data["batch_size"], training=True, seed=run.seed, **crops),
        make_loss(loss["name"], loss.get("options", {}), sizes, "loss"),
        torch.optim.SGD(model.parameters(), momentum=0.9, **config["optimizer"]),
        epochs=config["epochs"],
        plan=Plan(steps(config["milestones"], 0.1, "epoch")),
        test=Crops(test, data["batch_size"], training=False, **crops),
        # Only a loss that looks at them needs the training images once more.
        samples=Samples(Crops(train, data["batch_size"], training=False, **crops), ()) if chooses else None,
        steps=Steps(clip=1.0 if chooses else None),
        folder=run.folder,
        details=Details(run.name, run.seed, config, train.class_names),
        hooks=Hooks(lambda epoch, row: watch.epoch(epoch), lambda trained: choice(run.folder)),
        device=device,
        progress=False,
    )


def tiny(root: Path, images: int = 4) -> Path:
    """A data set of Clothing1M's layout below `root`: 14 plain colours, every fifth noisy label the next class."""
    folder = root / "clothing1M"
    if (folder / "clean_test_key_list.txt").is_file():
        return root
    generator = np.random.default_rng(0)
    colours = generator.integers(0, 256, (14, 3))
    lines: dict[str, list[str]] = {"noisy_train": [], "clean_test": [], "noisy": [], "clean": []}
    for split, kind in (("noisy_train", "noisy"), ("clean_test", "clean")):
        for number in range(14 * images):
            key = f"images/{number % 10}/{number // 10:02d}/{split}{number},0.jpg"
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            pixels = colours[number % 14] + generator.normal(0, 20, (24, 18, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / key)
            wrong = kind == "noisy" and number % 5 == 0
            lines[split].append(key)
            lines[kind].append(f"{key} {(number + wrong) % 14}")
    names = {"noisy": "noisy_label_kv.txt", "clean": "clean_label_kv.txt"}
    (folder / "category_names_eng.txt").write_text("\n".join(f"class {label}" for label in range(14)))
    for key in ("noisy", "clean", "noisy_train", "clean_test"):
        (folder / names.get(key, f"{key}_key_list.txt")).write_text("\n".join(lines[key]) + "\n")
    return root
