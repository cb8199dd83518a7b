"""When a curve reaches its plateau, and what norm, AVH and accuracy do before and after: two phases, measured.

The rule: a curve has settled at the first time from which it stays within a tenth of its whole range of its last
value. Beside it stands the knot of a broken stick, which asks for no tolerance. Times are counted from 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

TOLERANCE = 0.1


@dataclass(frozen=True)
class BrokenStick:
    """Two straight lines that meet at `knot`: slopes a unit of time before and after it, and the squared error."""

    knot: int
    before: float
    after: float
    error: float


def settling_time(values: Float[np.ndarray, "times"] | Sequence[float], tolerance: float = TOLERANCE) -> int:
    """First time from which the curve stays within `tolerance` of its range of its last value; 1 for a constant.

    >>> settling_time([1.0, 0.5, 0.2, 0.11, 0.1, 0.1])
    4
    """
    curve = _curve(values, 1)
    if not 0 <= tolerance <= 1:
        raise ValueError(f"tolerance must lie in [0, 1], a share of the curve's range; got {tolerance!r}")
    outside = np.abs(curve - curve[-1]) > tolerance * np.ptp(curve)
    return int(outside.nonzero()[0][-1]) + 2 if outside.any() else 1


def broken_stick(values: Float[np.ndarray, "times"] | Sequence[float]) -> BrokenStick:
    """The continuous line of two pieces with the least squared error; its knot lies inside the curve."""
    curve = _curve(values, 4)
    times = np.arange(1.0, len(curve) + 1)
    best = BrokenStick(0, 0.0, 0.0, np.inf)
    for knot in range(2, len(curve)):
        basis = np.stack([np.ones_like(times), times - knot, np.maximum(times - knot, 0)], 1)
        weights, *_ = np.linalg.lstsq(basis, curve, rcond=None)
        error = float(((basis @ weights - curve) ** 2).sum())
        # Of equal errors the earliest knot: rounding must not choose.
        if error < best.error * (1 - 1e-9) - 1e-18:
            best = BrokenStick(knot, float(weights[1]), float(weights[1] + weights[2]), error)
    return best


def phases(curves: Mapping[str, Sequence[float]]) -> dict[str, float | int]:
    """Norm, AVH and accuracy around AVH's plateau: when it comes, what is left to gain, how fast what changes.

    `curves` holds `norm`, `avh` and `correct` over time. Rates are relative, a unit of time: differences of logarithms;
    where the plateau leaves no time before or after it, there is none.
    """
    norm, avh, accuracy = (_curve(curves[name], 4) for name in ("norm", "avh", "correct"))
    plateau = settling_time(avh)
    best = int(accuracy.argmax()) + 1
    at = plateau - 1
    steps = np.diff(norm)
    return {
        "plateau": plateau,
        "knot": broken_stick(avh).knot,
        "best_time": best,
        "best_accuracy": float(accuracy.max()),
        "last_accuracy": float(accuracy[-1]),
        "accuracy_at_plateau": float(accuracy[at]),
        "accuracy_settled": settling_time(accuracy),
        "norm_settled": settling_time(norm),
        "norm_growth": _growth(norm, 0),
        "norm_growth_after": _growth(norm, at),
        "norm_rises": float((steps > 0).mean()),
        "norm_rate_before": _rate(norm, 0, at),
        "norm_rate_after": _rate(norm, at, len(norm) - 1),
        "avh_rate_before": _rate(avh, 0, at),
        "avh_rate_after": _rate(avh, at, len(avh) - 1),
        "avh_last": float(avh[-1]),
        "avh_mean": float(avh.mean()),
    }


def ordered_share(by_group: Sequence[Sequence[float | None]], *, falling: bool) -> float:
    """Share of the times at which the groups' curves stand in order: each below the one before it, or above.

    Groups without numbers are left out.
    """
    curves = np.array([one for one in by_group if all(value is not None for value in one)], dtype=np.float64)
    curves = curves[np.isfinite(curves).all(1)]
    if len(curves) < 2:
        return float("nan")
    steps = np.diff(curves, axis=0)
    return float(((steps < 0) if falling else (steps > 0)).all(0).mean())


def _growth(values: np.ndarray, start: int) -> float:
    return float(values[-1] / values[start] - 1) if values[start] > 0 else float("nan")


def _rate(values: np.ndarray, start: int, end: int) -> float:
    if end == start or values[start] <= 0 or values[end] <= 0:
        return float("nan")
    return float(np.log(values[end] / values[start]) / (end - start))


def _curve(values: Float[np.ndarray, "times"] | Sequence[float], least: int) -> np.ndarray:
    curve = np.asarray(values, np.float64)
    if curve.ndim != 1 or len(curve) < least or not np.isfinite(curve).all():
        raise ValueError(f"values must be at least {least} finite numbers, one a time; got {list(curve.shape)}")
    return curve
