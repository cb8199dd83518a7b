"""Words that the tables and sentences of all studies share."""

from collections.abc import Iterable, Sequence


def plural(count: int, word: str) -> str:
    """`1 run`, `5 runs`."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def listed(texts: Sequence[str], between: str = ", ") -> str:
    """`a, b and c`."""
    return texts[0] if len(texts) == 1 else f"{between.join(texts[:-1])} and {texts[-1]}"


def slashed(values: Iterable[int | float], shape: str = "+.1f") -> str:
    """`+11.5/-3.0/+0.2`: a row of numbers, each shown alike."""
    return "/".join(f"{value:{shape}}" for value in values)


def percents(shares: Iterable[float]) -> str:
    """`20/40/60`: a row of shares in whole percents."""
    return slashed((100 * share for share in shares), ".0f")


def above_or_below(points: float, digits: int = 1) -> str:
    """`3.5 points below`, of a difference in points."""
    return f"{abs(points):.{digits}f} points {'below' if points < 0 else 'above'}"


def training_images(limit: int | None, shrink: int = 1) -> str:
    """`the first 2,000 training images, 2 x 2 pixels averaged`."""
    images = f"the first {limit:,} training images" if limit else "all training images"
    return images if shrink == 1 else f"{images}, {shrink} x {shrink} pixels averaged"


def terms(*definitions: str) -> str:
    """The definitions that a page needs, as a list under one head."""
    return "\n".join(("**Terms.**\n", *definitions))
