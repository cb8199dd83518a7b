"""Which score of one training run finds its wrong labels, beside the out-of-fold self-confidence of two half runs.

No clean label is used before a run is judged. A run of the whole set looks at its samples at some epochs without
augmentation, and scores them in the end; a run of halves trains on each half for the probabilities of the other.
"""

import functools
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hardsight.cleaning.combined import combined_scores
from hardsight.hardness import model_scores
from hardsight.records import read_run
from hardsight.training import Samples, Steps, fit, from_config
from hardsight.training.data import load_sets, make_loaders
from hardsight.training.record import Row as EpochRow
from hardsight_studies.engine import trainings
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.rows import Row, Rows
from hardsight_studies.engine.running import row_of
from hardsight_studies.engine.study import get
from hardsight_studies.engine.tables import show
from hardsight_studies.outputs import outputs_of
from hardsight_studies.together.detection import detect, suspicions, taught, wrong_labels

# Epochs after which the training set is looked at, by the length of the training; the last one is its end.
_SNAPSHOTS = {3: (1, 2, 3), 8: (4, 6, 8), 30: (5, 10, 15, 20, 25, 30)}
# References, not scores of one run: two half runs, by our own code and by cleanlab; trees that were told the truth.
OUT_OF_FOLD, CLEANLAB, TAUGHT = "out_of_fold_doubt", "cleanlab_label_quality", "taught_half_the_truth"
_PEOPLE = ("aggre", "random1", "worse")
_NOISES = (*_PEOPLE, "symmetric40", "symmetric20", "asymmetric40")


def compute(runs: Sequence[Run], preset: str, options: Options) -> None:
    """Train these runs: of the whole set together, of halves one after the other."""
    whole = [run for run in runs if run.settings["training"] != "halves"]
    if whole:
        trainings.train(whole, options, trainings.Hooks(after_epoch=keep_outputs, measure=measure))
    for run in runs:
        if run not in whole:
            options.clock.check()
            trainings.write_record(run, halves(run, options.torch_device), options.torch_device)


def rows(runs: Sequence[Run], preset: str) -> Iterator[Row]:
    """A row for each run, with the three numbers of each score."""
    for run in runs:
        results = (read_run(run.folder) or {})["results"]
        yield row_of(run, {name: value for name, value in results.items() if "_of_" in name or name == "wrong_labels"})


# ---------------------------------------------------------------------------------------------------------------------
# Runs of the whole set.


def keep_outputs(training: trainings.Training, epoch: int, row: EpochRow) -> None:
    """Leave the logits of all samples in the record, at some epochs; with them a training that goes on has them."""
    if epoch in _SNAPSHOTS[training.config.epochs]:
        seen = outputs_of(training.model, training.samples)
        save_file({"logits": seen.logits.cpu()}, _snapshot(training.folder, epoch))


def measure(training: trainings.Training, model: nn.Module) -> dict[str, float]:
    """Average precision, AUROC and precision at the true count of every score, combined ones among them."""
    clean = load_sets(training.config).clean_by_id()
    names = [score.name for score in model_scores()]
    scored = Samples(training.samples, names, clean_labels=clean)
    samples = scored.table(model, training.device, training.recorder)
    features = outputs_of(model, training.samples).features
    epochs = _SNAPSHOTS[training.config.epochs]
    logits = [load_file(_snapshot(training.folder, epoch))["logits"] for epoch in epochs]
    labels = torch.from_numpy(samples["label"].to_numpy().copy())
    snapshots = torch.stack(logits).to(features.device)
    for name, values in combined_scores(suspicions(samples), features, snapshots, labels).items():
        field = pa.field(name, pa.float32(), metadata={"kind": "score", "direction": "larger is harder"})
        samples = samples.append_column(field, pa.array(values.astype(np.float32)))
    wrong = wrong_labels(samples)
    found = {name: detect(wrong, values) for name, values in suspicions(samples).items()}
    return {"wrong_labels": float(wrong.mean()), **_flat({**found, TAUGHT: taught(samples)})}


def _snapshot(folder: Path, epoch: int) -> Path:
    return folder / f"outputs-{epoch}.safetensors"


def _flat(found: dict[str, dict[str, float]]) -> dict[str, float]:
    return {f"{metric}_of_{name}": value for name, row in found.items() for metric, value in row.items()}


# ---------------------------------------------------------------------------------------------------------------------
# Runs of halves.


def halves(run: Run, device: torch.device) -> dict[str, float]:
    """How well one minus the label's probability finds wrong labels, by networks that did not train on the sample."""
    config = trainings.config_of(run)
    sets = load_sets(config)
    assert sets.clean is not None
    probabilities = torch.zeros(len(sets.labels), sets.train.num_classes)
    places = halved(sets.labels, run.seed)
    last = device.type == "cuda"
    for held_out, mine in (places, places[::-1]):
        model = from_config.make_model(config, sets).to(device)
        half = sets._replace(train=sets.train.subset(mine), labels=sets.labels[mine], test=sets.train.subset(held_out))
        loaders = make_loaders(config, half, device, channels_last=last)
        optimizer = from_config.make_optimizer(config.optimizer, model.parameters())
        plan = from_config.make_plan(config.schedule)
        steps = Steps(channels_last=last)
        options: dict[str, Any] = {"epochs": config.epochs, "plan": plan, "steps": steps, "device": device}
        fit(model, loaders.train, None, optimizer, progress=False, **options)
        probabilities[held_out] = outputs_of(model, loaders.test).logits.softmax(1).cpu()
    wrong, doubt = (sets.labels != sets.clean).numpy(), 1 - probabilities.gather(1, sets.labels.unsqueeze(1))[:, 0]
    found = {OUT_OF_FOLD: detect(wrong, doubt.double().numpy())}
    if importlib.util.find_spec("cleanlab") is not None:
        from cleanlab.rank import get_label_quality_scores

        found[CLEANLAB] = detect(wrong, -get_label_quality_scores(sets.labels.numpy(), probabilities.double().numpy()))
    return _flat(found)


def halved(labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Two halves of the samples, each class of given labels divided evenly between them."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    by_class = order[labels[order].argsort(stable=True)]
    return by_class[0::2].sort().values, by_class[1::2].sort().values


# ---------------------------------------------------------------------------------------------------------------------
# The tables: a line for each score, the best on people's errors first.


def average_precision(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Average precision by noise, beside the first measurement."""
    heads, lines = _table(rows, "average_precision")
    for line in lines:
        first = dict(zip(_PEOPLE, _listed("average-precision", "paper").get(line[0].strip("`"), ()), strict=False))
        noises = [head.partition(" ")[0] for head in heads]
        line[1:] = [f"{ours} [{first[noise]:.3f}]" if noise in first else ours
                    for noise, ours in zip(noises[1:], line[1:], strict=True)]  # fmt: skip
    return heads, lines


def summary(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """The scores that `find_label_issues` ranks by, alone and together, beside what they are measured against."""
    heads, lines = _table(rows, "average_precision")
    found = {line[0]: line[1:] for line in lines}
    return heads, [
        [title, *found[f"`{name}`"]] for name, title in _listed("summary", "lines").items() if f"`{name}`" in found
    ]


def _listed(table: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = get("label-errors").entry("table", table)[key]
    return found


def _table(rows: Rows, metric: str) -> tuple[list[str], list[list[str]]]:
    noises = [noise for noise in _NOISES if rows.where(noise=noise)]
    names = {name for name in rows.metrics if name.startswith(f"{metric}_of_")}
    found: dict[tuple[str, str], list[Any]] = {}
    for training in ("whole", "stronger", "halves"):
        for name in names:
            numbers = [rows.number(name, noise=noise, training=training) for noise in noises]
            if any(number is not None for number in numbers):
                shown = name.removeprefix(f"{metric}_of_")
                found[shown, " (stronger)" if training == "stronger" else ""] = numbers
    people = [at for at, noise in enumerate(noises) if noise in _PEOPLE] or range(len(noises))

    def ranked(of: tuple[tuple[str, str], list[Any]]) -> tuple[float, str]:
        return -sum(of[1][at].mean for at in people if of[1][at] is not None), of[0][0]

    lines = [[f"`{name}`{more}", *(show(number) for number in numbers)]
             for (name, more), numbers in sorted(found.items(), key=ranked)]  # fmt: skip
    shares = {noise: rows.number("wrong_labels", noise=noise) for noise in noises}
    heads = [noise if share is None else f"{noise} ({share.mean:.0%} wrong)" for noise, share in shares.items()]
    return ["score", *heads], lines


auroc, precision_at_count = (functools.partial(_table, metric=one) for one in ("auroc", "precision_at_count"))
