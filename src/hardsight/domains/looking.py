"""What a model says of a target without labels: one look at all samples, its numbers, and signs that it gets worse.

The signs were chosen on pairs of digit sets: where accuracy rose, predictions of one round and the next agreed in nine
tenths or more from the third round on, and in two thirds or more with those before the first round; where it fell,
they did not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from hardsight.datasets.epochs import EpochLoader
from hardsight.distributed import count_samples, gather_samples
from hardsight.domains.selection import Evidence, Selection, certainty_of, of_labels
from hardsight.geometry import angles_to_classes, norms
from hardsight.hardness.definitions import share_of_sum
from hardsight.heads import evaluating, observe
from hardsight.training.evaluation import share

# Fewer predictions than this in common with the model that the rounds began with are a sign.
LEAST_COMMON = 0.5
# A fall by this much below the highest is one, of agreement between rounds and of mean confidence.
AGREEMENT_FALL, CONFIDENCE_FALL = 0.05, 0.2
# A class is disappearing once so small a part of its predictions is left; of so small a class nothing is said.
_LEFT, _LEAST_SHARE = 0.25, 0.01
# The first looks differ because much is learned.
_SETTLED = 3
ADVICE = "try a lower learning rate, smaller portions or fewer rounds"


class Look(NamedTuple):
    """What a model says of every target sample, in order, in main memory; `hardness` is the AVH under each class."""

    evidence: Evidence
    hardness: Float[Tensor, "samples classes"]
    norms: Float[Tensor, "samples"]


def head_of(model: nn.Module, batches: EpochLoader, device: torch.device, head: str | None, num_classes: int) -> str:
    """The head's name, from one forward pass; rejects a model that does not fit the samples or their classes.

    Angles need it, and a step that knows it is captured as it is.
    """
    images, _, _ = next(iter(batches))
    with evaluating(model.to(device)), observe(model, head) as seen:
        try:
            model(images[:2])
        except RuntimeError as reason:
            shape = list(images.shape[1:])
            raise ValueError(f"model must take samples of shape {shape}; it says: {reason}") from reason
    if seen.logits.shape[1] != num_classes:
        raise ValueError(
            f"model must give one logit for each of the source's {num_classes} classes; it gives {seen.logits.shape[1]}"
        )
    return seen.name


def look(model: nn.Module, batches: EpochLoader, device: torch.device, head: str | None = None) -> Look:
    """One forward of every sample without augmentation; several processes share the batches and put them together."""
    parts: list[tuple[Tensor, ...]] = []
    with evaluating(model), observe(model, head) as seen:
        for images, _, ids in share(batches, device):
            model(images)
            angles = angles_to_classes(seen.features.float(), seen.weight.float())
            near, classes = torch.pi - angles, angles.shape[1]
            visual, hard = (share_of_sum(one, one.sum(1, keepdim=True), classes) for one in (near, angles))
            assert ids is not None
            sure = seen.logits.float().softmax(1), certainty_of(seen.logits)
            parts.append((ids, *sure, visual, hard, norms(seen.features.float())))
    own = [torch.cat(column) for column in zip(*parts, strict=True)]
    counts = count_samples(own[0])
    ids, *columns = (gather_samples(column, counts=counts).cpu() for column in own)
    order = ids.argsort()
    softmax, certainty, visual, hard, lengths = (column[order] for column in columns)
    return Look(Evidence(softmax, visual, certainty), hard, lengths)


def statistics(seen: Look, selection: Selection, truth: Int64[Tensor, "samples"]) -> dict[str, Any]:
    """Table 4 of AVH: how many are selected, how many of them rightly, their mean AVH, confidence and norm."""
    rows = selection.selected.nonzero().squeeze(1)
    found: dict[str, Any] = {"selected": len(rows), "selected_share": len(rows) / len(selection.labels)}
    if not len(rows):
        return found
    labels, true = selection.labels[rows], truth[rows]
    right = (labels == true)[true >= 0]
    return found | {
        "true_positive_rate": mean(right) if len(right) else None,
        "avh": mean(of_labels(seen.hardness[rows], labels)),
        "confidence": mean(of_labels(seen.evidence.softmax[rows], labels)),
        "norm": mean(seen.norms[rows]),
    }


def class_accuracy(seen: Look, truth: Int64[Tensor, "samples"]) -> dict[str, Any]:
    """Accuracy over the labelled samples, its mean over their classes, and by class (None without samples)."""
    known = truth >= 0
    if not bool(known.any()):
        return {}
    classes = seen.evidence.softmax.shape[1]
    right = (seen.evidence.softmax.argmax(1) == truth)[known]
    count = torch.bincount(truth[known], minlength=classes).double()
    hits = torch.bincount(truth[known], weights=right.double(), minlength=classes)
    shares = [hit / total if total else None for hit, total in zip(hits.tolist(), count.tolist(), strict=True)]
    present = [one for one in shares if one is not None]
    return {
        "accuracy": mean(right),
        "class_mean_accuracy": sum(present) / len(present),
        "class_accuracy": shares,
    }


@dataclass
class Signs:
    """What was seen so far: predictions before the rounds and at the last look, and the largest of each number."""

    looks: int = 0
    first: Tensor | None = None
    last: Tensor | None = None
    counts: Tensor | None = None
    agreement: float = 0.0
    confidence: float = 0.0
    told: list[str] = field(default_factory=list)

    def look(
        self, softmax: Float[Tensor, "samples classes"], class_names: Sequence[str]
    ) -> tuple[dict[str, Any], list[str]]:
        """The numbers of a look at the target, for its row, and those signs that were not told before."""
        confidence, predicted = softmax.max(1)
        counts = torch.bincount(predicted, minlength=softmax.shape[1])
        row: dict[str, Any] = {
            "agreement": None if self.last is None else mean(predicted == self.last),
            "agreement_with_first": None if self.first is None else mean(predicted == self.first),
            "target_confidence": mean(confidence),
            "classes_predicted": int((counts > 0).sum()),
        }
        found = self._worse(row, counts, class_names)
        self.first = predicted if self.first is None else self.first
        self.looks, self.last = self.looks + 1, predicted
        self.counts = counts if self.counts is None else torch.maximum(self.counts, counts)
        self.agreement = max(self.agreement, row["agreement"] or 0.0)
        self.confidence = max(self.confidence, row["target_confidence"])
        new = [sentence for kind, sentence in found.items() if kind not in self.told]
        self.told += [kind for kind in found if kind not in self.told]
        return row, new

    def _worse(self, row: dict[str, Any], counts: Tensor, class_names: Sequence[str]) -> dict[str, str]:
        """The signs of this look, by kind."""
        found = {}
        if self.looks >= _SETTLED:
            same, common = row["agreement"], row["agreement_with_first"]
            if common < LEAST_COMMON:
                found["first"] = f"{100 * common:.0f} % of the predictions are those of the first model"
            if same < self.agreement - AGREEMENT_FALL:
                before = f"after {100 * self.agreement:.0f} %"
                found["agreement"] = f"{100 * same:.0f} % of the predictions are those of the round before, {before}"
        if row["target_confidence"] < (1 - CONFIDENCE_FALL) * self.confidence:
            found["confidence"] = f"mean confidence fell from {self.confidence:.2f} to {row['target_confidence']:.2f}"
        if self.counts is not None:
            large = self.counts >= _LEAST_SHARE * int(counts.sum())
            # A class that once had most samples may well come down to an even share.
            held = self.counts.clamp(max=int(counts.sum()) // len(counts))
            lost = (large & (counts <= _LEFT * held)).nonzero().squeeze(1).tolist()
            if lost:
                found["classes"] = f"few samples are still predicted as {', '.join(class_names[one] for one in lost)}"
        return found


def changed_labels(before: Selection | None, now: Selection) -> float | None:
    """Of the samples that had a pseudo-label, the share that now has another or none; None without any."""
    if before is None or not bool(before.selected.any()):
        return None
    return mean((before.labels != now.labels)[before.selected])


def mean(values: Tensor) -> float:
    """The mean, of truths their share, in double precision."""
    return float(values.double().mean())
