"""Running aggregates of every sample over the epochs, how an epoch is folded into them, and the table of scores.

Means and spreads by Welford's update in float32, one per sample and epoch: their error does not grow with the number
of epochs, and no sum of squares cancels. Memory is O(samples), whatever the number of epochs.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from hardsight.dynamics.epoch_sums import EpochValues, Layout
from hardsight.hardness import Score

# Epochs are counted in 16 bits to keep a million samples small; one past the last epoch is a score too.
MOST_EPOCHS = 2**15 - 1
# What is kept of each measure. A mean follows Welford; `moments` adds the sum of squared deviations, `trend` the sum
# of products of deviations from mean value and mean epoch.
_KEPT = {
    "avh": ("mean", "last", "trend"),
    "angular_margin": ("mean", "last"),
    "margin": ("mean", "last"),
    "loss": ("mean", "last"),
    "confidence": ("mean", "moments"),
    "agreement": ("mean",),
    "el2n": ("mean", "early"),
}
_COMMON = {
    "label": (torch.int32, -1),
    "epochs": (torch.int16, 0),
    "flagged": (torch.int32, 0),
    "correct_sum": (torch.float32, 0.0),
    "was_correct": (torch.int8, 0),
    "forgotten": (torch.int16, 0),
    "learned": (torch.int16, 0),
    "first_correct": (torch.int16, -1),
    "last_wrong": (torch.int16, -1),
    "early_epochs": (torch.int16, 0),
    "second_epochs": (torch.int16, 0),
    "second_last_correct": (torch.int16, -1),
    "epoch_mean": (torch.float32, 0.0),
    "epoch_moments": (torch.float32, 0.0),
}


class Aggregates(dict[str, Tensor]):
    """Per-sample numbers, each a tensor of one entry per sample, read as `aggregates["loss_mean"]`.

    `epochs` counts the epochs in which a sample was seen, `flagged` the measurements that were not finite;
    `first_correct` and `last_wrong` are epoch numbers, -1 for never; `second_...` belong to the second phase.
    """

    def __init__(self, layout: Layout, device: torch.device, early: int) -> None:
        super().__init__()
        self.layout, self.early = layout, early
        columns = _COMMON | {f"{name}_{kept}": (torch.float32, 0.0) for name in layout.measures for kept in _KEPT[name]}
        for name, (dtype, fill) in columns.items():
            self[name] = torch.full((layout.num_samples,), fill, dtype=dtype, device=device)

    def __missing__(self, name: str) -> Tensor:
        raise ValueError(f"aggregates must have been recorded; {name!r} was not, only {', '.join(self)}")

    def fold(self, rows: slice, epoch: int, seen: EpochValues) -> None:
        """Add epoch number `epoch` of the first phase for the samples `rows`; samples not seen in it do not change."""
        part = {name: tensor[rows] for name, tensor in self.items()}
        here = seen.seen > 0
        part["flagged"] += seen.flagged
        part["label"].copy_(torch.where(here, seen.label, part["label"]))
        part["epochs"] += here
        count = part["epochs"].clamp(min=1).float()
        early = here & (epoch < self.early)
        part["early_epochs"] += early
        time_ahead = epoch - part["epoch_mean"]
        part["epoch_mean"] += torch.where(here, time_ahead / count, 0.0)
        part["epoch_moments"] += torch.where(here, time_ahead * (epoch - part["epoch_mean"]), 0.0)
        # A sum, nearly always of integers: samples that are right equally often get the same share to the last bit.
        part["correct_sum"] += torch.where(here, seen.correct, 0.0)
        self._fold_correctness(part, epoch, here, seen.correct > 0.5)
        for name, value in seen.values.items():
            ahead = value - part[f"{name}_mean"]
            part[f"{name}_mean"] += torch.where(here, ahead / count, 0.0)
            behind = value - part[f"{name}_mean"]
            if "last" in _KEPT[name]:
                part[f"{name}_last"].copy_(torch.where(here, value, part[f"{name}_last"]))
            if "moments" in _KEPT[name]:
                part[f"{name}_moments"] += torch.where(here, ahead * behind, 0.0)
            if "trend" in _KEPT[name]:
                part[f"{name}_trend"] += torch.where(here, time_ahead * behind, 0.0)
            if "early" in _KEPT[name]:
                step = (value - part[f"{name}_early"]) / part["early_epochs"].clamp(min=1)
                part[f"{name}_early"] += torch.where(early, step, 0.0)

    def fold_second(self, rows: slice, epoch: int, seen: EpochValues) -> None:
        """Add an epoch of the second phase, numbered from 0: it keeps only when the label last won."""
        here = seen.seen > 0
        self["flagged"][rows] += seen.flagged
        self["second_epochs"][rows] += here
        last = self["second_last_correct"][rows]
        last.copy_(torch.where(here & (seen.correct > 0.5), epoch, last))

    @staticmethod
    def _fold_correctness(part: dict[str, Tensor], epoch: int, here: Tensor, correct: Tensor) -> None:
        before = part["was_correct"] > 0
        part["forgotten"] += here & before & ~correct
        # Before the first epoch nothing is learned: a sample right from the start has learned once (Toneva et al.).
        part["learned"] += here & ~before & correct
        first = part["first_correct"]
        first.copy_(torch.where(here & correct & (first < 0), epoch, first))
        part["last_wrong"].copy_(torch.where(here & ~correct, epoch, part["last_wrong"]))
        part["was_correct"].copy_(torch.where(here, correct, before))


def scores_table(aggregates: Aggregates, scores: Iterable[Score]) -> pa.Table:
    """One row per sample: id, label, counts, and one column per score; a sample never recorded has nulls."""
    unseen = (aggregates["epochs"] == 0).cpu().numpy()
    fields = [
        pa.field("id", pa.int64()),
        pa.field("label", pa.int32()),
        pa.field("epochs", pa.int32(), metadata={"title": "Epochs in which the sample was recorded"}),
        pa.field("flagged", pa.int32(), metadata={"title": "Measurements thrown away: logits not finite"}),
        *learning_columns(aggregates).schema,
    ]
    columns = [
        pa.array(np.arange(len(unseen))),
        pa.array(aggregates["label"].cpu().numpy(), pa.int32(), mask=unseen),
        pa.array(aggregates["epochs"].int().cpu().numpy()),
        pa.array(aggregates["flagged"].cpu().numpy()),
        *learning_columns(aggregates).columns,
    ]
    for score in scores:
        values = score.definition(aggregates).float().cpu().numpy()
        fields.append(pa.field(score.name, pa.float32(), metadata=score.describe(aggregates.layout.num_classes)))
        columns.append(pa.array(values, mask=values != values))
    return pa.table(columns, schema=pa.schema(fields))


def learning_columns(aggregates: Aggregates) -> pa.Table:
    """`never_learned` and `forgotten`, which the scores combine into one number; null for a sample never recorded."""
    unseen = (aggregates["epochs"] == 0).cpu().numpy()
    never, often = aggregates["first_correct"] < 0, aggregates["forgotten"].int()
    fields = [
        pa.field("never_learned", pa.bool_(), metadata={"title": "Whether the label never won"}),
        pa.field("forgotten", pa.int32(), metadata={"title": "How often the label, having won, lost again"}),
    ]
    columns = [pa.array(one.cpu().numpy(), mask=unseen) for one in (never, often)]
    return pa.table(columns, schema=pa.schema(fields))
