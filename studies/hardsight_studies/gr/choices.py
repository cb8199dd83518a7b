"""What automatic gradient rescaling estimated and chose, from the epochs of its record."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from torch import nn

from hardsight_studies.engine.trainings import Training
from hardsight_studies.gr.classes import weakest_class


def choice(folder: Path) -> dict[str, Any]:
    """The rate that it estimated, the last beta and lam (null: cross-entropy), and whether it gave them up.

    Empty of a training that chooses nothing.
    """
    epochs = pq.read_table(folder / "epochs.parquet").to_pydict()
    rates = epochs.get("estimated_noise_rate", [])
    decided = next((at for at, rate in enumerate(rates) if rate is not None), None)
    if decided is None:
        return {}
    betas, lams = (epochs.get(name, [None] * len(rates))[decided:] for name in ("beta", "lam"))
    # The last before it fell back, where it did.
    beta, lam = ([None, *(value for value in one if value is not None)][-1] for one in (betas, lams))
    fell_back = int(betas[0] is not None and betas[-1] is None)
    return {"estimated_rate": rates[decided], "chosen_beta": beta, "chosen_lam": lam, "fell_back": fell_back}


def measure(training: Training, model: nn.Module) -> Mapping[str, Any]:
    """What automatic rescaling chose."""
    return choice(training.folder)


def choice_and_weakest(training: Training, model: nn.Module) -> Mapping[str, Any]:
    """What automatic rescaling chose, and the class that the network knows least."""
    return {**choice(training.folder), **weakest_class(training.folder)}
