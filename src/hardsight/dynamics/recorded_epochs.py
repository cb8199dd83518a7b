"""All that a recorder has recorded: the sums of the open epoch and the aggregates of the finished ones."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from hardsight.dynamics.aggregates import MOST_EPOCHS, Aggregates
from hardsight.dynamics.epoch_sums import EpochValues, Layout
from hardsight.dynamics.history import PHASES, History, values_of
from hardsight.dynamics.measures import ANGULAR
from hardsight.dynamics.open_epoch import OpenEpoch

_STRAY_IDS = (
    ": num_samples must exceed the largest id, which in a part of a data set is that of the whole, or strays='ignore' "
    "leaves them out"
)


class RecordedEpochs:
    """The numbers of a recorder, on one device. Phase 0 is training, phase 1 the second split; each counts its epochs.

    `process` is the number of this process, and how many there are.
    """

    def __init__(
        self,
        layout: Layout,
        device: torch.device,
        *,
        repeats: str,
        early_epochs: int,
        process: tuple[int, int],
        compiled: bool,
    ) -> None:
        self.layout, self.repeats = layout, repeats
        self.open_epoch = OpenEpoch(layout, repeats, device, process, compiled)
        self.aggregates = Aggregates(layout, device, early_epochs)
        # As tensors name it: "cuda" is not equal to "cuda:0".
        self.device = self.open_epoch.epoch_sums.sums.device
        self.angular = not ANGULAR.isdisjoint(layout.measures)
        self.phase, self.finished = 0, [0, 0]

    @property
    def epoch(self) -> int:
        """Finished epochs of the phase."""
        return self.finished[self.phase]

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        return self.open_epoch.nbytes + self.aggregates.nbytes

    def check_epoch(self, strays: str) -> None:
        """Raise where the open epoch breaks a policy."""
        if self.epoch >= MOST_EPOCHS:
            raise ValueError(f"epochs must be at most {MOST_EPOCHS}, as many as are counted; got one more to end")
        sums, when = self.open_epoch.epoch_sums, f"in epoch {self.epoch}"
        ids, labels = sums.strays()
        for name, count, limit, hint in (
            ("ids", 0 if strays == "ignore" else ids, self.layout.num_samples, _STRAY_IDS),
            ("labels", labels, self.layout.num_classes, ""),
        ):
            if count:
                shown = "some" if sums.keep_last else count
                raise ValueError(f"{name} must lie in [0, {limit}); {when} {shown} did not{hint}")
        for rows, values in self.open_epoch.blocks() if self.repeats == "refuse" else ():
            often = values.seen + values.flagged
            if bool((often > 1).any()):
                first = int((often > 1).nonzero()[0])
                raise ValueError(
                    f"ids must not repeat within an epoch (repeats='refuse'); "
                    f"sample {rows.start + first} came {int(often[first])} times {when}"
                )
        mixed = sums.of_several_labels()
        if mixed is not None:
            raise ValueError(
                "labels must not change within an epoch (repeats='last' keeps the last); "
                f"sample {mixed} came with several {when}, so several samples may have its id"
            )

    def write_epoch(self, history: History) -> None:
        """Write the open epoch into a history."""
        history.write(PHASES[self.phase], self.epoch, self.layout, self.open_epoch.blocks())

    def end_epoch(self) -> None:
        """Fold the open epoch into the aggregates, and open the next."""
        for rows, values in self.open_epoch.blocks():
            self._fold(rows, values)
        self.open_epoch.clear()
        self.finished[self.phase] += 1

    def replay(self, history: History) -> None:
        """Fold all epochs of a history, and remove what an interrupted run left after them."""
        for phase, name in enumerate(PHASES):
            for epoch in range(history.count(name)):
                layout, table = history.read(name, epoch, self.layout)
                self.phase = phase
                for rows in self.open_epoch.rows():
                    self._fold(rows, values_of(table, layout, rows, self.device))
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
            "aggregates": {name: tensor.clone() for name, tensor in self.aggregates.items()},
            "ledger": {name: tensor.clone() for name, tensor in self.open_epoch.epoch_sums.tensors().items()},
            "step_size": self.open_epoch.step_size,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the numbers of a saved state."""
        for own, saved in (
            (self.aggregates, state["aggregates"]),
            (self.open_epoch.epoch_sums.tensors(), state["ledger"]),
        ):
            check_has(saved, own)
            for name, tensor in own.items():
                tensor.copy_(saved[name])
        self.phase, self.finished = state["phase"], list(state["finished"])
        # Earlier versions did not keep it.
        self.open_epoch.step_size = state.get("step_size")


def check_has(state: Mapping[str, Any], names: Iterable[str]) -> None:
    """A state, or a part of it, holds all that a recorder's does."""
    missing = next((name for name in names if name not in state), None)
    if missing is not None:
        raise ValueError(f"state must be what a recorder's state_dict() gave; it has no {missing!r}")


def check_state(recorder: Any, state: Mapping[str, Any], measures: tuple[str, ...] | None) -> None:
    """A state fits a recorder of the same samples, classes and policies that needs the same measures."""
    policies = ("num_samples", "num_classes", "repeats", "early_epochs")
    check_has(state, (*policies, "measures", "phase", "finished", "aggregates", "ledger"))
    for name in policies:
        own = getattr(recorder, name)
        if own is not None and state[name] != own:
            raise ValueError(f"state must be of a recorder with {name}={own!r}; got {state[name]!r}")
    if measures is not None and tuple(state["measures"]) != measures:
        raise ValueError(f"state must hold what the scores need, {list(measures)}; got {state['measures']}")
