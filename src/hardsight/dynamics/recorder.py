"""`Recorder`: the training dynamics of every sample, recorded while training runs.

Each step is added to the sums of the epoch; the end of an epoch folds them into running aggregates (both are in
`aggregates`, and held by `recorded_epochs`), from which the scores are computed (`hardsight.hardness.dynamics`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
import torch.distributed as dist
from torch import Tensor

from hardsight import distributed
from hardsight.dynamics.aggregates import REPEATS, Aggregates, Layout, scores_table
from hardsight.dynamics.history import PHASES, History
from hardsight.dynamics.measures import ANGULAR, Cosines, Measured, measures_of
from hardsight.dynamics.recorded_epochs import Batch, RecordedEpochs, check_batch, check_norms, check_state
from hardsight.hardness import Score
from hardsight.hardness.dynamics import choose_dynamics_scores, dynamics_scores
from hardsight.heads import Seen
from hardsight.names import check_name
from hardsight.validation import check_count


class Recorder:
    """Records every sample of every step, in O(samples) memory, and computes the scores of training dynamics.

    Three lines in any training loop:

    >>> logits, labels, ids = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), torch.tensor([0, 1])
    >>> recorder = Recorder(num_samples=2)
    >>> recorder.update(ids, logits, labels)
    >>> recorder.end_epoch()
    >>> recorder.scores()["aum"]
    tensor([ 2., -1.])

    `scores`: names; None for all that the updates allow (those of angles need `features_norm` and `weight_norm`).
    `repeats`: a sample that comes several times in an epoch counts with the `"mean"` of its measures, or raises
    (`"raise"`). `strays`: ids out of range raise (`"raise"`) or are left out (`"ignore"`). Both
    are noticed at the end of the epoch, because reading the values would make every step wait for the GPU. Rows with a
    negative label are left out. `history` is a folder that gets one Parquet file per epoch; `group` the process group
    that records together, by default all processes.
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
        strays: str = "raise",
        group: Any = None,
    ) -> None:
        check_count("num_samples", num_samples, "the number of samples whose ids are recorded")
        if num_classes is not None:
            check_count("num_classes", num_classes, "the number of columns of the logits", least=2)
        check_name("repeats", repeats, REPEATS)
        check_name("strays", strays, ("raise", "ignore"))
        self.num_samples, self.num_classes = num_samples, num_classes
        self.repeats, self.strays, self.group = repeats, strays, group
        self.device = None if device is None else torch.device(device)
        self.history = None if history is None else History(history)
        self._asked = None if scores is None else choose_dynamics_scores(scores)
        # A recorder that was loaded without a device moves to that of the next logits.
        self._may_move = False
        self._recorded: RecordedEpochs | None = None

    @classmethod
    def from_history(cls, history: Path | str, **options: Any) -> "Recorder":
        """The recorder that wrote this history, rebuilt to the bit; it resumes after the last complete epoch."""
        folder = History(history)
        layout = folder.layout()
        recorder = cls(layout.num_samples, layout.num_classes, history=history, **options)
        recorder._may_move = recorder.device is None
        recorder._begin(layout, recorder.device or torch.device("cpu")).replay(folder)
        return recorder

    @property
    def epoch(self) -> int:
        """Finished epochs of the phase."""
        return 0 if self._recorded is None else self._recorded.epoch

    @property
    def phase(self) -> int:
        """0 in training, 1 once the second split has begun."""
        return 0 if self._recorded is None else self._recorded.phase

    @property
    def aggregates(self) -> Aggregates:
        """The running numbers of every sample, over the finished epochs."""
        return self._begun().aggregates

    @property
    def started(self) -> bool:
        """Whether anything was recorded or loaded."""
        return self._recorded is not None

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
        Rows whose logits are not finite are counted and flagged; the sample's other measurements count.
        """
        check_batch(ids, logits, labels, self.num_classes)
        recorded = self._recorded
        if recorded is None:
            recorded = self._start(logits.shape[1], logits.device, angular=features_norm is not None)
        elif self._may_move:
            self._may_move = False
            if logits.device != self.device:
                recorded = self._begin(recorded.layout, logits.device, recorded.state_dict())
        if recorded.angular or features_norm is not None or weight_norm is not None:
            check_norms(logits, features_norm, weight_norm, bias, recorded.angular)
        # Everything to where the sums are; where it is there already, this does nothing.
        logits, ids, labels = self._here(logits), self._here(ids, torch.int64), self._here(labels, torch.int64)
        cosines = None
        if recorded.angular and features_norm is not None and weight_norm is not None:
            norms = (self._here(features_norm), self._here(weight_norm))
            cosines = Cosines(*norms, None if bias is None else self._here(bias))
        recorded.put(Batch(ids, logits, labels, cosines))

    def update_measured(self, ids: Tensor, labels: Tensor, measured: Measured) -> None:
        """Record one batch of measures made elsewhere, in the order of `measures`; `num_classes` must be known."""
        if self._recorded is None:
            self._may_move = False
            self._start(self.num_classes or 0, ids.device, angular=True)
        recorded = self._begun()
        values = [self._here(one) for one in measured.values]
        here = Measured(values, self._here(measured.correct), self._here(measured.sound))
        recorded.add(self._here(ids, torch.int64), self._here(labels, torch.int64), here)

    @property
    def measures(self) -> tuple[str, ...]:
        """What the scores that were asked for are made of."""
        return measures_of(dynamics_scores() if self._asked is None else self._asked)

    def update_seen(self, ids: Tensor, labels: Tensor, seen: Seen) -> None:
        """Record one batch that `observe(model)` captured, before the optimizer's step changes the head.

        Angles are recorded only where the head is linear: the logits of another head do not determine them.
        """
        if not seen.is_linear:
            return self.update(ids, seen.logits, labels)
        lengths = (_lengths(seen.features.detach()), _lengths(seen.weight.detach()))
        return self.update(ids, seen.logits, labels, *lengths, seen.bias)

    def flush(self) -> None:
        """Measure the buffered steps; every method that needs them calls this."""
        if self._recorded is not None:
            self._recorded.flush()

    def end_epoch(self) -> None:
        """Fold the epoch into the aggregates; where it breaks a policy, raise and keep the epoch open.

        With several processes all must call it; afterwards all hold the same aggregates. An epoch that raised in
        several processes can only be discarded.
        """
        self.flush()
        if distributed.several(self.group):
            self._take_part()
            # Integers: neither the order of adding nor the split of the samples changes the result.
            dist.all_reduce(self._begun().epoch_sums.sums, group=self.group)
        recorded = self._begun()
        recorded.check_epoch(self.strays, self.repeats)
        # Also without a history: it may be the first process alone that was given one.
        with distributed.together(lambda failure: distributed.wait_for_all(failure, self.group)):
            if self.history is not None and distributed.rank_and_count(self.group)[0] == 0:
                # First the file, then the fold: resuming removes a file too many, but one too few is a gap.
                self.history.write(PHASES[self.phase], self.epoch, recorded.layout, recorded.blocks())
        recorded.end_epoch()

    def discard_epoch(self) -> None:
        """Forget what the unfinished epoch recorded."""
        if self._recorded is not None:
            self._recorded.clear()

    def begin_second_split(self) -> None:
        """From here on, epochs are counted from 0 again and record only what is forgotten by further training.

        Train on a first split and record it; then begin the second split: train on other samples, and at each epoch
        pass the *first* split's samples through the model and `update` with them. `second_split_forgetting` is the
        epoch in which each was lost; all other scores keep their values of the first phase.
        """
        recorded = self._begun()
        if recorded.phase == 1:
            raise ValueError("the second split must begin once; it has begun already")
        self.discard_epoch()
        recorded.phase = 1

    def scores(self) -> dict[str, Tensor]:
        """Each score of every sample, on the device; NaN for samples never recorded."""
        aggregates = self.aggregates
        return {score.name: score.definition(aggregates) for score in self._chosen()}

    def table(self) -> pa.Table:
        """One row per sample: id, label, epochs it was seen in, measurements left out, one column per score."""
        recorded = self._begun()
        if not any(recorded.finished):
            raise ValueError("an epoch must have ended before there are scores: call end_epoch() after each; got none")
        return scores_table(recorded.aggregates, self._chosen())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The table, for all that reads tables: `hs.audit(recorder)`, `pandas.DataFrame.from_arrow(recorder)`."""
        return self.table().__arrow_c_stream__(requested_schema)

    def write_history(self, path: Path | str) -> None:
        """Write the whole history into one Parquet file: one row per sample and epoch."""
        if self.history is None:
            raise ValueError("history must have been asked for when the recorder was made; got history=None")
        self.history.merge_into(path)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume: numbers, words and tensors; of an unfinished epoch, this process's part.

        Empty before the first update.
        """
        if self._recorded is None:
            return {}
        self.flush()
        return {
            "num_samples": self.num_samples,
            "num_classes": self.num_classes,
            "measures": list(self._recorded.layout.measures),
            "repeats": self.repeats,
            **self._recorded.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of a recorder with the same arguments; a history is cut back to the state's epochs."""
        if not state and not self.started:
            return
        check_state(self, state, None if self._asked is None else measures_of(self._asked))
        layout = Layout(self.num_samples, state["num_classes"], tuple(state["measures"]))
        movable = self.device is None
        recorded = self._begin(layout, self.device or torch.device("cpu"), state)
        self._may_move = movable
        if self.history is not None and distributed.rank_and_count(self.group)[0] == 0:
            for name, epochs in zip(PHASES, recorded.finished, strict=True):
                self.history.trim(name, epochs)

    def shared_state_dict(self) -> dict[str, Any]:
        """`state_dict` with the parts of all processes of an unfinished epoch, equal in all; all must call it."""
        together = distributed.several(self.group)
        if together:
            self._take_part()
        state = self.state_dict()
        if together and state:
            dist.all_reduce(state["ledger"]["sums"], group=self.group)
        return state

    def load_shared_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a `shared_state_dict`; the first process gets its unfinished epoch, so that it counts once."""
        if state and distributed.rank_and_count(self.group)[0] > 0:
            state = {**state, "ledger": {"sums": torch.zeros_like(state["ledger"]["sums"])}}
        self.load_state_dict(state)

    def _here(self, values: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        if values.requires_grad:
            values = values.detach()
        if values.device == self.device and (dtype is None or values.dtype == dtype):
            return values
        return values.to(self.device, dtype, non_blocking=True)

    def _chosen(self) -> list[Score]:
        measured = set(self._begun().layout.measures)
        known = dynamics_scores() if self._asked is None else self._asked
        return [score for score in known if measured.issuperset(score.measures or ())]

    def _start(self, classes: int, device: torch.device, *, angular: bool) -> RecordedEpochs:
        if self.history is not None and self.history.count(PHASES[0]):
            raise ValueError(
                f"history must be a new folder, or be resumed by load_state_dict or Recorder.from_history; "
                f"{self.history.folder} holds {self.history.count(PHASES[0])} epochs already"
            )
        measures = self.measures
        if self._asked is None and not angular:
            measures = tuple(name for name in measures if name not in ANGULAR)
        return self._begin(Layout(self.num_samples, classes, measures), self.device or device)

    def _begin(self, layout: Layout, device: torch.device, state: Mapping[str, Any] | None = None) -> RecordedEpochs:
        recorded = RecordedEpochs(layout, device)
        if state is not None:
            recorded.load_state_dict(state)
        # Only now, so that a state that raises leaves the recorder as it was.
        self._recorded, self.num_classes, self.device = recorded, layout.num_classes, recorded.device
        return recorded

    def _begun(self) -> RecordedEpochs:
        if self._recorded is None:
            raise ValueError("the recorder must have been updated once before it is asked; got no update")
        return self._recorded

    def _take_part(self) -> None:
        """Agree with the other processes on what is recorded; a process without a batch adds nothing."""
        own = None if self._recorded is None else (self._recorded.layout, self.phase, self.epoch)
        every: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(every, own, group=self.group)
        known = [one for one in every if one is not None]
        if any(one != known[0] for one in known):
            raise ValueError(f"every process must record the same measures in the same epoch; got {every}")
        if known and own is None:
            self._begin(known[0][0], self.device or distributed.default_device(self.group))


def _lengths(vectors: Tensor) -> Tensor:
    """Lengths in one launch, of half precision in float32; `geometry.norms`, safe from overflow, needs eight."""
    half = vectors.dtype in (torch.float16, torch.bfloat16)
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float32 if half else None)
    return lengths
