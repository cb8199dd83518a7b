"""Which score of the predicted class finds new classes, mistakes and attacks, and whether it is a probability."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardsight import datasets, models
from hardsight.datasets.epochs import Batch
from hardsight.datasets.loader import DeviceLoader
from hardsight.degradation import adversarial
from hardsight.geometry import angles_to_classes
from hardsight.hardness import angular_visual_confidence, calibration_error, fit_temperature, open_set_scores
from hardsight.training import fit
from hardsight_studies.avh.people import IMAGENET_MEAN, IMAGENET_STD, images_of, public_network
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.rows import Row
from hardsight_studies.engine.running import results_of, row_of
from hardsight_studies.outputs import Outputs, outputs_of
from hardsight_studies.uses.frozen import CPU, auroc, drawn

_DIGITS = 8


def measure(run: Run) -> dict[str, Any]:
    """One network: its own test images, images of new classes, and attacked ones."""
    model, known, new = _sets(run)
    own, other = outputs_of(model, known), outputs_of(model, new)
    attacked = _attacked(run, model, known, own)
    found = {f"{name}-{task}": value for task, pair in _tasks(own, other, attacked).items()
             for name, value in _areas(*pair, run.config["resamples"]).items()}  # fmt: skip
    return {**found, **_calibration(own), "accuracy": float(_right(own).double().mean())}


def rows(runs: Iterable[Run], preset: str) -> Iterator[Row]:
    """A row for each network and score, and one for each network and kind of probability."""
    for run in runs:
        results = results_of(run)
        yield row_of(run, {"accuracy": results["accuracy"]})
        for name in sorted({key.split("-")[0] for key in results if "-" in key}):
            parts = {key.split("-")[1]: value for key, value in results.items() if key.startswith(f"{name}-")}
            yield row_of(run, parts, settings={"score": name})


def _sets(run: Run) -> tuple[Any, DeviceLoader, DeviceLoader]:
    network = str(run.settings["network"])
    if network == "digits":
        return _small(run)
    model = public_network(run, CPU).eval()
    own, other = images_of("cifar10", "test"), images_of("cifar100", "test")
    return model, _loader(own, IMAGENET_MEAN, IMAGENET_STD), _loader(other, IMAGENET_MEAN, IMAGENET_STD)


def _small(run: Run) -> tuple[Any, DeviceLoader, DeviceLoader]:
    """scikit-learn's digits: the last two classes are new."""
    whole = images_of("digits")
    known, new = ((inside).nonzero().squeeze(1) for inside in (whole.labels < _DIGITS, whole.labels >= _DIGITS))
    torch.manual_seed(run.seed)
    model = models.create("digits_cnn", num_classes=_DIGITS, in_channels=1)
    part = whole.subset(known[:700])
    fit(model, DeviceLoader(part.images, part.labels, part.ids, 64, seed=run.seed, mean=[0.3], std=[0.4]), epochs=4,
        progress=False, device=CPU)  # fmt: skip
    unknown = whole.subset(new).with_labels(torch.zeros(len(new), dtype=torch.int64))
    model.eval()
    return model, _loader(whole.subset(known[700:]), [0.3], [0.4]), _loader(unknown, [0.3], [0.4])


def _loader(data: datasets.ArrayDataset, mean: Sequence[float], std: Sequence[float]) -> DeviceLoader:
    return DeviceLoader(data.images, data.labels, data.ids, 250, shuffle=False, mean=mean, std=std)


def _attacked(run: Run, model: Any, known: DeviceLoader, own: Outputs) -> tuple[Outputs, Tensor]:
    """Images that were recognised and no longer are after one step against the network; and their places."""
    right = _right(own).nonzero().squeeze(1)
    places = right[drawn(run.seed, len(right), run.config["attacked"])].sort().values
    moved, epsilon = [], run.config["epsilon"] / min(IMAGENET_STD)
    for at, (images, labels, ids) in enumerate(known):
        inside = places[places // 250 == at] % 250
        if len(inside):
            changed = adversarial(model, images[inside], labels[inside], epsilon=epsilon)
            moved.append(Batch(changed, labels[inside], ids[inside]))
    seen = outputs_of(model, moved)
    fooled = ~_right(seen)
    return _part(seen, fooled), places[fooled]


def _tasks(own: Outputs, other: Outputs, attacked: tuple[Outputs, Tensor]) -> dict[str, tuple[Any, Any]]:
    """What is to be found, and what it is to be told from."""
    right = _right(own)
    changed, places = attacked
    return {
        "new": (other, own),
        "mistakes": (_part(own, ~right), _part(own, right)),
        "attacks": (changed, _part(own, places)),
    }


def _areas(found: Outputs, beside: Outputs, resamples: int) -> dict[str, Any]:
    """AUROC of each score, with its 95 % interval over images."""
    positive, negative = (open_set_scores(one.features, one.weight, one.bias) for one in (found, beside))
    return {name: _interval(positive[name], negative[name], resamples) for name in positive}


def _interval(positive: Tensor, negative: Tensor, resamples: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)

    def again(values: Tensor) -> Tensor:
        return values[torch.randint(len(values), (len(values),), generator=generator)]

    areas = [auroc(again(positive), again(negative)) for _ in range(resamples)]
    low, high = np.quantile(areas, [0.025, 0.975])
    return {"value": auroc(positive, negative), "low": float(low), "high": float(high), "over": "images"}


def _calibration(own: Outputs) -> dict[str, float]:
    """Calibration errors on one half of the images, before and after a temperature from the other half."""
    half = drawn(0, len(own.labels), len(own.labels))
    fitted, judged = half[: len(half) // 2], half[len(half) // 2 :]
    closeness = torch.pi - angles_to_classes(own.features, own.weight)
    labels = own.labels
    found = {}
    for name, logits in {"softmax": own.logits, "avc": closeness}.items():
        temperature = fit_temperature(logits[fitted], labels[fitted])
        warm = (logits[judged].double() / temperature).softmax(1)
        plain = (
            logits[judged].softmax(1)
            if name == "softmax"
            else angular_visual_confidence(own.features, own.weight)[judged]
        )
        found[f"{name}-before"] = calibration_error(plain, labels[judged])
        found[f"{name}-after"] = calibration_error(warm, labels[judged])
        found[f"{name}-temperature"] = temperature
    return found


def _right(seen: Outputs) -> Tensor:
    return seen.logits.argmax(1) == seen.labels


def _part(seen: Outputs, where: Tensor) -> Outputs:
    parts = (seen.ids[where], seen.labels[where], seen.features[where], seen.logits[where])
    return Outputs(*parts, seen.weight, seen.bias)
