"""Paths of adversarial examples in norm and angle (AVH, Figure 22): which gives way first?

FGSM (Goodfellow et al. 2015) and PGD (Madry et al. 2018), untargeted, with bounded pixels. Images are floats in [0, 1]
before normalisation, so that a radius is a share of a pixel's range.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.geometry import angles_to_classes, norms
from hardsight.heads import evaluating
from hardsight.models import Classifier
from hardsight_studies.avh.looking import Found, Subject, computing
from hardsight_studies.avh.pictures import plane_of

Images = Float[Tensor, "samples channels height width"]
Classify = Callable[[Tensor], Tensor]
# Steps of the path, and its radius by channels: undefended networks on CIFAR-10 give way within a few levels of 255.
STEPS, RADII = 20, {3: 4 / 255, 1: 0.3}
SHOWN, POINTS, RESAMPLES = 12, 60, 2000


def fgsm(classify: Classify, images: Images, labels: Int[Tensor, "samples"], radius: float) -> Images:
    """One step of `radius` along the sign of the cross-entropy's gradient, cut to [0, 1]."""
    return (images + radius * _slope(classify, images, labels).sign()).clamp(0, 1)


def fgsm_path(
    classify: Classify, images: Images, labels: Int[Tensor, "samples"], radius: float, steps: int
) -> list[Images]:
    """FGSM's images at 0, 1 / `steps`, 2 / `steps`, ... of the radius: one gradient, whose sign is that of all."""
    moved = fgsm(classify, images, labels, radius) - images
    # Cut, not shrunk: a pixel near the end of its range reaches it at a small radius already.
    return [images + moved.clamp(-radius * at / steps, radius * at / steps) for at in range(steps + 1)]


def pgd(
    classify: Classify, images: Images, labels: Int[Tensor, "samples"], *, radius: float, step: float, steps: int
) -> list[Images]:
    """The images after 0, 1, ..., `steps` steps of `step` up the loss's sign gradient, each put back into the ball.

    The ball is that of the largest change of a pixel, `radius`, around the images, cut to [0, 1].
    """
    low, high = (images - radius).clamp(0, 1), (images + radius).clamp(0, 1)
    path = [images.clone()]
    for _ in range(steps):
        moved = path[-1] + step * _slope(classify, path[-1], labels).sign()
        path.append(torch.minimum(torch.maximum(moved, low), high))
    return path


def _slope(classify: Classify, images: Tensor, labels: Tensor) -> Tensor:
    """Along the gradient of each image's own cross-entropy in its pixels; parameters get none."""
    leaf, column = images.detach().requires_grad_(), labels.unsqueeze(1)
    with torch.enable_grad():
        logits = classify(leaf)
        # Cross-entropy's gradient without its factor 1 - p, which is 0 in float32 where the network is sure enough.
        others = logits.scatter(1, column, -math.inf).logsumexp(1)
        # Summed, not averaged: an image's gradient must not depend on how many are attacked with it.
        (slope,) = torch.autograd.grad((others - logits.gather(1, column).squeeze(1)).sum(), leaf)
    return slope


# ---------------------------------------------------------------------------------------------------------------------
# Networks to paths, paths to numbers.


def measure(subject: Subject) -> list[Found]:
    """Attack the images that are predicted right; norm and angles along the paths of PGD and of FGSM's radii."""
    model, scale = subject.model, subject.scale
    pixels, radius = subject.images.float() / 255, RADII[subject.images.shape[1]]

    def normalised(images: Tensor) -> Tensor:
        return images * 255 * scale.scale + scale.offset

    def classify(images: Tensor) -> Tensor:
        logits: Tensor = model(normalised(images))
        return logits

    with evaluating(model):
        right = torch.cat([classify(part).argmax(1) for part in pixels.split(500)]) == subject.labels
    model.eval()
    parts: dict[str, list[dict[str, np.ndarray]]] = {"pgd": [], "fgsm": []}
    for images, own in zip(pixels[right].split(250), subject.labels[right].split(250), strict=True):
        path = pgd(classify, images, own, radius=radius, step=radius / STEPS, steps=STEPS)
        parts["pgd"].append(_path(model, [normalised(one) for one in path], own))
        path = fgsm_path(classify, images, own, radius, STEPS)
        parts["fgsm"].append(_path(model, [normalised(one) for one in path], own))
    paths = {name: {key: np.concatenate([one[key] for one in of]) for key in of[0]} for name, of in parts.items()}
    found = [Found({"radius": radius, "images": int(right.sum())})]
    for name, of in paths.items():
        found += judge_paths(of, {"attack": name})
    if "first" in paths["pgd"]:
        start = torch.from_numpy(np.stack([paths["pgd"][name][:, 0] for name in ("first", "second")], 1))
        found += plane_of(subject, start, subject.labels[right].cpu().numpy(), POINTS)
    return found


compute = computing(measure, {"smoke": 80, "cpu": 150, "paper": 10_000})


@torch.no_grad()
def _path(model: Classifier, inputs: Sequence[Tensor], labels: Tensor) -> dict[str, np.ndarray]:
    """Norm, angle to the label, angle to the class that is predicted at the end, and whether another is predicted."""
    features = [model.forward_features(one).float() for one in inputs]
    head: Any = model.head
    logits = [head(one) for one in features]
    angles = [angles_to_classes(one, head.weight.float()) for one in features]
    ends = logits[-1].argmax(1)
    columns = {
        "norm": [norms(one) for one in features],
        "angle": [torch.rad2deg(one.gather(1, labels[:, None]).squeeze(1)) for one in angles],
        "end_angle": [torch.rad2deg(one.gather(1, ends[:, None]).squeeze(1)) for one in angles],
        "switched": [(one.argmax(1) != labels).float() for one in logits],
    }
    if features[0].shape[1] == 2:
        columns |= {name: [one[:, at] for one in features] for at, name in enumerate(("first", "second"))}
    return {name: torch.stack(values, 1).double().cpu().numpy() for name, values in columns.items()}


def half_time(values: np.ndarray) -> np.ndarray:
    """When each row [paths, times] first crosses the middle between its first value and its last, by interpolation.

    In units of time from 0; NaN for a path that ends where it began.
    """
    change = values[:, -1:] - values[:, :1]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (values - values[:, :1]) / change
        crossed = share >= 0.5
        at, rows = crossed.argmax(1), np.arange(len(values))
        before, after = share[rows, np.maximum(at - 1, 0)], share[rows, at]
        time = at - 1 + (0.5 - before) / (after - before)
    return np.where(crossed.any(1) & (at > 0) & (change[:, 0] != 0), time, np.nan)


def judge_paths(paths: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> list[Found]:
    """What norm and angle do until the prediction switches, and which of them is first half-way there.

    Half-way is when half of the change is made between the start and the step at which the prediction switches. Only
    paths are compared on which the norm shrinks and the angle grows, for two steps or more.
    """
    switched = paths["switched"].astype(bool)
    gone = switched.any(1)
    rows, when = np.flatnonzero(gone), switched.argmax(1)
    relative = paths["norm"] / paths["norm"][:, :1]
    at_switch, lowest = relative[rows, when[rows]], relative.argmin(1)[rows]
    lead = np.array([_lead(paths, int(row), int(when[row])) for row in rows])
    lead = lead[np.isfinite(lead)]
    means = {
        "norm_at_switch": at_switch,
        "shrinks": (at_switch < 1).astype(np.float64),
        "lowest_before_switch": (lowest <= when[rows]).astype(np.float64),
        "lead": lead,
        "norm_first": (lead > 0).astype(np.float64),
    }
    intervals = {name: mean_with_interval(values) for name, values in means.items() if len(values)}
    found = [Found({"switched": len(rows), "compared": len(lead)}, settings), Found(intervals, settings, seeded=False)]
    steps = {"x": range(relative.shape[1])}
    found.append(Found({}, settings, series="switched", columns={**steps, "y": switched.mean(0).tolist()}))
    for name, values in (("norm", relative), *((name, paths[name]) for name in ("angle", "end_angle"))):
        quartiles = np.quantile(values, (0.25, 0.5, 0.75), axis=0).tolist()
        of = dict(zip(("low", "y", "high"), quartiles, strict=True))
        found.append(Found({}, settings, series=name, columns={**steps, **of}))
    for at, row in enumerate(rows[:SHOWN]):
        places = {name: paths[name][row].tolist() for name in ("angle", "first", "second") if name in paths}
        gone_at = [int(when[row])] * relative.shape[1]
        columns = {**steps, "y": relative[row].tolist(), **places, "switch": gone_at}
        found.append(Found({}, settings, series=f"path {at}", columns=columns))
    return found


def _lead(paths: Mapping[str, np.ndarray], row: int, switch: int) -> float:
    """By which share of its way to the switch the norm is half-way before the angle; NaN where it does not shrink."""
    norm, angle = (paths[name][row : row + 1, : switch + 1] for name in ("norm", "angle"))
    if switch < 2 or norm[0, -1] >= norm[0, 0] or angle[0, -1] <= angle[0, 0]:
        return float("nan")
    return float((half_time(angle) - half_time(norm))[0]) / switch


def mean_with_interval(values: np.ndarray) -> dict[str, Any]:
    """Mean and its 95 % bootstrap interval (percentiles of resampled means)."""
    generator = np.random.default_rng(0)
    means = values[generator.integers(0, len(values), (RESAMPLES, len(values)))].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return {
        "value": float(values.mean()),
        "low": float(low),
        "high": float(high),
        "over": "images",
        "samples": len(values),
    }
