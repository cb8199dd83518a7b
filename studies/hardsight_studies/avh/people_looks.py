"""Looks at the test images, once or after every epoch, and the table that a cell leaves of them.

Scores of training dynamics need samples that are seen during training. The test images are never trained on: a
`Recorder` is fed with the network's outputs on them after every epoch, in evaluation mode and without augmentation, and
so tells when each was learned, how often it was forgotten, and its mean AVH, margin, loss and confidence over training.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from hardsight import records
from hardsight.alignment import correlate
from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics import Recorder
from hardsight.hardness import SCORES, model_scores
from hardsight.training.evaluation import samples_table
from hardsight.training.states import read_state, write_state
from hardsight_studies.avh.further_scores import Snapshots, further_columns
from hardsight_studies.outputs import Outputs, outputs_of

PEOPLE = "people.parquet"
# What is followed from epoch to epoch: its agreement with people stands in the epochs' table.
FOLLOWED = ("avh", "loss", "norm")


class Votes(NamedTuple):
    """How many people chose an image's class, and how many there were: int64 each, by the image's id."""

    chosen: Tensor
    people: Tensor

    @property
    def frequency(self) -> Tensor:
        """Human selection frequency, float64 in [0, 1]."""
        return self.chosen.double() / self.people

    def of(self, ids: Tensor) -> "Votes":
        """The votes on these images."""
        return Votes(self.chosen[ids], self.people[ids])


def model_columns(seen: Outputs) -> dict[str, Tensor]:
    """Id, label, prediction and every score that one look at a network gives, on the CPU."""
    scores = seen.scores(one.name for one in model_scores())
    columns = {"id": seen.ids, "label": seen.labels, "predicted": seen.logits.argmax(1), **scores}
    return {name: values.cpu() for name, values in columns.items()}


def write_people(
    folder: Path, columns: Mapping[str, Tensor], votes: Votes, logits: Tensor, averaged: Tensor | None = None
) -> None:
    """One row an image: people's votes, the scores, `logits`, and `probabilities_mean` over the epochs if any."""
    table = samples_table(columns, logits.shape[1], SCORES.get, None)
    for name, counts in votes._asdict().items():
        table = table.append_column(f"votes_{name}", pa.array(counts.numpy().astype(np.int16)))
    floats = [one.name for one in table.schema if pa.types.is_floating(one.type)]
    for name, rows in (("logits", logits), ("probabilities_mean", averaged)):
        if rows is not None:
            flat = pa.array(rows.float().cpu().numpy().ravel())
            table = table.append_column(name, pa.FixedSizeListArray.from_arrays(flat, rows.shape[1]))
            floats.append(f"{name}.list.element")
    with records.atomic_path(folder / PEOPLE) as path:
        # The bytes of floats apart, exponents beside exponents: that is what zstd can shorten.
        pq.write_table(table, path, compression="zstd", use_dictionary=False, use_byte_stream_split=floats)


class ImageWatch:
    """Follows the test images through one training.

    What it knows is written after every epoch, so that a training that was interrupted goes on with it.
    """

    def __init__(self, folder: Path, batches: DeviceLoader, votes: Votes, epochs: int, copies: int) -> None:
        self.folder, self.batches, self.votes, self.copies = folder, batches, votes, copies
        self.snapshots = Snapshots(folder, epochs)
        self.recorder = Recorder(len(votes.chosen))
        self.summed: Tensor | None = None
        self._restore()

    def epoch(self, model: nn.Module, epoch: int) -> dict[str, float]:
        """Record the test images after this epoch, counted from 1; how scores agree with people by now."""
        seen = outputs_of(model, self.batches)
        scores = seen.scores(FOLLOWED)
        self.snapshots.take(model, epoch)
        if self.recorder.epoch < epoch:
            self._record(seen, epoch)
        frequency = self.votes.of(seen.ids.cpu()).frequency.numpy()
        return {f"{name}_agreement": _agreement(name, values, frequency) for name, values in scores.items()}

    def _record(self, seen: Outputs, epoch: int) -> None:
        if self.recorder.epoch != epoch - 1:
            raise ValueError(
                f"{self.folder} must hold the looks at epoch {epoch - 1}; it ends at {self.recorder.epoch}"
            )
        lengths = torch.linalg.vector_norm(seen.features, dim=1), torch.linalg.vector_norm(seen.weight, dim=1)
        self.recorder.update(seen.ids, seen.logits, seen.labels, *lengths, seen.bias)
        self.recorder.end_epoch()
        probabilities = seen.logits.double().softmax(1)
        self.summed = probabilities if self.summed is None else self.summed.to(probabilities) + probabilities
        self._save(epoch)

    def write(self, model: nn.Module) -> None:
        """The table of the trained network, with what was recorded on the way."""
        seen = outputs_of(model, self.batches)
        columns, rows = model_columns(seen), seen.ids.cpu()
        columns |= further_columns(model, self.batches, seen, self.copies, self.snapshots.files())
        columns |= {name: values.cpu()[rows] for name, values in self.recorder.scores().items()}
        assert self.summed is not None
        write_people(self.folder, columns, self.votes.of(rows), seen.logits, self.summed / self.recorder.epoch)
        for place in self._saved():
            shutil.rmtree(place)
        self.snapshots.clear()

    def _save(self, epoch: int) -> None:
        earlier, fresh = self._saved(), self.folder / f".watch-{epoch}"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        write_state(fresh / "state", {"recorder": self.recorder.state_dict(), "summed": self.summed})
        fresh.rename(self.folder / f"watch-{epoch}")
        for place in earlier:
            shutil.rmtree(place)

    def _restore(self) -> None:
        saved = self._saved()
        if saved:
            state = read_state(saved[-1] / "state")
            self.recorder.load_state_dict(state["recorder"])
            self.summed = state["summed"]

    def _saved(self) -> list[Path]:
        return sorted(self.folder.glob("watch-*"), key=lambda place: int(place.name.removeprefix("watch-")))


def _agreement(name: str, values: Tensor, frequency: np.ndarray) -> float:
    """Spearman's coefficient, positive where the score and people agree on what is easy; NaN of a constant score."""
    easy = -SCORES[name].hardness(values).cpu().numpy()
    if np.ptp(easy) == 0 or np.ptp(frequency) == 0:
        return float("nan")
    return correlate(easy, frequency).coefficient
