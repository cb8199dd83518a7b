"""Images from disk as Clothing1M and MARS are trained on: a square of each, cut out and mirrored at random."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hardsight.datasets import FileDataset
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.epochs import Batch
from hardsight.datasets.loader import StreamingLoader
from hardsight.training.checkpoints import read_tensors

# Of ImageNet, on which the networks were trained before.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Crops:
    """Batches of squares of `side` pixels out of images squashed to `resized` x `resized`.

    For training the square is anywhere and half of the images are mirrored, otherwise it is the middle. Moving an image
    by up to the margin and then cutting out the middle is a random crop; where the margin is odd the last of its
    places is left out.
    """

    def __init__(
        self, data: FileDataset, batch_size: int, *, resized: int, side: int, training: bool, seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        if not 0 < side <= resized:
            raise ValueError(f"side must lie in [1, {resized}], the size of the images; got {side}")
        self.start, self.side = (resized - side) // 2, side
        augmentation = Augmentation(shift=self.start, flip=True) if training else Augmentation()
        self.loader = StreamingLoader(
            data.resized(resized, "squash"), batch_size, device=device, shuffle=training, drop_last=training, seed=seed,
            augmentation=augmentation, mean=MEAN, std=STD,
        )  # fmt: skip
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        inside = slice(self.start, self.start + self.side)
        for images, labels, ids in self.loader:
            yield Batch(images[:, :, inside, inside], labels, ids)

    def state_dict(self) -> dict[str, Any]:
        """Where the pass stands."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a pass stood."""
        self.loader.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Start the next pass at the beginning of `epoch`."""
        self.loader.set_epoch(epoch)


# Torchvision's name of a ResNet's last layer.
_HEAD = "fc."


def load_backbone(model: nn.Module, path: Path | str) -> nn.Module:
    """Put weights of an ImageNet network (safetensors, torchvision's names) into all but the model's head."""
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path} is not there: it must hold an ImageNet network's weights, safetensors under torchvision's names"
        )
    found = read_tensors(path)
    own = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(_HEAD)}
    lacking = sorted(name for name in own.keys() - found.keys() if not name.endswith("num_batches_tracked"))
    if lacking:
        raise ValueError(f"{path} must hold the network's weights; {lacking[0]} is missing")
    for name in own.keys() & found.keys():
        if found[name].shape != own[name].shape:
            raise ValueError(
                f"{path} must hold the network's weights; {name} must have shape {list(own[name].shape)}, got "
                f"{list(found[name].shape)}"
            )
    model.load_state_dict({name: tensor for name, tensor in found.items() if name in own}, strict=False)
    return model
