"""What a network knows of each class: a collapse leaves whole classes out, which a mean accuracy does not show."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import nn

from hardsight.heads import evaluating
from hardsight_studies.engine.trainings import Training

# A class is learned if more than this share of its test images is recognised.
LEARNED = 0.5


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
    columns = _columns(training.folder, "label", "confidence")
    labels, confidence = columns["label"], columns["confidence"]
    means = np.bincount(labels, weights=confidence) / np.maximum(1, np.bincount(labels))
    return {**recalls(training, model), "label_probabilities": means.tolist()}


def weakest_class(folder: Path) -> dict[str, Any]:
    """The class recognised in the smallest share of its training images, by their true labels, and that share."""
    columns = _columns(folder, "clean_label", "predicted")
    labels, predicted = columns["clean_label"], columns["predicted"]
    shares = {int(label): float((predicted[labels == label] == label).mean()) for label in np.unique(labels)}
    least = min(shares, key=lambda label: shares[label])
    return {"weakest_class": least, "weakest_recall": shares[least]}


def _columns(folder: Path, *names: str) -> dict[str, np.ndarray]:
    """Columns of a record's samples."""
    table = pq.read_table(folder / "samples.parquet", columns=list(names))
    return {name: table[name].to_numpy() for name in names}
