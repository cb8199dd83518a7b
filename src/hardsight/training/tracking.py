"""The numbers of every epoch to TensorBoard or any other tracker that `accelerate` knows, by name."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardsight.distributed import rank_and_count
from hardsight.names import check_name
from hardsight.training.record import flat


class Tracker:
    """Logs one row an epoch under the tracker's own folder in the run, `RUN/NAME`."""

    def __init__(self, name: str, folder: Path, config: Any) -> None:
        try:
            from accelerate import PartialState
            from accelerate.tracking import LOGGER_TYPE_TO_CLASS
            from accelerate.utils import LoggerType
        except ImportError:
            raise ImportError("record.tracker needs accelerate: pip install 'hardsight[trackers]'") from None
        PartialState()  # its trackers ask it which process they are in
        known = [str(one) for one in LoggerType if str(one) != "all"]
        check_name("record.tracker", name, known)
        kind = LOGGER_TYPE_TO_CLASS[name]
        try:
            self.tracker = kind(folder.name, folder / name) if kind.requires_logging_directory else kind(folder.name)
            self.tracker.start()
        except (ImportError, NameError):
            # accelerate imports a tracker's package only if it is there, and finds a name undefined where it is not.
            raise ImportError(f"record.tracker {name!r} needs its package: pip install {name}") from None
        self.tracker.store_init_configuration(_plain(config))

    def epoch(self, number: int, row: Mapping[str, float | int]) -> None:
        """Log an epoch's numbers; one process does."""
        if rank_and_count()[0] == 0:
            self.tracker.log({name: value for name, value in row.items() if name != "epoch"}, step=number)

    def close(self) -> None:
        """Finish what is still to be written."""
        self.tracker.finish()


def _plain(config: Any) -> dict[str, Any]:
    """Trackers keep one level of plain values."""
    settings = flat(dataclasses.asdict(config))
    return {
        key: value if isinstance(value, int | float | str | bool) else str(value) for key, value in settings.items()
    }
