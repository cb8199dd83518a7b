"""One self-training under way: the hooks that make a training one of rounds, and the training on the source before.

What it leaves on disk is described in `looking`.
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
from hardsight.domains import looking
from hardsight.domains.data import fingerprint, mixed_batches, pixel_options, plain_batches, target_labels
from hardsight.domains.selection import SELECTORS, Selection, get_selector, select
from hardsight.domains.self_training import PseudoLabelLoss, SelfTrained, SelfTraining
from hardsight.training import Details, Hooks, Loop, NonFiniteLossError, Steps, fit
from hardsight.training.checkpoints import Checkpoints
from hardsight.training.evaluation import evaluate
from hardsight.training.record import Row

# Samples of one forward when the target is looked at.
_LOOK_BATCH = 1024
# The folder of the source training's record in that of the adaptation.
_SOURCE = "source"


class Rounds:
    """Everything of one self-training; see `SelfTraining.fit` for the arguments."""

    def __init__(
        self,
        settings: SelfTraining,
        model: nn.Module,
        source: ArrayDataset,
        target: ArrayDataset,
        test: ArrayDataset | None,
        folder: Path | None,
        device: torch.device | str | None,
        head: str | None,
        resume: bool,
        name: str,
        say: Callable[[str], None] | None,
        after_round: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.settings, self.selector = settings, get_selector(settings.selector)
        self.model, self.source, self.target = model, source, target
        self.truth = target_labels(source, target)
        self.device = join_processes(device)  # first of all: only then do the processes know each other
        self.source_epochs = settings.epochs_on_source(len(source))
        self.rank, world = rank_and_count()
        self.folder, self.resume, self.after_round = folder, resume, after_round
        self.told = say if self.rank == 0 else None
        pixels = pixel_options(source, self.device)
        plain = {**pixels, "shuffle": False}
        self.looking = plain_batches(target, self.truth, max(1, min(_LOOK_BATCH, len(target) // world)), **plain)
        self.test = None
        if test is not None:
            self.test = plain_batches(test, target_labels(source, test, "test"), _LOOK_BATCH, **plain)
        self.training = {**pixels, "seed": settings.seed, "rank": self.rank, "world_size": world}
        if source.images.ndim == 4:
            self.training["augmentation"] = settings.augmentation_of(source.images.shape[-1])
        self.head = looking.head_of(model, self.looking, self.device, head, len(source.class_names))
        self.done, self.signs = 0, looking.Signs()
        self.rows: list[dict[str, Any]] = []
        self.selection: Selection | None = None
        # The selected samples of each look.
        self.tables: list[pa.Table] = []
        mixing: dict[str, Any] = {"target_share": settings.target_share, "steps": settings.steps_on_target(len(target))}
        self.batches = mixed_batches(source, target, settings.batch_size, **mixing, **self.training)
        self.loss: Any = settings.loss
        if self.selector.entropy_weight or self.selector.divergence_weight:
            self.loss = PseudoLabelLoss(
                settings.loss,
                first_target=len(source),
                soft_rows=(len(target), len(source.class_names)) if self.selector.entropy_weight else None,
                divergence_weight=self.selector.divergence_weight,
            )
        # What a record must agree on, so that it is never continued with other data.
        sets = {} if folder is None else {"source": source, "target": target, "test": test}
        data = {called: None if one is None else fingerprint(one) for called, one in sets.items()}
        config = {**settings.settings(), "source": source.name, "target": target.name, "data": data}
        # What both trainings have in common, that on the source and that of the rounds.
        steps = Steps(precision=settings.precision, capture=settings.capture)
        self.common: dict[str, Any] = {
            "resume": resume, "steps": steps, "head": self.head, "progress": False, "device": self.device,
        }  # fmt: skip
        self.loop = self._loop(Details(name, settings.seed, config, source.class_names, kind="adaptation"))

    def _loop(self, details: Details) -> Loop:
        of = self.settings
        optimizer = of.optimizer(self.model.parameters())
        for group in optimizer.param_groups:
            group["lr"] *= of.rate_in_rounds
        hooks = Hooks(self._after_epoch, self._measure, self._start, self._before_epoch, memory=self)
        options = {"folder": self.folder, "details": details, "hooks": hooks, **self.common}
        return Loop(self.model, self.batches, self.loss, optimizer, epochs=of.rounds * of.epochs_per_round, **options)

    def run(self) -> SelfTrained:
        """Train to the end."""
        devices = [self.device] if self.device.type == "cuda" else []
        alone = contextlib.nullcontext() if self.folder is None else alone_in(self.folder)
        with alone, torch.random.fork_rng(devices=devices):
            if self.folder is not None and not self.resume:
                # Before the new record begins: killed in between, nobody takes them for its own.
                with together():
                    Checkpoints(self.folder / _SOURCE, self.rank).discard_before(None)
            fitted = self.loop.run()
        selected = pa.concat_tables(self.tables) if self.tables else pa.table({})
        epochs: list[dict[str, Any]] = [dict(row) for row in fitted.epochs]
        return SelfTrained(self.model, self.rows, epochs, self.selection, selected, fitted.notes, self.folder)

    def _start(self) -> None:
        """Train on the source."""
        of = self.settings
        with together():
            if self.rank == 0 and self.folder is not None:
                for name in looking.TABLES:
                    (self.folder / name).unlink(missing_ok=True)
        if self.source_epochs:
            torch.manual_seed(of.seed)
            self._train_on_source()
        torch.manual_seed(of.seed + 1)

    def _train_on_source(self) -> None:
        of = self.settings
        fitted = fit(
            self.model,
            plain_batches(self.source, self.source.labels, of.batch_size, **self.training),
            of.loss,
            of.optimizer(self.model.parameters()),
            epochs=self.source_epochs,
            folder=None if self.folder is None else self.folder / _SOURCE,
            details=Details("source", of.seed),
            **self.common,
        )
        self.loop.counters.rows += [{"round": 0, **row} for row in fitted.epochs]
        epochs = "1 epoch" if self.source_epochs == 1 else f"{self.source_epochs} epochs"
        self._say(f"source: {epochs}, training accuracy {fitted.epochs[-1]['train_accuracy']:.4f}")
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
        self.tables = looking.read_selected(self.folder, state["selected"])
        self.done, self.rows, self.signs = state["done"], state["rows"], looking.Signs(**state["signs"])
        if state["selection"] is not None:
            self._label(Selection(**state["selection"]))
        self._say(f"going on after round {self.done}")

    def _before_epoch(self, epoch: int) -> int | None:
        """Make the labels of a round, or of an epoch; where nothing is selected, which epoch comes next."""
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
        portion = self.settings.portions()[number]
        seen, row = self._look()
        before, self.selection = self.selection, select(self.selector, seen.evidence, portion)
        softmax = select(SELECTORS["cbst"], seen.evidence, portion)
        beyond = self.selection.selected & ~softmax.selected
        row |= looking.statistics(seen, self.selection, self.truth)
        row |= {"round": number, "portion": portion, "beyond_cbst": int(beyond.sum())}
        if before is not None and bool(before.selected.any()):
            row["changed_labels"] = looking.mean((before.labels != self.selection.labels)[before.selected])
        if bool((self.truth >= 0).any()):
            row["beyond_cbst_right"] = int((beyond & (self.selection.labels == self.truth)).sum())
        counts = torch.bincount(seen.evidence.softmax.argmax(1), minlength=len(self.source.class_names))
        nobody = [name for name, count in zip(self.source.class_names, counts.tolist(), strict=True) if not count]
        said = f"no target sample is predicted as {', '.join(nobody)}; none is labelled so"
        if nobody and not any(note.endswith(said) for note in self.loop.counters.notes):
            self._note(f"round {number + 1}: {said}")
        self.tables.append(looking.selected_table(number, seen, self.selection, softmax, self.target.ids, self.truth))
        self._close_row(row)
        if row["selected"]:
            self._label(self.selection)
        return bool(row["selected"])

    def _label(self, selection: Selection) -> None:
        self.selection = selection
        self.batches.assign(selection.labels)
        if selection.soft is not None:
            self.loss.set_soft(selection.soft)

    def _look(self) -> tuple[looking.Look, dict[str, Any]]:
        """A look at the target and its numbers; notes what they say of a model that gets worse."""
        seen = looking.look(self.model, self.looking, self.device, self.head)
        lost = int(seen.evidence.softmax.isnan().any(1).sum())
        if lost:
            # Weights may be finite, and so large that the outputs are not.
            raise NonFiniteLossError(
                f"the model's outputs are no finite numbers for {lost} of {len(self.target)} target samples after "
                f"round {self.done}: the training has diverged, and a lower learning rate may help"
            )
        row = looking.class_accuracy(seen, self.truth)
        if self.test is not None:
            row["test_accuracy"] = evaluate(self.model, self.test, self.device)["accuracy"]
        numbers, worse = self.signs.look(seen.evidence.softmax, self.source.class_names)
        if worse:
            said = "; ".join(worse)
            self._note(f"after round {self.done} the model seems to get worse: {said}: {looking.ADVICE}")
        return seen, row | numbers

    def _say(self, sentence: str) -> None:
        if self.told is not None:
            self.told(sentence)

    def _note(self, sentence: str) -> None:
        if sentence not in self.loop.counters.notes:
            self._say(sentence)
            self.loop.note(sentence)

    def _close_row(self, row: dict[str, Any]) -> None:
        row = {name: row.get(name) for name in looking.ROUND_COLUMNS}
        self.rows.append(row)
        with together():
            if self.rank == 0 and self.folder is not None:
                looking.write_rounds(self.folder, self.rows, self.tables)
            self._say(looking.sentence_of(row))
        # In a block of its own: the processes may meet in it.
        with together():
            if self.after_round is not None:
                self.after_round(row)

    def _after_epoch(self, epoch: int, row: Row) -> None:
        self.done = epoch // self.settings.epochs_per_round
        row |= {"round": -(-epoch // self.settings.epochs_per_round), "epoch": self.source_epochs + epoch}

    def _measure(self, model: nn.Module) -> dict[str, Any]:
        """Look at the target once more, at the end."""
        seen, row = self._look()
        self._close_row(row | {"round": self.done})
        measured = "accuracy" if self.test is None else "test_accuracy"
        before, after = (one[measured] for one in (self.rows[0], self.rows[-1]))
        if before is not None and after is not None and after < before:
            what, numbers = measured.replace("_", " "), (f"{100 * one:.2f} %" for one in (before, after))
            self._note(f"the {what} fell from {' before the rounds to '.join(numbers)}: {looking.ADVICE}")
        with together():
            self.loop.record.write_samples(looking.samples_table(seen, self.target.ids, self.truth))
            if self.rank == 0 and self.folder is not None and self.tables:
                shown = looking.worth_showing(pa.concat_tables(self.tables))
                looking.write_thumbnails(self.folder, shown, self.target)
        last = {key: value for key, value in self.rows[-1].items() if value is not None and key != "round"}
        return {**last, "rounds": self.done}
