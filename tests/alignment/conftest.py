"""Columns to correlate, and the three coefficients as slow loops in float64."""

from collections.abc import Callable

import numpy as np
import pytest

Columns = tuple[np.ndarray, np.ndarray]


def _loop_ranks(values: np.ndarray) -> list[float]:
    return [
        1 + sum(other < one for other in values) + (sum(other == one for other in values) - 1) / 2 for one in values
    ]


def _loop_pearson(x: list[float], y: list[float]) -> float:
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    top = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return top / (sum((a - mean_x) ** 2 for a in x) * sum((b - mean_y) ** 2 for b in y)) ** 0.5


def _loop_kendall(x: list[float], y: list[float]) -> float:
    together = untied_x = untied_y = 0
    for i in range(len(x)):
        for j in range(i):
            across, up = np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
            together += across * up
            untied_x += across != 0
            untied_y += up != 0
    return together / (untied_x * untied_y) ** 0.5


@pytest.fixture(scope="session")
def slow() -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
    """Each coefficient by its definition."""
    return {
        "pearson": lambda x, y: _loop_pearson(list(x), list(y)),
        "spearman": lambda x, y: _loop_pearson(_loop_ranks(x), _loop_ranks(y)),
        "kendall": lambda x, y: _loop_kendall(list(x), list(y)),
    }


@pytest.fixture
def make_columns() -> Callable[..., Columns]:
    """A score and a human column of `n` samples that share a cause; rounded, so that both have ties."""

    def make(n: int, seed: int = 0, ties: bool = True) -> Columns:
        generator = np.random.default_rng(seed)
        cause = generator.standard_normal(n)
        score, human = cause + generator.standard_normal(n), cause + 0.5 * generator.standard_normal(n)
        return (score.round(1), human.round(0)) if ties else (score, human)

    return make
