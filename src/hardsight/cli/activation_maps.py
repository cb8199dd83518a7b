"""Pictures of what a model looks at, beside the scores it gave: `hardsight explore` shows them large."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hardsight.explain import grad_cam
from hardsight.records import write_thumbnails

# How much of a picture's light the strongest part of a map takes.
_STRENGTH = 0.6
_COLOUR = torch.tensor([1.0, 0.35, 0.0])


def write_activation_maps(
    path: Path, loaded: Any, preprocessing: Any, images: Any, ids: Sequence[int], *, head: str | None, device: str
) -> None:
    """Grad-CAM for the predicted class over each of these images, as the model sees it: grey, with the map in red."""
    where = {identity: at for at, identity in enumerate(images.ids.tolist())}
    model = loaded.model.to(device)
    kept, pictures = [], []
    for one in ids:
        try:
            prepared = preprocessing(images[where[one]][0])
        except ValueError:
            continue
        heat = _STRENGTH * grad_cam(model, prepared[None].to(device), size="input", head=head)[0].cpu()[..., None]
        grey = prepared.float().mean(0)[..., None]
        grey = (grey - grey.min()) / (grey.max() - grey.min()).clamp(min=1e-12)
        kept.append(one)
        pictures.append((255 * (grey * (1 - heat) + heat * _COLOUR)).round().to(torch.uint8).numpy())
    write_thumbnails(path, kept, pictures)
