"""One epoch's sums of every sample, the running aggregates into which they are folded, and the table of scores.

A measure is summed as an integer multiple of 2^-32. Integer sums do not depend on their order: shuffled batches,
atomics on a GPU and several processes give the same bits. (A measure's own last bit may still depend on its row's
place in the batch, where the device computes exponentials in lanes and remainders differently.) The price is a
resolution of 2.3e-10 and values cut off at 2^24, beyond which no margin or loss means anything.

Over the epochs, means and spreads follow Welford's update in float32: their error does not grow with the number of
epochs, and no sum of squares cancels. Memory is O(samples), whatever the number of epochs.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from hardsight.dynamics.measures import Measured
from hardsight.hardness import Score

_UNIT = 2.0**32
_LARGEST = 2.0**24
# Three counts share one integer, 21 bits each: a sample may come two million times per epoch.
_BITS = 21
_MASK = (1 << _BITS) - 1
# Labels share one integer with their squares, which show whether they were all the same: the sum of n labels takes 42
# bits, that of the squares is kept modulo 2^22.
_LABEL_BITS = 2 * _BITS
_LABEL_MASK = (1 << _LABEL_BITS) - 1
_SQUARES_MASK = (1 << 64 - _LABEL_BITS) - 1
_COUNTS, _LABEL, _VALUES = 0, 1, 2
# The row of sample 0.
_FIRST = 2

REPEATS = ("mean", "raise")


class Layout(NamedTuple):
    """What a recorder records, fixed by its first update."""

    num_samples: int
    num_classes: int
    measures: tuple[str, ...]


# A range of samples over one epoch: `label`; `seen`, how often it was measured; `flagged`, how often its logits were
# not finite; `correct`, the share of the measurements in which its label won; and each mean. Where `seen` is 0
# the others have no meaning.
EpochValues = dict[str, Tensor]


class EpochSums:
    """The sums: one row per sample, with rows before and after them for what belongs to no sample.

    Row 0 is for samples left out, row 1 for ids below 0, row i + 2 for sample i, the last two for ids and labels that
    are too large.
    """

    def __init__(self, num_samples: int, measures: tuple[str, ...], device: torch.device) -> None:
        self.num_samples, self.measures = num_samples, measures
        columns = _VALUES + len(measures)
        self.sums = torch.zeros(num_samples + 4, columns, dtype=torch.int64, device=device)
        self._columns = torch.arange(columns, device=device)
        self._once = torch.ones((), dtype=torch.int64, device=device)
        self._unsound = torch.tensor([1 << 2 * _BITS] + [0] * (columns - 1), device=device)

    def rows_of(self, ids: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
        """The row of each id, and labels fit to index with; Python reads no value, so it never waits for a GPU."""
        inside = labels.clamp(0, num_classes - 1)
        # A label below its range pulls any id below the first row, one above it pushes it past the last. By one step:
        # a huge label times the rows would overflow to the other side.
        outside = (labels - inside).clamp_(-1, 1)
        count = self.num_samples
        rows = torch.add(ids.clamp(-1, count), outside, alpha=count + 4).add_(_FIRST).clamp_(0, count + 3)
        return rows, inside

    def strays(self) -> tuple[int, int]:
        """How many rows had an id out of range, and how many a label."""
        counts = self.sums[[1, self.num_samples + 2, self.num_samples + 3], _COUNTS]
        often = ((counts & _MASK) + (counts >> 2 * _BITS)).tolist()
        return often[0] + often[1], often[2]

    def of_several_labels(self) -> int | None:
        """The first sample that came with different labels, if any: equal ones sum to n l, their squares to n l²."""
        block = self.sums[_FIRST : _FIRST + self.num_samples]
        seen, total = block[:, _COUNTS] & _MASK, block[:, _LABEL] & _LABEL_MASK
        label = total.div(seen.clamp(min=1), rounding_mode="floor")
        squares = (block[:, _LABEL] >> _LABEL_BITS) - seen * label * label
        mixed = ((total != seen * label) | (squares & _SQUARES_MASK != 0)).nonzero()
        return int(mixed[0]) if len(mixed) else None

    def add(self, rows: Tensor, labels: Tensor, measured: Measured) -> None:
        """Add a batch at `rows`."""
        counts = torch.add(self._once, measured.correct, alpha=1 << _BITS)
        # Overflow drops what is above the modulus.
        columns = [counts, torch.addcmul(labels, labels, labels, value=1 << _LABEL_BITS).unsqueeze(1)]
        if measured.values:
            columns.append(torch.cat(measured.values, 1).clamp_(-_LARGEST, _LARGEST).mul_(_UNIT).long())
        # The numbers of a row that is not sound are replaced, whatever NaN became as an integer.
        entry = torch.where(measured.sound, torch.cat(columns, 1), self._unsound)
        # Entry by entry: adding rows of a few numbers each is several times slower on a CPU.
        places = torch.add(self._columns, rows.unsqueeze(1), alpha=self.sums.shape[1])
        self.sums.view(-1).scatter_add_(0, places.view(-1), entry.view(-1))

    def epoch_values(self, start: int, stop: int) -> EpochValues:
        """The epoch's values of the samples from `start` to `stop`."""
        block = self.sums[start + _FIRST : stop + _FIRST]
        counts = block[:, _COUNTS]
        seen, correct, flagged = counts & _MASK, (counts >> _BITS) & _MASK, counts >> 2 * _BITS
        # Doubles: a sum may have more digits than a float32; one rounding, at the end.
        often = seen.clamp(min=1).double()
        values = {
            name: (block[:, _VALUES + place].double() / _UNIT / often).float()
            for place, name in enumerate(self.measures)
        }
        label = (block[:, _LABEL] & _LABEL_MASK).div(seen.clamp(min=1), rounding_mode="floor").int()
        share = (correct.double() / often).float()
        return {"label": label, "seen": seen.int(), "flagged": flagged.int(), "correct": share, **values}


# EL2N is also averaged over so many first epochs, as its authors do.
_EARLY = 10
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

    def __init__(self, layout: Layout, device: torch.device) -> None:
        super().__init__()
        self.layout = layout
        columns = _COMMON | {f"{name}_{kept}": (torch.float32, 0.0) for name in layout.measures for kept in _KEPT[name]}
        for name, (dtype, fill) in columns.items():
            self[name] = torch.full((layout.num_samples,), fill, dtype=dtype, device=device)

    def __missing__(self, name: str) -> Tensor:
        raise ValueError(f"aggregates must have been recorded; {name!r} was not, only {', '.join(self)}")

    def fold(self, rows: slice, epoch: int, seen: EpochValues) -> None:
        """Add epoch number `epoch` of the first phase for the samples `rows`; samples not seen in it do not change."""
        part = {name: tensor[rows] for name, tensor in self.items()}
        here = seen["seen"] > 0
        part["flagged"] += seen["flagged"]
        part["label"].copy_(torch.where(here, seen["label"], part["label"]))
        part["epochs"] += here
        count = part["epochs"].clamp(min=1).float()
        early = here & (epoch < _EARLY)
        part["early_epochs"] += early
        time_ahead = epoch - part["epoch_mean"]
        part["epoch_mean"] += torch.where(here, time_ahead / count, 0.0)
        part["epoch_moments"] += torch.where(here, time_ahead * (epoch - part["epoch_mean"]), 0.0)
        # A sum, nearly always of integers: samples that are right equally often get the same share to the last bit.
        part["correct_sum"] += torch.where(here, seen["correct"], 0.0)
        before, correct = part["was_correct"] > 0, seen["correct"] > 0.5
        part["forgotten"] += here & before & ~correct
        # Before the first epoch nothing is learned: a sample right from the start has learned once (Toneva et al.).
        part["learned"] += here & ~before & correct
        first = part["first_correct"]
        first.copy_(torch.where(here & correct & (first < 0), epoch, first))
        part["last_wrong"].copy_(torch.where(here & ~correct, epoch, part["last_wrong"]))
        part["was_correct"].copy_(torch.where(here, correct, before))
        for name in self.layout.measures:
            value = seen[name]
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
        here = seen["seen"] > 0
        self["flagged"][rows] += seen["flagged"]
        self["second_epochs"][rows] += here
        last = self["second_last_correct"][rows]
        last.copy_(torch.where(here & (seen["correct"] > 0.5), epoch, last))


def scores_table(aggregates: Aggregates, scores: Iterable[Score]) -> pa.Table:
    """One row per sample: id, label, counts, and one column per score; a sample never recorded has nulls."""
    unseen, learning = (aggregates["epochs"] == 0).cpu().numpy(), learning_columns(aggregates)
    fields = [
        pa.field("id", pa.int64()),
        pa.field("label", pa.int32()),
        pa.field("epochs", pa.int32(), metadata={"title": "Epochs in which the sample was recorded"}),
        pa.field("flagged", pa.int32(), metadata={"title": "Measurements thrown away: logits not finite"}),
        *learning.schema,
    ]
    columns = [
        pa.array(np.arange(len(unseen))),
        pa.array(aggregates["label"].cpu().numpy(), pa.int32(), mask=unseen),
        pa.array(aggregates["epochs"].int().cpu().numpy()),
        pa.array(aggregates["flagged"].cpu().numpy()),
        *learning.columns,
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
