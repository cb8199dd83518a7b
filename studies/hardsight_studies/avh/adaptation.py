"""AVH, Table 3: self-training on a domain without labels, by AVH and by others, from one source model."""

import copy
import functools
import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from hardsight import models
from hardsight.datasets.augment import Augmentation
from hardsight.domains.data import pixel_options, plain_batches, target_labels
from hardsight.domains.looking import class_accuracy, look, worth_showing, write_thumbnails
from hardsight.domains.selection import SELECTORS
from hardsight.domains.self_training import SelfTraining
from hardsight.training import NonFiniteLossError, Steps, fit
from hardsight.training.evaluation import evaluate
from hardsight_studies.avh.adaptation_data import Domains, NotThereError, load_pair, pictures_of
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.trainings import write_record

# Whose first selection is shown in pictures, so many of them, so large.
_PICTURED = {"method": "avh", "seed": 0}
_PICTURED_PAIRS = ("mnist-usps", "usps-mnist", "amazon-caltech10", "amazon-dslr", "amazon-webcam", "digits-digits",
                   "photo-artpainting", "photo-cartoon", "photo-sketch")  # fmt: skip
_PICTURES, _PICTURE_SIZE = 6, 48
_FIRST = {"true_positive_rate": "right", "avh": "avh", "confidence": "confidence", "norm": "norm",
          "selected": "selected", "beyond_cbst": "beyond_cbst", "beyond_cbst_right": "beyond_cbst_right"}  # fmt: skip


def compute(runs: Sequence[Run], preset: str, options: Options) -> None:
    """Compute these runs; one whose data are not on this machine is left for another, and says why."""
    for run in runs:
        options.clock.check()
        try:
            adaptation = Adaptation(run, options.torch_device)
            results = adaptation.results(str(run.settings["method"]))
        except NotThereError as absent:
            options.say(f"left out {run.name}: {absent}")
            continue
        except NonFiniteLossError as diverged:
            options.say(f"failed {run.name}: {diverged}")
            write_record(run, {}, options.torch_device, config=adaptation.of, error=str(diverged))
            continue
        write_record(run, results, options.torch_device, config=adaptation.of)


def pixels_of(picture: bytes) -> dict[str, list[int]]:
    """The place and the colours of each pixel of a picture file, from 0 to 255."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as opened:
        image = np.asarray(opened.convert("RGB"))
    y, x = (one.ravel().tolist() for one in np.indices(image.shape[:2]))
    return {"x": x, "y": y} | {
        name: image[..., at].ravel().tolist() for at, name in enumerate(("red", "green", "blue"))
    }


class Adaptation:
    """One run: a pair, a method and a seed; `of` are the settings of its family of pairs."""

    def __init__(self, run: Run, device: torch.device) -> None:
        config = run.config
        self.of: dict[str, Any] = {**config["families"][config["family"]], "source": config["source"],
                                   "target": config["target"], "test": config.get("test")}  # fmt: skip
        self.run, self.seed, self.device = run, run.seed, device
        self.domains = domains_of(self.of)
        self.pixels = pixel_options(self.domains.source, device)

    def results(self, method: str) -> dict[str, Any]:
        """What the record holds."""
        if method == "source":
            return self._measured(self._source_model())
        return self._self_trained(method) if method in SELECTORS else self._baseline(method)

    def _self_trained(self, method: str) -> dict[str, Any]:
        of, (source, target, test) = self.of, self.domains
        plan = SelfTraining(
            method, rounds=of["rounds"], source_epochs=0, batch_size=of["batch_size"],
            steps_per_epoch=of["steps_per_epoch"], optimizer=OPTIMIZER, rate_in_rounds=1.0,
            augmentation=Augmentation(), precision="float32", seed=self.seed,
        )  # fmt: skip
        done = plan.fit(self._source_model(), source, target, test=test, device=self.device)
        first, last = done.rounds[0], done.rounds[-1]
        accuracies = {key: last[key] for key in ("accuracy", "class_mean_accuracy", "class_accuracy", "test_accuracy")}
        selected = {f"first_{name}": first[key] for key, name in _FIRST.items()}
        by_round = {"x": list(range(len(done.rounds))), "y": [row["accuracy"] for row in done.rounds]}
        points = {"by_round": by_round, **self._shown(done.selected)}
        return {**accuracies, **selected, "points": points, "notes": done.notes}

    def _shown(self, selected: pa.Table) -> dict[str, dict[str, list[int]]]:
        """Pictures of what AVH selects first, rightly, and CBST does not, as pixels (Fig. 21)."""
        settings = self.run.settings
        if not settings.items() >= _PICTURED.items() or settings["pair"] not in _PICTURED_PAIRS:
            return {}
        target = self.domains.target
        beyond = selected.filter(pc.and_(pc.equal(selected["round"], 0), pc.invert(selected["by_cbst"])))
        ids = worth_showing(beyond, _PICTURES)
        if target.images.ndim != 4:
            try:
                target = pictures_of(self.of["target"], ids, _PICTURE_SIZE)
            except (NotThereError, ValueError):
                return {}  # pictures are an extra: where a file cannot be read, the numbers are there without them
        write_thumbnails(self.run.folder, ids, target)
        by_id = {row["id"]: row for row in beyond.to_pylist()}
        names = self.domains.source.class_names
        titles = [f"{names[by_id[one]['pseudo_label']]}, {by_id[one]['confidence']:.3f}" for one in ids]
        pictures = pq.read_table(self.run.folder / "thumbnails.parquet")["png"].to_pylist()
        return {f"picture {at}: {title}": pixels_of(png)
                for at, (title, png) in enumerate(zip(titles, pictures, strict=True))}  # fmt: skip

    def _baseline(self, method: str) -> dict[str, Any]:
        from hardsight_studies.avh.baselines import adapt_baseline

        of, (source, target, _) = self.of, self.domains
        options = {**self.pixels, "seed": self.seed}
        batches = plain_batches(source, source.labels, of["batch_size"], **options)
        unlabelled = plain_batches(target, torch.full((len(target),), -1), of["batch_size"], **options)
        # As many steps as the source training and all rounds of self-training together.
        steps = of["source_epochs"] * len(batches) + of["rounds"] * of["steps_per_epoch"]
        epochs = max(1, round(steps / len(batches)))
        model = fresh_model(of, source, self.seed)
        adapt_baseline(method, model, batches, unlabelled, epochs=epochs, optimizer=OPTIMIZER, seed=self.seed,
                       device=self.device)  # fmt: skip
        return self._measured(model)

    def _measured(self, model: nn.Module) -> dict[str, Any]:
        source, target, test = self.domains
        truth = target_labels(source, target)
        seen = look(model, plain_batches(target, truth, 1024, shuffle=False, **self.pixels), self.device)
        found = class_accuracy(seen, truth)
        if test is not None:
            batches = plain_batches(test, target_labels(source, test), 1024, shuffle=False, **self.pixels)
            found["test_accuracy"] = evaluate(model, batches, self.device)["accuracy"]
        return found

    def _source_model(self) -> nn.Module:
        model = fresh_model(self.of, self.domains.source, self.seed)
        model.load_state_dict(source_weights(json.dumps(self.of), self.seed, str(self.device)))
        return model.to(self.device)


OPTIMIZER = partial(torch.optim.SGD, lr=0.01, momentum=0.9, weight_decay=5e-4)


def domains_of(of: Mapping[str, Any]) -> Domains:
    """The pair of these settings in memory."""
    return load_pair(of["source"], of["target"], of["test"], size=of.get("size"), features=of.get("features", False),
                     limit=of.get("limit"))  # fmt: skip


def fresh_model(of: Mapping[str, Any], source: Any, seed: int) -> nn.Module:
    """The family's network with weights drawn by the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        channels = source.images.shape[1]
        return models.create(of["model"], num_classes=source.num_classes, in_channels=channels, **of["options"])


@functools.lru_cache(maxsize=128)
def source_weights(settings: str, seed: int, device: str) -> dict[str, Tensor]:
    """Of the network trained on the source by this seed; once for all methods of this process."""
    of = json.loads(settings)
    source = domains_of(of).source
    model, on = fresh_model(of, source, seed), torch.device(device)
    with torch.random.fork_rng(devices=[on] if on.type == "cuda" else []):
        torch.manual_seed(seed)
        batches = plain_batches(source, source.labels, of["batch_size"], **pixel_options(source, on), seed=seed)
        fit(model, batches, None, OPTIMIZER(model.parameters()), epochs=of["source_epochs"],
            steps=Steps(precision="float32"), head="linear", device=on, progress=False)  # fmt: skip
    return copy.deepcopy(model.state_dict())
