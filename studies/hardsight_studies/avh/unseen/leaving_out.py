"""Domain generalization: train on all domains but one, test on that one (AVH, section 5.2 and Table 5).

`generalize` trains one network for one domain left out. Methods: cross-entropy, the AVH loss (cross-entropy on an
`AngularLinear` head, its scale chosen by validation on the training domains alone), and MLDG (see `meta_learning`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from hardsight.datasets import ArrayDataset
from hardsight.domains.splits import leave_one_domain_out
from hardsight_studies.avh.unseen.training import Recipe, make_loop, title_of
from hardsight_studies.engine.together import run_together

# Candidates of the AVH loss's scale. With seven classes 5 is soft (probabilities stay below 0.999) and 20 is hard.
SCALES = (5.0, 10.0, 20.0)


@dataclass(frozen=True)
class Generalized:
    """One network trained without a domain: accuracies are shares in [0, 1]; `scale` is the AVH loss's.

    `tried`: the validation accuracy of every scale that was trained, the chosen one among them.
    """

    method: str
    held_out: str
    seed: int
    accuracy: float
    accuracy_by_class: list[float | None]
    validation_accuracy: float
    model: nn.Module
    scale: float | None = None
    tried: Mapping[float, float] = dataclasses.field(default_factory=dict)


def generalize(
    data: ArrayDataset,
    held_out: str,
    method: str = "avh",
    *,
    recipe: Recipe | None = None,
    scales: Sequence[float] = SCALES,
    validation: float | ArrayDataset = 0.1,
    seed: int = 0,
    device: torch.device | str | None = None,
    folder: Path | str | None = None,
    progress: bool | None = False,
) -> Generalized:
    """Train by `method` on all domains but `held_out`, and test on it, which is looked at in the end alone.

    The AVH loss is trained with each of `scales`; the one with the best validation accuracy counts (the first of
    equals). `seed` draws weights, order and validation samples. `folder`: where the records go, one a training.
    """
    recipe = recipe or Recipe()
    if method == "avh" and not scales:
        raise ValueError("scales must hold at least one scale of the AVH loss; got none")
    split = leave_one_domain_out(data, held_out, validation=validation, generator=torch.Generator().manual_seed(seed))
    found: list[Generalized] = []
    for scale in scales if method == "avh" else (None,):
        place = None if folder is None else Path(folder) / title_of(method, held_out, scale, seed)
        loop = make_loop(method, split, recipe, scale=scale, seed=seed, device=device, folder=place, progress=progress)
        # Run as one of several: dropout then begins with the random states of the loop, not with the caller's.
        (fitted,) = run_together([loop])
        results = fitted.results
        found.append(
            Generalized(
                method, held_out, seed, results["test_accuracy"], results["test_accuracy_by_class"],
                results["validation_accuracy"], fitted.evaluated, scale,
            )
        )  # fmt: skip
    best = max(found, key=lambda one: one.validation_accuracy)
    tried = {one.scale: one.validation_accuracy for one in found if one.scale is not None}
    return dataclasses.replace(best, tried=tried)
