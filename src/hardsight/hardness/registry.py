"""The scores by name, each with what it needs, its range, its direction and where it comes from."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from hardsight.hardness.columns import ClassSummary, Part
from hardsight.names import unknown_name


@dataclass(frozen=True)
class Score:
    """One number per sample. `name` is its column in a table; `needs` names the arguments of `definition`, in order.

    `from_summary` computes the same from a `ClassSummary` and reads only its `parts`; a score of training dynamics
    has none, nor one that needs the features of other samples. `low` and `high` bound the values for `classes` classes.
    """

    name: str
    title: str
    definition: Callable[..., Tensor]
    needs: tuple[str, ...]
    larger_is_harder: bool
    low: float
    high: Callable[[int], float] | float
    source: str
    parts: frozenset[Part] = frozenset()
    from_summary: Callable[[ClassSummary], Tensor] | None = None
    tags: frozenset[str] = field(default=frozenset())

    @property
    def direction(self) -> str:
        """In words, as tables and pages print it."""
        return "larger is harder" if self.larger_is_harder else "larger is easier"

    def bounds(self, classes: int) -> tuple[float, float]:
        """Smallest and largest possible value for this many classes."""
        return self.low, self.high(classes) if callable(self.high) else self.high

    def describe(self, classes: int) -> dict[str, str]:
        """What a table says of this score's column (Parquet field metadata)."""
        low, high = self.bounds(classes)
        range_ = f"[{low:g}, {high:.6g}]"
        return {
            "kind": "score",
            "title": self.title,
            "direction": self.direction,
            "range": range_,
            "source": self.source,
        }

    def hardness(self, values: Any) -> Any:
        """The values turned so that larger is harder."""
        return values if self.larger_is_harder else -values


SCORES: dict[str, Score] = {}


def register(score: Score) -> Score:
    """Add a score to the registry; its name must be new."""
    if score.name in SCORES:
        raise ValueError(f"score must have a new name; {score.name!r} is registered already")
    SCORES[score.name] = score
    return score


def get_score(name: str, among: Iterable[str] | None = None) -> Score:
    """The score of that name; one that is not known is told which of `among` (all) was probably meant."""
    if name not in SCORES:
        raise unknown_name("scores", name, sorted(SCORES if among is None else among), "scores")
    return SCORES[name]


def model_scores() -> list[Score]:
    """The scores that one look at a model gives, sample by sample (those of training dynamics need a training run)."""
    return [score for score in SCORES.values() if score.from_summary is not None]


def parts_of(scores: Iterable[Score]) -> frozenset[Part]:
    """What a summary must hold for these scores."""
    return frozenset().union(*(score.parts for score in scores))
