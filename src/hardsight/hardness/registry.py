"""The scores by name, each with what it needs, its range, its direction and where it comes from."""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ParamSpec

from torch import Tensor

from hardsight.hardness.columns import ClassSummary, Part
from hardsight.names import unknown_name

P = ParamSpec("P")


@dataclass(frozen=True)
class Score:
    """One number per sample. `name` is its column in a table; `needs` names the arguments of `definition`, in order.

    `from_summary` computes the same from a `ClassSummary` and reads only its `parts`; scores of training have none,
    nor has a score that needs the features of other samples. `measures` is what a recorder must measure for the score;
    None for a score that a recorder does not give. `low` and `high` bound the values for `classes` classes.
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
    tags: frozenset[str] = frozenset()
    measures: tuple[str, ...] | None = None

    @property
    def direction(self) -> str:
        """In words, as tables and pages show it."""
        return "larger is harder" if self.larger_is_harder else "larger is easier"

    def bounds(self, classes: int) -> tuple[float, float]:
        """Smallest and largest possible value for this many classes."""
        return self.low, self.high(classes) if callable(self.high) else self.high

    def describe(self, classes: int) -> dict[str, str]:
        """Metadata of this score's column in a table (Parquet)."""
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
        """The values, negated where larger is easier, so that larger is harder."""
        return values if self.larger_is_harder else -values


SCORES: dict[str, Score] = {}


def register(
    name: str,
    title: str,
    *,
    source: str,
    larger_is_harder: bool,
    low: float = 0.0,
    high: Callable[[int], float] | float = math.inf,
    parts: Iterable[Part] = (),
    from_summary: Callable[[ClassSummary], Tensor] | None = None,
    tags: Iterable[str] = (),
    measures: tuple[str, ...] | None = None,
) -> Callable[[Callable[P, Tensor]], Callable[P, Tensor]]:
    """Register the decorated function as the definition of a score, which needs what its parameters are called.

    Keyword-only parameters are options. The name must be new; the arguments are those of `Score`.
    """
    if name in SCORES:
        raise ValueError(f"name must be new among the scores; {name!r} is registered already")

    def add(definition: Callable[P, Tensor]) -> Callable[P, Tensor]:
        parameters = inspect.signature(definition).parameters.values()
        needs = tuple(one.name for one in parameters if one.kind is not one.KEYWORD_ONLY)
        SCORES[name] = Score(
            name, title, definition, needs, larger_is_harder, low, high, source,
            frozenset(parts), from_summary, frozenset(tags), measures,
        )  # fmt: skip
        return definition

    return add


def get_score(name: str, among: Iterable[str] | None = None) -> Score:
    """The score of that name; an unknown name raises, naming the nearest of `among` (by default, of all)."""
    if name not in SCORES:
        raise unknown_name("scores", name, sorted(SCORES if among is None else among), "scores")
    return SCORES[name]


def model_scores() -> list[Score]:
    """The scores that one forward pass gives for each sample by itself."""
    return [score for score in SCORES.values() if score.from_summary is not None]


def parts_of(scores: Iterable[Score]) -> frozenset[Part]:
    """What a summary must hold for these scores."""
    return frozenset().union(*(score.parts for score in scores))
