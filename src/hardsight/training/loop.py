"""The loop: epochs of steps, evaluation after each, checkpoints between, and a record that follows them."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hardsight.distributed import rank_and_count, together
from hardsight.training import between_epochs
from hardsight.training.capture import Place
from hardsight.training.checkpoints import (
    Checkpoints,
    check_fits,
    load_optimizer,
    random_states,
    restore_random_states,
)
from hardsight.training.data import Feed
from hardsight.training.evaluation import SampleScores, add_up, evaluate, gather
from hardsight.training.processes import check_buffers
from hardsight.training.progress import NonFiniteLossError, Progress, Watch
from hardsight.training.record import Row, RunRecord
from hardsight.training.schedules import Plan, Position
from hardsight.training.step import Batch, Step

# So many ids of a batch fit into one line.
_IDS_TOLD = 16


@dataclass
class Counters:
    """Where a training stands, and what it has measured so far."""

    step: int = 0
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    best_epoch: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def best_accuracy(self) -> float:
        """Best test accuracy so far; -inf before the first."""
        return self.rows[self.best_epoch - 1]["test_accuracy"] if self.best_epoch else -math.inf


@dataclass
class Training:
    """Everything of one training. `take_step` is `step` itself or its captured form."""

    step: Step
    take_step: Callable[[Sequence[Any]], None]
    feed: Feed
    plan: Plan
    epochs: int
    record: RunRecord
    progress: Progress
    device: torch.device
    checkpoints: Checkpoints | None = None
    checkpoint_every: int | None = None
    check_every: int = 100
    test: Iterable[Any] | None = None
    samples: SampleScores | None = None
    after_epoch: Callable[[int, Row], None] | None = None
    watch: Watch = field(default_factory=Watch)
    counters: Counters = field(default_factory=Counters)
    # What was last written to a learning rate on the device: writing it again would be a launch for nothing.
    _rates: dict[int, float] = field(default_factory=dict)

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        return self.step.network.model

    @property
    def evaluated(self) -> nn.Module:
        """The model that is evaluated: the average of the weights where one is kept."""
        return self.step.average.model if self.step.average is not None else self.model

    def start_at(self, epoch: int) -> None:
        """Begin after that many epochs, which someone else has seen to."""
        self.counters.step = epoch * self.feed.steps()
        self.step.meter.steps.fill_(self.counters.step)

    def stepwise(self) -> Iterator[None]:
        """Train from where the counters stand to the end, pausing after every step."""
        per_epoch = self.feed.steps()
        # Gradients that someone left behind are not part of this training.
        self.step.optimizer.zero_grad(set_to_none=True)
        with self.progress:
            while self.counters.step < self.epochs * per_epoch:
                epoch, done = divmod(self.counters.step, per_epoch)
                yield from self._train_epoch(epoch, done, per_epoch)
                self._close_epoch(epoch + 1)
                self.save(within_epoch=False)

    def _train_epoch(self, epoch: int, done: int, per_epoch: int) -> Iterator[None]:
        self.step.network.train()
        if done == 0:
            self.step.meter.begin_epoch()
            self.counters.seconds = 0.0
            self._tell_loss(epoch)
        began = time.perf_counter() - self.counters.seconds
        for group in self.feed.epoch(epoch, done):
            self._apply_plan(Position(self.counters.step, per_epoch, self.epochs))
            self.take_step(group)
            # Here others take theirs: a step that several trainings take together is done when all have come.
            yield
            self.counters.step += 1
            self.progress.advance()
            last = self.counters.step % per_epoch == 0
            if not last and self._due(self.check_every):
                self.check()
            if not last and self._due(self.checkpoint_every):
                self.counters.seconds = time.perf_counter() - began
                self._check_weights(group)
                self.save(within_epoch=True)
        if self.counters.step % per_epoch:
            raise ValueError(
                f"batches must be as many as their length says, {per_epoch} steps an epoch; "
                f"epoch {epoch + 1} ended after {self.counters.step % per_epoch}"
            )
        self.check()
        self._check_weights(group)
        check_buffers(self.model)
        self.counters.seconds = time.perf_counter() - began

    def _due(self, every: int | None) -> bool:
        return every is not None and self.counters.step % every == 0

    def _tell_loss(self, epoch: int) -> None:
        """A curriculum wants to know how far the training is."""
        tell = getattr(self.step.network.objective.loss, "set_progress", None)
        if tell is not None:
            tell(epoch / self.epochs)

    def _apply_plan(self, position: Position) -> None:
        factor = self.plan.learning_rate(position)
        beta1 = None if self.plan.beta1 is None else self.plan.beta1(position)
        for group in self.step.optimizer.param_groups:
            rate = factor * group["initial_lr"]
            if not isinstance(group["lr"], Tensor):
                group["lr"] = rate
            elif self._rates.get(id(group)) != rate:
                group["lr"].fill_(rate)
                self._rates[id(group)] = rate
            if beta1 is not None:
                if "betas" not in group:
                    raise ValueError("plan.beta1 needs an optimiser with betas, Adam or AdamW")
                group["betas"] = (beta1, group["betas"][1])
        self.step.network.objective.scale_features(self.plan.feature_loss(position))

    def check(self) -> None:
        """Stop if a loss since the last look was no finite number, in any process."""
        meter = self.step.meter
        bad = torch.where(meter.bad_step < 0, torch.iinfo(torch.int64).max, meter.bad_step).reshape(1)
        rank, world = rank_and_count()
        everywhere = torch.zeros(world, dtype=torch.int64, device=self.device)
        everywhere[rank] = bad
        steps = add_up(everywhere).tolist()
        first = min(steps)
        if first == torch.iinfo(torch.int64).max:
            return
        ids = torch.full((world, len(meter.bad_ids)), -1, dtype=torch.int64, device=self.device)
        ids[rank] = meter.bad_ids if steps[rank] == first else -1
        if world > 1:
            torch.distributed.all_reduce(ids, torch.distributed.ReduceOp.MAX)
        raise self._stopped("the loss is not a finite number at", first, ids[ids >= 0].tolist())

    def _check_weights(self, group: Sequence[Batch | Place]) -> None:
        """Stop if the step on `group` left weights that are no finite numbers.

        A finite loss can have a gradient that is not. The next step would notice, but a checkpoint between the two
        would take the place of the last good one. Gradients are shared: every process sees the same weights.
        """
        finite = [parameter.isfinite().all() for parameter in self.step.network.parameters()]
        if bool(torch.stack(finite).all()):
            return
        batches = [one.batch() if isinstance(one, Place) else one for one in group]
        (ids,) = gather([torch.cat([ids.cpu() for _, _, ids in batches if ids is not None] or [torch.empty(0)])])
        raise self._stopped("the weights are no finite numbers after", self.counters.step - 1, ids.tolist())

    def _stopped(self, what: str, step: int, ids: list[int]) -> NonFiniteLossError:
        where = f"step {step + 1} (epoch {step // self.feed.steps() + 1})"
        more = f" and {len(ids) - _IDS_TOLD} others" if len(ids) > _IDS_TOLD else ""
        shown = ", ".join(map(str, ids[:_IDS_TOLD])) + more if ids else "unknown: the batches carry no ids"
        kept = None if self.checkpoints is None else self.checkpoints.latest()
        saved = f"the last good checkpoint is {kept}" if kept else "no checkpoint was written before it"
        return NonFiniteLossError(
            f"{what} {where}, in the batch with ids {shown}; {saved}; try a lower learning rate, or hold gradients "
            "to a norm (clip)"
        )

    def _close_epoch(self, epoch: int) -> None:
        meter, counters = self.step.meter, self.counters
        if self.step.recorder is not None:
            self.step.recorder.end_epoch()
        loss, correct, count = add_up(torch.stack([meter.loss, meter.correct, meter.count])).tolist()
        if count == 0:
            raise ValueError(f"batches must hold at least one sample that has a label; epoch {epoch} had none")
        row: Row = {"epoch": epoch, "train_loss": loss / count, "train_accuracy": correct / count}
        if self.test is not None:
            measured = evaluate(self.evaluated, self.test, self.device)
            row |= {f"test_{name}": value for name, value in measured.items()}
        if self.samples is not None and self.samples.due(epoch, self.epochs):
            row |= self.samples.accuracies(self.evaluated)
        batches = None if self.samples is None else self.samples.batches
        row |= between_epochs.end_epoch(self.step.network, batches, self.device, row, self.epochs)
        row |= {"learning_rate": float(self.step.optimizer.param_groups[0]["lr"]), "seconds": counters.seconds}
        counters.rows.append(row)
        with together():
            if row.get("test_accuracy", -math.inf) > counters.best_accuracy:
                counters.best_epoch = epoch
                if self.checkpoints is not None:
                    self.checkpoints.save_weights("best", self.evaluated.state_dict())
        # First in its block: the processes may meet in it.
        with together():
            if self.after_epoch is not None:
                # Before it is written: what a caller measures after an epoch may stand in the epoch's row.
                self.after_epoch(epoch, row)
            self.record.write_epochs(counters.rows)
        self.progress.epoch(row)
        self._watch(row)

    def _watch(self, row: Row) -> None:
        """Say what goes wrong in the training, where something does."""
        counts = add_up(self.step.meter.classes.clone()).cpu()
        if not counts.numel():
            return
        for sentence in self.watch.epoch(row, counts, self.step.network.objective.loss, row["learning_rate"]):
            self.counters.notes.append(sentence)
            self.progress.note(sentence)
            with together():
                self.record.note(sentence)

    def save(self, *, within_epoch: bool) -> None:
        """Write a checkpoint of this very moment, unless the loss has gone wrong."""
        if self.checkpoints is None:
            return
        self.check()
        step, counters = self.step, self.counters
        shared = {
            "step": counters.step,
            "steps_per_epoch": self.feed.steps(),
            "seconds": counters.seconds,
            "rows": counters.rows,
            "best_epoch": counters.best_epoch,
            "notes": counters.notes,
            "watch": self.watch.state_dict(),
            "within_epoch": within_epoch,
            "optimizer": step.optimizer.state_dict(),
            "optimizer_kind": type(step.optimizer).__name__,
            "objective": step.network.objective.state_dict(),
            "average": None if step.average is None else step.average.state_dict(),
            "scaler": None if step.scaler is None else step.scaler.state_dict(),
            "processes": rank_and_count()[1],
        }
        own = {
            "random": random_states(),
            "feed": self.feed.state_dict(),
            "meter": step.meter.state_dict(),
            "recorder": None if step.recorder is None else step.recorder.state_dict(),
        }
        self.checkpoints.save(counters.step, self.model.state_dict(), shared, own)

    def restore(self) -> bool:
        """Go back to the newest checkpoint; False where there is none."""
        path = None if self.checkpoints is None else self.checkpoints.latest()
        if path is None or self.checkpoints is None:
            return False
        weights, shared, own = self.checkpoints.load(path)
        step = self.step
        check_fits(self.model, weights, path)
        check_fits(step.network.objective, shared["objective"], path, "loss")
        self._check_parts(path, shared, own)
        self.model.load_state_dict(weights)
        step.network.objective.load_state_dict(shared["objective"])
        load_optimizer(step.optimizer, shared["optimizer"])
        for part, state in ((step.average, shared["average"]), (step.scaler, shared["scaler"])):
            if part is not None:
                part.load_state_dict(state)
        step.meter.load_state_dict(own["meter"])
        if step.recorder is not None:
            step.recorder.load_state_dict(own["recorder"])
        notes = shared.get("notes", [])
        self.counters = Counters(shared["step"], shared["seconds"], shared["rows"], shared["best_epoch"], notes)
        self.watch.load_state_dict(shared.get("watch", {}))
        self.feed.load_state_dict(own["feed"], within_epoch=shared["within_epoch"])
        restore_random_states(own["random"])
        return True

    def _check_parts(self, path: Path, shared: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Refuse to go on with other parts than the checkpoint was written with, naming the first."""
        step = self.step
        optimizer, steps = type(step.optimizer).__name__, self.feed.steps()
        for part, saved, ours in (
            ("processes", shared["processes"], rank_and_count()[1]),
            ("steps of an epoch", shared.get("steps_per_epoch", steps), steps),
            ("optimizer", shared.get("optimizer_kind", optimizer), optimizer),
            ("average_decay", _given(shared["average"]), _given(step.average)),
            ("precision fp16", _given(shared["scaler"]), _given(step.scaler)),
            ("recorder", _given(own["recorder"]), _given(step.recorder)),
        ):
            if saved != ours:
                raise ValueError(f"{path} must be continued as it began: {part} was {saved} there; got {ours}")


def _given(part: object) -> str:
    return "not given" if part is None else "given"
