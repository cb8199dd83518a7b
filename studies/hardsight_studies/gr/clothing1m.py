"""GR, Table 6: Clothing1M, a million photographs of clothes from shops, about 38 % of them with a wrong label.

Section 4.3: images squashed to 256 x 256, crops of 224, flips. The data is at `$HARDSIGHT_DATA/clothing1M`,
ImageNet's weights at `$HARDSIGHT_DATA/weights/resnet50.safetensors` under torchvision's names.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from hardsight import datasets, models
from hardsight.datasets import FileDataset
from hardsight.losses.registry import Sizes
from hardsight.training import Details, Hooks, Loop, Plan, Samples, Steps
from hardsight.training.from_config import make_loss
from hardsight.training.schedules import steps
from hardsight_studies.engine.clock import EpochWatch, Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.gr.choices import choice
from hardsight_studies.gr.crops import Crops, load_backbone


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
