"""`fit`: train any classifier on any batches; leave a record, resumable at any moment."""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from hardsight.claims import alone_in
from hardsight.distributed import current, join_processes, lost_process_named, rank_and_count, together
from hardsight.dynamics.history import PHASES
from hardsight.hardness.scoring import DEFAULT_SCORES, choose_scores
from hardsight.training.capture import can_reside, captured
from hardsight.training.checkpoints import Checkpoints, random_states
from hardsight.training.data import Feed
from hardsight.training.evaluation import SampleScores
from hardsight.training.loop import Training
from hardsight.training.network import Objective
from hardsight.training.processes import own_batch_statistics
from hardsight.training.progress import NonFiniteLossError, Progress, Watch
from hardsight.training.record import Row, RunRecord, device_name
from hardsight.training.schedules import Plan
from hardsight.training.step import make_network, make_step, precision_of


@dataclass(frozen=True)
class Fitted:
    """What a training gives back. `evaluated` is the average of the weights where one is kept.

    `notes`: one sentence for each sign that the training went wrong.
    """

    model: nn.Module
    evaluated: nn.Module
    epochs: list[Row]
    results: dict[str, Any]
    samples: pa.Table | None
    folder: Path | None
    notes: list[str]

    def __repr__(self) -> str:
        """A summary: the network, epochs, last numbers, where the record is; its weights and tables are not printed."""
        parts = [type(self.model).__name__, f"{len(self.epochs)} epochs"]
        parts += [
            f"{name.replace('_', ' ')} {100 * value:.2f} %"
            for name, value in self.results.items()
            if name.endswith("accuracy") and isinstance(value, int | float)
        ]
        parts += [] if self.samples is None else [f"{self.samples.num_rows} scored samples"]
        parts += [] if self.folder is None else [f"record in {self.folder}"]
        parts += [f"note: {note}" for note in self.notes]
        return f"<Fitted: {', '.join(parts)}>"


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
    paths: Mapping[int, str] | None = None,
    skipped: Sequence[str] = (),
    recorder: Any = None,
    precision: str = "auto",
    capture: bool = True,
    channels_last: bool | None = None,
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
    preprocessing: Mapping[str, Any] | None = None,
    head: str | None = None,
    progress: bool | None = None,
    device: torch.device | str | None = None,
    after_epoch: Callable[[int, Row], None] | None = None,
    measure: Callable[[nn.Module], Mapping[str, Any]] | None = None,
) -> Fitted:
    """Train `model` for `epochs` passes over `batches` of (images, labels) or (images, labels, ids).

    `loss`: a function or module of (logits, labels), cross-entropy by default, or an `Objective` with a loss on
    features beside it. `optimizer`: SGD with 0.1, momentum 0.9 and weight decay 5e-4 unless given. With
    `folder` the run leaves its record and checkpoints there, and started again it goes on from the last one and ends
    with the same bits on the same device.

    `plan`: schedules. `test`: batches to evaluate on after every epoch; best and last accuracy are both reported.
    `samples`: the training set without augmentation: every sample's `scores` at the end, and, where `clean_labels`
    (by id) are known, the accuracy on the corrupted, intact, clean and noisy labels, every `fit_every` epochs too.
    `paths`: the file of each id, written beside its scores; `skipped`: files that could not be read, for the table.
    `recorder`: a `Recorder`, fed with every sample of every step.

    `precision`: "float32", "bf16", "fp16" or "auto" (bf16 on CUDA). `capture`: on CUDA, compile the network and replay
    the step as a graph. `channels_last`: the layout of convolutions, by default on CUDA. `accumulate`: batches a step.
    `clip`: largest norm of the gradient. `average_decay`: evaluate an exponential moving average of the weights.

    `folder`: where record and checkpoints go; a checkpoint is written after every epoch and every `checkpoint_every`
    steps. `resume`: go on from the last one. A loss that is no finite number stops the training
    (`NonFiniteLossError`), noticed within `check_every` steps. `after_epoch(epoch, row)` is called with every epoch's
    numbers, before they are written; `measure(model)` at the end with the network that is evaluated: what it returns
    joins the results. `head` names the last linear layer where a model leaves a choice. `name`, `seed`, `config`,
    `class_names` and `preprocessing` (what was done to the images, for who meets the weights later) go into the record.
    `progress`: None shows a bar on a terminal and lines elsewhere.
    """
    given = locals()
    return Session(**given).run()


class Session:
    """One training, ready to run, alone or beside others; its parameters are those of `fit`."""

    def __init__(
        self,
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
        paths: Mapping[int, str] | None = None,
        skipped: Sequence[str] = (),
        recorder: Any = None,
        precision: str = "auto",
        capture: bool = True,
        channels_last: bool | None = None,
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
        preprocessing: Mapping[str, Any] | None = None,
        head: str | None = None,
        progress: bool | None = None,
        device: torch.device | str | None = None,
        after_epoch: Callable[[int, Row], None] | None = None,
        measure: Callable[[nn.Module], Mapping[str, Any]] | None = None,
    ) -> None:
        _check_counts(epochs=epochs, accumulate=accumulate, check_every=check_every, checkpoint_every=checkpoint_every)
        _check_clip(clip)
        _check_not_empty(test=test, samples=samples)
        if scores:
            choose_scores(scores)  # refuses unknown ones now, not after the last epoch
        device = join_processes(device)
        feed = Feed(batches, device, accumulate)
        network = make_network(
            model, loss, device, samples=samples, recorder=recorder, head=head, channels_last=channels_last
        )
        step = make_step(
            network,
            optimizer,
            precision=precision_of(precision, device),
            accumulate=accumulate,
            batch_size=int(getattr(batches, "batch_size", None) or 1024),
            clip=clip,
            average_decay=average_decay,
            recorder=recorder,
        )
        replayed = captured(step, accumulate) if capture else None
        feed.places = replayed is not None and can_reside(batches)
        scored = None
        if samples is not None:
            known: dict[str, Any] = {"clean_labels": clean_labels, "paths": paths, "skipped": skipped}
            scored = SampleScores(samples, device, scores=scores, every=fit_every, head=head, **known)
        self.resume, self.folder, self.measure = resume, None if folder is None else Path(folder), measure
        self.details: dict[str, Any] = {
            "name": name or (self.folder.name if self.folder is not None else type(model).__name__),
            "seed": seed,
            "config": dict(config or {}),
            "device": device_name(device),
            "class_names": list(class_names or []),
            **({} if preprocessing is None else {"preprocessing": dict(preprocessing)}),
        }
        rank, _ = rank_and_count()
        self.record = RunRecord(self.folder if rank == 0 else None)
        self.training = Training(
            step,
            replayed or step,
            feed,
            plan or Plan(),
            epochs,
            self.record,
            Progress(self.details["name"], epochs, feed.steps(), progress if rank == 0 else False),
            device,
            checkpoints=None if self.folder is None else Checkpoints(self.folder, rank),
            checkpoint_every=checkpoint_every,
            check_every=check_every,
            test=test,
            samples=scored,
            after_epoch=after_epoch,
            watch=Watch(class_names or ()),
        )
        # Where the global generators stand when the session is made is where its training begins.
        with current(device):
            self.random = random_states()

    def run(self) -> Fitted:
        """Train to the end."""
        steps = self.stepwise()
        with current(self.training.device):
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    fitted: Fitted = end.value
                    return fitted

    def stepwise(self) -> Generator[None, None, Fitted]:
        """Train to the end, pausing after every step; what it returns is what `run` returns.

        A GPU must be the current device at every step (see `devices.current`).
        """
        alone = contextlib.nullcontext() if self.folder is None else alone_in(self.folder)
        try:
            with alone, failure_recorded(self.record, self.folder, resume=self.resume):
                self._begin()
                yield from self.training.stepwise()
                return self._finish()
        finally:
            self.training.step.network.close()
            # The average, where one is kept, is a copy of the network as it was while it trained.
            for network in (self.training.model, self.training.evaluated):
                own_batch_statistics(network)

    def _begin(self) -> None:
        training = self.training
        with together():
            if self.resume:
                self.record.check_same_run(self.details["config"])
            resumed = self.resume and training.restore()
        if resumed and training.checkpoints is not None:
            training.progress.done = training.counters.step
            training.checkpoints.discard_left()
        elif training.checkpoints is not None:
            training.checkpoints.clear()
        with together():
            if resumed:
                self.record.go_on(**self.details)
            else:
                self.record.begin(**self.details)
                self._forget_earlier()

    def _forget_earlier(self) -> None:
        """Remove what an earlier run measured: a record holds numbers of one run only."""
        self.record.clear_tables()
        history = getattr(self.training.step.recorder, "history", None)
        if history is None or self.record.folder is None or self.record.folder not in history.folder.parents:
            return
        for phase in PHASES:
            history.trim(phase, 0)

    def _finish(self) -> Fitted:
        training = self.training
        table, results = None, _results(training)
        if training.samples is not None:
            table = training.samples.table(training.evaluated, training.step.recorder)
        with together():
            if table is not None:
                self.record.write_samples(table)
            if training.checkpoints is not None:
                training.checkpoints.save_weights("last", training.evaluated.state_dict())
        # First in its block: the processes may meet in it.
        with together():
            if self.measure is not None:
                results |= self.measure(training.evaluated)
            self.record.finish(results)
        counters = training.counters
        return Fitted(training.model, training.evaluated, counters.rows, results, table, self.folder, counters.notes)


@contextlib.contextmanager
def failure_recorded(record: RunRecord, folder: Path | None, *, resume: bool = True) -> Iterator[None]:
    """What stops a training, from inside or outside, is written to its record before it goes on to the caller.

    `folder`: where the training writes, which every process knows and only the first one's record does. What stops it
    from outside gets a note that says how to go on; `resume`: whether this training would have gone on itself.
    """
    try:
        with lost_process_named():
            yield
    except (KeyboardInterrupt, GeneratorExit) as stop:
        _write_end(record, record.interrupt)
        kept = None if folder is None else Checkpoints(folder).latest()
        # A part of this training, in a folder of its own, may have said what it keeps.
        if kept is not None or folder is None or not getattr(stop, "__notes__", ()):
            stop.add_note(_how_to_go_on(kept, resume))
        raise
    except Exception as reason:
        if isinstance(reason, OSError) and reason.strerror and reason.filename is None:
            # Python names the file where opening fails, not where writing does: say whose disk is full.
            reason.filename = None if folder is None else str(folder)
        retry = not isinstance(reason, NonFiniteLossError)
        _write_end(record, lambda: record.fail(_in_words(reason), retry=retry))
        raise


def _write_end(record: RunRecord, write: Callable[[], None]) -> None:
    """Write how a run ended, if it began; the reason itself is what must reach the caller, not that a disk is full."""
    if not record.details:
        return
    with contextlib.suppress(OSError):
        try:
            write()
        except RuntimeError:
            # torch reports a killed worker whenever the system does, in the middle of whatever is done just then.
            write()


def _how_to_go_on(kept: Path | None, resume: bool) -> str:
    if kept is None:
        return "nothing is kept yet, and the same command begins from the start"
    if not resume:
        return f"the last checkpoint is {kept}, and the same command without --restart (resume=False) goes on from it"
    return f"the same command goes on from {kept}"


def _in_words(reason: Exception) -> str:
    expected = isinstance(reason, NonFiniteLossError | OSError)
    return str(reason) if expected else f"{type(reason).__name__}: {reason}"


def _results(training: Training) -> dict[str, Any]:
    """Last and best test accuracy, the epoch of the best, and the last row's other accuracies and losses."""
    rows, counters = training.counters.rows, training.counters
    last = rows[-1] if rows else {}
    results: dict[str, Any] = {name: value for name, value in last.items() if name.endswith(("accuracy", "loss"))}
    if counters.best_epoch:
        results |= {"test_accuracy_best": counters.best_accuracy, "best_epoch": counters.best_epoch}
    return results


def _check_clip(clip: float | None) -> None:
    if clip is not None and not 0 < clip < float("inf"):
        raise ValueError(f"clip must be positive and finite, the largest norm of the gradient; got {clip!r}")


def _check_not_empty(**batches: Iterable[Any] | None) -> None:
    for name, held in batches.items():
        if isinstance(held, Sized) and not len(held):
            raise ValueError(f"{name} must hold at least one batch; got none")


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ValueError(f"{name} must be at least 1; got {count!r}")
