"""The score that agrees best with people: of public networks, and of heads that learned people's own labels."""

import functools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardsight.alignment import correlate
from hardsight.datasets.loader import DeviceLoader
from hardsight.hardness import angular_visual_hardness
from hardsight_studies.avh.choice import choices_of
from hardsight_studies.avh.people import IMAGENET_MEAN, IMAGENET_STD, images_of, public_network
from hardsight_studies.engine.grid import Run
from hardsight_studies.outputs import Outputs, outputs_of
from hardsight_studies.uses.frozen import CPU, Vectors, seen_by, trained, vectors

# Whose labels of the training images a head learns: the data set's, or people's, several columns as so many samples.
_TAUGHT = {
    "clean": ("clean_label",),
    "aggregated": ("aggre_label",),
    "worst": ("worse_label",),
    "three-people": ("random_label1", "random_label2", "random_label3"),
}


def measure(run: Run) -> Mapping[str, Any]:
    """Spearman's correlation with people over all images of each score, and of what halves chose on the others."""
    scores, people = _digits(run) if run.config["data"] == "digits" else _scores(run)
    found = {name: correlate(values, people).coefficient for name, values in scores.items()}
    choices = choices_of(scores, people)
    for name in ("combination", "single"):
        found[name] = float(np.mean([one.coefficients[name] for one in choices]))
    members = Counter(name for one in choices for name in one.members)
    return {**found, **{f"chosen-{name}": count / len(choices) for name, count in members.items()}}


def _scores(run: Run) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Every score of CIFAR-10's test images, larger is easier, and the share of people who chose the class."""
    data = images_of("cifar10h", "test")
    votes = data.columns["human_votes"].double()
    people = (votes.gather(1, data.labels[:, None]).squeeze(1) / votes.sum(1)).numpy()
    first = _public(20)
    avh = angular_visual_hardness(first.features.double(), first.weight.double(), data.labels)
    scores = {"avh": -avh.numpy(), "confidence": _lead(first.logits, data.labels, 1)}
    scores |= {f"resnet{depth}": _lead(_public(depth).logits, data.labels, 2) for depth in run.config["depths"]}
    train, test = vectors("cifar10")
    columns = images_of("cifar10n", "train").columns
    for name, taught in _TAUGHT.items():
        joined = Vectors(train.features.repeat(len(taught), 1), torch.cat([columns[one].long() for one in taught]))
        epochs = -(-run.config["epochs"] // len(taught))
        model = trained(joined, classes=10, seed=run.seed, epochs=epochs, hidden=256)
        scores[name] = _lead(seen_by(model, test.features).logits, data.labels, 1)
    return scores, people


@functools.cache
def _public(depth: int) -> Outputs:
    data = images_of("cifar10h", "test")
    batches = DeviceLoader(data.images, data.labels, data.ids, 250, shuffle=False, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    run = Run({"network": f"resnet{depth}-public"}, {}, Path())
    return outputs_of(public_network(run, CPU), batches)


def _lead(logits: Tensor, labels: Tensor, temperature: int) -> np.ndarray:
    """The label's logit less that of all others together: in the order of the probability, without its ties."""
    wide = logits.double() / temperature
    own = wide.gather(1, labels[:, None])
    lead: np.ndarray = (
        (own - wide.scatter(1, labels[:, None], -torch.inf).logsumexp(1, keepdim=True)).squeeze(1).numpy()
    )
    return lead


def _digits(run: Run) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Networks of two seeds on scikit-learn's digits; a third one's probabilities stand in for people."""
    train, test = vectors("digits")
    logits = [
        seen_by(trained(train, classes=10, seed=seed, epochs=run.config["epochs"]), test.features).logits
        for seed in range(3)
    ]
    leads = [_lead(one, test.labels, 1) for one in logits]
    return {"avh": leads[0], "confidence": leads[1]}, leads[2]
