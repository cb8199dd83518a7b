"""How hard test images are for a network: by human frequency, under degradations, beside accuracy and calibration.

AVH is measured on the head that the loss trained, against the true label. The agreements are Spearman's correlations
with the share of people who chose the true class, turned so that larger is better.
"""

import copy
import itertools
import json
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hardsight import datasets
from hardsight.alignment import bin_of, correlate
from hardsight.datasets.hierarchy import human_selection_frequency
from hardsight.datasets.loader import DeviceLoader
from hardsight.degradation import DEGRADATIONS, degrade
from hardsight.hardness import angular_visual_hardness
from hardsight.plotting import BLUE, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.engine.rows import Rows
from hardsight_studies.engine.trainings import Training
from hardsight_studies.outputs import outputs_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Nearly everyone agrees on nearly every image: the last bin of five would hold 95 % of them.
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.96, 1.0)
# Below this many images the mean of a bin is that of a handful of them.
FEW_IMAGES = 10
# Of a limited test set, so many images are degraded.
_DEGRADED = {512: 64, 4000: 500}


def measure(training: Training, model: nn.Module) -> dict[str, Any]:
    """All numbers of the test images."""
    seen = outputs(model, training.test)
    right = (seen["predicted"] == seen["label"]).numpy()
    avh = seen["avh"].numpy()
    found: dict[str, Any] = {
        "accuracy": float(right.mean()),
        "calibration_error": _calibration_error(seen["top_probability"].numpy(), right),
        "avh": float(avh.mean()),
        "avh_of_wrong": float(avh[~right].mean()) if not right.all() else None,
    }
    if training.config.data.test_name == "cifar10h":
        human = human_frequency(training.test.ids.cpu()).numpy()
        found |= by_bin(avh, right, human)
        found["agreement_avh"] = _agreement(-avh, human)
        found["agreement_confidence"] = _agreement(seen["confidence"].numpy(), human)
    levels = robustness(model, training.test, _DEGRADED.get(len(training.samples.images)))
    means = {kind: {name: statistics.fmean(row[name] for row in rows.values()) for name in ("accuracy", "avh")}
             for kind, rows in levels.items()}  # fmt: skip
    found |= {f"degraded_{kind}": of["accuracy"] for kind, of in means.items()}
    found |= {f"degraded_{name}": statistics.fmean(of[name] for of in means.values()) for name in ("accuracy", "avh")}
    points = {
        f"{kind}, {name}": {"x": list(map(float, rows)), "y": [row[name] for row in rows.values()]}
        for kind, rows in levels.items()
        for name in ("accuracy", "avh")
    }
    return {**found, "points": points}


def _calibration_error(probability: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Mean distance of accuracy from confidence over equal bins of confidence, weighted by their images."""
    place = bin_of(probability, np.linspace(0, 1, bins + 1).tolist())
    return float(abs(np.bincount(place, right - probability.astype(np.float64), bins)).sum() / len(right))


def outputs(model: nn.Module, loader: DeviceLoader) -> dict[str, Tensor]:
    """By image: label, prediction, its probability, that of the label, and AVH against the label."""
    seen = outputs_of(model, loader)
    probabilities = seen.logits.softmax(1)
    top, predicted = probabilities.max(1)
    columns = {
        "label": seen.labels,
        "predicted": predicted,
        "top_probability": top,
        "confidence": probabilities.gather(1, seen.labels.unsqueeze(1)).squeeze(1),
        "avh": angular_visual_hardness(seen.features, seen.weight.float(), seen.labels),
    }
    return {name: values.cpu() for name, values in columns.items()}


def human_frequency(ids: Tensor) -> Tensor:
    """Share of people who chose the true class of these test images of CIFAR-10 (CIFAR-10H)."""
    people = datasets.load("cifar10h")
    assert isinstance(people, datasets.ArrayDataset)
    return human_selection_frequency(people.columns["human_votes"], people.labels)[ids]


def by_bin(avh: np.ndarray, right: np.ndarray, human: np.ndarray) -> dict[str, list[Any]]:
    """Images, mean AVH and accuracy by the share of people who chose the true class; a bin without images has none."""
    # In float32, 48 of 50 lies below the edge of 0.96.
    place = bin_of(human.astype(np.float64).round(6), BINS)
    inside = [place == at for at in range(len(BINS) - 1)]
    return {
        "images_by_bin": [int(mine.sum()) for mine in inside],
        "avh_by_bin": [float(avh[mine].mean()) if mine.any() else None for mine in inside],
        "accuracy_by_bin": [float(right[mine].mean()) if mine.any() else None for mine in inside],
    }


def robustness(model: nn.Module, loader: DeviceLoader, samples: int | None) -> dict[str, dict[str, dict[str, float]]]:
    """Accuracy and mean AVH of the first test images at every level that changes something, by degradation."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    kept = slice(0, samples)
    for name, degradation in DEGRADATIONS.items():
        for level in (one for one in degradation.levels if one != degradation.no_change):
            generator = torch.Generator(loader.device).manual_seed(0)
            worse = copy.copy(loader)
            worse.images = degrade(loader.images[kept], name, level, generator=generator)
            worse.samples, worse.ids = len(worse.images), loader.ids[kept]
            worse.set_labels(loader.labels[kept])
            seen = outputs(model, worse)
            accuracy = (seen["predicted"] == seen["label"]).double().mean()
            row = {"accuracy": float(accuracy), "avh": float(seen["avh"].double().mean())}
            found.setdefault(name, {})[f"{level:g}"] = row
    return found


def _agreement(easiness: np.ndarray, human: np.ndarray) -> float | None:
    """Spearman's correlation; None of a network that tells no images apart."""
    return correlate(easiness, human).coefficient if np.ptp(easiness) > 0 else None


def by_people(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Mean AVH by what people say (in brackets, how many images); last, how much harder those of disagreement are.

    That is the mean of the lowest bin with more than a handful of images over that of the highest.
    """
    counts: list[float] = next((row.metrics["images_by_bin"] for row in rows if row.metrics.get("images_by_bin")), [])
    heads = [
        f"{low:g} to {high:g} ({count:.0f})"
        for (low, high), count in zip(itertools.pairwise(BINS), counts, strict=False)
    ]
    lines = []
    for loss in rows.options("loss"):
        mine = [row.metrics for row in rows.where(loss=loss) if row.metrics.get("avh_by_bin")]
        if mine:
            means = [bin_mean([one["avh_by_bin"][at] for one in mine]) for at in range(len(BINS) - 1)]
            filled = [mean for mean, count in zip(means, mine[0]["images_by_bin"], strict=True) if count >= FEW_IMAGES]
            shown = ["–" if mean is None else f"{mean:.4f}" for mean in means]
            lines.append([loss, *shown, f"{filled[0] / filled[-1]:.2f}" if filled[0] and filled[-1] else "–"])
    return ["loss", *heads, "lowest / highest"], lines


def bin_mean(values: Sequence[float | None]) -> float | None:
    """Mean over the seeds that have the bin."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


# ---------------------------------------------------------------------------------------------------------------------
# The figures.

# One colour a family; the same loss looks the same whatever else is finished.
_STYLES = {
    "cross-entropy": (INK, "-"), "amc": (BLUE, "-"), "amc-0.1": (BLUE, "--"), "avh": (RED, "-"), "gr": (GREEN, "-"),
    "gr-hard": (GREEN, "--"), "gr-equation": (GREEN, ":"), "cosface": (PURPLE, "-"), "arcface": (PURPLE, "--"),
    "normface": (PURPLE, ":"),
}  # fmt: skip


def people(rows: Rows) -> "Figure":
    """Mean AVH and accuracy by the share of people who chose the true class."""
    bins = [f"{low:g}-{high:g}" for low, high in itertools.pairwise(BINS)]
    with drawing(9.0, 4.0, 2) as figure:
        for axes, metric, words in zip(
            figure.axes, ("avh_by_bin", "accuracy_by_bin"), ("mean AVH", "accuracy"), strict=True
        ):
            for loss in rows.options("loss"):
                mine = [row.metrics[metric] for row in rows.where(loss=loss) if row.metrics.get(metric)]
                means = {at: bin_mean([one[at] for one in mine]) for at in range(len(bins))} if mine else {}
                known = {at: mean for at, mean in means.items() if mean is not None}
                colour, line = _STYLES[loss]
                axes.plot(list(known), list(known.values()), line, color=colour, label=loss, marker=".")
            axes.set_xticks(range(len(bins)), bins, rotation=30)
            axes.set(xlabel="share of people who chose the true class", ylabel=words)
        _legend_below(figure)
    return figure


def degradations(rows: Rows) -> "Figure":
    """Accuracy by level of each degradation, hardest first; a line is the mean over seeds."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for one in rows.points.to_pylist():
        kind, name = one["series"].split(", ")
        if name == "accuracy":
            levels = found.setdefault(kind, {}).setdefault(json.loads(one["settings"])["loss"], {})
            levels.setdefault(one["x"], []).append(one["y"])
    with drawing(9.0, 5.8, len(found), 3) as figure:
        for axes, (kind, losses) in zip(figure.axes, found.items(), strict=True):
            for loss, levels in losses.items():
                colour, line = _STYLES[loss]
                # Of noise, blur and occlusion more is harder; of contrast, brightness and quality less.
                downwards = kind in ("uniform_noise", "blur", "occlusion")
                ordered = sorted(levels, reverse=downwards)
                means = [statistics.fmean(levels[level]) for level in ordered]
                axes.plot(range(len(ordered)), means, line, color=colour, label=loss)
                axes.set_xticks(range(len(ordered)), [f"{level:g}" for level in ordered])
            axes.set(title=kind.replace("_", " "), xlabel="level, hardest first", ylabel="accuracy")
        _legend_below(figure)
    return figure


def _legend_below(figure: "Figure") -> None:
    """One legend for all panels, which lies on none of their lines."""
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5, fontsize=8)
