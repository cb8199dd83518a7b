"""How images were prepared in a training, as its record says, and whether a model is given others."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hardsight.engines.preprocessing import Preprocessing
from hardsight.records import read_run

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
        wanted = (",".join(f"{value:.3g}" for value in values) for values in (self.trained.mean, self.trained.std))
        return (
            f"the inputs look normalised otherwise than in training: they have mean {mean:.3g} and standard deviation "
            f"{spread:.3g}, from {self.low:.3g} to {self.high:.3g}; in training pixels in [0, 1] were normalised to "
            "mean 0 and deviation 1 by mean {} and std {}".format(*wanted)
        )
