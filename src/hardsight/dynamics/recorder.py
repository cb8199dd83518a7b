"""`Recorder`: what training reveals of every sample, gathered while it runs.

A step adds the batch's measures to the epoch's sums (`ledger`); the end of an epoch folds them into running aggregates
(`aggregates`), from which the scores are made (`definitions`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from hardsight.dynamics.aggregates import Aggregates
from hardsight.dynamics.catalogue import (
    DynamicsScore,
    choose_dynamics_scores,
    dynamics_scores,
    measures_of,
)
from hardsight.dynamics.ledger import REPEATS, EpochValues, Ledger
from hardsight.dynamics.measures import ANGULAR, Cosines, measure
from hardsight.dynamics.tables import scores_table
from hardsight.dynamics.validation import check_batch, check_norms, check_one_of, check_positive, check_values

# Samples folded at a time: the temporaries of a fold stay small beside the aggregates.
_BLOCK = 2**17


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
    `validate=True` looks at once. Rows whose label is `ignore_label` are left out. `early_epochs` is how many epochs
    `el2n_early` averages.
    """

    def __init__(
        self,
        num_samples: int,
        num_classes: int | None = None,
        *,
        scores: Sequence[str] | None = None,
        device: torch.device | str | None = None,
        repeats: str = "mean",
        strays: str = "refuse",
        validate: bool = False,
        early_epochs: int = 10,
        ignore_label: int = -100,
    ) -> None:
        check_positive("num_samples", num_samples, "the number of samples whose ids are recorded")
        check_positive("early_epochs", early_epochs, "the epochs that el2n_early averages")
        if num_classes is not None and num_classes < 2:
            raise ValueError(f"num_classes must be at least 2; got {num_classes!r}")
        check_one_of("repeats", repeats, REPEATS)
        check_one_of("strays", strays, ("refuse", "ignore"))
        self.num_samples, self.num_classes = num_samples, num_classes
        self.repeats, self.strays, self.validate = repeats, strays, validate
        self.early_epochs, self.ignore_label = early_epochs, ignore_label
        self.device = None if device is None else torch.device(device)
        self.epoch = 0
        self._asked = None if scores is None else choose_dynamics_scores(scores)
        self._aggregates: Aggregates | None = None
        self._ledger: Ledger | None = None

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
        if self._ledger is None:
            self._start(logits.shape[1], logits.device, features_norm is not None)
        ledger = self._ledger
        assert ledger is not None
        angular = not ANGULAR.isdisjoint(ledger.measures)
        check_norms(logits, features_norm, weight_norm, bias, angular)
        ids, labels = (values.detach().to(self.device, torch.int64, non_blocking=True) for values in (ids, labels))
        if self.validate:
            check_values(ids, labels, self.num_samples, logits.shape[1], self.ignore_label)
        rows, inside = ledger.rows_of(ids, labels, logits.shape[1], self.ignore_label)
        cosines = None
        if angular and features_norm is not None and weight_norm is not None:
            cosines = Cosines(features_norm, weight_norm, bias)
        ledger.add(rows, inside, measure(logits, inside, ledger.measures, cosines))

    def end_epoch(self) -> None:
        """Fold the epoch into the aggregates; refuses what the policies refuse, and then keeps the epoch open."""
        ledger, aggregates = self._started()
        self._check_epoch(ledger)
        for rows, values in self._epoch_blocks(ledger):
            aggregates.fold(rows, self.epoch, values)
        ledger.clear()
        self.epoch += 1

    def discard_epoch(self) -> None:
        """Forget what the unfinished epoch recorded."""
        if self._ledger is not None:
            self._ledger.clear()

    @property
    def aggregates(self) -> Aggregates:
        """The running numbers of every sample, over the finished epochs."""
        return self._started()[1]

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        return 0 if self._ledger is None else sum(part.nbytes for part in self._started())

    def scores(self) -> dict[str, Tensor]:
        """Each score of every sample, on the device; NaN for samples never recorded."""
        aggregates = self.aggregates
        return {score.name: score.definition(aggregates) for score in self._chosen()}

    def table(self) -> pa.Table:
        """One row a sample: id, label, epochs it was seen in, measurements thrown away, one column a score."""
        return scores_table(self.aggregates, self._chosen())

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, an unfinished epoch included: numbers, words and tensors."""
        ledger, aggregates = self._started()
        return {
            "num_samples": self.num_samples,
            "num_classes": self.num_classes,
            "measures": list(ledger.measures),
            "repeats": self.repeats,
            "early_epochs": self.early_epochs,
            "epoch": self.epoch,
            "aggregates": {name: tensor.clone() for name, tensor in aggregates.tensors.items()},
            "ledger": {name: tensor.clone() for name, tensor in ledger.tensors().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; it must be of a recorder made alike."""
        for name in ("num_samples", "repeats", "early_epochs"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"state must be of a recorder with {name}={getattr(self, name)!r}; got {state[name]!r}"
                )
        if self.num_classes not in (None, state["num_classes"]):
            raise ValueError(f"state must have {self.num_classes} classes; got {state['num_classes']}")
        measures = tuple(state["measures"])
        if self._asked is not None and measures != measures_of(self._asked):
            raise ValueError(f"state must hold what the scores need, {measures_of(self._asked)}; got {measures}")
        self._allocate(state["num_classes"], measures, self.device or torch.device("cpu"))
        ledger, aggregates = self._started()
        for own, saved in ((aggregates.tensors, state["aggregates"]), (ledger.tensors(), state["ledger"])):
            for name, tensor in own.items():
                tensor.copy_(saved[name])
        self.epoch = state["epoch"]

    def _chosen(self) -> list[DynamicsScore]:
        measured = set(self._started()[0].measures)
        known = dynamics_scores() if self._asked is None else self._asked
        return [score for score in known if measured.issuperset(score.measures)]

    def _start(self, num_classes: int, device: torch.device, angular: bool) -> None:
        scores = dynamics_scores() if self._asked is None else self._asked
        measures = measures_of(scores)
        if self._asked is None and not angular:
            measures = tuple(name for name in measures if name not in ANGULAR)
        self._allocate(num_classes, measures, self.device or device)

    def _allocate(self, num_classes: int, measures: tuple[str, ...], device: torch.device) -> None:
        self.num_classes, self.device = num_classes, device
        self._ledger = Ledger(self.num_samples, measures, self.repeats, device)
        self._aggregates = Aggregates(self.num_samples, num_classes, measures, device, self.early_epochs)

    def _started(self) -> tuple[Ledger, Aggregates]:
        if self._ledger is None or self._aggregates is None:
            raise ValueError("the recorder must have been updated once before it is asked; got no update")
        return self._ledger, self._aggregates

    def _check_epoch(self, ledger: Ledger) -> None:
        ids, labels = ledger.strays()
        some = "some" if ledger.keep_last else None
        if ids and self.strays == "refuse":
            raise ValueError(
                f"ids must lie in [0, {self.num_samples}), or strays be 'ignore'; "
                f"in epoch {self.epoch} {some or ids} did not"
            )
        if labels:
            raise ValueError(
                f"labels must lie in [0, {self.num_classes}); in epoch {self.epoch} {some or labels} did not"
            )
        if self.repeats != "refuse":
            return
        for rows, values in self._epoch_blocks(ledger):
            often = values.seen + values.flagged
            if bool((often > 1).any()):
                first = int((often > 1).nonzero()[0])
                raise ValueError(
                    f"ids must not repeat within an epoch (repeats='refuse'); "
                    f"sample {rows.start + first} came {int(often[first])} times in epoch {self.epoch}"
                )

    def _epoch_blocks(self, ledger: Ledger) -> Iterator[tuple[slice, EpochValues]]:
        for start in range(0, self.num_samples, _BLOCK):
            stop = min(start + _BLOCK, self.num_samples)
            yield slice(start, stop), ledger.epoch_values(start, stop)
