"""`ClassSummary`: what the scores need of each sample, a few numbers instead of one per class."""

from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
from torch import Tensor

Part = Literal["predicted", "angles", "logits", "spread", "rank"]

_NOT_ASKED = torch.empty(0)
_LOGIT_COLUMNS = ("label_logit", "largest_other_logit", "log_sum_exp", "other_probability")
# The columns of each part.
COLUMNS: dict[Part, tuple[str, ...]] = {
    "predicted": ("predicted",),
    "angles": ("label_angle", "angle_sum", "nearest_other_angle"),
    "logits": _LOGIT_COLUMNS,
    "spread": (*_LOGIT_COLUMNS, "entropy", "other_squares"),
    "rank": (*_LOGIT_COLUMNS, "others_above"),
}


@dataclass(frozen=True)
class ClassSummary:
    """Per-sample numbers over all classes; "other" means every class but the labelled one.

    Parts not asked for are empty. Angles in radians. `other_probability` is the softmax mass of the other classes,
    summed without cancellation, so it is exact where the labelled probability rounds to 1; `other_squares` is the sum
    of their squared probabilities, `others_above` how many of them have a larger logit.
    """

    num_classes: int
    has_bias: bool
    labels: Tensor = _NOT_ASKED
    feature_norm: Tensor = _NOT_ASKED
    predicted: Tensor = _NOT_ASKED
    label_angle: Tensor = _NOT_ASKED
    angle_sum: Tensor = _NOT_ASKED
    nearest_other_angle: Tensor = _NOT_ASKED
    label_logit: Tensor = _NOT_ASKED
    largest_other_logit: Tensor = _NOT_ASKED
    log_sum_exp: Tensor = _NOT_ASKED
    other_probability: Tensor = _NOT_ASKED
    other_squares: Tensor = _NOT_ASKED
    entropy: Tensor = _NOT_ASKED
    others_above: Tensor = _NOT_ASKED

    def columns(self) -> dict[str, Tensor]:
        """The numbers that were asked for, by name."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in held.items() if isinstance(value, Tensor) and value.numel()}

    def cpu(self) -> "ClassSummary":
        """A copy in main memory."""
        return replace(self, **{name: value.cpu() for name, value in self.columns().items()})  # type: ignore[arg-type]


class SummaryColumns:
    """Collects the summaries of chunks in columns allocated once: many small pieces would fragment memory."""

    def __init__(self, samples: int) -> None:
        self.samples, self.filled = samples, 0
        self._frame: ClassSummary | None = None
        self._columns: dict[str, Tensor] = {}

    def add(self, chunk: ClassSummary) -> None:
        """Append a chunk's numbers; the columns grow where there are more samples than expected."""
        parts = chunk.columns()
        end = self.filled + len(chunk.labels)
        # A chunk without samples has no columns.
        if not self._columns or end > self.samples:
            self.samples = max(2 * end if self._columns else end, self.samples)
            grown = {name: value.new_empty(self.samples) for name, value in parts.items()}
            for name, column in self._columns.items():
                grown[name][: self.filled] = column[: self.filled]
            self._frame, self._columns = chunk, grown
        for name, value in parts.items():
            self._columns[name][self.filled : end] = value
        self.filled = end

    def summary(self) -> ClassSummary:
        """The summary of all samples so far, in order."""
        assert self._frame is not None
        columns = {name: column[: self.filled] for name, column in self._columns.items()}
        return replace(self._frame, **columns)  # type: ignore[arg-type]
