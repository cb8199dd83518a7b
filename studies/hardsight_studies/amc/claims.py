"""What AMC-Loss is claimed to do, held against the numbers of the other losses, over seeds."""

from hardsight_studies.engine.rows import Number, Rows
from hardsight_studies.engine.study import get

# AMC-Loss of a weight, against the Euclidean loss of the same weight and against cross-entropy.
_PAIRS = (
    ("amc", "euclidean"), ("amc", "cross-entropy"), ("amc-0.1", "euclidean-0.1"), ("amc-0.1", "cross-entropy"),
)  # fmt: skip


def claims(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """A line for each data set and claim, a column for each comparison.

    The study lists its claims by metric: in words, and whether AMC-Loss would have to raise (1) or lower (-1) it.
    """
    losses = rows.options("loss")
    pairs = [pair for pair in _PAIRS if set(pair) <= set(losses)]
    lines = []
    for data in rows.options("data"):
        for metric, (words, sign) in get(rows.study).entry("table", "claims")["lines"].items():
            numbers = {loss: rows.number(metric, data=data, loss=loss) for loss in losses}
            found = [(numbers[ours], numbers[theirs]) for ours, theirs in pairs]
            if found and all(one is not None for pair in found for one in pair):
                lines.append([data, words, *(verdict(*pair, sign) for pair in found)])  # type: ignore[arg-type]
    return ["data", "claim", *(f"{ours} against {theirs}" for ours, theirs in pairs)], lines


def verdict(ours: Number, theirs: Number, sign: int) -> str:
    """`yes (+0.0654 ± 0.0131)`: the difference of means and its standard error; of a single seed the difference alone.

    Yes where it is more than twice its error and has the claimed sign, `no` where it has the other one, `open` where
    it is smaller.
    """
    value = ours.mean - theirs.mean
    if ours.sd is None or theirs.sd is None:
        return f"{value:+.4f}"
    error = (ours.sd**2 / ours.count + theirs.sd**2 / theirs.count) ** 0.5
    said = "open" if abs(value) <= 2 * error else "yes" if sign * value > 0 else "no"
    return f"{said} ({value:+.4f} ± {error:.4f})"
