"""One epoch's sums for every sample, as integers, so that no order of adding changes a bit.

A measure is added as an integer multiple of 2^-32. Integer sums do not depend on their order: shuffled batches,
atomics on a GPU and several processes give the same bits. (A measure's own last bit may still depend on its row's
place in the batch, where the device computes exponentials in lanes and remainders differently.) The price is a
resolution of 2.3e-10 and values cut off at 2^24, beyond which no margin or loss means anything.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from hardsight.dynamics.measures import Measured

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

REPEATS = ("mean", "last", "raise")


class Layout(NamedTuple):
    """What a recorder records, fixed by its first update."""

    num_samples: int
    num_classes: int
    measures: tuple[str, ...]


class EpochValues(NamedTuple):
    """A range of samples over one epoch. Where `seen` is 0 the other numbers have no meaning."""

    seen: Tensor  # how often it was measured
    flagged: Tensor  # how often its logits were not finite
    label: Tensor
    correct: Tensor  # share of the measurements in which its label won
    values: dict[str, Tensor]  # float32, averaged over the measurements


class EpochSums:
    """The sums: one row per sample, with rows before and after them for what belongs to no sample.

    Row 0 is for samples left out, row 1 for ids below 0, row i + 2 for sample i, the last two for ids and labels that
    are too large.
    """

    def __init__(self, num_samples: int, measures: tuple[str, ...], repeats: str, device: torch.device) -> None:
        self.num_samples, self.measures, self.keep_last = num_samples, measures, repeats == "last"
        rows = num_samples + 4
        self.sums = torch.zeros(rows, _VALUES + len(measures), dtype=torch.int64, device=device)
        # The place in the epoch of each sample's last presentation.
        self.latest = torch.full((rows if self.keep_last else 0,), -1, dtype=torch.int64, device=device)
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        columns = _VALUES + len(measures)
        self._columns = torch.arange(columns, device=device)
        self._once = torch.ones((), dtype=torch.int64, device=device)
        self._unsound = torch.tensor([1 << 2 * _BITS] + [0] * (columns - 1), device=device)

    def tensors(self) -> dict[str, Tensor]:
        """The state of an unfinished epoch."""
        return {"sums": self.sums, "latest": self.latest, "clock": self.clock}

    def clear(self) -> None:
        """Forget the epoch."""
        self.sums.zero_()
        self.latest.fill_(-1)
        self.clock.zero_()

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
        """How many rows had an id out of range, and how many a label; of kept-last rows only whether there were."""
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

    def add(self, rows: Tensor, labels: Tensor, measured: Measured, stride: tuple[int, int] = (0, 1)) -> None:
        """Add a batch at `rows`; `stride` is this process's number and how many there are."""
        counts = torch.add(self._once, measured.correct, alpha=1 << _BITS)
        # Overflow drops what is above the modulus.
        columns = [counts, torch.addcmul(labels, labels, labels, value=1 << _LABEL_BITS).unsqueeze(1)]
        if measured.values:
            columns.append(torch.cat(measured.values, 1).clamp_(-_LARGEST, _LARGEST).mul_(_UNIT).long())
        # The numbers of a row that is not sound are replaced, whatever NaN became as an integer.
        entry = torch.where(measured.sound, torch.cat(columns, 1), self._unsound)
        if self.keep_last:
            rows = self._supersede(rows, stride)
            self.sums.index_copy_(0, rows, entry)
        else:
            # Entry by entry: adding rows of a few numbers each is several times slower on a CPU.
            places = torch.add(self._columns, rows.unsqueeze(1), alpha=self.sums.shape[1])
            self.sums.view(-1).scatter_add_(0, places.view(-1), entry.view(-1))

    def _supersede(self, rows: Tensor, stride: tuple[int, int]) -> Tensor:
        """The rows, with those that a later row of the same batch repeats left out."""
        rank, processes = stride
        place = (self.clock + torch.arange(len(rows), device=rows.device)) * processes + rank
        self.clock += len(rows)
        self.latest.scatter_reduce_(0, rows, place, "amax")
        return torch.where(self.latest[rows] == place, rows, 0)

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
        return EpochValues(seen.int(), flagged.int(), label, (correct.double() / often).float(), values)


def agree(recorded: Any, group: Any = None) -> Any:
    """What the processes recorded: the same in all that recorded anything, else an error; None if none did."""
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, recorded, group=group)
    known = [one for one in every if one is not None]
    if any(one != known[0] for one in known):
        raise ValueError(f"every process must record the same measures in the same epoch; got {every}")
    return known[0] if known else None


def add_processes(tensors: Mapping[str, Tensor], group: Any = None) -> None:
    """Replace the sums of this process (`EpochSums.tensors`) by those over all processes, in place.

    The sums are integers, so neither the order of adding nor the split of the samples changes the result.
    """
    sums, own = tensors["sums"], tensors["latest"]
    if len(own):
        latest = own.clone()
        dist.all_reduce(latest, dist.ReduceOp.MAX, group=group)
        sums.mul_((own == latest).unsqueeze(1))
        own.copy_(latest)
        dist.all_reduce(tensors["clock"], dist.ReduceOp.MAX, group=group)
    dist.all_reduce(sums, dist.ReduceOp.SUM, group=group)


def empty_share(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Sums (`EpochSums.tensors`) to which nothing was added; the clock stays, so that later samples count as later."""
    sums, latest, clock = tensors["sums"], tensors["latest"], tensors["clock"]
    return {"sums": torch.zeros_like(sums), "latest": torch.full_like(latest, -1), "clock": clock}
