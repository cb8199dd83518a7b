"""The scores by name, each with what it needs, its range, its direction and where it comes from."""

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ParamSpec

import torch
from torch import Tensor

from hardsight.geometry import widen
from hardsight.hardness.columns import ClassSummary, Part
from hardsight.names import unknown_name
from hardsight.validation import (
    check_features,
    check_features_and_weight,
    check_integers,
    check_labels,
    check_logits,
)

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
    source: str
    low: float = 0.0
    high: Callable[[int], float] | float = math.inf
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
        described = {"title": self.title, "direction": self.direction, "range": f"[{low:g}, {high:.6g}]"}
        return {"kind": "score", **described, "source": self.source}

    def hardness(self, values: Any) -> Any:
        """The values, negated where larger is easier, so that larger is harder."""
        return values if self.larger_is_harder else -values


SCORES: dict[str, Score] = {}
_GIVEN_BY_A_MODEL = frozenset({"features", "weight", "logits", "labels"})


def register(
    name: str, title: str, *, parts: Iterable[Part] = (), tags: Iterable[str] = (), **about: Any
) -> Callable[[Callable[P, Tensor]], Callable[P, Tensor]]:
    """Register the decorated function as the definition of a score, which needs what its parameters are called.

    Keyword-only parameters are options. The name must be new; `about` are the other fields of `Score`. A function of
    features, weight, logits and labels gets them checked and in single precision at least; what it returns is rounded
    once, to the finest precision of what was given.
    """
    if name in SCORES:
        raise ValueError(f"name must be new among the scores; {name!r} is registered already")

    def add(definition: Callable[P, Tensor]) -> Callable[P, Tensor]:
        parameters = inspect.signature(definition).parameters.values()
        needs = tuple(one.name for one in parameters if one.kind is not one.KEYWORD_ONLY)
        whole = _of_a_model(definition, needs) if _GIVEN_BY_A_MODEL.issuperset(needs) else definition
        SCORES[name] = Score(name, title, whole, needs, parts=frozenset(parts), tags=frozenset(tags), **about)
        return whole

    return add


def _of_a_model(definition: Callable[..., Tensor], needs: tuple[str, ...]) -> Callable[..., Tensor]:
    @functools.wraps(definition)
    def whole(*values: Any, **options: Any) -> Tensor:
        given = dict(zip(needs, values, strict=False))
        given |= {need: options.pop(need) for need in needs if need in options}
        _check(**given)
        wide = {need: value.long() if need == "labels" else widen(value) for need, value in given.items()}
        return rounded(definition(**wide, **options), *(given[need] for need in needs if need != "labels"))

    return whole


def _check(
    features: Tensor | None = None,
    weight: Tensor | None = None,
    logits: Tensor | None = None,
    labels: Tensor | None = None,
) -> None:
    if features is not None and weight is not None:
        check_features_and_weight(features, weight)
    elif features is not None:
        check_features(features)
    if logits is not None:
        check_logits(logits)
    classes = next((one.shape[dim] for one, dim in ((logits, 1), (weight, 0)) if one is not None), None)
    samples = next((len(one) for one in (features, logits) if one is not None), 0)
    if labels is not None:
        check_integers("labels", labels)
        # Without a head, any number is a class.
        check_labels(labels, samples, classes or (int(labels.long().max()) + 1 if labels.numel() else 0))


def rounded(values: Tensor, *like: Tensor) -> Tensor:
    """The values in the finest precision of the inputs; where one exceeds the largest number, that is taken instead."""
    dtype = functools.reduce(torch.promote_types, (one.dtype for one in like))
    largest = torch.finfo(dtype).max
    return values.clamp(-largest, largest).to(dtype)


def get_score(name: str, among: Iterable[str] | None = None) -> Score:
    """The score of that name; an unknown name raises, naming the nearest of `among` (by default, of all)."""
    if name not in SCORES:
        raise unknown_name("scores", name, sorted(SCORES if among is None else among), "scores")
    return SCORES[name]


def named_scores(names: Iterable[str], among: Iterable[str] | None = None) -> list[Score]:
    """The scores of these names, at least one; unknown ones raise."""
    chosen = [get_score(name, among) for name in ([names] if isinstance(names, str) else names)]
    if not chosen:
        raise ValueError("scores must name at least one score; got none")
    return chosen


def model_scores() -> list[Score]:
    """The scores that one forward pass gives for each sample by itself."""
    return [score for score in SCORES.values() if score.from_summary is not None]


def parts_of(scores: Iterable[Score]) -> frozenset[Part]:
    """What a summary must hold for these scores."""
    return frozenset().union(*(score.parts for score in scores))
