"""What AMC-Loss is claimed to do, held against the numbers of the other losses, over seeds."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hardsight_studies.engine.rows import Number, Rows

# In words, and whether AMC-Loss would have to raise (+1) or lower (-1) the number.
Claims = dict[str, tuple[str, int]]
_FEATURES: Claims = {
    "within": ("two samples of a class are closer (mean angle)", -1),
    "between": ("two classes are farther apart (mean angle)", 1),
    "silhouette": ("classes are better separated (silhouette)", 1),
    "cluster_v_measure": ("clusters agree better with the classes (V-measure)", 1),
    "v_measure": ("predictions agree better with the classes (V-measure)", 1),
}
_ATTENTION: Claims = {
    "energy_on_object": ("more of the map lies on the object", 1),
    "pointing_game": ("the map's peak lies on the object more often", 1),
    "half_energy_area": ("maps are more compact (half-energy area)", -1),
    "insertion_minus_deletion": ("the prediction rests more on what the map shows (insertion − deletion)", 1),
    "energy_in_middle": ("more of the map lies in the middle", 1),
}
# AMC-Loss of a weight, against the Euclidean loss of the same weight and against cross-entropy.
_PAIRS = (
    ("amc", "euclidean"), ("amc", "cross-entropy"), ("amc-0.1", "euclidean-0.1"), ("amc-0.1", "cross-entropy"),
)  # fmt: skip


class Difference(NamedTuple):
    """AMC minus the other loss: of the means over seeds, and its standard error; None of a single seed."""

    value: float
    error: float | None

    def shown(self, sign: int) -> str:
        """`yes (+0.0654 ± 0.0131)` where the difference is more than twice its error and has the claimed sign.

        `no` where it has the other one, `open` where it is smaller; of a single seed the difference alone.
        """
        if self.error is None:
            return f"{self.value:+.4f}"
        verdict = "open" if abs(self.value) <= 2 * self.error else "yes" if sign * self.value > 0 else "no"
        return f"{verdict} ({self.value:+.4f} ± {self.error:.4f})"


def features(rows: "Rows") -> tuple[list[str], list[list[str]]]:
    """The claims about features."""
    return _table(rows, _FEATURES)


def attention(rows: "Rows") -> tuple[list[str], list[list[str]]]:
    """The claims about maps."""
    return _table(rows, _ATTENTION)


def difference(ours: "Number", theirs: "Number") -> Difference:
    """How two means over seeds differ, and how sure that is."""
    value = ours.mean - theirs.mean
    if ours.sd is None or theirs.sd is None:
        return Difference(value, None)
    return Difference(value, (ours.sd**2 / ours.count + theirs.sd**2 / theirs.count) ** 0.5)


def _table(rows: "Rows", claims: Claims) -> tuple[list[str], list[list[str]]]:
    """A line for each data set and claim, a column for each comparison."""
    losses = rows.options("loss")
    pairs = [pair for pair in _PAIRS if set(pair) <= set(losses)]
    lines = []
    for data in rows.options("data"):
        for metric, (words, sign) in claims.items():
            numbers = {loss: rows.number(metric, data=data, loss=loss) for loss in losses}
            found = [(numbers[ours], numbers[theirs]) for ours, theirs in pairs]
            if found and all(one is not None for pair in found for one in pair):
                lines.append([data, words, *(difference(*pair).shown(sign) for pair in found)])  # type: ignore[arg-type]
    return ["data", "claim", *(f"{ours} against {theirs}" for ours, theirs in pairs)], lines
