"""Which samples first, which most: curricula, hard mining and importance by AVH, by loss, and at random."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hardsight import noise
from hardsight.cleaning import CurriculumSampler, EpochSampler, HardMiningSampler, ImportanceSampler
from hardsight.hardness import cross_entropy
from hardsight_studies.engine.grid import Run
from hardsight_studies.uses.frozen import Vectors, accuracy, drawn, hardness_of, seen_by, trained, vectors


def measure(run: Run) -> Mapping[str, Any]:
    """Test accuracy after a quarter of the steps and at the end; every method takes as many steps."""
    of, settings = run.config, run.settings
    train, test = vectors(of["data"])
    data = train.of(drawn(run.seed, len(train.labels), of["samples"]))
    generator = torch.Generator().manual_seed(run.seed)
    noisy = noise.flip_symmetric(data.labels, settings["rate"], 10, generator=generator, exact=True)
    data = Vectors(data.features, noisy.labels)
    quarter = max(1, of["epochs"] // 4)
    early: dict[str, float] = {}

    def after_epoch(epoch: int, model: nn.Module) -> None:
        if epoch == quarter:
            early["early"] = accuracy(model, test)

    sampler = None
    if settings["order"] != "shuffled":
        # Half as long, with another seed: the order must come from somewhere, and costs that much more.
        first = trained(data, classes=10, seed=1000 + run.seed, epochs=max(1, of["epochs"] // 2))
        sampler = _sampler(
            str(settings["order"]), _hardness(str(settings["by"]), first, data, run.seed), of["epochs"], run.seed
        )
    model = trained(data, classes=10, seed=run.seed, epochs=of["epochs"], sampler=sampler, after_epoch=after_epoch)
    return {"accuracy": accuracy(model, test), **early}


def _hardness(by: str, model: Any, data: Vectors, seed: int) -> Tensor:
    if by == "random":
        return torch.rand(len(data.labels), generator=torch.Generator().manual_seed(seed))
    if by == "loss":
        return cross_entropy(seen_by(model, data.features).logits, data.labels)
    return hardness_of(model, data)


def _sampler(order: str, hardness: Tensor, epochs: int, seed: int) -> EpochSampler:
    if order == "easy-first":
        return CurriculumSampler(hardness, epochs=max(1, epochs // 2), start=0.2, seed=seed)
    if order == "hard":
        return HardMiningSampler(hardness, share=0.5, seed=seed)
    if order == "hard-but-suspect":
        return HardMiningSampler(hardness, share=0.5, skip=0.2, seed=seed)
    ranks = hardness.argsort().argsort().double() / max(1, len(hardness) - 1)
    return ImportanceSampler(ranks, uniform=0.2, seed=seed)
