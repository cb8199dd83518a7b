"""One self-training under way: source training, rounds, and how it goes on after an interruption.

What it leaves on disk is described in `record`.
"""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import nn

from hardsight.claims import alone_in
from hardsight.datasets.interface import ArrayDataset
from hardsight.distributed import current, join_processes, rank_and_count, together
from hardsight.domains.selection import SELECTORS, get_selector, select
from hardsight.domains.self_training import rounds as parts
from hardsight.domains.self_training.data import fingerprint, labels_to_measure, pixel_options, target_labels
from hardsight.domains.self_training.loss import PseudoLabelLoss
from hardsight.domains.self_training.method import SelfTrained, SelfTraining
from hardsight.domains.self_training.progress import Kept, Progress, keep, read_kept
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
from hardsight.domains.self_training.signs import ADVICE, changed_labels
from hardsight.training import Details, Hooks, Loop, NonFiniteLossError, Steps, fit
from hardsight.training.checkpoints import Checkpoints
from hardsight.training.evaluation import evaluate
from hardsight.training.record import RunRecord, device_name, failure_recorded

# Samples of one forward when the target is looked at.
_LOOK_BATCH = 1024
# Where the record of the source training lies in that of the adaptation.
_SOURCE = "source"


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
        self.device = join_processes(device)  # first of all: only then do the processes know each other
        self.source_epochs = settings.epochs_on_source(len(source))
        self.rank, world = rank_and_count()
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
        self.head = parts.fitting_head(model, self.looking, self.device, head, len(source.class_names))
        # What a record must agree on, so that it is never continued with other data.
        sets = {} if folder is None else {"source": source, "target": target, "test": test}
        self.data = {called: fingerprint(data) for called, data in sets.items()}
        self.progress = Progress()

    # -----------------------------------------------------------------------------------------------------------------
    # From the first step to the last.

    def run(self) -> SelfTrained:
        """Train to the end."""
        devices = [self.device] if self.device.type == "cuda" else []
        alone = contextlib.nullcontext() if self.folder is None else alone_in(self.folder)
        told = failure_recorded(self.record, self.folder, resume=self.resume)
        with alone, current(self.device), torch.random.fork_rng(devices=devices), told:
            torch.manual_seed(self.settings.seed)
            kept = self._begin()
            # A complete round holds all that the source training left.
            if self.source_epochs and kept is None:
                self._train_on_source()
            torch.manual_seed(self.settings.seed + 1)
            self._prepare()
            if kept is not None:
                self.progress = kept.take_up(self.model, self.optimizer, self.loss)
                self.say(f"going on after round {self.progress.done}")
            self._adapt()
            self._finish()
        made = self.progress
        selected = pa.concat_tables(made.tables) if made.tables else pa.table({})
        return SelfTrained(self.model, made.rows, made.epochs, made.selection, selected, made.notes, self.folder)

    def _begin(self) -> Kept | None:
        """Begin the record, or go on with it; where a round of it is complete, what the last one left."""
        details, kept = self._details(), None
        with together():
            if self.resume:
                self.record.check_same_run(details["config"])
                kept = None if self.checkpoints is None else read_kept(self.checkpoints, self.model)
        if self.resume:
            # Only now: a record that cannot be continued stays as it is.
            with together():
                self.record.go_on(**details)
                if self.checkpoints is not None:
                    self.checkpoints.discard_left()
            return kept
        if self.folder is not None:
            # The source's too, and before the new record begins: killed in between, nobody takes them for its own.
            for place in (self.folder, self.folder / _SOURCE):
                Checkpoints(place, self.rank).clear()
        with together():
            self.record.begin(**details)
            self.record.clear_tables()
            if self.record.folder is not None:
                for name in TABLES:
                    (self.record.folder / f"{name}.parquet").unlink(missing_ok=True)
        return None

    def _details(self) -> dict[str, Any]:
        """What `run.json` says of the run beforehand."""
        names = {"source": self.source.name, "target": self.target.name}
        return {
            "kind": "adaptation",
            "name": self.name,
            "seed": self.settings.seed,
            "config": {**self.settings.settings(), **names, "data": self.data},
            "device": device_name(self.device),
            "class_names": list(self.source.class_names),
        }

    def _train_on_source(self) -> None:
        of = self.settings
        fitted = fit(
            self.model,
            parts.plain_batches(self.source, self.source.labels, of.batch_size, **self._augmented(self.training)),
            of.loss,
            of.optimizer(self.model.parameters()),
            epochs=self.source_epochs,
            folder=None if self.folder is None else self.folder / _SOURCE,
            resume=self.resume,
            details=Details("source", of.seed),
            steps=Steps(precision=of.precision, capture=of.capture),
            head=self.head,
            device=self.device,
            progress=False,
        )
        self.progress.epochs = [{"round": 0, **row} for row in fitted.epochs]
        epochs = "1 epoch" if self.source_epochs == 1 else f"{self.source_epochs} epochs"
        self.say(f"source: {epochs}, training accuracy {fitted.epochs[-1]['train_accuracy']:.4f}")
        for note in fitted.notes:
            self._note(f"source: {note}")

    def _augmented(self, options: dict[str, Any]) -> dict[str, Any]:
        if self.source.images.ndim != 4:
            return options
        return options | {"augmentation": self.settings.augmentation_of(self.source.images.shape[-1])}

    def _prepare(self) -> None:
        of, classes = self.settings, len(self.source.class_names)
        self.batches = parts.mixed_batches(self.source, self.target, of.batch_size, **self._augmented(self.training))
        self.batches.mix(
            len(self.source),
            target_share=of.target_share,
            steps=of.steps_on_target(len(self.target)),
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
        for group in self.optimizer.param_groups:
            group["lr"] *= of.rate_in_rounds
        self.batches.before_epoch = self._before_epoch

    def _adapt(self) -> None:
        """Sessions of as many rounds as can be trained in one go; a round without samples ends one."""
        of = self.settings
        while self.progress.done < of.rounds:
            loop = Loop(
                self.model,
                self.batches,
                self.loss,
                self.optimizer,
                epochs=of.rounds * of.epochs_per_round,
                steps=Steps(precision=of.precision, capture=of.capture),
                hooks=Hooks(after_epoch=self._after_epoch),
                head=self.head,
                progress=False,
                device=self.device,
            )
            # Of all rounds in any case: a curriculum is told which share of them is done.
            loop.start_at(self.progress.done * of.epochs_per_round)
            try:
                loop.run()
            except _NothingSelectedError:
                number, stops = self.progress.done + 1, of.when_empty == "stop"
                after = "training stops" if stops else "the next round comes"
                self._note(
                    f"round {number}: no target sample was selected; the model of the last round is kept, and {after}"
                )
                if stops:
                    return
                self.progress.done = number

    def _finish(self) -> None:
        seen = self._look()
        self._close_row({"round": self.progress.done, **self._accuracy(seen), **self._signs(seen)})
        measured = "accuracy" if self.test is None else "test_accuracy"
        accuracies = [row[measured] for row in (self.progress.rows[0], self.progress.rows[-1])]
        if None not in accuracies and accuracies[1] < accuracies[0]:
            before, after = (f"{100 * one:.2f} %" for one in accuracies)
            self._note(f"the {measured.replace('_', ' ')} fell from {before} before the rounds to {after}: {ADVICE}")
        last = {key: value for key, value in self.progress.rows[-1].items() if value is not None and key != "round"}
        with together():
            self.record.write_samples(samples_table(seen, self.target.ids, self.truth))
            if self.record.folder is not None and self.progress.tables:
                write_thumbnails(self.record.folder, worth_showing(pa.concat_tables(self.progress.tables)), self.target)
            if self.checkpoints is not None:
                self.checkpoints.save_weights("last", self.model.state_dict())
            self.record.finish({**last, "rounds": self.progress.done})

    # -----------------------------------------------------------------------------------------------------------------
    # A round.

    def _before_epoch(self, epoch: int) -> None:
        """Make the labels anew where a round begins, or an epoch, as the settings say."""
        of = self.settings
        if of.regenerate == "epoch" or epoch % of.epochs_per_round == 0:
            self._select(epoch // of.epochs_per_round)

    def _select(self, number: int) -> None:
        portion, seen, before = self.settings.portions()[number], self._look(), self.progress.selection
        selection = self.progress.selection = select(self.selector, seen.evidence, portion)
        softmax = select(SELECTORS["cbst"], seen.evidence, portion)
        beyond = selection.selected & ~softmax.selected
        right = beyond & (selection.labels == self.truth)
        row = {"round": number, "portion": portion, **self._accuracy(seen)}
        row |= self._signs(seen) | parts.statistics(seen, selection, self.truth)
        row |= {"changed_labels": changed_labels(None if before is None else before.labels, selection.labels)}
        row |= {"beyond_cbst": int(beyond.sum())}
        if bool((self.truth >= 0).any()):
            row |= {"beyond_cbst_right": int(right.sum())}
        self._note_unpredicted(seen, number)
        self.progress.tables.append(selected_table(number, seen, selection, softmax, self.target.ids, self.truth))
        self._close_row(row)
        if not row["selected"]:
            raise _NothingSelectedError
        self.batches.assign(selection.labels)
        if selection.soft is not None:
            self.loss.set_soft(selection.soft)

    def _look(self) -> parts.Look:
        seen = parts.look(self.model, self.looking, self.device, self.head)
        lost = int(seen.evidence.softmax.isnan().any(1).sum())
        if lost:
            # Weights may be finite, and so large that the outputs are not.
            raise NonFiniteLossError(
                f"the model's outputs are no finite numbers for {lost} of {len(self.target)} target samples after "
                f"round {self.progress.done}: the training has diverged, and a lower learning rate may help"
            )
        return seen

    def _accuracy(self, seen: parts.Look) -> dict[str, Any]:
        found = parts.class_accuracy(seen, self.truth)
        if self.test is not None:
            found["test_accuracy"] = evaluate(self.model, self.test, self.device)["accuracy"]
        return found

    def _signs(self, seen: parts.Look) -> dict[str, Any]:
        """The numbers that need no label of the target; what they say of a model that gets worse is told."""
        row, worse = self.progress.signs.look(seen.evidence.softmax, self.source.class_names)
        if worse:
            self._note(f"after round {self.progress.done} the model seems to get worse: {'; '.join(worse)}: {ADVICE}")
        return row

    def _note_unpredicted(self, seen: parts.Look, number: int) -> None:
        counts = torch.bincount(seen.evidence.softmax.argmax(1), minlength=len(self.source.class_names))
        nobody = [name for name, count in zip(self.source.class_names, counts.tolist(), strict=True) if not count]
        said = f"no target sample is predicted as {', '.join(nobody)}; none is labelled so"
        if nobody and not any(note.endswith(said) for note in self.progress.notes):
            self._note(f"round {number + 1}: {said}")

    def _note(self, sentence: str) -> None:
        if sentence in self.progress.notes:
            return
        self.progress.notes.append(sentence)
        self.say(sentence)
        with together():
            self.record.note(sentence)

    def _close_row(self, row: dict[str, Any]) -> None:
        row = {name: row.get(name) for name in ROUND_COLUMNS}
        self.progress.rows.append(row)
        with together():
            if self.record.folder is not None:
                write_rounds(self.record.folder, self.progress.rows, self.progress.tables)
            self.say(sentence_of(row))
        # In a block of its own: the processes may meet in it.
        with together():
            self.after_round(row)

    def _after_epoch(self, epoch: int, row: Mapping[str, float | int]) -> None:
        number = -(-epoch // self.settings.epochs_per_round)
        self.progress.epochs.append({"round": number, **row, "epoch": self.source_epochs + epoch})
        with together():
            self.record.write_epochs(self.progress.epochs)
        if epoch % self.settings.epochs_per_round == 0:
            self.progress.done = number
            if self.checkpoints is not None:
                keep(self.checkpoints, self.progress, self.model, self.optimizer, self.loss)
