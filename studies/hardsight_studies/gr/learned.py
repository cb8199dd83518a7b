"""What a network learned of each class, and what automatic rescaling chose: measured when a training has ended.

A collapse leaves whole classes out, which a mean accuracy does not show.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import nn

from hardsight.heads import evaluating
from hardsight.losses.emphasis import critical_beta, largest_beta
from hardsight_studies.engine.rows import Rows
from hardsight_studies.engine.trainings import Training

# A class is learned if more than this share of its test images is recognised.
LEARNED = 0.5
_CLASSES = 10


def recalls(training: Training, model: nn.Module) -> dict[str, Any]:
    """Share of each class's test images that the trained network recognises, and how many classes it has learned."""
    with evaluating(model):
        hits = torch.cat([model(images).argmax(1) == labels for images, labels, _ in training.test])
    count = torch.bincount(training.test.labels)
    right = torch.bincount(training.test.labels[hits], minlength=len(count))
    shares = (right / count.clamp_min(1)).tolist()
    return {"recalls": shares, "classes_learned": sum(share > LEARNED for share in shares), "classes": len(shares)}


def recalls_and_probabilities(training: Training, model: nn.Module) -> dict[str, Any]:
    """The same, and the mean probability of the given label over the training images of each given class."""
    labels, confidence = _columns(training.folder, "label", "confidence")
    means = np.bincount(labels, weights=confidence) / np.maximum(1, np.bincount(labels))
    return {**recalls(training, model), "label_probabilities": means.tolist()}


def weakest_class(folder: Path) -> dict[str, Any]:
    """The class recognised in the smallest share of its training images, by their true labels, and that share."""
    labels, predicted = _columns(folder, "clean_label", "predicted")
    shares = {int(label): float((predicted[labels == label] == label).mean()) for label in np.unique(labels)}
    least = min(shares, key=lambda label: shares[label])
    return {"weakest_class": least, "weakest_recall": shares[least]}


def choice(folder: Path) -> dict[str, Any]:
    """The rate that it estimated, the last beta and lam (null: cross-entropy), and whether it gave them up.

    Empty of a training that chooses nothing.
    """
    epochs = pq.read_table(folder / "epochs.parquet").to_pydict()
    rates = epochs.get("estimated_noise_rate", [])
    decided = next((at for at, rate in enumerate(rates) if rate is not None), None)
    if decided is None:
        return {}
    betas, lams = (epochs.get(name, [None] * len(rates))[decided:] for name in ("beta", "lam"))
    # The last before it fell back, where it did.
    beta, lam = ([None, *(value for value in one if value is not None)][-1] for one in (betas, lams))
    fell_back = int(betas[0] is not None and betas[-1] is None)
    return {"estimated_rate": rates[decided], "chosen_beta": beta, "chosen_lam": lam, "fell_back": fell_back}


def measure(training: Training, model: nn.Module) -> Mapping[str, Any]:
    """What automatic rescaling chose."""
    return choice(training.folder)


def choice_and_weakest(training: Training, model: nn.Module) -> Mapping[str, Any]:
    """What automatic rescaling chose, and the class that the network knows least."""
    return {**choice(training.folder), **weakest_class(training.folder)}


def shares(method: str) -> tuple[float, float]:
    """Beta over its limit at the start, and over its smallest limit, of `gr-8-0.5` and its like, for ten classes.

    Above the limit equal probabilities are unstable.
    """
    beta, lam = (float(number) for number in method.split("-")[1:])
    return beta / critical_beta(lam, _CLASSES), beta / largest_beta(lam, _CLASSES)


def limits(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Settings trained as printed, by beta over its smallest limit, with their last accuracy and classes learned."""
    lines = []
    methods = (one for one in rows.options("method", change="printed") if one.startswith("gr-"))
    for method in sorted(methods, key=lambda one: shares(one)[1]):
        last = rows.number("last", change="printed", method=method)
        learned = rows.number("classes_learned", change="printed", method=method)
        assert last is not None
        spread = "" if last.sd is None else f" ± {100 * last.sd:.1f}"
        beta, lam = method.split("-")[1:]
        at_start, smallest = shares(method)
        counted = "" if learned is None else f"{learned.mean:.0f} of {_CLASSES}"
        lines.append([f"GR (β = {beta}, λ = {lam})", f"{at_start:.2f}", f"{smallest:.2f}",
                      f"{100 * last.mean:.1f}{spread}", counted])  # fmt: skip
    heads = ["setting", "β over its limit at the start", "over its smallest limit", "last test", "classes learned"]
    return heads, lines


def _columns(folder: Path, *names: str) -> list[np.ndarray]:
    """Columns of a record's samples."""
    table = pq.read_table(folder / "samples.parquet", columns=list(names))
    return [table[name].to_numpy() for name in names]
