"""GR, Table 7: people found again in the videos of MARS, learned from tracklets that show the wrong person at times.

Section 4.4: frames squashed to 256 x 256, crops of 227, flips. A tracklet is a set of frames: its feature is their
mean, scaled to length 1, and tracklets are ranked by cosine (`retrieval`). The data is at `$HARDSIGHT_DATA/MARS`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from hardsight import datasets, models
from hardsight.datasets import FileDataset
from hardsight.heads import evaluating
from hardsight.losses.registry import Sizes
from hardsight.training import Details, Hooks, Loop, Plan
from hardsight.training.from_config import make_loss
from hardsight.training.schedules import steps
from hardsight_studies.engine.clock import EpochWatch, Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.gr.crops import Crops
from hardsight_studies.gr.retrieval import Retrieval, Tracklets, average_tracklets, retrieve


def compute(runs: Sequence[Run], preset: str, options: Options) -> None:
    """Train these runs one after the other: each fills a GPU."""
    for run in runs:
        root = tiny(run.folder.parent / "tiny") if preset == "smoke" else None
        loop_of(run, root, options).run()


def loop_of(run: Run, root: Path | None, options: Options) -> Loop:
    """One training to name the people of the first half; at the end those of the other half are looked for.

    Iterations are rounded to whole epochs; `every`: one in so many frames.
    """
    config, device = run.config, options.torch_device
    data, loss = config["data"], config["loss"]
    train, (test, queries) = _frames("train", root, data.get("every", 1)), load_test_half(root)
    torch.manual_seed(run.seed)
    model = models.create(config["model"]["name"], num_classes=train.num_classes, **config["model"].get("options", {}))
    sizes = Sizes(model.feature_dim, train.num_classes, int(train.ids.max()) + 1)
    crops = {"resized": data["resized"], "side": data["side"], "device": device}
    batches = Crops(train, data["batch_size"], training=True, seed=run.seed, **crops)
    epochs = max(1, round(config["iterations"] / len(batches)))
    falls = list(range(config["halve_every"], config["iterations"], config["halve_every"]))
    watch = EpochWatch(options.clock, epochs)
    hooks = Hooks(lambda epoch, row: watch.epoch(epoch), lambda model: measure(data, test, queries, model, device))
    return Loop(
        model,
        batches,
        make_loss(loss["name"], loss.get("options", {}), sizes, "loss"),
        torch.optim.SGD(model.parameters(), momentum=0.9, **config["optimizer"]),
        epochs=epochs,
        plan=Plan(steps(falls, 0.5, "step")),
        folder=run.folder,
        details=Details(run.name, run.seed, config),
        hooks=hooks,
        device=device,
        progress=False,
    )


def _frames(split: str, root: Path | None, every: int = 1) -> FileDataset:
    data = datasets.load("mars", split, root)
    assert isinstance(data, FileDataset)
    return data.subset(torch.arange(0, len(data), every))


def load_test_half(root: Path | None) -> tuple[FileDataset, Tensor]:
    """All frames of the test half and the numbers of its queries; an error where no query can be found.

    Asked before the training, not after it: only there would missing lists and a single camera show otherwise.
    """
    test, queries = _frames("test", root), _frames("query", root).columns["tracklet"].unique()
    # Whether there is anything to find does not depend on the features.
    search(_averaged(torch.ones(len(test), 1), test), queries)
    return test, queries


def measure(
    data: Mapping[str, Any], test: FileDataset, queries: Tensor, model: nn.Module, device: torch.device
) -> dict[str, float]:
    """Mean average precision and CMC of the queries in the test half, as MARS's own evaluation has them, as shares."""
    found = search(tracklets_of(model, test, data, device), queries)
    return {
        "mean_average_precision": found.mean_average_precision,
        **{f"cmc_{rank}": share for rank, share in found.cmc.items()},
        "queries": len(queries),
        "queries_without_match": found.unmatched,
    }


def search(everything: Tracklets, queries: Tensor) -> Retrieval:
    """Look for the tracklets of these numbers among all: a query's own camera is left out, other queries are not."""
    chosen = torch.isin(everything.numbers, queries)
    return retrieve(Tracklets(*(part[chosen] for part in everything)), everything, precision="trapezoid")


def tracklets_of(model: nn.Module, frames: FileDataset, data: Mapping[str, Any], device: torch.device) -> Tracklets:
    """The features of a split's tracklets, from the middle of every frame."""
    row_of = {int(one): row for row, one in enumerate(frames.ids)}
    features, rows = [], []
    crops = Crops(frames, data["batch_size"], resized=data["resized"], side=data["side"], training=False, device=device)
    with evaluating(model):
        for images, _, ids in crops:
            features.append(model.forward_features(images).float().cpu())  # type: ignore[operator]
            rows += [row_of[int(one)] for one in ids]
    return _averaged(torch.cat(features), frames, rows)


def _averaged(features: Tensor, frames: FileDataset, rows: Sequence[int] | slice = slice(None)) -> Tracklets:
    """The mean feature of every tracklet; `rows`: the frames that the features are of."""
    return average_tracklets(features, *(frames.columns[name][rows] for name in ("tracklet", "identity", "camera")))


def tiny(root: Path, frames: int = 2) -> Path:
    """A data set of MARS's layout below `root`: people are colours, cameras tint them; junk and distractors too."""
    from scipy.io import savemat

    folder = root / "MARS"
    if (folder / "info" / "query_IDX.mat").is_file():
        return root
    generator = np.random.default_rng(0)
    # The first camera's tracklet of everybody in the second half is a query.
    halves = {"train": ["0001", "0003", "0005", "0007"], "test": ["00-1", "0000", "0002", "0004", "0006", "0008"]}
    queries: list[int] = []
    for half, people in halves.items():
        names: list[str] = []
        tracks: list[list[int]] = []
        for person in people:
            colour = generator.integers(30, 226, 3)
            for camera in (1, 2, 3):
                identity = -1 if person == "00-1" else int(person)
                tracks.append([len(names) + 1, len(names) + frames, identity, camera])
                if half == "test" and identity > 0 and camera == 1:
                    queries.append(len(tracks))
                for frame in range(1, frames + 1):
                    name = f"{person}C{camera}T0001F{frame:03d}.jpg"
                    pixels = colour + 8 * camera + generator.normal(0, 15, (32, 16, 3))
                    path = folder / f"bbox_{half}" / person / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
                    names.append(name)
        (folder / "info").mkdir(exist_ok=True)
        (folder / "info" / f"{half}_name.txt").write_text("\n".join(names) + "\n")
        savemat(folder / "info" / f"tracks_{half}_info.mat", {f"track_{half}_info": np.array(tracks, np.int32)})
    savemat(folder / "info" / "query_IDX.mat", {"query_IDX": np.array([queries], np.uint16)})
    return root
