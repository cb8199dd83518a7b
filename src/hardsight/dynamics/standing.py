"""Where a recorder stands once it has begun: the sums of the open epoch, the aggregates of those that have ended."""

from collections.abc import Mapping
from typing import Any

import torch

from hardsight.dynamics.aggregates import MOST_EPOCHS, Aggregates
from hardsight.dynamics.history import PHASES, History, values_of
from hardsight.dynamics.intake import Intake
from hardsight.dynamics.ledger import EpochValues, Frame
from hardsight.dynamics.measures import ANGULAR
from hardsight.dynamics.validation import check_has, check_no_repeats, check_one_label, check_strays


class Standing:
    """All numbers of a recorder, on one device. Phase 0 is training, phase 1 the second split; each counts its epochs.

    `process` is the number of this process, and how many there are.
    """

    def __init__(
        self,
        frame: Frame,
        device: torch.device,
        *,
        repeats: str,
        early_epochs: int,
        process: tuple[int, int],
        compiled: bool,
    ) -> None:
        self.frame, self.repeats = frame, repeats
        self.intake = Intake(frame, repeats, device, process, compiled)
        self.aggregates = Aggregates(frame, device, early_epochs)
        # As tensors name it: "cuda" is not equal to "cuda:0".
        self.device = self.intake.ledger.sums.device
        self.angular = not ANGULAR.isdisjoint(frame.measures)
        self.phase, self.finished = 0, [0, 0]

    @property
    def epoch(self) -> int:
        """Finished epochs of the phase."""
        return self.finished[self.phase]

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        return self.intake.nbytes + self.aggregates.nbytes

    def check_epoch(self, strays: str) -> None:
        """Refuse an open epoch that the policies refuse."""
        if self.epoch >= MOST_EPOCHS:
            raise ValueError(f"epochs must be at most {MOST_EPOCHS}, as many as are counted; got one more to end")
        ledger = self.intake.ledger
        ids, labels = ledger.strays()
        check_strays("ids", 0 if strays == "ignore" else ids, self.frame.num_samples, self.epoch, ledger.keep_last)
        check_strays("labels", labels, self.frame.num_classes, self.epoch, ledger.keep_last)
        if self.repeats == "refuse":
            for rows, values in self.intake.blocks():
                check_no_repeats(values.seen + values.flagged, rows.start, self.epoch)
        check_one_label(ledger.of_several_labels(), self.epoch)

    def write_epoch(self, history: History) -> None:
        """Write the open epoch into a history."""
        history.write(PHASES[self.phase], self.epoch, self.frame, self.intake.blocks())

    def end_epoch(self) -> None:
        """Fold the open epoch into the aggregates, and open the next."""
        for rows, values in self.intake.blocks():
            self._fold(rows, values)
        self.intake.clear()
        self.finished[self.phase] += 1

    def replay(self, history: History) -> None:
        """Take in all epochs of a history, and remove what an interrupted run left behind them."""
        for phase, name in enumerate(PHASES):
            for epoch in range(history.count(name)):
                frame, table = history.read(name, epoch, self.frame)
                self.phase = phase
                for rows in self.intake.rows():
                    self._fold(rows, values_of(table, frame, rows, self.device))
                self.finished[phase] += 1
            history.trim(name, self.finished[phase])

    def _fold(self, rows: slice, values: EpochValues) -> None:
        fold = self.aggregates.fold_second if self.phase else self.aggregates.fold
        fold(rows, self.epoch, values)

    def state_dict(self) -> dict[str, Any]:
        """Copies of all numbers; of the open epoch what has been measured."""
        return {
            "phase": self.phase,
            "finished": list(self.finished),
            "aggregates": {name: tensor.clone() for name, tensor in self.aggregates.tensors.items()},
            "ledger": {name: tensor.clone() for name, tensor in self.intake.ledger.tensors().items()},
            "step_size": self.intake.step_size,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over all numbers of a saved state."""
        for own, saved in (
            (self.aggregates.tensors, state["aggregates"]),
            (self.intake.ledger.tensors(), state["ledger"]),
        ):
            check_has(saved, own)
            for name, tensor in own.items():
                tensor.copy_(saved[name])
        self.phase, self.finished = state["phase"], list(state["finished"])
        # Earlier versions did not keep it.
        self.intake.step_size = state.get("step_size")
