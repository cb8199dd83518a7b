"""Joining two lists of ids: which rows belong together, how many do, and which id is the first that does not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Integer

from hardsight.alignment.inputs import FEWEST_PAIRS


@dataclass(frozen=True)
class Match:
    """Rows of the two lists that carry the same id, in the first's order, and the ids that only one of them has."""

    first: Integer[np.ndarray, "matched"]
    second: Integer[np.ndarray, "matched"]
    only_first: list[Any]
    only_second: list[Any]

    def sentence(self, names: tuple[str, str]) -> str:
        """How many ids match, and the first missing on either side."""
        count = len(self.first)
        text = f"{count:,} ids of {names[0]} and {names[1]} match"
        missing = [
            f"{len(only):,} of {here} are missing in {there}, first {only[0]!r}"
            for only, here, there in ((self.only_first, *names), (self.only_second, *reversed(names)))
            if only
        ]
        return "; ".join([text, *missing])


def match_ids(
    first: Sequence[Any], second: Sequence[Any], *, names: tuple[str, str] = ("first", "second"), partial: bool = False
) -> Match:
    """Match ids, as text where one side holds numbers and the other text; 7 and 7.0 are one id.

    One list may be part of the other. Where each has ids the other lacks, something is probably wrong: refused, unless
    `partial`. Refused in any case are ids that occur twice, missing ids, and fewer than 4 that match.
    """
    if not _same_kind(first, second):
        first, second = ([None if one is None else str(one) for one in ids] for ids in (first, second))
    places = _places(second, names[1])
    _places(first, names[0])
    rows = [(at, places[one]) for at, one in enumerate(first) if one in places]
    matched = np.array(rows, np.int64).reshape(-1, 2)
    inside = set(first)
    match = Match(
        first=matched[:, 0],
        second=matched[:, 1],
        only_first=[one for one in first if one not in places],
        only_second=[one for one in second if one not in inside],
    )
    if len(rows) < FEWEST_PAIRS:
        raise ValueError(f"at least {FEWEST_PAIRS} ids must match: {match.sentence(names)}")
    if match.only_first and match.only_second and not partial:
        raise ValueError(
            f"the ids of one table must all be in the other, or a partial match be asked for (--partial): "
            f"{match.sentence(names)}"
        )
    return match


def _same_kind(first: Sequence[Any], second: Sequence[Any]) -> bool:
    kinds = ({float if isinstance(one, int) else type(one) for one in ids} for ids in (first, second))
    return next(kinds) == next(kinds)


def _places(ids: Sequence[Any], name: str) -> dict[Any, int]:
    places: dict[Any, int] = {}
    for at, one in enumerate(ids):
        if one is None:
            raise ValueError(f"every row of {name} must have an id; row {at + 1} has none")
        if one in places:
            raise ValueError(f"ids of {name} must be unique; {one!r} occurs in rows {places[one] + 1} and {at + 1}")
        places[one] = at
    return places
