"""Few labels, many samples without: predictions of a network become labels, chosen by angle, by softmax, or all."""

from collections.abc import Mapping
from typing import Any

import torch

from hardsight.domains.selection import evidence_of, select
from hardsight_studies.engine.grid import Run
from hardsight_studies.uses.frozen import Vectors, accuracy, drawn, seen_by, trained, vectors


def measure(run: Run) -> Mapping[str, Any]:
    """Test accuracy, and how many pseudo-labels of the last round are right."""
    of, method = run.config, str(run.settings["method"])
    train, test = vectors(of["data"])
    pool = train.of(drawn(run.seed, len(train.labels), of["samples"]))
    known = torch.cat([(pool.labels == one).nonzero().squeeze(1)[: run.settings["labels"]] for one in range(10)])
    rest = torch.ones(len(pool.labels), dtype=torch.bool)
    rest[known] = False
    given, unlabelled = pool.of(known), pool.features[rest]
    if method == "spreading":
        return _spreading(given, unlabelled, test, pool.labels[rest])
    model = trained(given, classes=10, seed=run.seed, epochs=of["epochs"], batch_size=32)
    found: dict[str, float] = {}
    for turn in range(of["rounds"] if method != "labels" else 0):
        seen = seen_by(model, unlabelled)
        evidence = evidence_of(seen.logits, seen.features, seen.weight)
        chosen = select(method, evidence, min(0.9, 0.2 + 0.15 * turn))
        kept = chosen.selected
        right = chosen.labels[kept] == pool.labels[rest][kept]
        found = {"right": float(right.double().mean()), "selected": float(kept.double().mean())}
        # Each label that was given counts as often as all pseudo-labels of ten: they alone are known to be right.
        many = max(1, int(kept.sum()) // (4 * len(known)))
        joined = Vectors(
            torch.cat([given.features.repeat(many, 1), unlabelled[kept]]),
            torch.cat([given.labels.repeat(many), chosen.labels[kept]]),
        )
        model = trained(joined, classes=10, seed=run.seed, epochs=of["epochs_of_round"])
    return {"accuracy": accuracy(model, test), **found}


def _spreading(given: Vectors, unlabelled: torch.Tensor, test: Vectors, truth: torch.Tensor) -> Mapping[str, Any]:
    """The ordinary rival without a network: labels spread over a graph of neighbours (Zhou et al., 2004)."""
    from sklearn.semi_supervised import LabelSpreading

    every = torch.nn.functional.normalize(torch.cat([given.features, unlabelled]), dim=1).numpy()
    labels = torch.cat([given.labels, torch.full((len(unlabelled),), -1)]).numpy()
    spread = LabelSpreading(kernel="knn", n_neighbors=15, alpha=0.2).fit(every, labels)
    said = torch.from_numpy(spread.predict(torch.nn.functional.normalize(test.features, dim=1).numpy()))
    right = torch.from_numpy(spread.transduction_[len(given.labels) :]) == truth
    return {"accuracy": float((said == test.labels).double().mean()), "right": float(right.double().mean())}
