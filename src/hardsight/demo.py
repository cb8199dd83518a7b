"""The main job in one sitting: train on digits with wrong labels among them, score, find them, write the report.

Real data (scikit-learn's 1,797 handwritten digits), a share of the training labels flipped on purpose, so that it is
known afterwards which suspicions were right.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from hardsight import datasets, models, noise, records, report
from hardsight.claims import alone_in
from hardsight.cleaning import LabelIssues, find_label_issues
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.interface import ArrayDataset
from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics import Recorder
from hardsight.hardness import SCORES, model_scores
from hardsight.training import Details, Fitted, Plan, Samples, fit
from hardsight.training.record import RunRecord, failure_recorded
from hardsight.training.schedules import cosine

_DATA = "scikit-learn digits"
_TEST_SHARE = 0.2
_BATCH = 64


@dataclass(frozen=True)
class Detection:
    """How well one score tells the flipped labels from the intact ones."""

    score: str
    auroc: float
    average_precision: float


@dataclass(frozen=True)
class DemoResult:
    """What the demo found. `ranked_by` was chosen without the clean labels; `detections` are judged with them.

    `report` is None where the packages of a page (jinja2, matplotlib) are missing.
    """

    folder: Path
    report: Path | None
    samples: int
    flipped: int
    test_accuracy: float
    ranked_by: str
    estimated: int
    found: int
    detections: list[Detection]
    suspects: pa.Table


def run_demo(
    folder: Path | str, *, noise_rate: float = 0.2, epochs: int = 20, seed: int = 0, progress: bool | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> DemoResult:  # fmt: skip
    """Train on noisy digits, record every sample, rank the suspicious labels, leave a record and a page in `folder`.

    An earlier demo's record there is written over; any other is rejected, and so is a folder that is in use.
    """
    folder = Path(folder)
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be at least 0 and fit 63 bits; got {seed}")
    train, test, clean = _noisy_digits(noise_rate, seed)
    flipped = int((train.labels != clean).sum())
    config = {"data": _DATA, "noise_rate": noise_rate, "epochs": epochs, "model": "digits_cnn"}
    record = RunRecord(folder)
    # A demo always begins from the start: no folder is named in which it could go on.
    with alone_in(folder), failure_recorded(record, None):
        try:
            path = folder / records.RUN_FILE
            ours = not path.is_file() or records.read_json(path)["config"]["data"] == _DATA
        except (ValueError, TypeError, KeyError):
            ours = False
        if not ours:
            raise ValueError(f"folder must be a new folder or an earlier demo's; {folder} holds another record")
        say(f"{len(train):,} handwritten digits to train on, {flipped} of their labels flipped on purpose")
        fitted = _train(folder, train, test, clean, config, seed, progress)
        assert fitted.samples is not None
        record.details = records.read_run(folder) or {}
        issues = find_label_issues(fitted.samples, class_names=train.class_names)
        wrong: np.ndarray = fitted.samples["label"].to_numpy() != fitted.samples["clean_label"].to_numpy()
        judged = _judge(fitted.samples, wrong)
        found: dict[str, Any] = {
            "scores": {one.score: {"auroc": one.auroc, "average_precision": one.average_precision} for one in judged},
            "flipped": flipped,
            "samples": len(train),
            "estimated": issues.estimated,
            "ranked_by": list(issues.scores),
        }
        _write(folder, fitted.samples, issues, found, train)
        page = None
        with contextlib.suppress(ImportError):
            page = report.write_report(folder)
    return DemoResult(
        folder=folder, report=page, samples=len(train), flipped=flipped, test_accuracy=fitted.results["test_accuracy"],
        ranked_by=" and ".join(issues.scores), estimated=issues.estimated,
        found=int(np.isin(issues.suspects()["id"].to_numpy(), fitted.samples["id"].to_numpy()[wrong]).sum()),
        detections=judged, suspects=issues.suspects(),
    )  # fmt: skip


def _train(
    folder: Path, train: ArrayDataset, test: ArrayDataset, clean: torch.Tensor, config: dict[str, Any], seed: int,
    progress: bool | None,
) -> Fitted:  # fmt: skip
    """A small network on the noisy digits, every sample recorded in every epoch and scored at the end."""
    torch.manual_seed(seed)
    model = models.create(config["model"], num_classes=10)
    places = int(train.ids.max()) + 1
    true_labels = torch.zeros(places, dtype=torch.long).scatter(0, train.ids, clean)
    # The network is so small that several threads would mostly wait for each other.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return fit(
            model, _loader(train, seed, augmentation=Augmentation(shift=1)),
            optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4),
            plan=Plan(learning_rate=cosine()), epochs=config["epochs"], folder=folder, test=_loader(test, seed),
            samples=Samples(_loader(train, seed), [score.name for score in model_scores()], clean_labels=true_labels),
            recorder=Recorder(places, 10), resume=False, details=Details("demo", seed, config, train.class_names),
            progress=progress, device="cpu",
        )  # fmt: skip
    finally:
        torch.set_num_threads(threads)


def _noisy_digits(rate: float, seed: int) -> tuple[ArrayDataset, ArrayDataset, torch.Tensor]:
    """Training digits under noisy labels, test digits under their own, and the true training labels."""
    digits = datasets.load("digits")
    assert isinstance(digits, ArrayDataset)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(digits), generator=generator)
    tests = round(_TEST_SHARE * len(digits))
    test, train = digits.subset(order[:tests]), digits.subset(order[tests:])
    noisy = noise.flip_symmetric(train.labels, rate, 10, generator=generator)
    return train.with_labels(noisy.labels), test, train.labels


def _loader(digits: ArrayDataset, seed: int, augmentation: Augmentation | None = None) -> DeviceLoader:
    return DeviceLoader(
        digits.images, digits.labels, digits.ids, _BATCH, shuffle=augmentation is not None, seed=seed,
        augmentation=augmentation or Augmentation(), mean=(0.3,), std=(0.37,),
    )  # fmt: skip


def _judge(samples: pa.Table, wrong: np.ndarray) -> list[Detection]:
    """AUROC and average precision of every score against the known flips, the best first."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    judged = []
    for name in samples.column_names:
        if name in SCORES and 0 < wrong.sum() < len(wrong):
            hardness = SCORES[name].hardness(samples[name].to_numpy())
            auroc, precision = roc_auc_score(wrong, hardness), average_precision_score(wrong, hardness)
            judged.append(Detection(name, float(auroc), float(precision)))
    return sorted(judged, key=lambda one: -one.auroc)


def _write(folder: Path, samples: pa.Table, issues: LabelIssues, found: dict[str, Any], train: ArrayDataset) -> None:
    """Complete the record with the findings and the pictures that the page shows."""
    # With the ranking that was told: a page made from the record shows the same suspects.
    field = issues.table.schema.field("suspicion")
    field = field.with_metadata({**field.metadata, b"title": f"Suspicion by {' and '.join(issues.scores)}".encode()})
    suspicion = issues.table["suspicion"].take(pa.array(np.argsort(issues.order)))
    records.write_table(folder / "samples.parquet", samples.append_column(field, suspicion))
    details = records.read_json(folder / records.RUN_FILE)
    records.write_json(folder / records.RUN_FILE, details | {"results": details["results"] | {"label_issues": found}})
    shown = [int(one) for one in report.samples_shown(folder)]
    rows = {int(one): row for row, one in enumerate(train.ids)}
    # Eight pixels wide is too small to look at: each becomes a square of eight.
    pictures = (np.kron(train.images[rows[one], 0].numpy(), np.ones((8, 8), np.uint8)) for one in shown)
    records.write_thumbnails(folder / "thumbnails.parquet", shown, pictures)
