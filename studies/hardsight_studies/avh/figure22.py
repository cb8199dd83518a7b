"""AVH, Figure 22: the path of an adversarial example in norm and angle.

Paper (one example): the norm first shrinks towards the origin, then the angle turns away from the label.
Ours, PGD, all test images that are predicted right: the norm is half-way before the angle in 99.7 to 100.0 % of the
paths in which it shrinks (four public ResNets, CIFAR-10; by 0.27 to 0.33 of the way, to 0.90 to 0.93 of the norm at the
switch) and in 99.4 % (LeNet of two features, MNIST; by 0.43, to 0.24).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hardsight.geometry import angles_to_classes, norms
from hardsight.heads import evaluating
from hardsight.models import Classifier
from hardsight_studies.avh.attacks import fgsm_path, pgd
from hardsight_studies.avh.figure22_figures import draw_paths
from hardsight_studies.avh.figure22_table import table
from hardsight_studies.avh.looking import short
from hardsight_studies.avh.people import title_of
from hardsight_studies.avh.subjects import Subject, Subjects, digits, study_of
from hardsight_studies.avh.terms import ANGLE, NORM
from hardsight_studies.wording import terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Steps of the path, and its radius by data: undefended networks on CIFAR-10 give way within a few levels of 255.
STEPS, RADII = 20, {3: 4 / 255, 1: 0.3}
SHOWN, POINTS, RESAMPLES = 12, 60, 2000
LENET: dict[str, Any] = {
    "data": {"name": "mnist", "limit": 5000, "batch_size": 32, "test_batch_size": 500},
    "model": {"name": "lenet_2d"},
    "optimizer": {"name": "adam", "lr": 0.001, "weight_decay": 0.0},
    "schedule": {"kind": "cosine"},
    "epochs": 6,
}
PRESETS = {
    "smoke": digits(80),
    "cpu": Subjects(150, (20,), {"lenet": LENET}),
    "paper": Subjects(
        10_000, (20, 32, 44, 56), {"lenet": LENET | {"data": LENET["data"] | {"limit": 60_000}, "epochs": 20}}
    ),
}


def measure(subject: Subject) -> dict[str, Any]:
    """Attack the images that are predicted right; norm and angles along the paths of PGD and of FGSM's radii."""
    model, scale = subject.model, subject.scale
    pixels, radius = subject.images.float() / 255, RADII[subject.images.shape[1]]

    def normalised(images: Tensor) -> Tensor:
        return images * 255 * scale.scale + scale.offset

    with evaluating(model):
        right = torch.cat([model(normalised(part)).argmax(1) for part in pixels.split(500)]) == subject.labels
    pixels, labels = pixels[right], subject.labels[right]
    model.eval()
    by_pgd, by_fgsm = [], []
    for images, own in zip(pixels.split(250), labels.split(250), strict=True):

        def classify(images: Tensor) -> Tensor:
            return model(normalised(images))

        path = pgd(classify, images, own, radius=radius, step=radius / STEPS, steps=STEPS)
        by_pgd.append(_path(model, [normalised(one) for one in path], own))
        path = fgsm_path(classify, images, own, radius, STEPS)
        by_fgsm.append(_path(model, [normalised(one) for one in path], own))
    found = {name: judge_paths(_joined(parts)) for name, parts in (("pgd", by_pgd), ("fgsm", by_fgsm))}
    return {
        "radius": round(radius, 5),
        "images": len(pixels),
        **found,
        "plane": _plane(subject, _joined(by_pgd), right),
    }


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
        "angle": [one.gather(1, labels[:, None]).squeeze(1) for one in angles],
        "end_angle": [one.gather(1, ends[:, None]).squeeze(1) for one in angles],
        "switched": [(one.argmax(1) != labels).float() for one in logits],
    }
    if features[0].shape[1] == 2:
        columns |= {"x": [one[:, 0] for one in features], "y": [one[:, 1] for one in features]}
    return {name: torch.stack(values, 1).double().cpu().numpy() for name, values in columns.items()}


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


# ---------------------------------------------------------------------------------------------------------------------
# Paths to numbers.


def half_time(values: np.ndarray) -> np.ndarray:
    """When each row [paths, times] first crosses the middle between its first value and its last, by interpolation.

    In units of time from 0; NaN for a path that ends where it began.
    """
    change = values[:, -1:] - values[:, :1]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (values - values[:, :1]) / change
    crossed = share >= 0.5
    at = crossed.argmax(1)
    rows = np.arange(len(values))
    before, after = share[rows, np.maximum(at - 1, 0)], share[rows, at]
    with np.errstate(invalid="ignore", divide="ignore"):
        time = at - 1 + (0.5 - before) / (after - before)
    return np.where(crossed.any(1) & (at > 0) & (change[:, 0] != 0), time, np.nan)


def judge_paths(paths: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What norm and angle do until the prediction switches, and which of them is first half-way there."""
    switched = paths["switched"].astype(bool)
    gone = switched.any(1)
    when = np.where(gone, switched.argmax(1), -1)
    relative = paths["norm"] / paths["norm"][:, :1]
    rows = np.arange(len(when))[gone]
    at_switch = relative[rows, when[gone]]
    lowest = relative.argmin(1)[gone]
    lead = np.array([_lead(paths, int(row), int(when[row])) for row in rows])
    lead = lead[np.isfinite(lead)]
    return {
        "steps": relative.shape[1] - 1,
        "switched_by_step": np.round(switched.mean(0), 4).tolist(),
        "norm": _quartiles(relative),
        "angle": _quartiles(np.degrees(paths["angle"])),
        "end_angle": _quartiles(np.degrees(paths["end_angle"])),
        "switched": int(gone.sum()),
        "norm_at_switch": mean_with_interval(at_switch),
        "shrinks": mean_with_interval((at_switch < 1).astype(np.float64)),
        "lowest_before_switch": mean_with_interval((lowest <= when[gone]).astype(np.float64)),
        "compared": len(lead),
        "lead": mean_with_interval(lead),
        "norm_first": mean_with_interval((lead > 0).astype(np.float64)),
        "examples": _examples(paths, relative, rows),
    }


def _lead(paths: Mapping[str, np.ndarray], row: int, switch: int) -> float:
    """By which share of its way to the switch the norm is half-way before the angle; NaN where it does not shrink."""
    norm, angle = (paths[name][row : row + 1, : switch + 1] for name in ("norm", "angle"))
    if switch < 2 or norm[0, -1] >= norm[0, 0] or angle[0, -1] <= angle[0, 0]:
        return float("nan")
    return float((half_time(angle) - half_time(norm))[0]) / switch


def mean_with_interval(values: np.ndarray) -> dict[str, Any] | None:
    """Mean and its 95 % bootstrap interval (percentiles of resampled means); None of no values."""
    if not len(values):
        return None
    generator = np.random.default_rng(0)
    means = values[generator.integers(0, len(values), (RESAMPLES, len(values)))].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return {"mean": short(float(values.mean())), "low": short(float(low)), "high": short(float(high)), "n": len(values)}


def _quartiles(values: np.ndarray) -> list[list[float | None]]:
    return [[short(one) for one in row] for row in np.quantile(values, (0.25, 0.5, 0.75), axis=0).tolist()]


def _examples(paths: Mapping[str, np.ndarray], relative: np.ndarray, rows: np.ndarray) -> list[dict[str, Any]]:
    """Some paths as they are, until the end; the first that switch."""
    names = {"norm": relative, "angle": np.degrees(paths["angle"])}
    names |= {name: paths[name] for name in ("x", "y") if name in paths}
    switch = paths["switched"].astype(bool).argmax(1)
    return [
        {name: [short(one) for one in values[row].tolist()] for name, values in names.items()}
        | {"switch": int(switch[row])}
        for row in rows[:SHOWN]
    ]


def _plane(subject: Subject, paths: Mapping[str, np.ndarray], right: Tensor) -> dict[str, Any] | None:
    """Where the classes lie, for a network of two features: some images of each class before the attack."""
    if "x" not in paths:
        return None
    labels = subject.labels[right].cpu().numpy()
    head: Any = subject.model.head
    chosen = np.concatenate([(labels == name).nonzero()[0][:POINTS] for name in np.unique(labels)])
    points = np.stack([paths["x"][chosen, 0], paths["y"][chosen, 0]])
    return {
        "x": [short(one) for one in points[0].tolist()],
        "y": [short(one) for one in points[1].tolist()],
        "label": labels[chosen].tolist(),
        "weight": [[short(one) for one in row] for row in head.weight.tolist()],
    }


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """The paths of every network."""
    return {f"figure22-{key}": draw_paths(title_of(key), one) for key, one in results["networks"].items()}


ABOUT = f"""When an attack changes an image until a network misclassifies it, what gives way first: the length of the
features, or their direction? The paper shows one example, in which the length shrinks first and the direction turns
afterwards.

{terms(ANGLE, NORM)}

**How it was made.** Test images that a network classifies right are attacked in two ways. PGD takes twenty small steps
from the image to the largest allowed change (the radius). FGSM takes one step, at each of twenty radii up to the same
one. After each step the norm, as a share of that of the unchanged image, and the angle are measured. *Half-way* is the
time at which norm or angle has made half of its change between the start and the step at which the prediction switches.

**Figures.** Norm and angle by step (median and quartiles), and single paths. For the LeNet, which has only two
features, the paths are drawn as they are; its training is that of [avh-figure2](avh-figure2.md)."""

FIGURE_22 = study_of(
    PRESETS,
    measure,
    id="avh-figure22",
    title="the path of an adversarial example in norm and angle",
    about=ABOUT,
    reference="AVH Fig. 22",
    table=table,
    figures=figures,
)
