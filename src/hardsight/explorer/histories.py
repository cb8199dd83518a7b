"""A sample's way through a training: what a run's record keeps of it, epoch by epoch."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hardsight.files.parquet import Parquet

_EPOCH = re.compile(r"epoch-(\d{5,})\.parquet")
_NO_MEASURES = frozenset({"id", "label", "seen", "flagged"})
_MOST_EPOCHS = 2000


def trajectory(records: tuple[Path, ...], identity: Any) -> dict[str, list[Any]]:
    """Each measure of a sample by epoch, `epoch` first; empty where no record keeps a history, or not of this sample.

    The rows of a history are in the order of their ids, so that one row group of each epoch is looked into.
    """
    folder = next((one / "dynamics" for one in records if (one / "dynamics").is_dir()), None)
    if folder is None or not isinstance(identity, int):
        return {}
    found: dict[str, list[Any]] = {}
    epochs = sorted((int(match[1]), path) for path in folder.iterdir() if (match := _EPOCH.fullmatch(path.name)))
    for epoch, path in epochs[:_MOST_EPOCHS]:
        for name, value in _row(path, identity).items():
            found.setdefault(name, []).append(value)
            if name == "correct":
                found.setdefault("epoch", []).append(epoch)
    return found


def _row(path: Path, identity: int) -> dict[str, float]:
    """The measures in one epoch of the sample; none where the epoch did not show it."""
    with Parquet(path) as file:
        measures = [one.name for one in file.schema if one.name not in _NO_MEASURES and pa.types.is_floating(one.type)]
        low, high = 0, len(file.group_sizes()) - 1
        while low <= high:
            group = (low + high) // 2
            ids = file.read_group(group, "id").to_numpy()
            if not len(ids) or ids[-1] < identity:
                low = group + 1
            elif ids[0] > identity:
                high = group - 1
            else:
                at = int(np.searchsorted(ids, identity))
                if at == len(ids) or ids[at] != identity:
                    return {}
                return {name: file.read_group(group, name)[at].as_py() for name in measures}
    return {}
