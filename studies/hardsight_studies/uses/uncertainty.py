"""Whether AVH says what people are unsure of, beside the entropies of an ensemble."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardsight import datasets
from hardsight.alignment import correlate
from hardsight.datasets import registry
from hardsight.hardness import open_set_scores, uncertainties
from hardsight_studies.avh.people import images_of
from hardsight_studies.engine.grid import Run
from hardsight_studies.uses.frozen import Vectors, drawn, seen_by, trained, vectors


def measure(run: Run) -> Mapping[str, Any]:
    """Spearman's correlation of each measure with people's disagreement about samples that no member trained on."""
    of, data = run.config, str(run.settings["data"])
    train, test, disagreement = _people(data, run.seed)
    classes = int(train.labels.max()) + 1
    seen = []
    for member in range(of["members"]):
        own = train.of(drawn(100 * run.seed + member, len(train.labels), min(len(train.labels), of["samples"])))
        model = trained(own, classes=classes, seed=100 * run.seed + member, epochs=of["epochs"])
        seen.append(seen_by(model, test.features))
    spread = uncertainties(torch.stack([one.logits.double().softmax(1) for one in seen]))
    alone = [open_set_scores(one.features, one.weight, one.bias) for one in seen]
    found = {name: value for name, value in spread.items() if name != "total"} | {"entropy": spread["total"]}
    for name in ("avh", "softmax", "angular_margin"):
        found[name] = alone[0][name]
        found[f"{name}_mean"] = torch.stack([one[name] for one in alone]).mean(0)
    return {name: correlate(value.numpy(), disagreement).coefficient for name, value in found.items()}


def _people(data: str, seed: int) -> tuple[Vectors, Vectors, np.ndarray]:
    """What is trained on, what is judged, and the entropy of people's answers about it."""
    if data == "digits":
        train, test = vectors("digits")
        return train, test, np.random.default_rng(0).random(len(test.labels))
    if data == "cifar10h":
        train, test = vectors("cifar10")
        votes = images_of("cifar10h", "test").columns["human_votes"].double()
        return train, test, _entropy(votes / votes.sum(1, keepdim=True))
    import pyarrow.parquet as pq

    folder = registry.data_root(None, datasets.source("cifar10")) / "rated_texts"
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not there: texts rated by many people")
    ratings = pq.read_table(folder / "texts-with-ratings.parquet")["ratings"].to_pylist()
    embedded = torch.from_numpy(np.load(folder / "texts-minilm.npy").astype(np.float32))
    signs = [np.array([np.mean([one < 0 for one in given]), np.mean([one == 0 for one in given]),
                       np.mean([one > 0 for one in given])]) for given in ratings]  # fmt: skip
    shares = torch.tensor(np.stack(signs))
    # The first person labels; the others are the truth about how clear the text is.
    labels = torch.tensor([1 + int(np.sign(given[0])) for given in ratings])
    whole = Vectors(embedded / embedded.std(), labels)
    order = drawn(seed, len(labels), len(labels))
    half = len(labels) // 2
    return whole.of(order[:half]), whole.of(order[half:]), _entropy(shares[order[half:]])


def _entropy(shares: Tensor) -> np.ndarray:
    entropy: np.ndarray = torch.special.entr(shares).sum(1).numpy()
    return entropy
