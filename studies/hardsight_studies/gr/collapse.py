"""What a collapse of GR is: classes that are not learnt at all, because little pulls on them. Said with numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from hardsight.training import Cell
from hardsight_studies.framework import finished_cells, run_details
from hardsight_studies.gr.emphasis import CLASSES, gradient_weights, supervision
from hardsight_studies.gr.judged import key_of
from hardsight_studies.gr.trainings import title_of

# Half learnt; where every class of ten starts; ruled out.
_HALF, _START, _OUT = 0.5, 1 / CLASSES, 1e-6
_LEARNT = 0.5


def judge(planned: Sequence[Cell], folder: Path) -> dict[str, Any]:
    """Of the first seed of every kind: the share recognised of each class, the loss, the probability of the labels."""
    first = _first_seeds(planned, folder)
    found = {key: run_details(place)["results"] for key, place in first.items()}
    return {
        "recalls": {key: one["recalls"] for key, one in found.items() if "recalls" in one},
        "test_loss": {key: round(one["test_loss"], 4) for key, one in found.items()},
        "label_probabilities": {
            key: means for key in found if (means := _label_probabilities(first[key] / "samples.parquet")) is not None
        },
    }


def _first_seeds(planned: Sequence[Cell], folder: Path) -> dict[str, Path]:
    """The first finished record of every kind of cell."""
    found: dict[str, Path] = {}
    for cell in finished_cells(folder, planned):
        found.setdefault(key_of(cell), folder / cell.name)
    return found


def weakest_classes(planned: Sequence[Cell], folder: Path) -> dict[str, tuple[str, float]]:
    """Of the first seed of every kind that left its samples: the class recognised least, and in what share.

    Of the training images, by their true labels.
    """
    found = {}
    for key, place in _first_seeds(planned, folder).items():
        if not (place / "samples.parquet").is_file():
            continue
        table = pq.read_table(place / "samples.parquet", columns=["clean_label", "predicted"])
        labels, predicted = (table[name].to_numpy() for name in ("clean_label", "predicted"))
        present = np.unique(labels)
        shares = [float((predicted[labels == label] == label).mean()) for label in present]
        least = int(np.argmin(shares))
        names = run_details(place)["class_names"] or present.astype(str)
        found[key] = (str(names[present[least]]), round(shares[least], 4))
    return found


def _label_probabilities(samples: Path) -> list[float] | None:
    """Mean probability of the given label over the training images of each given class; None where not recorded."""
    if not samples.is_file() or "confidence" not in pq.read_schema(samples).names:
        return None
    table = pq.read_table(samples, columns=["label", "confidence"])
    labels, confidence = (table[name].to_numpy() for name in ("label", "confidence"))
    means = np.bincount(labels, weights=confidence) / np.maximum(1, np.bincount(labels))
    return [round(float(mean), 4) for mean in means]


def finding(results: Mapping[str, Any], method: str) -> str:
    """How a method fails, over all protocols whose classes were counted: by whole classes, and not always the same."""
    kinds = [key for key in results.get("recalls", {}) if key.endswith(f",method={method}")]
    shares = np.array([results["recalls"][key] for key in kinds])
    if not (shares <= _LEARNT).any():
        return ""
    lost = shares[shares <= _LEARNT]
    kept = shares[shares > _LEARNT]
    recognised = f"; those that it has learnt, in {100 * kept.mean():.0f} % of theirs" if len(kept) else ""
    said = [
        f"{title_of(method)} fails by whole classes: of {shares.size} classes, {shares.shape[1]} in each of "
        f"{len(kinds)} trainings, it has not learnt {len(lost)}, and {int((lost == 0).sum())} of these are recognised "
        f"in no test image{recognised}.",
        _which(shares),
        _ruled_out([results["test_loss"][key] for key in kinds], shares.shape[1]),
        _left_with([(results["label_probabilities"].get(key), results["recalls"][key]) for key in kinds]),
    ]
    return " ".join(one for one in said if one)


def _which(shares: np.ndarray) -> str:
    """Whether a class is lost because it cannot be learnt, or because others came first."""
    if len(shares) < 2:
        return ""
    learnt = shares > _LEARNT
    return (
        f"Which they are changes with the protocol: {int(learnt.any(0).sum())} of the {shares.shape[1]} classes are "
        f"learnt under at least one, {int(learnt.all(0).sum())} under all."
    )


def _ruled_out(losses: Iterable[float], classes: int) -> str:
    """Whether a network that lost classes leaves them undecided."""
    losses = sorted(losses)
    blind = math.log(classes)
    if losses[0] <= blind:
        return ""
    span = f"{losses[0]:.1f}" if len(losses) == 1 else f"{losses[0]:.1f} to {losses[-1]:.1f}"
    return (
        f"They are not left undecided but ruled out: the mean cross-entropy on the test images is {span} nats, above "
        f"the {blind:.1f} of a network that gives every class the same probability."
    )


def _left_with(pairs: Iterable[tuple[Sequence[float] | None, Sequence[float]]]) -> str:
    """The probability that labels of classes learnt and not learnt have at the end."""
    known = [(np.array(labels), np.array(shares) > _LEARNT) for labels, shares in pairs if labels is not None]
    learnt, lost = (np.concatenate([labels[is_ == kind] for labels, is_ in known] or [[]]) for kind in (True, False))
    if not len(learnt) or not len(lost):
        return ""
    return (
        f"Labels of classes not learnt end with a mean probability of {lost.mean():.3f}, those of classes learnt with "
        f"{learnt.mean():.3f}."
    )


def grown(results: Mapping[str, Any], method: str, titles: Mapping[str, str]) -> str:
    """Where logits have grown out of proportion: a network that learnt, yet errs by more than one that guesses."""
    found = {change: results.get("test_loss", {}).get(f"change={change},method={method}") for change in titles}
    losses = {change: loss for change, loss in found.items() if loss is not None}
    blind = math.log(CLASSES)
    large = {change: loss for change, loss in losses.items() if loss > blind}
    if not large:
        return ""
    most = max(large, key=lambda change: large[change])
    return (
        f"It shows in a mean cross-entropy on the test images above the {blind:.1f} nats of a blind guess: for "
        f"{title_of(method)} in {len(large)} of {len(losses)} trainings, most with: {titles[most]} ({large[most]:.1f})."
    )


def pulls(methods: Sequence[str]) -> str:
    """How much harder a half-learnt label pulls than one at the start and one that is ruled out, by method."""
    places = torch.tensor([_HALF, _START, _OUT], dtype=torch.float64)
    said = []
    for method in methods:
        half, start, out = gradient_weights(supervision(method), places).tolist()
        said.append(f"{title_of(method)} {half / start:.1f} and {half / out:.1f}")
    return (
        f"How many times as hard a label at {_HALF:g} pulls as one at {_START:g}, where all classes start, and as one "
        f"ruled out: {'; '.join(said)}."
    )
