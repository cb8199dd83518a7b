"""When a curve reaches its plateau, and what norm, AVH and accuracy do before and after: two phases, measured.

The rule: a curve has settled at the first time from which it stays within a tenth of its whole range of its last
value. Beside it is the knot of a broken stick, which needs no tolerance. Times are counted from 1.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

TOLERANCE = 0.1


def settling_time(values: Float[np.ndarray, "times"] | Sequence[float], tolerance: float = TOLERANCE) -> int:
    """First time from which the curve stays within `tolerance` of its range of its last value; 1 for a constant.

    >>> settling_time([1.0, 0.5, 0.2, 0.11, 0.1, 0.1])
    4
    """
    curve = _curve(values, 1)
    outside = np.abs(curve - curve[-1]) > tolerance * np.ptp(curve)
    return int(outside.nonzero()[0][-1]) + 2 if outside.any() else 1


def knot(values: Float[np.ndarray, "times"] | Sequence[float]) -> int:
    """Where the two pieces meet of the continuous line with the least squared error; it lies inside the curve."""
    curve = _curve(values, 4)
    times = np.arange(1.0, len(curve) + 1)
    best, least = 0, np.inf
    for at in range(2, len(curve)):
        basis = np.stack([np.ones_like(times), times - at, np.maximum(times - at, 0)], 1)
        weights, *_ = np.linalg.lstsq(basis, curve, rcond=None)
        error = float(((basis @ weights - curve) ** 2).sum())
        # Of equal errors the earliest knot: rounding must not choose.
        if error < least * (1 - 1e-9) - 1e-18:
            best, least = at, error
    return best


def phases(curves: Mapping[str, Sequence[float]]) -> dict[str, float | int]:
    """Norm, AVH and accuracy around AVH's plateau: when it comes, what is left to gain, how fast what changes.

    `curves` holds `norm`, `avh` and `correct` over time. Rates are relative, per unit of time: differences of
    logarithms; where the plateau leaves no time before or after it, there is none.
    """
    norm, avh, accuracy = (_curve(curves[name], 4) for name in ("norm", "avh", "correct"))
    plateau = settling_time(avh)
    at, end = plateau - 1, len(norm) - 1
    return {
        "plateau": plateau,
        "knot": knot(avh),
        "best_time": int(accuracy.argmax()) + 1,
        "best_accuracy": float(accuracy.max()),
        "last_accuracy": float(accuracy[-1]),
        "accuracy_at_plateau": float(accuracy[at]),
        "accuracy_settled": settling_time(accuracy),
        "norm_settled": settling_time(norm),
        "norm_growth": _growth(norm, 0),
        "norm_growth_after": _growth(norm, at),
        "norm_rises": float((np.diff(norm) > 0).mean()),
        "norm_rate_before": _rate(norm, 0, at),
        "norm_rate_after": _rate(norm, at, end),
        "avh_rate_before": _rate(avh, 0, at),
        "avh_rate_after": _rate(avh, at, end),
        "avh_last": float(avh[-1]),
        "avh_mean": float(avh.mean()),
    }


def ordered_share(by_group: Sequence[Sequence[float | None]], *, falling: bool) -> float:
    """Share of the times at which the groups' curves are in order: each below the one before it, or above.

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
