"""Scores that one pass over the images does not give: further looks at altered images, and at earlier weights.

`prototype_angle` needs the features of all images at once, `allsh` looks at shifted and mirrored copies, `vog` at the
network as it was at several epochs: its weights are kept on the way, and the images' gradients taken at the end.
"""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from hardsight.datasets.augment import Augmentation
from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics.gradients import GradientVariance, input_gradients
from hardsight.dynamics.sensitivity import local_sensitivity
from hardsight.hardness import prototype_angle
from hardsight.records import atomic_path
from hardsight_studies.outputs import Outputs, outputs_of

# What the networks trained here see of their training images, the public ones too.
WIGGLE = Augmentation(shift=4, flip=True)
SNAPSHOTS = 5
# A gradient in the image keeps every activation: so many images at a time.
_GRADIENTS_AT_ONCE = 250


def further_columns(
    model: nn.Module, batches: DeviceLoader, seen: Outputs, copies: int, snapshots: Sequence[Path] = ()
) -> dict[str, Tensor]:
    """The further scores of these images, in the order of `seen`, on the CPU.

    `copies`: altered ones of each image, for `allsh`; `vog` where there are two snapshots.
    """
    found = {
        "prototype_angle": prototype_angle(seen.features.double(), seen.labels),
        "allsh": local_sensitivity(seen.logits.double(), torch.stack(list(_wiggled(model, batches, copies)))),
    }
    if len(snapshots) > 1:
        found["vog"] = _gradient_variance(model, batches, seen.labels, snapshots)
    return {name: values.cpu() for name, values in found.items()}


def _wiggled(model: nn.Module, batches: DeviceLoader, copies: int) -> Iterator[Tensor]:
    """Logits on copies of the images, moved and mirrored by chance: the same chance for every network."""
    altered = copy.copy(batches)
    altered.augmentation, altered.seed = WIGGLE, 0
    for epoch in range(copies):
        altered.set_epoch(epoch)
        yield outputs_of(model, altered).logits.double()


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


class Snapshots:
    """The weights at a few epochs of a training, evenly apart, the last among them; one file each in its folder."""

    def __init__(self, folder: Path, epochs: int) -> None:
        self.folder = folder
        self.at = {max(1, round(epochs * part / SNAPSHOTS)) for part in range(1, SNAPSHOTS + 1)}

    def take(self, model: nn.Module, epoch: int) -> None:
        """Keep the weights if this epoch, counted from 1, is one of them."""
        if epoch in self.at:
            state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
            with atomic_path(self.folder / f"snapshot-{epoch}.safetensors") as path:
                path.write_bytes(safetensors.torch.save(state))

    def files(self) -> list[Path]:
        """All that were kept, in order of their epochs."""
        return [path for epoch in sorted(self.at) if (path := self.folder / f"snapshot-{epoch}.safetensors").is_file()]

    def clear(self) -> None:
        """Remove them."""
        for path in self.files():
            path.unlink()
