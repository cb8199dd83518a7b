"""From a decoded image to a model's input: resize, cut the middle, scale, normalise, as the model's own files say.

Where a training recorded how its images were prepared, that is used, and inputs that look different are noticed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardsight.names import check_name
from hardsight.records import read_json, read_run

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
# ImageNet's, which most published classifiers of photographs were trained with.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Pixels of a resized image before its middle is cut out; a larger one would fill the memory.
_LARGEST = 2**26
# Pillow's numbers, as Hugging Face's configurations write them.
_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


@dataclass(frozen=True)
class Preprocessing:
    """What a model wants its images to be. A uint8 image [C, H, W] becomes (pixels / 255 - mean) / std.

    `size` is height and width of the input; None keeps each image's own. `resize` is the length of the shorter side
    before the middle is cut out, or height and width where the image is squashed before that; None squashes the whole
    image to `size`. `mean` and `std` have one number a channel, for pixels in [0, 1].
    """

    size: tuple[int, int] | None = None
    resize: int | tuple[int, int] | None = None
    interpolation: str = "bilinear"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    cut_early: bool = False
    """Of an odd number of pixels to cut off, the smaller half comes first, as in transformers; torchvision rounds."""

    def __post_init__(self) -> None:
        if self.size is not None and min(self.size) < 1:
            raise ValueError(f"size must be at least 1 pixel; got {self.size!r}")
        if self.resize is not None and (self.size is None or min(_pair(self.resize)) < 1):
            raise ValueError(f"resize must be at least 1 pixel and come with a size; got {self.resize!r}")
        check_name("interpolation", self.interpolation, INTERPOLATIONS)
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise ValueError(f"mean must have 1 or 3 numbers and std as many; got {len(self.mean)} and {len(self.std)}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if not all(math.isfinite(value) and abs(value) <= 1 for value in values):
                raise ValueError(f"{name} must be for pixels in [0, 1], so 127 of 255 is 127/255; got {values!r}")
        if min(self.std) <= 0:
            raise ValueError(f"std must be positive; got {self.std!r}")

    def __call__(self, image: Tensor) -> Tensor:
        """One decoded image, ready to be batched."""
        if image.dtype != torch.uint8 or image.ndim != 3:
            raise ValueError(f"image must be uint8 [channels, height, width]; got {image.dtype} {list(image.shape)}")
        image = _resized(_with_channels(image, len(self.mean)), self)
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (image.float() / 255 - mean) / std

    def changed(self, **flags: Any) -> "Preprocessing":
        """The same with what a person gave.

        A `size` keeps the share that is cut off, or the proportions where there was no size. One number of `mean` or
        `std` is for all channels.
        """
        given = {key: value for key, value in flags.items() if value is not None}
        for name in ("mean", "std"):
            if len(given.get(name, ())) == 1:
                given[name] = tuple(given[name]) * len(self.mean)
        if "size" in given and self.size is None:
            given["resize"] = min(given["size"])
        elif "size" in given and self.size is not None and self.resize is not None:
            scale = min(given["size"]) / min(self.size)
            squashed = isinstance(self.resize, tuple)
            sides = tuple(round(side * scale) for side in _pair(self.resize))
            given["resize"] = sides if squashed else sides[0]
        return replace(self, **given)


def from_timm(configuration: Mapping[str, Any]) -> Preprocessing:
    """What a timm `pretrained_cfg` says: input_size, crop_pct, crop_mode, interpolation, mean, std."""
    size = tuple(configuration.get("input_size", (3, 224, 224)))[-2:]
    share = float(configuration.get("crop_pct") or 1.0)
    squash = configuration.get("crop_mode") == "squash"
    interpolation = configuration.get("interpolation") or "bilinear"
    return Preprocessing(
        size=(int(size[0]), int(size[1])),
        # timm rounds down here; another rounding moves the cut by a pixel.
        resize=None if squash else math.floor(min(size) / share),
        interpolation=interpolation if interpolation in INTERPOLATIONS else "bilinear",
        mean=tuple(configuration.get("mean", IMAGENET_MEAN)),
        std=tuple(configuration.get("std", IMAGENET_STD)),
    )


def from_huggingface(folder: Path) -> Preprocessing:
    """What `preprocessor_config.json` says: sizes, resample, image_mean, image_std; rejects what it cannot follow."""
    path = folder / "preprocessor_config.json"
    try:
        said = read_json(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is not there: save the image processor beside the model") from None
    if not isinstance(said, dict):
        raise ValueError(f"{path} must hold a JSON object; it holds a {type(said).__name__}")
    if abs(said.get("rescale_factor", 1 / 255) - 1 / 255) > 1e-9 or not said.get("do_rescale", True):
        raise ValueError(f"{path} must scale pixels by 1/255; it says {said.get('rescale_factor', 1)!r}")
    for key in ("do_flip_channel_order", "rescale_offset"):
        if said.get(key):
            raise ValueError(f"{path} must want RGB in [0, 1] before mean and std; it says {key}, not known here")
    normalised = said.get("do_normalize", True)
    mean = tuple(said.get("image_mean", (0.5,) * 3)) if normalised else (0.0,) * 3
    std = tuple(said.get("image_std", (0.5,) * 3)) if normalised else (1.0,) * 3
    if said.get("include_top") and normalised:
        # EfficientNet's divides by the spread twice.
        std = tuple(value**2 for value in std)
    resize, size = _huggingface_sizes(said)
    interpolation = _PILLOW.get(said.get("resample", 2), "bilinear")
    return Preprocessing(size, resize, interpolation, mean, std, cut_early=resize is not None)


def from_torchvision(transforms: Any) -> Preprocessing:
    """What the `transforms()` of torchvision's weights say: resize_size, crop_size, interpolation, mean, std."""
    sides = (getattr(transforms, name, None) for name in ("crop_size", "resize_size"))
    crop, resize = (int(one[0]) if isinstance(one, Sequence) else one for one in sides)
    interpolation = str(getattr(getattr(transforms, "interpolation", None), "value", "bilinear"))
    size = crop or resize or 224
    return Preprocessing((size, size), resize or size, interpolation, tuple(transforms.mean), tuple(transforms.std))


def _huggingface_sizes(said: Mapping[str, Any]) -> tuple[int | tuple[int, int] | None, tuple[int, int] | None]:
    """The size before the middle is cut out, and the final one; the meaning of `size` depends on the processor."""
    kind = str(said.get("image_processor_type") or said.get("feature_extractor_type"))
    cut = _huggingface_size(said["crop_size"])[1] if said.get("do_center_crop") and "crop_size" in said else None
    if not said.get("do_resize", True):
        if cut is not None:
            raise ValueError("preprocessor_config.json must resize before it crops; it says do_resize false")
        return None, None
    shortest, whole = _huggingface_size(said.get("size", 224))
    if isinstance(said.get("size"), int) and cut is not None and not kind.startswith(("Beit", "DeiT")):
        # One number, as old configurations write it, is the shorter side for most that cut.
        shortest, whole = said["size"], None
    if kind.startswith("ConvNext"):
        side = shortest or min(whole or (224,))
        # Its authors cut only below 384 pixels.
        return (int(side / said.get("crop_pct", 0.875)) if side < 384 else None), (side, side)
    if shortest is not None and kind.startswith("Levit"):
        shortest = int(shortest * 256 / 224)
    elif shortest is not None and said.get("crop_pct"):
        shortest = int(shortest / said["crop_pct"])
    if cut is None:
        return shortest, whole or (shortest, shortest)  # type: ignore[return-value]
    resize = shortest or whole or cut
    if any(before < after for before, after in zip(_pair(resize), cut, strict=True)):
        raise ValueError(f"crop_size in preprocessor_config.json must not exceed size, {resize}; got {cut}")
    return resize, cut


def _huggingface_size(said: Any) -> tuple[int | None, tuple[int, int] | None]:
    """The shorter side, or height and width: configurations of all ages write it differently."""
    if isinstance(said, int):
        return None, (said, said)
    given = said if isinstance(said, Mapping) else {}
    if "shortest_edge" in given:
        return int(given["shortest_edge"]), None
    if {"height", "width"} <= set(given):
        return None, (int(given["height"]), int(given["width"]))
    raise ValueError(f"size in preprocessor_config.json must be a number, shortest_edge or height, width; got {said!r}")


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _with_channels(image: Tensor, channels: int) -> Tensor:
    if len(image) == channels:
        return image
    if len(image) == 1:
        return image.expand(channels, -1, -1)
    if len(image) == 3 and channels == 1:
        from PIL import Image

        grey = Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())).convert("L")
        return torch.from_numpy(np.array(grey))[None]
    raise ValueError(f"image must have {channels} channels or 1; got {len(image)}")


def _resized(image: Tensor, wanted: Preprocessing) -> Tensor:
    if wanted.size is None:
        return image
    height, width = wanted.size
    if wanted.resize is None:
        return _pillow_resize(image, height, width, wanted.interpolation)
    before = _pair(wanted.resize)
    if not isinstance(wanted.resize, tuple):
        # The shorter side is exact, the longer one cut to whole pixels.
        shorter = min(image.shape[1:])
        before = (wanted.resize * image.shape[1] // shorter, wanted.resize * image.shape[2] // shorter)
    # Never below what is cut out of it.
    tall, wide = max(before[0], height), max(before[1], width)
    half = math.floor if wanted.cut_early else round
    top, left = half((tall - height) / 2), half((wide - width) / 2)
    if tall * wide > _LARGEST:
        # A thread of an image: only what is cut out of it is made.
        down, across = image.shape[1] / tall, image.shape[2] / wide
        box = (left * across, top * down, (left + width) * across, (top + height) * down)
        return _pillow_resize(image, height, width, wanted.interpolation, box)
    image = _pillow_resize(image, tall, wide, wanted.interpolation)
    return image[:, top : top + height, left : left + width]


def _pillow_resize(
    image: Tensor, height: int, width: int, interpolation: str, box: tuple[float, float, float, float] | None = None
) -> Tensor:
    """Pillow's resampling, the one that models are trained with; tensors' own differs where images shrink."""
    from PIL import Image

    if box is None and tuple(image.shape[1:]) == (height, width):
        return image
    pixels = image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    resized = np.array(picture.resize((width, height), Image.Resampling[interpolation.upper()], box))
    return torch.from_numpy(resized if resized.ndim == 3 else resized[:, :, None]).permute(2, 0, 1)


# Over the pixels of a training set normalised inputs have mean 0 and spread 1. Other pictures differ, but not so much.
_FARTHEST_MEAN, _SPREADS = 0.75, (0.6, 1.6)
# Of the range that pixels in [0, 1] can have once normalised; resizing may overshoot.
_BEYOND = 0.1
# So many pixels tell enough.
_ENOUGH = 2**22


def record_of(weights: Path | str) -> Path | None:
    """The record whose checkpoint these weights are, `RUN/checkpoint/[step-N/]FILE`; None where they are none's."""
    checkpoint = next((folder for folder in Path(weights).resolve().parents[:2] if folder.name == "checkpoint"), None)
    return None if checkpoint is None or not (checkpoint.parent / "run.json").is_file() else checkpoint.parent


def preprocessing_of(run: dict[str, Any]) -> Preprocessing | None:
    """How the images of a recorded training were prepared; None where it does not say."""
    said = run.get("preprocessing")
    if not isinstance(said, dict):
        return None
    try:
        size = tuple(int(side) for side in said["size"])
        mean, std = (tuple(float(value) for value in said[name]) for name in ("mean", "std"))
        return Preprocessing((size[0], size[1]), min(size), mean=mean, std=std)
    except (KeyError, TypeError, ValueError, IndexError):
        return None


@dataclass
class Inputs:
    """Range, mean and spread of the first inputs of a model, beside those of its training."""

    trained: Preprocessing
    sums: Tensor = field(default_factory=lambda: torch.zeros(3, dtype=torch.float64))
    low: float = math.inf
    high: float = -math.inf

    @staticmethod
    def beside(record: Path | str | None) -> "Inputs | None":
        """Nothing seen yet, to be compared with the training in this folder; None where nothing is known of it."""
        if record is None:
            return None
        run = read_run(record)
        if run is None:
            raise ValueError(f"record must be the folder of a training, with its run.json; got {str(record)!r}")
        trained = preprocessing_of(run)
        return None if trained is None else Inputs(trained)

    def add(self, inputs: Any) -> None:
        """Look at a batch, if it is one of images and not enough were seen."""
        if not isinstance(inputs, Tensor) or inputs.ndim != 4 or not inputs.numel() or self.sums[0] >= _ENOUGH:
            return
        values = inputs.detach().double()
        self.sums += torch.stack([torch.tensor(values.numel()), values.sum().cpu(), values.square().sum().cpu()])
        low, high = values.aminmax()
        self.low, self.high = min(self.low, float(low)), max(self.high, float(high))

    def sentence(self) -> str | None:
        """What is wrong with the inputs; None where they look as in training."""
        count, total, squares = self.sums.tolist()
        if not count or not math.isfinite(squares):
            return None
        mean = total / count
        spread = math.sqrt(max(0.0, squares / count - mean**2))
        ends = [((end - m) / s) for m, s in zip(self.trained.mean, self.trained.std, strict=True) for end in (0, 1)]
        slack = _BEYOND * (max(ends) - min(ends))
        inside = min(ends) - slack <= self.low and self.high <= max(ends) + slack
        if inside and abs(mean) <= _FARTHEST_MEAN and _SPREADS[0] <= spread <= _SPREADS[1]:
            return None
        means, stds = (",".join(f"{value:.3g}" for value in values) for values in (self.trained.mean, self.trained.std))
        return (
            f"the inputs look normalised otherwise than in training: they have mean {mean:.3g} and standard deviation "
            f"{spread:.3g}, from {self.low:.3g} to {self.high:.3g}; in training pixels in [0, 1] were normalised to "
            f"mean 0 and deviation 1 by mean {means} and std {stds}"
        )
