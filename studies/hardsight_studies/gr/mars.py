"""GR, Table 7: people found again in the videos of MARS, learned from tracklets that show the wrong person at times.

Section 4.4: frames squashed to 256 x 256, crops of 227, flips. A tracklet is a set of frames: its feature is their
mean, scaled to length 1, and tracklets are ranked by cosine. The data is at `$HARDSIGHT_DATA/MARS`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from PIL import Image
from torch import Tensor, nn

from hardsight import datasets, models
from hardsight.datasets import FileDataset
from hardsight.geometry import directions
from hardsight.heads import evaluating
from hardsight.losses.registry import Sizes
from hardsight.training import Details, Hooks, Loop, Plan
from hardsight.training.from_config import make_loss
from hardsight.training.schedules import steps
from hardsight_studies.engine.clock import EpochWatch, Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.gr.clothing1m import Crops

# The identity of detections of nobody in particular.
JUNK = -1


class Tracklets(NamedTuple):
    """One row a tracklet: its number, who it shows, who saw it, and its feature of length 1."""

    numbers: Int[Tensor, "tracklets"]
    identities: Int[Tensor, "tracklets"]
    cameras: Int[Tensor, "tracklets"]
    features: Float[Tensor, "tracklets dim"]


def average_tracklets(
    features: Float[Tensor, "frames dim"],
    tracklets: Int[Tensor, "frames"],
    identities: Int[Tensor, "frames"],
    cameras: Int[Tensor, "frames"],
) -> Tracklets:
    """The mean feature of each tracklet's frames, scaled to length 1; tracklets in the order of their numbers."""
    numbers, place = tracklets.unique(return_inverse=True)
    counts = place.bincount(minlength=len(numbers))
    sums = features.new_zeros(len(numbers), features.shape[1]).index_add_(0, place, features)
    first = torch.full((len(numbers),), len(place), device=place.device)
    first.scatter_reduce_(0, place, torch.arange(len(place), device=place.device), "amin")
    for name, column in (("identity", identities), ("camera", cameras)):
        odd = (column != column[first][place]).nonzero()
        if len(odd):
            raise ValueError(f"tracklets must have one {name} each; {int(tracklets[odd[0]])} has several")
    return Tracklets(numbers, identities[first], cameras[first], directions(sums / counts.unsqueeze(1)))


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
    """Mean average precision and CMC of the queries in the test half, as MARS's own evaluation has them, as shares.

    `cmc_5`: the share of queries with a match among the first five; queries without any match count nowhere.
    """
    averages, first = search(tracklets_of(model, test, data, device), queries)
    known = ~averages.isnan()
    return {
        "mean_average_precision": float(averages[known].mean()),
        **{f"cmc_{rank}": float((first[known] <= rank).double().mean()) for rank in (1, 5, 10, 20)},
        "queries": len(queries),
        "queries_without_match": int((~known).sum()),
    }


def search(everything: Tracklets, queries: Tensor) -> tuple[Tensor, Tensor]:
    """Look for the tracklets of these numbers among all: a query's own camera is left out, other queries are not."""
    chosen = torch.isin(everything.numbers, queries)
    found = retrieve(Tracklets(*(part[chosen] for part in everything)), everything)
    if not (~found[0].isnan()).any():
        raise ValueError("query must hold a person whom another camera saw in the gallery; got none")
    return found


def retrieve(query: Tracklets, gallery: Tracklets) -> tuple[Tensor, Tensor]:
    """Average precision of each query, NaN without a match, and the place of its first match, counted from 1.

    The gallery is ranked by cosine; equally similar ones stay in its order. From a ranking everything of the same
    person seen by the same camera is taken out, and so is junk; distractors (identity 0) are not. As in the evaluation
    code of MARS, the precision at a match is the mean of that there and one place before, which is 1 before the first.
    """
    parts = []
    for rows in torch.arange(len(query.numbers)).split(256):
        _, identities, cameras, features = (part[rows].unsqueeze(1) for part in query)
        order = (features.squeeze(1) @ gallery.features.T).argsort(dim=1, descending=True, stable=True)
        same_person = gallery.identities[order] == identities
        kept = ~(same_person & (gallery.cameras[order] == cameras)) & (gallery.identities[order] != JUNK)
        hits = same_person & kept
        places, found = kept.cumsum(1).double(), hits.cumsum(1).double()
        before = torch.where(places > 1, (found - 1) / (places - 1).clamp_min(1), 1.0)
        at_hit = (found / places.clamp_min(1) + before) / 2
        matches = hits.sum(1)
        averages = torch.where(matches > 0, (hits * at_hit).sum(1) / matches, torch.nan)
        parts.append((averages, torch.where(hits, places, torch.inf).amin(1)))
    averages, first = (torch.cat(part) for part in zip(*parts, strict=True))
    return averages, first


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
