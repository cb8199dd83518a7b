"""Features of images and texts by an encoder, kept in a file so that the same ones are not computed again."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hardsight.datasets.interface import FileDataset
from hardsight.engines.encoders import identity, load_encoder
from hardsight.engines.images import Images, PreparedBatches
from hardsight.engines.streaming import progress_bar, reason_of
from hardsight.heads import evaluating
from hardsight.records import atomic_path
from hardsight.validation import check_device

FEATURES_FILE = "features.safetensors"
_AT_ONCE = 64


def features_of_images(
    images: Images,
    backbone: str,
    *,
    size: int | None = None,
    cache: Path | None = None,
    device: torch.device | str | None = None,
    workers: int = 0,
    progress: bool | None = None,
) -> tuple[Tensor, dict[int, str]]:
    """Pooled features [samples, dim] of all images, and by id why one has none: its row is NaN.

    `size` takes the place of the encoder's own input size, which is quicker where it is smaller. `cache` is a folder.
    """

    def compute() -> tuple[Tensor, dict[int, str]]:
        encoder = load_encoder(backbone)
        assert encoder.preprocessing is not None
        wanted = encoder.preprocessing.changed(size=None if size is None else (size, size))
        place = {one: at for at, one in enumerate(images.ids.tolist())}
        on = check_device(device or "cpu")
        batches = PreparedBatches(images, wanted, _AT_ONCE, workers, labelled=False)
        batches.first()
        found: Tensor | None = None
        with evaluating(encoder.model.to(on)), progress_bar(batches, progress, "encoding") as step:
            for pixels, _, ids in batches:
                try:
                    features = encoder.encode(pixels.to(on))
                except torch.OutOfMemoryError:
                    raise
                except (RuntimeError, ValueError, AssertionError) as error:
                    raise ValueError(
                        f"backbone must take images of {list(pixels.shape[2:])} pixels, or size be another; {backbone} "
                        f"ended in: {reason_of(error)}"
                    ) from None
                found = _put(found, len(images), [place.pop(one) for one in ids.tolist()], features)
                step(1)
        assert found is not None
        return found, dict(zip(place, batches.skipped, strict=False))

    return _cached(cache, _key(backbone, str(size), _said_of(images)), compute)


def features_of_texts(
    texts: Sequence[str | None],
    backbone: str,
    *,
    cache: Path | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> Tensor:
    """Pooled features [samples, dim] of all texts; a missing one has a row of NaN."""

    def compute() -> tuple[Tensor, dict[int, str]]:
        encoder = load_encoder(backbone, "texts")
        on = check_device(device or "cpu")
        # Texts of one length share a batch, which then has little padding.
        order = sorted((at for at, text in enumerate(texts) if text is not None), key=lambda at: len(texts[at] or ""))
        if not order:
            raise ValueError(f"text must be filled for at least one sample; got {len(texts)}, none of them filled")
        batches = [order[start : start + _AT_ONCE] for start in range(0, len(order), _AT_ONCE)]
        found: Tensor | None = None
        with evaluating(encoder.model.to(on)), progress_bar(batches, progress, "encoding") as step:
            for batch in batches:
                found = _put(found, len(texts), batch, encoder.encode([str(texts[at]) for at in batch]))
                step(1)
        assert found is not None
        return found, {}

    digest = hashlib.sha256()
    for text in texts:
        digest.update(b"\0" if text is None else b"\1" + text.encode("utf-8", "surrogatepass") + b"\0")
    return _cached(cache, _key(backbone, digest.hexdigest()), compute)[0]


def _put(found: Tensor | None, samples: int, places: list[int], features: Tensor) -> Tensor:
    """Features in the places of their samples, among others; what never comes is NaN."""
    features = features.float().cpu()
    found = torch.full((samples, features.shape[1]), torch.nan) if found is None else found
    found[places] = features
    return found


def _key(backbone: str, *said: str) -> str:
    return hashlib.sha256("\n".join((identity(backbone), *said)).encode()).hexdigest()


def _said_of(images: Images) -> str:
    """What tells these images from others: the files' names, sizes and dates, or the pixels themselves."""
    digest = hashlib.sha256()
    if isinstance(images, FileDataset):
        for path in images.paths:
            file = images.root / path
            state = file.stat() if file.is_file() else None
            digest.update(f"{path}\0{state and state.st_size}\0{state and state.st_mtime_ns}\n".encode())
    else:
        digest.update(images.images.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _cached(
    folder: Path | None, key: str, compute: Callable[[], tuple[Tensor, dict[int, str]]]
) -> tuple[Tensor, dict[int, str]]:
    """The features of this key, and who has none, as they lie in the folder; else computed, and left there."""
    if folder is None:
        return compute()
    path = Path(folder) / FEATURES_FILE
    # What is damaged, or of other samples, is written again.
    with contextlib.suppress(SafetensorError, ValueError, OSError), safe_open(path, "pt") as file:
        said = file.metadata() or {}
        if said.get("made of") == key:
            return file.get_tensor("features"), {int(one): why for one, why in json.loads(said["unreadable"]).items()}
    features, unreadable = compute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as draft:
        save_file({"features": features.contiguous()}, draft, {"made of": key, "unreadable": json.dumps(unreadable)})
    return features, unreadable
