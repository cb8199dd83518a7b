"""Score tables with known wrong labels, small enough to reason about."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from hardsight.hardness import SCORES


def _table(columns: dict[str, object], classes: int = 3) -> pa.Table:
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    fields = [
        pa.field(name, array.type, metadata=SCORES[name].describe(classes) if name in SCORES else None)
        for name, array in arrays.items()
    ]
    return pa.table(list(arrays.values()), schema=pa.schema(fields))


@pytest.fixture
def make_table() -> Callable[..., pa.Table]:
    """A score table from plain columns, described as the library's own tables are."""
    return _table


@pytest.fixture
def noisy() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities [N, 4], given labels and true labels: 15 % of the labels flipped, beliefs that know the truth."""
    generator = np.random.default_rng(5)
    truth = generator.integers(0, 4, 600)
    labels = np.where(generator.random(600) < 0.15, (truth + generator.integers(1, 4, 600)) % 4, truth)
    logits = generator.normal(0, 1, (600, 4)) + 4 * np.eye(4)[truth]
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(1, keepdims=True), labels, truth
