"""One self-training under way: the hooks that make a training one of rounds, and the training on the source before.

What it leaves on disk is described in `record`.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import nn

from hardsight.claims import alone_in
from hardsight.datasets.interface import ArrayDataset
from hardsight.distributed import join_processes, rank_and_count, together
from hardsight.domains.selection import SELECTORS, Selection, get_selector, select
from hardsight.domains.self_training import rounds as parts
from hardsight.domains.self_training.data import fingerprint, labels_to_measure, pixel_options, target_labels
from hardsight.domains.self_training.loss import PseudoLabelLoss
from hardsight.domains.self_training.method import SelfTrained, SelfTraining
from hardsight.domains.self_training.record import (
    ROUND_COLUMNS,
    clear_rounds,
    read_selected,
    samples_table,
    selected_table,
    sentence_of,
    worth_showing,
    write_rounds,
    write_thumbnails,
)
from hardsight.domains.self_training.signs import ADVICE, Signs, changed_labels
from hardsight.training import Details, Hooks, Loop, NonFiniteLossError, Steps, fit
from hardsight.training.checkpoints import Checkpoints
from hardsight.training.evaluation import evaluate
from hardsight.training.record import Row

# Samples of one forward when the target is looked at.
_LOOK_BATCH = 1024
# The folder of the source training's record in that of the adaptation.
_SOURCE = "source"


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
        self.resume, self.after_round = resume, after_round
        self.say = say if self.rank == 0 else lambda sentence: None
        self.pixels = pixel_options(source, self.device)
        plain = {**self.pixels, "shuffle": False}
        rows = max(1, min(_LOOK_BATCH, len(target) // world))
        self.looking = parts.plain_batches(target, self.truth, rows, **plain)
        self.test = None
        if test is not None:
            self.test = parts.plain_batches(test, labels_to_measure(source, test), _LOOK_BATCH, **plain)
        self.training = {**self.pixels, "seed": settings.seed, "rank": self.rank, "world_size": world}
        if source.images.ndim == 4:
            self.training["augmentation"] = settings.augmentation_of(source.images.shape[-1])
        self.head = parts.head_of(model, self.looking, self.device, head, len(source.class_names))
        # What a record must agree on, so that it is never continued with other data.
        sets = {} if folder is None else {"source": source, "target": target, "test": test}
        names = {"source": source.name, "target": target.name}
        data = {called: fingerprint(data) for called, data in sets.items()}
        self.config = {**settings.settings(), **names, "data": data}
        self.done, self.signs = 0, Signs()
        self.rows: list[dict[str, Any]] = []
        self.selection: Selection | None = None
        # The selected samples of each look.
        self.tables: list[pa.Table] = []
        self.batches = self._mixed_batches()
        self.loss = self._loss()
        self.loop = self._loop(name)

    def run(self) -> SelfTrained:
        """Train to the end."""
        devices = [self.device] if self.device.type == "cuda" else []
        alone = contextlib.nullcontext() if self.folder is None else alone_in(self.folder)
        with alone, torch.random.fork_rng(devices=devices):
            if self.folder is not None and not self.resume:
                # Before the new record begins: killed in between, nobody takes them for its own.
                Checkpoints(self.folder / _SOURCE, self.rank).clear()
            fitted = self.loop.run()
        selected = pa.concat_tables(self.tables) if self.tables else pa.table({})
        epochs: list[dict[str, Any]] = [dict(row) for row in fitted.epochs]
        return SelfTrained(self.model, self.rows, epochs, self.selection, selected, fitted.notes, self.folder)

    def _mixed_batches(self) -> parts.Mixing:
        of = self.settings
        batches = parts.mixed_batches(self.source, self.target, of.batch_size, **self.training)
        batches.mix(
            len(self.source),
            target_share=of.target_share,
            steps=of.steps_on_target(len(self.target)),
            balance_classes=of.balance_classes,
        )
        return batches

    def _loss(self) -> Any:
        of, classes = self.settings, len(self.source.class_names)
        if not self.selector.entropy_weight and not self.selector.divergence_weight:
            return of.loss
        return PseudoLabelLoss(
            of.loss,
            first_target=len(self.source),
            soft_rows=(len(self.target), classes) if self.selector.entropy_weight else None,
            divergence_weight=self.selector.divergence_weight,
        )

    def _loop(self, name: str) -> Loop:
        of = self.settings
        optimizer = of.optimizer(self.model.parameters())
        for group in optimizer.param_groups:
            group["lr"] *= of.rate_in_rounds
        return Loop(
            self.model,
            self.batches,
            self.loss,
            optimizer,
            epochs=of.rounds * of.epochs_per_round,
            folder=self.folder,
            resume=self.resume,
            details=Details(name, of.seed, self.config, self.source.class_names, kind="adaptation"),
            steps=Steps(precision=of.precision, capture=of.capture),
            hooks=Hooks(self._after_epoch, self._measure, self._start, self._before_epoch, memory=self),
            head=self.head,
            progress=False,
            device=self.device,
        )

    def _start(self) -> None:
        """Train on the source."""
        with together():
            if self.rank == 0 and self.folder is not None:
                clear_rounds(self.folder)
        if self.source_epochs:
            torch.manual_seed(self.settings.seed)
            self._train_on_source()
        torch.manual_seed(self.settings.seed + 1)

    def _train_on_source(self) -> None:
        of = self.settings
        fitted = fit(
            self.model,
            parts.plain_batches(self.source, self.source.labels, of.batch_size, **self.training),
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
        self.loop.counters.rows += [{"round": 0, **row} for row in fitted.epochs]
        epochs = "1 epoch" if self.source_epochs == 1 else f"{self.source_epochs} epochs"
        self.say(f"source: {epochs}, training accuracy {fitted.epochs[-1]['train_accuracy']:.4f}")
        for note in fitted.notes:
            self._note(f"source: {note}")

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the rounds. The tables are in `selected.parquet` already."""
        return {
            "done": self.done,
            "rows": self.rows,
            "signs": dataclasses.asdict(self.signs),
            "selection": None if self.selection is None else self.selection._asdict(),
            "selected": sum(len(table) for table in self.tables),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to what `state_dict` returned."""
        assert self.folder is not None
        self.tables = read_selected(self.folder, state["selected"])
        self.done, self.rows, self.signs = state["done"], state["rows"], Signs(**state["signs"])
        if state["selection"] is not None:
            self._label(Selection(**state["selection"]))
        self.say(f"going on after round {self.done}")

    # -----------------------------------------------------------------------------------------------------------------
    # A round.

    def _before_epoch(self, epoch: int) -> int | None:
        """Make the labels again where a round begins, or an epoch, as the settings say; without any, no epoch comes."""
        of, number = self.settings, epoch // self.settings.epochs_per_round
        if (of.regenerate == "round" and epoch % of.epochs_per_round) or self._select(number):
            return None
        stops = of.when_empty == "stop"
        after = "training stops" if stops else "the next round comes"
        self._note(
            f"round {number + 1}: no target sample was selected; the model of the last round is kept, and {after}"
        )
        if stops:
            return of.rounds * of.epochs_per_round
        self.done = number + 1
        return self.done * of.epochs_per_round

    def _select(self, number: int) -> bool:
        """Look at the target and select; whether anything was."""
        portion, seen, before = self.settings.portions()[number], self._look(), self.selection
        selection = self.selection = select(self.selector, seen.evidence, portion)
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
        self.tables.append(selected_table(number, seen, selection, softmax, self.target.ids, self.truth))
        self._close_row(row)
        if row["selected"]:
            self._label(selection)
        return bool(row["selected"])

    def _label(self, selection: Selection) -> None:
        self.selection = selection
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
                f"round {self.done}: the training has diverged, and a lower learning rate may help"
            )
        return seen

    def _accuracy(self, seen: parts.Look) -> dict[str, Any]:
        found = parts.class_accuracy(seen, self.truth)
        if self.test is not None:
            found["test_accuracy"] = evaluate(self.model, self.test, self.device)["accuracy"]
        return found

    def _signs(self, seen: parts.Look) -> dict[str, Any]:
        """The numbers that need no label of the target; notes what they say of a model that gets worse."""
        row, worse = self.signs.look(seen.evidence.softmax, self.source.class_names)
        if worse:
            self._note(f"after round {self.done} the model seems to get worse: {'; '.join(worse)}: {ADVICE}")
        return row

    def _note_unpredicted(self, seen: parts.Look, number: int) -> None:
        counts = torch.bincount(seen.evidence.softmax.argmax(1), minlength=len(self.source.class_names))
        nobody = [name for name, count in zip(self.source.class_names, counts.tolist(), strict=True) if not count]
        said = f"no target sample is predicted as {', '.join(nobody)}; none is labelled so"
        if nobody and not any(note.endswith(said) for note in self.loop.counters.notes):
            self._note(f"round {number + 1}: {said}")

    def _note(self, sentence: str) -> None:
        if sentence not in self.loop.counters.notes:
            self.say(sentence)
            self.loop.note(sentence)

    def _close_row(self, row: dict[str, Any]) -> None:
        row = {name: row.get(name) for name in ROUND_COLUMNS}
        self.rows.append(row)
        with together():
            if self.rank == 0 and self.folder is not None:
                write_rounds(self.folder, self.rows, self.tables)
            self.say(sentence_of(row))
        # In a block of its own: the processes may meet in it.
        with together():
            self.after_round(row)

    def _after_epoch(self, epoch: int, row: Row) -> None:
        self.done = epoch // self.settings.epochs_per_round
        row |= {"round": -(-epoch // self.settings.epochs_per_round), "epoch": self.source_epochs + epoch}

    def _measure(self, model: nn.Module) -> dict[str, Any]:
        """Look at the target once more, at the end."""
        seen = self._look()
        self._close_row({"round": self.done, **self._accuracy(seen), **self._signs(seen)})
        measured = "accuracy" if self.test is None else "test_accuracy"
        accuracies = [row[measured] for row in (self.rows[0], self.rows[-1])]
        if None not in accuracies and accuracies[1] < accuracies[0]:
            before, after = (f"{100 * one:.2f} %" for one in accuracies)
            self._note(f"the {measured.replace('_', ' ')} fell from {before} before the rounds to {after}: {ADVICE}")
        with together():
            self.loop.record.write_samples(samples_table(seen, self.target.ids, self.truth))
            if self.rank == 0 and self.folder is not None and self.tables:
                write_thumbnails(self.folder, worth_showing(pa.concat_tables(self.tables)), self.target)
        last = {key: value for key, value in self.rows[-1].items() if value is not None and key != "round"}
        return {**last, "rounds": self.done}
