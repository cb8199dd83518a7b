"""What four pictures of the paper show, measured: Figures 2 (cones), 3 (two Gaussians), 19 (granularity), 20 (norm)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight import datasets, models
from hardsight.alignment import correlate, correlate_by_granularity
from hardsight.datasets.hierarchy import Hierarchy, human_selection_frequency
from hardsight.geometry import angles_to_classes
from hardsight_studies.avh.looking import (
    Found,
    Look,
    Subject,
    computing,
    counts,
    features_of,
    look,
    look_at_features,
    write_found,
)  # fmt: skip
from hardsight_studies.avh.people import voted_images
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.trainings import write_record

# ---------------------------------------------------------------------------------------------------------------------
# Figures 2 and 8: the features of a network that has two of them.


def measure_cones(subject: Subject) -> list[Found]:
    """Some images of each class in the plane of the first two features, the weights, and how narrow the cones are."""
    features = features_of(subject.model, subject.images, subject.scale)
    head: Any = subject.model.head
    seen = look_at_features(features, head, subject.labels)
    angles = angles_to_classes(features, head.weight.detach().float())
    own = torch.rad2deg(angles.gather(1, subject.labels[:, None]).squeeze(1)).cpu().numpy()
    labels, avh = subject.labels.cpu().numpy(), seen.avh.cpu().numpy()
    nearest = float((angles.argmin(1) == subject.labels).double().mean())
    about = {"images": len(labels), "features": features.shape[1], "accuracy": float(seen.correct.mean())}
    found = [Found({**about, "nearest_by_angle": nearest})]
    for name in np.unique(labels):
        inside = labels == name
        cone = {"median_angle": np.median(own[inside]), "ninth_decile": np.quantile(own[inside], 0.9)}
        numbers = {"images": int(inside.sum()), "avh": float(avh[inside].mean())} | {
            k: float(v) for k, v in cone.items()
        }
        found.append(Found(numbers, {"digit": subject.class_names[name]}))
    return [*found, *plane_of(subject, features[:, :2], labels, 100, avh=avh)]


def plane_of(
    subject: Subject, points: Float[Tensor, "samples 2"], labels: np.ndarray, each: int, **columns: np.ndarray
) -> list[Found]:
    """The first so many images of each class in the plane of two features, and the weights of the classes."""
    chosen = np.concatenate([(labels == name).nonzero()[0][:each] for name in np.unique(labels)])
    head: Any = subject.model.head
    x, y = points.cpu().numpy()[chosen].T.tolist()
    further = {name: values[chosen].tolist() for name, values in columns.items()}
    wx, wy = head.weight.detach().cpu()[:, :2].T.tolist()
    images = {"x": x, "y": y, "at": range(len(x)), "label": labels[chosen].tolist(), **further}
    weights = {"x": wx, "y": wy, "label": range(len(wx))}
    return [Found(series="images", columns=images), Found(series="weights", columns=weights)]


cones = computing(measure_cones, {"smoke": 150, "cpu": 2000, "paper": 10_000})

# ---------------------------------------------------------------------------------------------------------------------
# Figures 3 and 7: two Gaussians on the sphere, where it is known how much the classes overlap at a point.

STEPS = {"smoke": 100, "cpu": 500, "paper": 500}
ANGLE, POINTS = math.pi / 3, 400


def gaussians(runs: Sequence[Run], preset: str, options: Options) -> None:
    """Train every seed of the paper's toy: how AVH, norm and confidence follow the overlap of the classes."""
    for run in runs:
        data, seen = train_toy(run.seed, STEPS[preset])
        overlap = ambiguity(data.images).numpy()
        columns = {name: getattr(seen, name).detach().numpy() for name in ("avh", "norm", "confidence")}
        rho = {f"{name}_rho": correlate(values, overlap).coefficient for name, values in columns.items()}
        found = [Found({**rho, "accuracy": float(seen.correct.double().mean())})]
        if run.seed == 0:
            kept = slice(None, None, max(1, len(data) // POINTS))
            places = {axis: data.images[kept, at].tolist() for at, axis in enumerate("xyz")}
            scores = {name: columns[name][kept].tolist() for name in ("avh", "norm")}
            shown = {**places, "at": range(len(places["x"])), **scores, "label": data.labels[kept].tolist()}
            found.append(Found(series="points", columns=shown))
        write_found(run, found)
        write_record(run, {}, torch.device("cpu"))


def ambiguity(points: Float[Tensor, "samples 3"]) -> Float[Tensor, "samples"]:
    """How alike the two classes are at a point: minus the difference of its angles to the two means, in radians.

    The Gaussians have one spread, so the classes are equally likely where the angles are equal: there it is 0.
    """
    half = ANGLE / 2
    means = points.new_tensor([[math.cos(half), -math.sin(half), 0.0], [math.cos(half), math.sin(half), 0.0]])
    angles = torch.atan2(torch.linalg.cross(points[:, None], means[None], dim=-1).norm(dim=-1), points @ means.T)
    return -(angles[:, 0] - angles[:, 1]).abs()


def train_toy(seed: int, steps: int) -> tuple[datasets.ArrayDataset, Look]:
    """The paper's toy: 1,000 points a class, one hidden layer of two, trained by Adam on all points at once."""
    data = datasets.two_gaussians_on_sphere(angle_radians=ANGLE, generator=torch.Generator().manual_seed(seed))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = models.create("mlp_2d")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data.images), data.labels).backward()
        optimizer.step()
    with torch.no_grad():
        features = model.forward_features(data.images)
    return data, look_at_features(features, model.head, data.labels)


# ---------------------------------------------------------------------------------------------------------------------
# Figure 19: does the norm follow people where classes are gathered into coarser ones?

# From coarse to fine, after WordNet's hypernyms; every level holds every class once. Digits only try the code.
GATHERED: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {
    "cifar10h": {
        "kind": {
            "animal": ("bird", "cat", "deer", "dog", "frog", "horse"),
            "vehicle": ("airplane", "automobile", "ship", "truck"),
        },
        "family": {
            "carnivore": ("cat", "dog"),
            "hoofed animal": ("deer", "horse"),
            "motor vehicle": ("automobile", "truck"),
            **{one: (one,) for one in ("bird", "frog", "airplane", "ship")},
        },
    },
    "digits": {
        "kind": {"even": ("0", "2", "4", "6", "8"), "odd": ("1", "3", "5", "7", "9")},
        "family": {f"{first} or {first + 2}": (str(first), str(first + 2)) for first in (0, 1, 4, 5)}
        | {"8": ("8",), "9": ("9",)},
    },
}
# The same images at three granularities.
SHOWN = ("animal", "carnivore", "cat", "odd", "1 or 3", "1")


def measure_granularity(subject: Subject) -> list[Found]:
    """At each granularity: how norm, AVH and confidence follow people within every class."""
    data, names = "digits" if subject.images.shape[1] == 1 else "cifar10h", subject.class_names
    seen = look(subject.model, subject.images, subject.labels, subject.scale)
    scores = {name: getattr(seen, name).double().cpu().numpy() for name in ("norm", "avh", "confidence")}
    votes, labels = voted_images(data).columns["human_votes"][subject.ids.cpu()], subject.labels.cpu()
    found = [Found({"images": len(labels)})]
    levels: list[Mapping[str, Sequence[str]]] = [*GATHERED[data].values(), {name: (name,) for name in names}]
    for groups in levels:
        every = within_groups(Hierarchy.from_groups(names, groups), votes, labels, scores)
        # A class that no other joins is listed once, among the classes.
        found += [one for one in every if len(groups) == len(names) or one.metrics["classes"] > 1]
    return found


def within_groups(
    gathered: Hierarchy,
    votes: Int[Tensor, "samples classes"],
    labels: Int[Tensor, "samples"],
    scores: Mapping[str, np.ndarray],
) -> list[Found]:
    """The classes of one granularity, those of many fine classes first; people are counted at this granularity too."""
    frequency = human_selection_frequency(votes, labels, gathered).numpy()
    parent = [gathered.coarse_names[at] for at in gathered.parents]
    coarse = np.array(parent)[labels.numpy()]
    by_score = {
        name: correlate_by_granularity(values, frequency, labels.numpy(), dict(enumerate(parent)))
        for name, values in scores.items()
    }
    found = []
    for at, one in enumerate(by_score["norm"]):
        inside = coarse == one.group
        numbers = {"classes": one.fine_classes, "images": one.n, "unanimous": float((frequency[inside] == 1).mean())}
        for name, groups in by_score.items():
            known = groups[at].correlation
            numbers |= {} if known is None else {name: known.coefficient, f"{name}_p": known.p_value}
        shown = counts(scores["norm"][inside], frequency[inside]) if one.group in SHOWN else {}
        found.append(Found(numbers, {"group": one.group}, series="norm" if shown else "", columns=shown))
    return found


granularity = computing(measure_granularity, {"smoke": 400, "cpu": 10_000, "paper": 10_000})

# ---------------------------------------------------------------------------------------------------------------------
# Figure 20: confidence follows the norm of the features, AVH does not.

# The paper's angles on either side of the boundary, and how often the network's features are lengthened.
NARROW, WIDE = math.pi / 4 - 0.05, math.pi / 4 + 0.05
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def binary_case(norms: np.ndarray, label_angle: float, other_angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and AVH of two classes with unit weights at these angles from a feature of each norm."""
    gap = norms * (math.cos(label_angle) - math.cos(other_angle))
    return 1 / (1 + np.exp(-gap)), np.full_like(norms, label_angle / (label_angle + other_angle))


def measure_lengths(subject: Subject) -> list[Found]:
    """The features lengthened by each factor: AVH and confidence of right and of wrong predictions."""
    features = features_of(subject.model, subject.images, subject.scale)
    head: Any = subject.model.head
    first = look_at_features(features, head, subject.labels)
    right, moved, found = first.correct.bool(), 0.0, []
    for factor in FACTORS:
        seen = look_at_features(factor * features, head, subject.labels)
        moved = max(moved, float((seen.avh - first.avh).abs().max()))
        means = {
            f"{side}_{score}": float(getattr(seen, score)[chosen].double().mean()) if chosen.any() else None
            for side, chosen in (("right", right), ("wrong", ~right))
            for score in ("confidence", "avh")
        }
        found.append(Found(means, {"factor": factor}))
    norm = float(torch.linalg.vector_norm(features, dim=1).mean())
    about = {"images": len(right), "wrong": int((~right).sum()), "norm": norm, "largest_change_of_avh": moved}
    return [Found(about), *found]


lengths = computing(measure_lengths, {"smoke": 150, "cpu": 500, "paper": 10_000})
