"""One self-training under way: source training, rounds, and how it goes on after an interruption.

What it leaves on disk is described in `record`.
"""

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from accelerate import Accelerator
from torch import nn

from hardsight.datasets.interface import ArrayDataset
from hardsight.domains.selection import SELECTORS, Selection, get_selector, select
from hardsight.domains.self_training import rounds as parts
from hardsight.domains.self_training.data import fingerprint, labels_to_measure, pixel_options, target_labels
from hardsight.domains.self_training.loss import PseudoLabelLoss
from hardsight.domains.self_training.method import SelfTrained, SelfTraining
from hardsight.domains.self_training.record import (
    ROUND_COLUMNS,
    TABLES,
    samples_table,
    selected_table,
    sentence_of,
    worth_showing,
    write_rounds,
    write_thumbnails,
)
from hardsight.dynamics.processes import together
from hardsight.heads import evaluating, observe
from hardsight.training import Session, fit
from hardsight.training.checkpoints import (
    Checkpoints,
    check_fits,
    clear_crumbs,
    load_optimizer,
    random_states,
    restore_random_states,
)
from hardsight.training.configured import alone_in
from hardsight.training.devices import chosen_device, current
from hardsight.training.evaluation import evaluate, process
from hardsight.training.fitting import failure_recorded
from hardsight.training.record import RunRecord, device_name

# Samples of one forward when the target is looked at.
_LOOK_BATCH = 1024


class _NothingSelectedError(Exception):
    """A round has no sample to train on."""


class Run:
    """Everything of one self-training; see `SelfTraining.fit` for the arguments."""

    def __init__(
        self,
        settings: SelfTraining,
        model: nn.Module,
        source: ArrayDataset,
        target: ArrayDataset,
        *,
        test: ArrayDataset | None,
        folder: Path | str | None,
        device: torch.device | str | None,
        head: str | None,
        resume: bool,
        name: str,
        say: Callable[[str], None],
        after_round: Callable[[dict[str, Any]], None],
    ) -> None:
        self.settings, self.selector = settings, get_selector(settings.selector)
        self.model, self.source, self.target = model, source, target
        self.truth = target_labels(source, target)
        # First of all: started by torchrun, this is what makes the processes know each other.
        own = Accelerator().device
        self.device = own if device is None else chosen_device(device)
        self.rank, world = process()
        self.folder = None if folder is None else Path(folder)
        self.resume, self.name, self.after_round = resume, name, after_round
        self.say = say if self.rank == 0 else lambda sentence: None
        self.record = RunRecord(self.folder if self.rank == 0 else None)
        self.checkpoints = None if self.folder is None else Checkpoints(self.folder, self.rank)
        self.pixels = pixel_options(source, self.device)
        plain = {**self.pixels, "shuffle": False}
        rows = max(1, min(_LOOK_BATCH, len(target) // world))
        self.looking = parts.plain_batches(target, self.truth, rows, **plain)
        self.test = None
        if test is not None:
            self.test = parts.plain_batches(test, labels_to_measure(source, test), _LOOK_BATCH, **plain)
        self.training = {**self.pixels, "seed": settings.seed, "rank": self.rank, "world_size": world}
        self.head = self._fitting_head(head)
        self.data = {} if folder is None else self._fingerprints(test)
        self.rows: list[dict[str, Any]] = []
        self.epochs: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.tables: list[pa.Table] = []
        self.selection: Selection | None = None
        self.done = 0

    def _fitting_head(self, head: str | None) -> str:
        """The head's name, from one forward: angles need it, a step that knows it is captured as it is, and a model
        that does not fit the data is refused before anything is written.
        """
        images, _, _ = next(iter(self.looking))
        with evaluating(self.model.to(self.device)), observe(self.model, head) as seen:
            try:
                self.model(images[:2])
            except RuntimeError as reason:
                shape = list(images.shape[1:])
                raise ValueError(f"model must take samples of shape {shape}; it says: {reason}") from reason
        classes = len(self.source.class_names)
        if seen.logits.shape[1] != classes:
            raise ValueError(
                f"model must give one logit for each of the source's {classes} classes; it gives {seen.logits.shape[1]}"
            )
        return seen.name

    def _fingerprints(self, test: ArrayDataset | None) -> dict[str, str | None]:
        """What a record must agree on, so that it is never continued with other data."""
        return {"source": fingerprint(self.source), "target": fingerprint(self.target), "test": fingerprint(test)}

    # -----------------------------------------------------------------------------------------------------------------
    # From the first step to the last.

    def run(self) -> SelfTrained:
        """Train to the end."""
        devices = [self.device] if self.device.type == "cuda" else []
        alone = contextlib.nullcontext() if self.folder is None else alone_in(self.folder)
        told = failure_recorded(self.record, self.folder)
        with alone, current(self.device), torch.random.fork_rng(devices=devices), told:
            torch.manual_seed(self.settings.seed)
            self._begin()
            if self.settings.source_epochs:
                self._train_on_source()
            torch.manual_seed(self.settings.seed + 1)
            self._prepare()
            with together():
                self._restore()
            self._adapt()
            self._finish()
        selected = pa.concat_tables(self.tables) if self.tables else pa.table({})
        return SelfTrained(self.model, self.rows, self.epochs, self.selection, selected, self.notes, self.folder)

    def _begin(self) -> None:
        details: dict[str, Any] = {
            "kind": "adaptation",
            "name": self.name,
            "seed": self.settings.seed,
            "config": {
                **self.settings.settings(),
                "source": self.source.name,
                "target": self.target.name,
                "data": self.data,
            },
            "device": device_name(self.device),
            "class_names": list(self.source.class_names),
        }
        with together():
            if self.record.folder is not None:
                clear_crumbs(self.record.folder, *TABLES)
            if self.resume:
                self.record.check_same_run(details["config"])
                self.record.go_on(**details)
        if self.resume:
            return
        if self.checkpoints is not None:
            self.checkpoints.clear()
        with together():
            self.record.begin(**details)
            self.record.clear_tables()
            if self.record.folder is not None:
                for name in TABLES:
                    (self.record.folder / f"{name}.parquet").unlink(missing_ok=True)

    def _train_on_source(self) -> None:
        of = self.settings
        fitted = fit(
            self.model,
            parts.plain_batches(self.source, self.source.labels, of.batch_size, **self._augmented(self.training)),
            of.loss,
            of.optimizer(self.model.parameters()),
            epochs=of.source_epochs,
            folder=None if self.folder is None else self.folder / "source",
            resume=self.resume,
            seed=of.seed,
            head=self.head,
            precision=of.precision,
            capture=of.capture,
            device=self.device,
            progress=False,
            name="source",
        )
        self.epochs = [{"round": 0, **row} for row in fitted.epochs]
        epochs = "1 epoch" if of.source_epochs == 1 else f"{of.source_epochs} epochs"
        self.say(f"source: {epochs}, training accuracy {fitted.epochs[-1]['train_accuracy']:.4f}")

    def _augmented(self, options: dict[str, Any]) -> dict[str, Any]:
        return options | ({"augmentation": self.settings.augmentation} if self.source.images.ndim == 4 else {})

    def _prepare(self) -> None:
        of, classes = self.settings, len(self.source.class_names)
        self.batches = parts.mixed_batches(self.source, self.target, of.batch_size, **self._augmented(self.training))
        self.batches.mix(
            len(self.source),
            target_share=of.target_share,
            steps=of.steps_per_epoch,
            balance_classes=of.balance_classes,
        )
        self.loss: Any = of.loss
        if self.selector.entropy_weight or self.selector.divergence_weight:
            self.loss = PseudoLabelLoss(
                of.loss,
                first_target=len(self.source),
                soft_rows=(len(self.target), classes) if self.selector.entropy_weight else None,
                divergence_weight=self.selector.divergence_weight,
            )
        self.optimizer = of.optimizer(self.model.parameters())
        self.batches.before_epoch = self._before_epoch

    def _adapt(self) -> None:
        """Sessions of as many rounds as can be trained in one go; a round without samples ends one."""
        of = self.settings
        while self.done < of.rounds:
            began = self.batches.first_epoch = self.done * of.epochs_per_round
            session = Session(
                self.model,
                self.batches,
                self.loss,
                self.optimizer,
                epochs=of.rounds * of.epochs_per_round - began,
                precision=of.precision,
                capture=of.capture,
                head=self.head,
                progress=False,
                device=self.device,
                after_epoch=partial(self._after_epoch, began),
            )
            try:
                session.run()
            except _NothingSelectedError:
                stays = "the model of the last round is kept"
                if of.when_empty == "stop":
                    self._note(f"round {self.done + 1}: no target sample was selected; {stays}, and training stops")
                    return
                self._note(f"round {self.done + 1}: no target sample was selected; {stays}, and the next round comes")
                self.done += 1

    def _finish(self) -> None:
        seen = self._look()
        self._close_row({"round": self.done, **self._accuracy(seen)})
        last = {key: value for key, value in self.rows[-1].items() if value is not None and key != "round"}
        with together():
            self.record.write_samples(samples_table(seen, self.target.ids, self.truth))
            if self.record.folder is not None and self.tables:
                write_thumbnails(self.record.folder, worth_showing(pa.concat_tables(self.tables)), self.target)
            if self.checkpoints is not None:
                self.checkpoints.save_weights("last", self.model.state_dict())
            self.record.finish({**last, "rounds": self.done, "notes": self.notes})

    # -----------------------------------------------------------------------------------------------------------------
    # A round.

    def _before_epoch(self, epoch: int) -> None:
        """Make the labels anew where a round begins, or an epoch, as the settings say."""
        of = self.settings
        if of.regenerate == "epoch" or epoch % of.epochs_per_round == 0:
            self._select(epoch // of.epochs_per_round)

    def _select(self, number: int) -> None:
        portion, seen = self.settings.portions()[number], self._look()
        self.selection = select(self.selector, seen.evidence, portion)
        softmax = select(SELECTORS["cbst"], seen.evidence, portion)
        beyond = self.selection.selected & ~softmax.selected
        right = beyond & (self.selection.labels == self.truth)
        row = {"round": number, "portion": portion, **self._accuracy(seen)}
        row |= parts.statistics(seen, self.selection, self.truth)
        row |= {"beyond_cbst": int(beyond.sum())}
        if bool((self.truth >= 0).any()):
            row |= {"beyond_cbst_right": int(right.sum())}
        self._note_unpredicted(seen, number)
        self.tables.append(selected_table(number, seen, self.selection, softmax, self.target.ids, self.truth))
        self._close_row(row)
        if not row["selected"]:
            raise _NothingSelectedError
        self.batches.assign(self.selection.labels)
        if self.selection.soft is not None:
            self.loss.set_soft(self.selection.soft)

    def _look(self) -> parts.Look:
        return parts.look(self.model, self.looking, self.device, self.head)

    def _accuracy(self, seen: parts.Look) -> dict[str, Any]:
        found = parts.class_accuracy(seen, self.truth)
        if self.test is not None:
            found["test_accuracy"] = evaluate(self.model, self.test, self.device)["accuracy"]
        return found

    def _note_unpredicted(self, seen: parts.Look, number: int) -> None:
        counts = torch.bincount(seen.evidence.softmax.argmax(1), minlength=len(self.source.class_names))
        nobody = [name for name, count in zip(self.source.class_names, counts.tolist(), strict=True) if not count]
        if nobody:
            self._note(f"round {number + 1}: no target sample is predicted as {', '.join(nobody)}; none is labelled so")

    def _note(self, sentence: str) -> None:
        self.notes.append(sentence)
        self.say(sentence)

    def _close_row(self, row: dict[str, Any]) -> None:
        row = {name: row.get(name) for name in ROUND_COLUMNS}
        self.rows.append(row)
        with together():
            if self.record.folder is not None:
                write_rounds(self.record.folder, self.rows, self.tables)
            self.say(sentence_of(row))
        # In a block of its own: the processes may meet in it.
        with together():
            self.after_round(row)

    def _after_epoch(self, began: int, epoch: int, row: Mapping[str, float | int]) -> None:
        epoch += began
        number = -(-epoch // self.settings.epochs_per_round)
        self.epochs.append({"round": number, **row, "epoch": self.settings.source_epochs + epoch})
        with together():
            self.record.write_epochs(self.epochs)
        if epoch % self.settings.epochs_per_round == 0:
            self.done = number
            self._save()

    # -----------------------------------------------------------------------------------------------------------------
    # What stays.

    def _save(self) -> None:
        if self.checkpoints is not None:
            shared = {
                "optimizer": self.optimizer.state_dict(),
                "rows": self.rows,
                "epochs": self.epochs,
                "notes": self.notes,
                "done": self.done,
                "selection": None if self.selection is None else self.selection._asdict(),
            }
            self.checkpoints.save(self.done, self.model.state_dict(), shared, {"random": random_states()})

    def _restore(self) -> None:
        path = self.checkpoints.latest() if self.checkpoints is not None and self.resume else None
        if path is None or self.checkpoints is None:
            return
        weights, shared, own = self.checkpoints.load(path)
        check_fits(self.model, weights, path)
        self.model.load_state_dict(weights)
        load_optimizer(self.optimizer, shared["optimizer"])
        self.rows, self.epochs, self.notes = shared["rows"], shared["epochs"], shared["notes"]
        self.done, selection = int(shared["done"]), shared.get("selection")
        self.selection = None if selection is None else Selection(**selection)
        restore_random_states(own["random"])
        kept = path.parents[1] / "selected.parquet"
        if kept.is_file():
            table = pq.read_table(kept)
            self.tables = [table.filter(pa.compute.less(table["round"], self.done))]
        self.say(f"going on after round {self.done}")
