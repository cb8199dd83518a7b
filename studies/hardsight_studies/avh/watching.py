"""The test images through one training: what a `Recorder` says of them, and further scores of the trained network.

The test images are never trained on: after every epoch the network's outputs on them, in evaluation mode and without
augmentation, go to a `Recorder`, which tells when each was learned, how often it was forgotten, and its mean scores.
`prototype_angle` needs the features of all images at once, `allsh` shifted and mirrored copies, `vog` the gradients in
the images at several epochs.
"""

import copy
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch
from torch import Tensor, nn

from hardsight import records
from hardsight.alignment import correlate
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics import Recorder
from hardsight.hardness import SCORES, model_scores, prototype_angle
from hardsight.hardness.several_passes import GradientVariance, input_gradients, local_sensitivity
from hardsight.training.checkpoints import read_state, write_state
from hardsight.training.evaluation import samples_table
from hardsight_studies.outputs import Outputs, outputs_of

PEOPLE = "people.parquet"
# What is followed from epoch to epoch: its agreement with people is in the epochs' table.
FOLLOWED = ("avh", "loss", "norm")
# What the networks trained here see of their training images, the public ones too.
WIGGLE = Augmentation(shift=4, flip=True)
SNAPSHOTS = 5
# A gradient in the image keeps every activation: so many images at a time.
_GRADIENTS_AT_ONCE = 250


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


class ImageWatch:
    """Follows the test images through one training.

    What it knows is written after every epoch, so that a training that was interrupted goes on with it.
    """

    def __init__(self, folder: Path, batches: DeviceLoader, votes: Votes, epochs: int, copies: int) -> None:
        self.folder, self.batches, self.votes, self.copies = folder, batches, votes, copies
        self.kept_at = {max(1, round(epochs * part / SNAPSHOTS)) for part in range(1, SNAPSHOTS + 1)}
        self.recorder = Recorder(len(votes.chosen))
        self.summed: Tensor | None = None
        saved = self._saved()
        if saved:
            state = read_state(saved[-1] / "state")
            self.recorder.load_state_dict(state["recorder"])
            self.summed = state["summed"]

    def epoch(self, model: nn.Module, epoch: int) -> dict[str, float]:
        """Record the test images after this epoch, counted from 1; how scores agree with people by now."""
        seen = outputs_of(model, self.batches)
        if epoch in self.kept_at:
            state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
            with records.atomic_path(self.folder / f"snapshot-{epoch}.safetensors") as path:
                path.write_bytes(safetensors.torch.save(state))
        if self.recorder.epoch < epoch:
            self._record(seen, epoch)
        frequency = self.votes.of(seen.ids.cpu()).frequency.numpy()
        return {f"{name}_agreement": agreement(name, one, frequency) for name, one in seen.scores(FOLLOWED).items()}

    def write(self, model: nn.Module) -> None:
        """The table of the trained network, with what was recorded on the way."""
        snapshots = [self.folder / f"snapshot-{epoch}.safetensors" for epoch in sorted(self.kept_at)]
        snapshots = [path for path in snapshots if path.is_file()]
        seen = outputs_of(model, self.batches)
        rows = seen.ids.cpu()
        columns = model_columns(seen) | further_columns(model, self.batches, seen, self.copies, snapshots)
        columns |= {name: values.cpu()[rows] for name, values in self.recorder.scores().items()}
        assert self.summed is not None
        write_people(self.folder, columns, self.votes.of(rows), seen.logits, self.summed / self.recorder.epoch)
        for place in self._saved():
            shutil.rmtree(place)
        for path in snapshots:
            path.unlink()

    def _record(self, seen: Outputs, epoch: int) -> None:
        if self.recorder.epoch != epoch - 1:
            raise ValueError(f"{self.folder} must hold what epoch {epoch - 1} saw; it ends at {self.recorder.epoch}")
        lengths = torch.linalg.vector_norm(seen.features, dim=1), torch.linalg.vector_norm(seen.weight, dim=1)
        self.recorder.update(seen.ids, seen.logits, seen.labels, *lengths, seen.bias)
        self.recorder.end_epoch()
        probabilities = seen.logits.double().softmax(1)
        self.summed = probabilities if self.summed is None else self.summed.to(probabilities) + probabilities
        earlier, fresh = self._saved(), self.folder / f".watch-{epoch}"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        write_state(fresh / "state", {"recorder": self.recorder.state_dict(), "summed": self.summed})
        fresh.rename(self.folder / f"watch-{epoch}")
        for place in earlier:
            shutil.rmtree(place)

    def _saved(self) -> list[Path]:
        return sorted(self.folder.glob("watch-*"), key=lambda place: int(place.name.removeprefix("watch-")))


def agreement(name: str, values: Tensor, frequency: np.ndarray) -> float:
    """Spearman's coefficient, positive where the score and people agree on what is easy; NaN of a constant score."""
    easy = -SCORES[name].hardness(values).cpu().numpy()
    if np.ptp(easy) == 0 or np.ptp(frequency) == 0:
        return float("nan")
    return correlate(easy, frequency).coefficient


def model_columns(seen: Outputs) -> dict[str, Tensor]:
    """Id, label, prediction and every score that one forward pass gives, on the CPU."""
    scores = seen.scores(one.name for one in model_scores())
    columns = {"id": seen.ids, "label": seen.labels, "predicted": seen.logits.argmax(1), **scores}
    return {name: values.cpu() for name, values in columns.items()}


def further_columns(
    model: nn.Module, batches: DeviceLoader, seen: Outputs, copies: int, snapshots: Sequence[Path] = ()
) -> dict[str, Tensor]:
    """The further scores of these images, in the order of `seen`, on the CPU; `vog` needs two snapshots.

    `copies`: altered ones of each image, for `allsh`; the same for every network.
    """
    altered = copy.copy(batches)
    altered.augmentation, altered.seed = WIGGLE, 0
    moved = []
    for epoch in range(copies):
        altered.set_epoch(epoch)
        moved.append(outputs_of(model, altered).logits.double())
    found = {
        "prototype_angle": prototype_angle(seen.features.double(), seen.labels),
        "allsh": local_sensitivity(seen.logits.double(), torch.stack(moved)),
    }
    if len(snapshots) > 1:
        found["vog"] = _gradient_variance(model, batches, seen.labels, snapshots)
    return {name: values.cpu() for name, values in found.items()}


def _gradient_variance(model: nn.Module, batches: DeviceLoader, labels: Tensor, snapshots: Sequence[Path]) -> Tensor:
    # A copy: the network's own weights may be shared with a step that is captured or stacked.
    earlier = copy.deepcopy(model).eval()
    gathered = GradientVariance()
    for path in snapshots:
        earlier.load_state_dict(safetensors.torch.load(path.read_bytes()))
        parts = [
            input_gradients(earlier, images[at : at + _GRADIENTS_AT_ONCE], own[at : at + _GRADIENTS_AT_ONCE])
            for images, own, _ in batches
            for at in range(0, len(images), _GRADIENTS_AT_ONCE)
        ]
        gathered.update(torch.cat(parts))
    return gathered.scores(labels)


def write_people(
    folder: Path, columns: Mapping[str, Tensor], votes: Votes, logits: Tensor, averaged: Tensor | None = None
) -> None:
    """One row per image: people's votes, the scores, `logits`, and `probabilities_mean` over the epochs if any."""
    table = samples_table(columns, logits.shape[1])
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
