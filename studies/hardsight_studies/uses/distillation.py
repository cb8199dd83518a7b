"""Knowledge transfer: what a large network knows, taught to a small one, more of its hard or of its easy samples."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from hardsight.cleaning import CurriculumSampler
from hardsight.hardness import angular_visual_hardness
from hardsight.losses import distillation_loss
from hardsight_studies.engine.grid import Run
from hardsight_studies.uses.frozen import accuracy, drawn, seen_by, trained, vectors


def measure(run: Run) -> Mapping[str, Any]:
    """Test accuracy of the student, and of its teacher."""
    of, method = run.config, str(run.settings["method"])
    train, test = vectors(of["data"])
    teacher = trained(
        train.of(drawn(run.seed, len(train.labels), of["teacher_samples"])), classes=10, seed=run.seed,
        epochs=of["teacher_epochs"], hidden=512,
    )  # fmt: skip
    data = train.of(drawn(run.seed + 1, len(train.labels), of["samples"]))
    seen = seen_by(teacher, data.features)
    hardness = angular_visual_hardness(seen.features, seen.weight, seen.logits.argmax(1))
    share = (hardness - hardness.min()) / (hardness.max() - hardness.min())
    weights = {"hard": 0.2 + share, "easy": 1.2 - share}.get(method)
    sampler = CurriculumSampler(hardness, epochs=of["epochs"] // 2, seed=run.seed) if method == "ordered" else None
    loss = None if method == "labels" else _Distilled(seen.logits, weights)
    student = trained(
        data, classes=10, seed=run.seed, epochs=of["epochs"], hidden=of["hidden"], loss=loss, sampler=sampler
    )
    return {"accuracy": accuracy(student, test), "teacher": accuracy(teacher, test)}


class _Distilled(nn.Module):
    """The teacher's logits of a batch by place, and the weight of each sample."""

    def __init__(self, logits: Tensor, weights: Tensor | None) -> None:
        super().__init__()
        self.logits, self.weights = logits, weights

    def forward(self, logits: Tensor, labels: Tensor, ids: Tensor) -> Tensor:
        weights = None if self.weights is None else self.weights[ids]
        return distillation_loss(logits, self.logits[ids], labels, sample_weight=weights, temperature=2.0)
