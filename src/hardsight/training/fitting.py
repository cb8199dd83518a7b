"""`fit`: train any classifier on any batches; leave a record, resumable at any moment."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from hardsight.hardness.scoring import DEFAULT_SCORES
from hardsight.training.averaging import WeightAverage
from hardsight.training.checkpoints import Checkpoints, clear_crumbs
from hardsight.training.data import Feed
from hardsight.training.evaluation import process
from hardsight.training.loop import NonFiniteLossError, Training
from hardsight.training.meter import Meter
from hardsight.training.network import Network, Objective
from hardsight.training.progress import Progress
from hardsight.training.record import Row, RunRecord, device_name
from hardsight.training.samples import SampleScores
from hardsight.training.schedules import Plan
from hardsight.training.step import Step, accumulated

PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Fitted:
    """What a training gives back. `evaluated` is the average of the weights where one is kept."""

    model: nn.Module
    evaluated: nn.Module
    epochs: list[Row]
    results: dict[str, Any]
    samples: pa.Table | None
    folder: Path | None


def fit(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Callable[..., Tensor] | Objective | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    epochs: int,
    folder: Path | str | None = None,
    plan: Plan | None = None,
    test: Iterable[Any] | None = None,
    samples: Iterable[Any] | None = None,
    scores: Sequence[str] = DEFAULT_SCORES,
    clean_labels: Mapping[int, int] | Tensor | None = None,
    recorder: Any = None,
    precision: str = "auto",
    capture: bool = True,
    accumulate: int = 1,
    clip: float | None = None,
    average_decay: float | None = None,
    fit_every: int = 0,
    checkpoint_every: int | None = None,
    check_every: int = 100,
    resume: bool = True,
    name: str | None = None,
    seed: int | None = None,
    config: Mapping[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
    head: str | None = None,
    progress: bool | None = None,
    device: torch.device | str | None = None,
    after_epoch: Callable[[int, Row], None] | None = None,
) -> Fitted:
    """Train `model` for `epochs` passes over `batches` of (images, labels) or (images, labels, ids).

    `loss`: a function or module of (logits, labels), cross-entropy by default, or an `Objective` with a loss on
    features beside it. `optimizer`: SGD with 0.1, momentum 0.9 and weight decay 5e-4 unless given. `plan`: schedules.
    `test`: batches to evaluate on after every epoch; best and last accuracy are both reported.
    `samples`: the training set without augmentation: every sample's `scores` at the end, and, where `clean_labels`
    (by id) are known, the accuracy on the corrupted, intact, clean and noisy labels, every `fit_every` epochs too.
    `recorder`: a `Recorder`, fed with every sample of every step. `precision`: "float32", "bf16", "fp16" or "auto"
    (bf16 on CUDA). `accumulate`: batches a step. `clip`: largest norm of the gradient. `average_decay`: evaluate an
    exponential moving average of the weights.

    With a `folder` the run leaves its record there and checkpoints after every epoch (and every `checkpoint_every`
    steps); started again with `resume` it goes on from the last one and ends with the same bits on the same device.
    A loss that is no finite number stops it (`NonFiniteLossError`), noticed within `check_every` steps.
    """
    _check_counts(epochs=epochs, accumulate=accumulate, check_every=check_every)
    accelerator = Accelerator()
    device = accelerator.device if device is None else torch.device(device)
    objective = loss if isinstance(loss, Objective) else Objective(loss)
    network = Network(model, objective, features=recorder is not None or objective.feature_loss is not None, head=head)
    network.to(device)
    optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", float(group["lr"]))
    if accumulate > 1:
        accumulated(network)
    feed = Feed(batches, device, accumulate)
    number = _precision(precision, accelerator, device)
    step = Step(
        network,
        call=accelerator.prepare_model(network) if process()[1] > 1 else network,
        optimizer=optimizer,
        meter=Meter(device, int(getattr(batches, "batch_size", None) or 1024)),
        precision=number,
        scaler=torch.amp.GradScaler(device.type) if number == torch.float16 else None,
        clip=clip,
        average=None if average_decay is None else WeightAverage(model, average_decay),
        recorder=recorder,
    )
    rank = process()[0]
    if folder is not None and rank == 0:
        clear_crumbs(Path(folder))
    record = RunRecord(folder if rank == 0 else None)
    sample_scores = None
    if samples is not None:
        sample_scores = SampleScores(
            samples, device, scores=scores, clean_labels=clean_labels, every=fit_every, head=head
        )
    title = name or (Path(folder).name if folder is not None else type(model).__name__)
    training = Training(
        step,
        step,
        feed,
        plan or Plan(),
        epochs,
        record,
        Progress(title, epochs, feed.steps(), progress if rank == 0 else False),
        device,
        checkpoints=None if folder is None else Checkpoints(Path(folder), rank, accelerator.wait_for_everyone),
        checkpoint_every=checkpoint_every,
        check_every=check_every,
        test=test,
        samples=sample_scores,
        after_epoch=after_epoch,
    )
    details = {
        "name": title,
        "seed": seed,
        "config": dict(config or {}),
        "device": device_name(device),
        "class_names": list(class_names or []),
    }
    try:
        return _run(training, record, details, resume=resume, folder=folder)
    except (NonFiniteLossError, OSError) as reason:
        # On a full disk this cannot be written either; the reason itself is what must reach the caller.
        with contextlib.suppress(OSError):
            if record.details:
                record.fail(str(reason))
        raise
    finally:
        network.close()


def _run(
    training: Training, record: RunRecord, details: dict[str, Any], *, resume: bool, folder: Path | str | None
) -> Fitted:
    if resume:
        record.check_same_run(details["config"])
    if resume and training.restore():
        record.go_on(**details)
        training.progress.done = training.counters.step
    else:
        if training.checkpoints is not None:
            training.checkpoints.clear()
        record.begin(**details)
    training.run()
    table = None
    if training.samples is not None:
        table = training.samples.table(training.evaluated, training.step.recorder)
        if record.folder is not None:
            record.write_samples(table)
    results = summarise_results(training)
    if training.checkpoints is not None:
        training.checkpoints.save_weights("last", training.evaluated.state_dict())
    record.finish(results)
    return Fitted(
        training.model,
        training.evaluated,
        training.counters.rows,
        results,
        table,
        None if folder is None else Path(folder),
    )


def summarise_results(training: Training) -> dict[str, Any]:
    """Last and best test accuracy, the epoch of the best, and the last row's other accuracies."""
    rows, counters = training.counters.rows, training.counters
    last = rows[-1] if rows else {}
    results = {name: value for name, value in last.items() if name.endswith(("accuracy", "loss"))}
    if counters.best_epoch:
        results |= {"test_accuracy_best": counters.best_accuracy, "best_epoch": counters.best_epoch}
    return results


def _precision(wanted: str, accelerator: Accelerator, device: torch.device) -> torch.dtype:
    if wanted == "auto":
        launched = accelerator.mixed_precision
        wanted = launched if launched != "no" else "bf16" if device.type == "cuda" else "float32"
    if wanted not in PRECISIONS:
        raise ValueError(f"precision must be auto, {', '.join(PRECISIONS)}; got {wanted!r}")
    return PRECISIONS[wanted]


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1; got {count!r}")
