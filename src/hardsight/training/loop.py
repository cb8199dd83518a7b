"""The loop: epochs of steps, evaluation after each, checkpoints between, and a record that follows them."""

import contextlib
import functools
import inspect
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, ParamSpec

import torch
from torch import Tensor, nn

from hardsight.claims import alone_in
from hardsight.distributed import current, join_processes, rank_and_count, several, sum_over_processes, together
from hardsight.dynamics.history import PHASES
from hardsight.training.checkpoints import Checkpoints, check_fits, random_states, restore_random_states
from hardsight.training.evaluation import Samples, end_epoch, evaluate
from hardsight.training.feed import Feed, can_reside, captured
from hardsight.training.network import Network, Objective, connected, own_batch_statistics, same_weights
from hardsight.training.progress import NonFiniteLossError, Progress, Watch
from hardsight.training.record import Counters, Details, Fitted, Hooks, Row, RunRecord, failure_recorded
from hardsight.training.schedules import Plan, Position, Steps
from hardsight.training.step import make_step


class Loop:
    """Train a model: `fit(...)` runs at once, `Loop(...)` when its `run()` is called.

    What is trained:
        `model`: any classifier; `head` names its last linear layer where it leaves a choice.
        `batches`: (images, labels) or (images, labels, ids), as many in every epoch as their length says.
        `loss`: a function or module of (logits, labels), cross-entropy by default, or an `Objective`, which can have a
        loss on features beside it. One that is no finite number stops the training (`NonFiniteLossError`).
        `optimizer`: by default SGD with a learning rate of 0.1, momentum 0.9 and weight decay 5e-4.
        `epochs`: passes over `batches`. `plan`: how rates and weights change. `steps`: how each step is taken.

    What is measured:
        `test`: batches to evaluate on after every epoch; best and last accuracy are both reported.
        `samples`: the training set without augmentation, whose samples are scored at the end; `Samples` says what is
        known of it. `recorder`: a `Recorder`, fed with every sample of every step.

    What is left:
        `folder`: where the record and the checkpoints go, one after every epoch. Started again, the training goes on
        from the last one, unless `resume` is False, and ends with the same bits on the same device.
        `details`: what the record says of the run.

    `hooks`: functions called on the way. `progress`: None shows a bar on a terminal, lines elsewhere.
    `device`: by default a GPU where there is one.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[Any],
        loss: Callable[..., Tensor] | Objective | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        epochs: int,
        plan: Plan | None = None,
        steps: Steps | None = None,
        test: Iterable[Any] | None = None,
        samples: Samples | Iterable[Any] | None = None,
        recorder: Any = None,
        head: str | None = None,
        folder: Path | str | None = None,
        resume: bool = True,
        details: Details | None = None,
        hooks: Hooks | None = None,
        progress: bool | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if epochs < 1:
            raise ValueError(f"epochs must be at least 1; got {epochs!r}")
        self.samples = samples if samples is None or isinstance(samples, Samples) else Samples(samples)
        for name, held in (("test", test), ("samples", None if self.samples is None else self.samples.batches)):
            if isinstance(held, Sized) and not len(held):
                raise ValueError(f"{name} must hold at least one batch; got none")
        self.plan, self.steps, self.hooks = plan or Plan(), steps or Steps(), hooks or Hooks()
        self.epochs, self.test, self.head, self.resume = epochs, test, head, resume
        self.device = join_processes(device)
        self.feed = Feed(batches, self.device, self.steps.accumulate)
        network = self._network(model, loss, recorded=recorder is not None)
        batch_size = int(getattr(batches, "batch_size", None) or 1024)
        self.step = make_step(network, optimizer, self.steps, batch_size=batch_size, recorder=recorder)
        replayed = captured(self.step, self.steps.accumulate) if self.steps.capture else None
        self.take_step: Callable[[Sequence[Any]], None] = replayed or self.step
        self.feed.places = replayed is not None and can_reside(batches)
        self.folder, rank = None if folder is None else Path(folder), rank_and_count()[0]
        details = details or Details()
        name = details.name or (type(model).__name__ if self.folder is None else self.folder.name)
        self.details = details.as_dict(name, self.device)
        self.record = RunRecord(self.folder if rank == 0 else None)
        self.checkpoints = Checkpoints(self.folder, rank)
        self.progress = Progress(name, epochs, self.feed.steps(), progress if rank == 0 else False)
        self.watch, self.counters = Watch(details.class_names), Counters()
        # The training begins with the states that the global generators have now.
        with current(self.device):
            self.random = random_states()

    def _network(self, model: nn.Module, loss: Callable[..., Tensor] | Objective | None, *, recorded: bool) -> Network:
        """The model with its objective, on the device; its features are watched where something looks at them."""
        objective = loss if isinstance(loss, Objective) else Objective(loss)
        if objective.looks_at_samples and self.samples is None:
            raise ValueError(
                f"samples must be given: {type(objective.loss).__name__} looks at the training set between epochs"
            )
        watched = recorded or objective.needs_features or objective.looks_at_samples
        network = Network(model, objective, features=watched, head=self.head).to(self.device)
        if self.steps.channels_last or (self.steps.channels_last is None and self.device.type == "cuda"):
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        return self.step.network.model

    @property
    def evaluated(self) -> nn.Module:
        """The model that is evaluated: the average of the weights where one is kept."""
        return self.model if self.step.average is None else self.step.average.model

    def run(self) -> Fitted:
        """Train to the end."""
        with current(self.device):
            for _ in self.stepwise():
                pass
        return self.fitted

    def stepwise(self) -> Generator[None, None, None]:
        """Train to the end, pausing after every step; what `run` returns is then in `fitted`.

        A GPU must be the current device at every step (see `distributed.current`).
        """
        alone = contextlib.nullcontext() if self.folder is None else alone_in(self.folder)
        try:
            with alone, failure_recorded(self.record, self.folder, resume=self.resume):
                self._begin()
                if several():
                    self.step.call = connected(self.step.network)
                yield from self._train()
                self.fitted = self._finish()
        finally:
            self.step.network.close()
            own_batch_statistics(self.model)

    def _begin(self) -> None:
        with together():
            if self.resume:
                self.record.check_same_run(self.details["config"])
            resumed = self.resume and self.restore()
        self.progress.done = self.counters.step
        if resumed:
            self.checkpoints.discard_before(self.counters.step)
            with together():
                self.record.go_on(**self.details)
            return
        with together():
            self.checkpoints.discard_before(None)
        with together():
            # A record holds numbers of one run only.
            self.record.begin(**self.details)
            self.record.clear_tables()
            history = getattr(self.step.recorder, "history", None)
            if history is not None and self.record.folder in history.folder.parents:
                for phase in PHASES:
                    history.trim(phase, 0)
        if self.hooks.start is not None:
            self.hooks.start()

    def _train(self) -> Iterator[None]:
        per_epoch = self.feed.steps()
        # Gradients that someone left behind are not part of this training.
        self.step.optimizer.zero_grad(set_to_none=True)
        with self.progress:
            while self.counters.step < self.epochs * per_epoch:
                epoch, done = divmod(self.counters.step, per_epoch)
                to = self.hooks.before_epoch(epoch) if done == 0 and self.hooks.before_epoch is not None else None
                if to is not None and to > epoch:
                    self.counters.step = to * per_epoch
                    self.step.meter.steps.fill_(self.counters.step)
                    continue
                yield from self._train_epoch(epoch, done, per_epoch)
                self._close_epoch(epoch + 1)
                self.save(within_epoch=False)

    def _finish(self) -> Fitted:
        table, counters = None, self.counters
        results = counters.results()
        if self.samples is not None:
            table = self.samples.table(self.evaluated, self.device, self.step.recorder, head=self.head)
        with together():
            if table is not None:
                self.record.write_samples(table)
            self.checkpoints.save_weights("last", self.evaluated.state_dict())
        with together():
            if self.hooks.measure is not None:
                results |= self.hooks.measure(self.evaluated)
            self.record.finish(results)
        return Fitted(self.model, self.evaluated, counters.rows, results, table, self.folder, counters.notes)

    def _train_epoch(self, epoch: int, done: int, per_epoch: int) -> Iterator[None]:
        counters = self.counters
        self.step.network.train()
        if done == 0:
            self.step.meter.begin_epoch()
            counters.seconds = 0.0
            # A curriculum wants to know how far the training is.
            tell = getattr(self.step.network.objective.loss, "set_progress", None)
            if tell is not None:
                tell(epoch / self.epochs)
        began = time.perf_counter() - counters.seconds
        for group in self.feed.epoch(epoch, done):
            self.step.follow(self.plan, Position(counters.step, per_epoch, self.epochs))
            self.take_step(group)
            # Here others take theirs: a step that several trainings take together is done when all have come.
            yield
            counters.step += 1
            self.progress.advance()
            if counters.step % per_epoch == 0:
                continue
            if counters.step % self.steps.check_every == 0:
                self._check_finite()
            if self.steps.checkpoint_every and counters.step % self.steps.checkpoint_every == 0:
                counters.seconds = time.perf_counter() - began
                self._check_finite(group)
                self.save(within_epoch=True)
        done = counters.step % per_epoch
        if done:
            raise ValueError(
                f"batches must be the {per_epoch} steps that their length says; epoch {epoch + 1} had {done}"
            )
        self._check_finite(group)
        # Running statistics of other layers than batch normalization are those of the first process.
        same_weights(self.model)
        counters.seconds = time.perf_counter() - began

    def _close_epoch(self, epoch: int) -> None:
        row, counters = self._measured(epoch), self.counters
        counters.rows.append(row)
        with together():
            if row.get("test_accuracy", -math.inf) > counters.best_accuracy:
                counters.best_epoch = epoch
                self.checkpoints.save_weights("best", self.evaluated.state_dict())
        # First in its block: the processes may meet in it.
        with together():
            if self.hooks.after_epoch is not None:
                # Before it is written: what a caller measures after an epoch belongs to the epoch's row.
                self.hooks.after_epoch(epoch, row)
            self.record.write_epochs(counters.rows)
        self.progress.epoch(row)
        counts = sum_over_processes(self.step.meter.classes).cpu()
        for sentence in self.watch.epoch(row, counts, self.step.network.objective.loss):
            self.note(sentence)

    def _measured(self, epoch: int) -> Row:
        """The epoch's numbers: of its batches, of the test set and of the training set."""
        meter = self.step.meter
        if self.step.recorder is not None:
            self.step.recorder.end_epoch()
        loss, correct, count = sum_over_processes(torch.stack([meter.loss, meter.correct, meter.count])).tolist()
        if count == 0:
            raise ValueError(f"batches must hold at least one sample that has a label; epoch {epoch} had none")
        row: Row = {"epoch": epoch, "train_loss": loss / count, "train_accuracy": correct / count}
        if self.test is not None:
            measured = evaluate(self.evaluated, self.test, self.device)
            row |= {f"test_{name}": value for name, value in measured.items()}
        if self.samples is not None and self.samples.due(epoch, self.epochs):
            row |= self.samples.accuracies(self.evaluated, self.device, head=self.head)
        batches = None if self.samples is None else self.samples.batches
        row |= end_epoch(self.step.network, batches, self.device, row, self.epochs)
        rate = float(self.step.optimizer.param_groups[0]["lr"])
        return row | {"learning_rate": rate, "seconds": self.counters.seconds}

    def note(self, sentence: str) -> None:
        """Say what a person should know, and keep it in the record."""
        self.counters.notes.append(sentence)
        self.progress.note(sentence)
        with together():
            self.record.note(sentence)

    def _check_finite(self, group: Sequence[Any] | None = None) -> None:
        """Stop if a loss since the last check was no finite number, or weights are none after the step on `group`."""
        found = self.step.first_bad(self.counters.step, group)
        if found is not None:
            raise NonFiniteLossError.at(*found, self.feed.steps(), self.checkpoints.latest())

    def save(self, *, within_epoch: bool) -> None:
        """Write a checkpoint of this very moment, unless the loss has gone wrong."""
        if self.checkpoints.folder is None:
            return
        self._check_finite()
        shared, own = self.step.states()
        shared |= {
            "counters": vars(self.counters),
            "steps_per_epoch": self.feed.steps(),
            "watch": self.watch.state_dict(),
            "within_epoch": within_epoch,
            "processes": rank_and_count()[1],
            "memory": None if self.hooks.memory is None else self.hooks.memory.state_dict(),
        }
        own |= {"random": random_states(), "feed": self.feed.state_dict()}
        self.checkpoints.save(self.counters.step, self.model.state_dict(), shared, own)

    def restore(self) -> bool:
        """Go back to the newest checkpoint; False where there is none."""
        path = self.checkpoints.latest()
        if path is None:
            return False
        weights, shared, own = self.checkpoints.load(path)
        if "counters" not in shared:
            raise ValueError(f"{path} was written by another version and cannot be continued; start over")
        check_fits(self.model, weights, path)
        check_fits(self.step.network.objective, shared["objective"], path, "loss")
        began = {
            "processes": (shared["processes"], rank_and_count()[1]),
            "steps of an epoch": (shared["steps_per_epoch"], self.feed.steps()),
            **self.step.parts_of(shared, own),
        }
        for part, (saved, ours) in began.items():
            if saved != ours:
                raise ValueError(f"{path} must be continued as it began: {part} was {saved} there; got {ours}")
        if self.hooks.memory is not None:
            self.hooks.memory.load_state_dict(shared["memory"])
        self.model.load_state_dict(weights)
        self.step.load_states(shared, own)
        self.counters = Counters(**shared["counters"])
        self.watch.load_state_dict(shared["watch"])
        self.feed.load_state_dict(own["feed"], within_epoch=shared["within_epoch"])
        restore_random_states(own["random"])
        return True


Parameters = ParamSpec("Parameters")


def _run(make: Callable[Parameters, Loop]) -> Callable[Parameters, Fitted]:
    @functools.wraps(make, updated=())
    def fit(*args: Parameters.args, **options: Parameters.kwargs) -> Fitted:
        return make(*args, **options).run()

    fit.__name__ = fit.__qualname__ = "fit"
    vars(fit)["__signature__"] = inspect.signature(make).replace(return_annotation=Fitted)
    return fit


# One signature and one description for a training that waits and for one that runs.
fit = _run(Loop)
