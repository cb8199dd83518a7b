"""Scores turned one way: a positive correlation with the human column means agreement with people."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from hardsight.alignment.coefficients import COEFFICIENTS
from hardsight.alignment.inputs import as_pairs

DIRECTIONS = ("harder", "easier")


@dataclass(frozen=True)
class Column:
    """A named column, and whether larger means "harder" or "easier"; None where nobody wrote it down."""

    name: str
    values: Any
    direction: str | None = None
    title: str | None = None


@dataclass(frozen=True)
class Turned:
    """Scores that all point the way of the human column; `around` says which had to be multiplied by -1."""

    names: tuple[str, ...]
    scores: Float[np.ndarray, "scores samples"]
    around: tuple[bool, ...]
    human: Float[np.ndarray, "samples"]

    def given(self, at: int) -> Float[np.ndarray, "samples"]:
        """A score as it was given."""
        return -self.scores[at] if self.around[at] else self.scores[at]


def turn(scores: Sequence[Column], human: Column, method: str = "spearman") -> Turned:
    """Turn scores by their direction, or to the side they lean to by this coefficient.

    A human column without a direction is taken as "easier".
    """
    if not scores:
        raise ValueError("scores must hold at least one column; got none")
    names = tuple(score.name for score in scores)
    if len(set(names)) < len(names):
        raise ValueError(f"scores must have different names; got {', '.join(names)}")
    for column in (*scores, human):
        if column.direction not in (None, *DIRECTIONS):
            raise ValueError(f"direction must be harder, easier or None; for {column.name!r} got {column.direction!r}")
    turned, around = [], []
    for score in scores:
        x, y = as_pairs(**{f"score {score.name!r}": score.values, f"human column {human.name!r}": human.values})
        if score.direction is None:
            around.append(COEFFICIENTS[method](x, y) < 0)
        else:
            around.append(score.direction != (human.direction or "easier"))
        turned.append(-x if around[-1] else x)
    return Turned(names, np.stack(turned), tuple(around), y)
