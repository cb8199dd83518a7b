"""What shows without a target label that a self-training gets worse: predictions that will not settle, lost classes.

Chosen on pairs of digit sets: where accuracy rose, predictions of one round and the next agreed in nine tenths or more
from the third round on, and in two thirds or more with those before the first round; where it fell, they did not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

# Fewer predictions than this in common with the model that the rounds began with are a sign.
LEAST_COMMON = 0.5
# A fall by this much below the highest is one, of agreement between rounds and of mean confidence.
AGREEMENT_FALL, CONFIDENCE_FALL = 0.05, 0.2
# A class is disappearing once so small a part of its predictions is left; of so small a class nothing is said.
_LEFT, _LEAST_SHARE = 0.25, 0.01
# The first looks differ because much is learned.
_SETTLED = 3
ADVICE = "try a lower learning rate, smaller portions or fewer rounds"


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
            "agreement": None if self.last is None else _share(predicted == self.last),
            "agreement_with_first": None if self.first is None else _share(predicted == self.first),
            "target_confidence": float(confidence.double().mean()),
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
            if row["agreement_with_first"] < LEAST_COMMON:
                found["first"] = (
                    f"{_percent(row['agreement_with_first'])} of the predictions are those of the first model"
                )
            if row["agreement"] < self.agreement - AGREEMENT_FALL:
                now, before = _percent(row["agreement"]), _percent(self.agreement)
                found["agreement"] = f"{now} of the predictions are those of the round before, after {before}"
        if row["target_confidence"] < (1 - CONFIDENCE_FALL) * self.confidence:
            found["confidence"] = f"mean confidence fell from {self.confidence:.2f} to {row['target_confidence']:.2f}"
        if self.counts is not None:
            common = self.counts >= _LEAST_SHARE * int(counts.sum())
            # A class that once had most samples may well come down to an even share.
            held = self.counts.clamp(max=int(counts.sum()) // len(counts))
            lost = (common & (counts <= _LEFT * held)).nonzero().squeeze(1).tolist()
            if lost:
                found["classes"] = f"few samples are still predicted as {', '.join(class_names[one] for one in lost)}"
        return found


def changed_labels(before: Int64[Tensor, "samples"] | None, now: Int64[Tensor, "samples"]) -> float | None:
    """Of the samples that had a pseudo-label, the share that now has another or none; None without any."""
    if before is None or not bool((before >= 0).any()):
        return None
    had = before >= 0
    return _share(before[had] != now[had])


def _share(hits: Tensor) -> float:
    return float(hits.double().mean())


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
