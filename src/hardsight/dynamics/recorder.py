"""`Recorder`: what training reveals of every sample, gathered while it runs.

A step goes into the epoch's sums (`intake`); the end of an epoch folds these into running aggregates (`aggregates`),
of which scores are made (`definitions`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from hardsight.dynamics import processes
from hardsight.dynamics.aggregates import MOST_EPOCHS, Aggregates
from hardsight.dynamics.catalogue import DynamicsScore, choose_dynamics_scores, dynamics_scores, measures_of
from hardsight.dynamics.history import PHASES, History, values_of
from hardsight.dynamics.intake import Intake
from hardsight.dynamics.ledger import REPEATS, EpochValues, Frame
from hardsight.dynamics.measures import ANGULAR, Cosines
from hardsight.dynamics.staging import Batch
from hardsight.dynamics.tables import scores_table
from hardsight.dynamics.validation import (
    check_batch,
    check_no_repeats,
    check_norms,
    check_one_of,
    check_positive,
    check_state,
    check_strays,
    check_values,
)
from hardsight.heads import Seen


class Recorder:
    """Records every sample of every step, in O(samples) memory, and gives the scores of training dynamics.

    Three lines in any training loop:

    >>> logits, labels, ids = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), torch.tensor([0, 1])
    >>> recorder = Recorder(num_samples=2)
    >>> recorder.update(ids, logits, labels)
    >>> recorder.end_epoch()
    >>> recorder.scores()["aum"]
    tensor([ 2., -1.])

    `scores`: names; None for all that the updates allow (those of angles need `features_norm` and `weight_norm`).
    `repeats`: a sample that comes several times in an epoch counts with the `"mean"` of its measures, with the
    `"last"`, or is refused (`"refuse"`). `strays`: ids out of range are refused (`"refuse"`) or left out (`"ignore"`).
    Both are noticed at the end of the epoch, because a look at the values would make every step wait for the GPU;
    `validate=True` looks at once. Rows with a negative label are left out. `early_epochs` is how many epochs
    `el2n_early` averages. `history` is a folder that gets one Parquet file an epoch. `compile` fuses the step by
    `torch.compile`, which costs some seconds once. `group` is the process group whose processes record together; by
    default all.
    """

    def __init__(
        self,
        num_samples: int,
        num_classes: int | None = None,
        *,
        scores: Sequence[str] | None = None,
        device: torch.device | str | None = None,
        history: Path | str | None = None,
        repeats: str = "mean",
        strays: str = "refuse",
        validate: bool = False,
        early_epochs: int = 10,
        compile: bool = False,
        group: Any = None,
    ) -> None:
        check_positive("num_samples", num_samples, "the number of samples whose ids are recorded")
        check_positive("early_epochs", early_epochs, "the epochs that el2n_early averages")
        if num_classes is not None and num_classes < 2:
            raise ValueError(f"num_classes must be at least 2; got {num_classes!r}")
        check_one_of("repeats", repeats, REPEATS)
        check_one_of("strays", strays, ("refuse", "ignore"))
        self.num_samples, self.num_classes = num_samples, num_classes
        self.repeats, self.strays, self.validate = repeats, strays, validate
        self.early_epochs, self.group = early_epochs, group
        self.device = None if device is None else torch.device(device)
        self.history = None if history is None else History(history)
        # Phase 0 is training, phase 1 the second split; each counts its own finished epochs.
        self.phase, self._finished = 0, [0, 0]
        self._asked = None if scores is None else choose_dynamics_scores(scores)
        self._compile = compile
        # A recorder that was loaded, and not told where to be, goes where the next logits are.
        self._may_move = False
        self._intake: Intake | None = None
        self._aggregates: Aggregates | None = None

    @classmethod
    def from_history(cls, history: Path | str, **options: Any) -> "Recorder":
        """The recorder that wrote this history, rebuilt to the bit; it goes on after the last whole epoch."""
        folder = History(history)
        if not folder.count(PHASES[0]):
            raise ValueError(f"history must hold at least one epoch; {folder.folder} holds none")
        frame, _ = folder.read(PHASES[0], 0)
        recorder = cls(frame.num_samples, frame.num_classes, history=history, **options)
        recorder._may_move = recorder.device is None
        recorder._allocate(frame, recorder.device or torch.device("cpu"))
        for phase, name in enumerate(PHASES):
            for epoch in range(folder.count(name)):
                recorder._replay(phase, epoch, frame)
            folder.trim(name, recorder._finished[phase])
        return recorder

    @property
    def epoch(self) -> int:
        """Finished epochs of the phase."""
        return self._finished[self.phase]

    @property
    def aggregates(self) -> Aggregates:
        """The running numbers of every sample, over the finished epochs."""
        return self._started()[1]

    @property
    def started(self) -> bool:
        """Whether anything was recorded or loaded."""
        return self._intake is not None

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        return sum(part.nbytes for part in (self._intake, self._aggregates) if part is not None)

    def update(
        self,
        ids: Tensor,
        logits: Tensor,
        labels: Tensor,
        features_norm: Tensor | None = None,
        weight_norm: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> None:
        """Record one batch: ids [B], logits [B, C], labels [B]; for the angles |x| [B], |w| [C] and the head's bias.

        The logits must be those of the linear head (before any temperature), or the angles are not the head's.
        Rows whose logits are not finite are counted and flagged; the sample's other measurements stand.
        """
        check_batch(ids, logits, labels, self.num_classes)
        if self._intake is None:
            self._start(logits, features_norm is not None)
        elif self._may_move:
            self._move(logits.device)
        if self._angular or features_norm is not None or weight_norm is not None:
            check_norms(logits, features_norm, weight_norm, bias, self._angular)
        # Everything to where the sums are; where it is there already, this does nothing.
        logits, ids, labels = self._here(logits), self._here(ids, torch.int64), self._here(labels, torch.int64)
        if self.validate:
            check_values(ids, labels, self.num_samples, logits.shape[1])
        cosines = None
        if self._angular and features_norm is not None and weight_norm is not None:
            norms = (self._here(features_norm), self._here(weight_norm))
            cosines = Cosines(*norms, None if bias is None else self._here(bias))
        self._started()[0].put(Batch(ids, logits, labels, cosines))

    def update_seen(self, ids: Tensor, labels: Tensor, seen: Seen) -> None:
        """Record one batch from what `observe(model)` saw of it, before the optimizer's step changes the head.

        Angles are recorded of a head that is linear; of another one the logits do not tell them.
        """
        if not seen.is_linear:
            return self.update(ids, seen.logits, labels)
        lengths = (_lengths(seen.features.detach()), _lengths(seen.weight.detach()))
        return self.update(ids, seen.logits, labels, *lengths, seen.bias)

    def flush(self) -> None:
        """Measure the steps kept back; whatever needs them does so by itself."""
        if self._intake is not None:
            self._intake.flush()

    def end_epoch(self) -> None:
        """Fold the epoch into the aggregates; refuses what the policies refuse, and then keeps the epoch open.

        With several processes all must call it; afterwards all hold the same aggregates. What they refuse together
        can only be discarded.
        """
        self.flush()
        if processes.several(self.group):
            self._merge_processes()
        intake, _ = self._started()
        self._check_epoch(intake)
        # Also without a history: it may be the first process alone that was given one.
        with processes.together(lambda failure: processes.wait_for_all(failure, self.group)):
            if self.history is not None and processes.rank_and_count(self.group)[0] == 0:
                # First the file, then the fold: a file too many is taken back on resuming, one too few is a gap.
                self.history.write(PHASES[self.phase], self.epoch, self._frame(), intake.blocks())
        for rows, values in intake.blocks():
            self._fold(rows, values)
        intake.clear()
        self._finished[self.phase] += 1

    def discard_epoch(self) -> None:
        """Forget what the unfinished epoch recorded."""
        if self._intake is not None:
            self._intake.clear()

    def begin_second_split(self) -> None:
        """From here on epochs, counted from 0 again, tell only what is forgotten while training goes on elsewhere.

        Train on a first split and record it; then begin the second split: train on other samples, and at each epoch
        pass the *first* split's samples through the model and `update` with them. `second_split_forgetting` says when
        each was lost; all other scores keep what the first phase said.
        """
        self._started()
        if self.phase == 1:
            raise ValueError("the second split must begin once; it has begun already")
        self.discard_epoch()
        self.phase = 1

    def scores(self) -> dict[str, Tensor]:
        """Each score of every sample, on the device; NaN for samples never recorded."""
        aggregates = self.aggregates
        return {score.name: score.definition(aggregates) for score in self._chosen()}

    def table(self) -> pa.Table:
        """One row a sample: id, label, epochs it was seen in, measurements thrown away, one column a score."""
        aggregates = self.aggregates
        if not any(self._finished):
            raise ValueError("an epoch must have ended before there are scores: call end_epoch() after each; got none")
        return scores_table(aggregates, self._chosen())

    def write_history(self, path: Path | str) -> None:
        """Write the whole history into one Parquet file: one row a sample and epoch."""
        if self.history is None:
            raise ValueError("history must have been asked for when the recorder was made; got history=None")
        self.history.merge_into(path)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on: numbers, words and tensors. Of an unfinished epoch, this process's share.

        Before the first update there is nothing, and the state is empty.
        """
        if not self.started:
            return {}
        self.flush()
        intake, aggregates = self._started()
        return {
            "num_samples": self.num_samples,
            "num_classes": self.num_classes,
            "measures": list(intake.frame.measures),
            "repeats": self.repeats,
            "early_epochs": self.early_epochs,
            "phase": self.phase,
            "finished": list(self._finished),
            "aggregates": {name: tensor.clone() for name, tensor in aggregates.tensors.items()},
            "ledger": {name: tensor.clone() for name, tensor in intake.ledger.tensors().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state of a recorder made alike; a history is cut back to where the state stands."""
        if not state and not self.started:
            return
        check_state(self, state, None if self._asked is None else measures_of(self._asked))
        self._may_move = self.device is None
        self._load(state, self.device or torch.device("cpu"))
        self.phase, self._finished = state["phase"], list(state["finished"])
        if self.history is not None and processes.rank_and_count(self.group)[0] == 0:
            for name, epochs in zip(PHASES, self._finished, strict=True):
                self.history.trim(name, epochs)

    def _here(self, values: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        if values.requires_grad:
            values = values.detach()
        if values.device == self.device and (dtype is None or values.dtype == dtype):
            return values
        return values.to(self.device, dtype, non_blocking=True)

    def _chosen(self) -> list[DynamicsScore]:
        measured = set(self._frame().measures)
        known = dynamics_scores() if self._asked is None else self._asked
        return [score for score in known if measured.issuperset(score.measures)]

    def _start(self, logits: Tensor, angular: bool) -> None:
        if self.history is not None and self.history.count(PHASES[0]):
            raise ValueError(
                f"history must be a new folder, or be resumed by load_state_dict or Recorder.from_history; "
                f"{self.history.folder} holds {self.history.count(PHASES[0])} epochs already"
            )
        measures = measures_of(dynamics_scores() if self._asked is None else self._asked)
        if self._asked is None and not angular:
            measures = tuple(name for name in measures if name not in ANGULAR)
        self._allocate(Frame(self.num_samples, logits.shape[1], measures), self.device or logits.device)

    def _allocate(self, frame: Frame, device: torch.device) -> None:
        self.num_classes = frame.num_classes
        self._angular = not ANGULAR.isdisjoint(frame.measures)
        process = processes.rank_and_count(self.group)
        self._intake = Intake(frame, self.repeats, device, process, self._compile)
        # As tensors name it: "cuda" is not equal to "cuda:0".
        self.device = self._intake.ledger.sums.device
        self._aggregates = Aggregates(frame, device, self.early_epochs)

    def _load(self, state: Mapping[str, Any], device: torch.device) -> None:
        self._allocate(Frame(self.num_samples, state["num_classes"], tuple(state["measures"])), device)
        intake, aggregates = self._started()
        for own, saved in ((aggregates.tensors, state["aggregates"]), (intake.ledger.tensors(), state["ledger"])):
            for name, tensor in own.items():
                tensor.copy_(saved[name])

    def _move(self, device: torch.device) -> None:
        self._may_move = False
        if device != self.device:
            self._load(self.state_dict(), device)

    def _started(self) -> tuple[Intake, Aggregates]:
        if self._intake is None or self._aggregates is None:
            raise ValueError("the recorder must have been updated once before it is asked; got no update")
        return self._intake, self._aggregates

    def _frame(self) -> Frame:
        return self._started()[1].frame

    def _merge_processes(self) -> None:
        own = None if self._intake is None else (self._frame(), self.phase, self.epoch)
        agreed = processes.agree(own, self.group)
        if agreed is not None and self._intake is None:
            # No batch came to this process: it takes part with nothing.
            device = self.device or processes.default_device(self.group)
            self._allocate(agreed[0], device)
        processes.merge(self._started()[0].ledger, self.group)

    def _check_epoch(self, intake: Intake) -> None:
        if self.epoch >= MOST_EPOCHS:
            raise ValueError(f"epochs must be at most {MOST_EPOCHS}, as many as are counted; got one more to end")
        ledger = intake.ledger
        ids, labels = ledger.strays()
        check_strays("ids", 0 if self.strays == "ignore" else ids, self.num_samples, self.epoch, ledger.keep_last)
        check_strays("labels", labels, self._frame().num_classes, self.epoch, ledger.keep_last)
        if self.repeats == "refuse":
            for rows, values in intake.blocks():
                check_no_repeats(values.seen + values.flagged, rows.start, self.epoch)

    def _fold(self, rows: slice, values: EpochValues) -> None:
        aggregates = self.aggregates
        (aggregates.fold_second if self.phase else aggregates.fold)(rows, self.epoch, values)

    def _replay(self, phase: int, epoch: int, expected: Frame) -> None:
        assert self.history is not None
        frame, table = self.history.read(PHASES[phase], epoch)
        if frame != expected:
            raise ValueError(f"history must be of one recorder; epoch {epoch} was written by another one")
        self.phase = phase
        for rows in self._started()[0].rows():
            self._fold(rows, values_of(table, frame, rows, self.aggregates.device))
        self._finished[phase] += 1


def _lengths(vectors: Tensor) -> Tensor:
    """Lengths in one launch, of half precision in float32; `geometry.norms` guards against overflow with eight."""
    half = vectors.dtype in (torch.float16, torch.bfloat16)
    return torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float32 if half else None)
