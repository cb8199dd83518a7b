"""How many labels are wrong: by confident learning from predicted probabilities, or by two humps of a score.

Northcutt, Jiang & Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", 2021, Sections 3.1 and 3.2.
The probabilities should come from models that did not train on the sample (cross-validation): a network that has
memorised a wrong label is confident in it, and the count comes out too low.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.cleaning.columns import matrix_of, score_names
from hardsight.dynamics import small_loss_mixture
from hardsight.validation import check_finite, check_labels

# The column of a table that holds probabilities of all classes.
PROBABILITIES = "probabilities"
# How far the label is ahead by probabilities that lie beside a training's record.
MARGIN = pa.field("margin_of_probabilities", pa.float64(), metadata={
    "kind": "score", "title": "Margin of the probabilities", "direction": "larger is easier"})  # fmt: skip

# Probabilities looked at in one go: 2**22 doubles are 32 MiB.
_PIECE = 2**22
# A class whose labels nobody believes has a threshold of about 0, which every sample would reach, also with a
# probability of 0.
_LEAST_THRESHOLD = 1e-6
# Ashman's D: two normal components are told apart above it (Ashman, Bird & Zepf 1994).
SEPARATED = 2.0
# A flat hump cut in half has a D of 3.5, so a valley must lie between: a stretch that by chance would hold as few
# samples, beside as many on either side, less often than this. Many stretches are tried: of sets drawn from one flat
# hump, 1 to 4 in 100 have such a valley (20 to 20,000 samples).
_CHANCE = 0.005
# The way from one component's mean to the other's in steps, and how many of them a place on a side is wide.
_STEPS, _WIDE = 16, 4
# Fewer different values than this are always in heaps: a score of 0 and 1 says nothing about two humps.
_FEWEST = 4


def class_thresholds(
    probabilities: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"], *, checked: bool = False
) -> Float[Tensor, "classes"]:
    """Mean probability of class j over the samples labelled j; 1 for a class that labels nothing.

    `checked`: both were looked at already. Of a million samples each look takes seconds.
    """
    if not checked:
        check_probabilities(probabilities, labels)
    own = probabilities.gather(1, labels.long().unsqueeze(1)).squeeze(1).double()
    classes = probabilities.shape[1]
    sums = torch.zeros(classes, dtype=torch.float64).index_add_(0, labels.long(), own)
    counts = torch.bincount(labels.long(), minlength=classes)
    return torch.where(counts > 0, sums / counts.clamp(min=1), 1.0)


def confident_class(
    probabilities: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"], *, checked: bool = False
) -> Int[Tensor, "samples"]:
    """The most probable of the classes whose probability reaches their threshold; -1 where none does.

    Of equally probable ones the label itself: a model that tells two classes apart by nothing contradicts no label.
    """
    means = class_thresholds(probabilities, labels, checked=checked)
    # Means are sums of roundings: a class all of whose members share one probability must reach its own mean. In
    # parts of the threshold, which may be smaller than a rounding of 1; and the mean of halves is no half.
    slack = 1e-9 + min(torch.finfo(dtype).eps for dtype in (probabilities.dtype, torch.float32))
    thresholds = means.clamp(min=_LEAST_THRESHOLD) * (1 - slack)

    def choose(rows: Tensor, own: Tensor) -> tuple[Tensor]:
        confident = torch.where(rows >= thresholds, rows, -1.0)
        highest, best = confident.max(1)
        best = torch.where(confident.gather(1, own).squeeze(1) == highest, own.squeeze(1), best)
        return (torch.where(highest >= 0, best, -1),)

    return in_pieces(choose, probabilities, labels)[0]


def confident_joint(
    probabilities: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"], *, checked: bool = False
) -> Float[Tensor, "classes classes"]:
    """Estimated number of samples labelled i (row) that are truly j (column), calibrated: rows sum to the label counts.

    A label class in which no sample is confident of anything counts as right.
    """
    truth = confident_class(probabilities, labels, checked=checked)
    classes = probabilities.shape[1]
    counted = truth >= 0
    cells = labels.long()[counted] * classes + truth[counted]
    counts = torch.bincount(cells, minlength=classes * classes).reshape(classes, classes).double()
    unseen = counts.sum(1) == 0
    counts[unseen, unseen] += 1
    label_counts = torch.bincount(labels.long(), minlength=classes).double()
    return counts * (label_counts / counts.sum(1)).unsqueeze(1)


def expected_issues(joint: Float[Tensor, "classes classes"]) -> float:
    """What of the joint lies off its diagonal: the estimated number of wrong labels."""
    return float(joint.sum() - joint.diagonal().sum())


def in_pieces(
    look: Callable[[Tensor, Tensor], tuple[Tensor, ...]], probabilities: Tensor, labels: Tensor
) -> list[Tensor]:
    """The columns that `look` makes of probabilities and a column of labels, from some samples after others.

    Each is allocated once: many small pieces would lie between the large ones, whose room could not be used again.
    """
    columns: list[Tensor] = []
    rows = max(1, _PIECE // probabilities.shape[1])
    for start in range(0, len(labels), rows):
        place = slice(start, start + rows)
        made = look(probabilities[place], labels[place].long().unsqueeze(1))
        columns = columns or [one.new_empty(len(labels)) for one in made]
        for column, part in zip(columns, made, strict=True):
            column[place] = part
    return columns


def check_probabilities(probabilities: Tensor, labels: Tensor) -> None:
    """Probabilities are [N, C] floats in [0, 1] that sum to 1, C >= 2; labels are [N] integers in [0, C)."""
    if not probabilities.is_floating_point() or probabilities.ndim != 2 or probabilities.shape[1] < 2:
        raise ValueError(
            "probabilities must be floats [samples, classes] of at least 2 classes; "
            f"got {probabilities.dtype} {list(probabilities.shape)}"
        )
    if len(probabilities) == 0:
        raise ValueError("probabilities must not be empty; got no samples")
    check_labels(labels, len(probabilities), probabilities.shape[1])
    # All while a piece is in the cache; halves are summed in more digits than they have.
    wide = torch.promote_types(probabilities.dtype, torch.float32)
    lowest, highest, sums = in_pieces(
        lambda rows, own: (rows.amin(1), rows.amax(1), rows.sum(1, dtype=wide)), probabilities, labels
    )
    low, high = float(lowest.min()), float(highest.max())
    if not math.isfinite(low) or not math.isfinite(high):
        check_finite("probabilities", probabilities)
    if low < 0 or high > 1 + 1e-3:
        raise ValueError(f"probabilities must lie in [0, 1]; got {low:g} to {high:g} (logits need a softmax first)")
    off = (sums - 1).abs() > 1e-2
    if bool(off.any()):
        first = int(off.nonzero()[0])
        raise ValueError(
            f"probabilities must sum to 1 for each sample; {int(off.sum())} rows do not, first row {first} "
            f"sums to {float(probabilities[first].sum()):g}"
        )


def beliefs_of(table: pa.Table, given: Tensor | np.ndarray | None = None) -> Tensor | None:
    """Probabilities [samples, classes]: those given, else those of the table's list column; None without either."""
    if given is None and PROBABILITIES in table.column_names:
        given = matrix_of(table.column(PROBABILITIES), PROBABILITIES)
    if given is None:
        return None
    beliefs = torch.as_tensor(given).detach().cpu()
    if beliefs.ndim != 2 or len(beliefs) != table.num_rows:
        raise ValueError(
            f"probabilities must be [samples, classes] with a row for each of the {table.num_rows} rows of the table; "
            f"got {list(beliefs.shape)}"
        )
    kind = table.schema.field("label").type
    if not pa.types.is_integer(kind):
        raise TypeError(f"label must be integers, the columns of probabilities; the table holds {kind}")
    return beliefs


def with_scores(table: pa.Table, beliefs: Tensor | None) -> pa.Table:
    """The table with `confidence`, `margin`, `el2n` and `predicted` of the probabilities, where it has no score.

    None needs logits: the margin is the logarithm of the label's probability over the largest other. A training's
    record has margins of its own: beside it there is `margin_of_probabilities` alone. Every sample has a label.
    """
    recorded = "el2n_mean" in table.column_names and MARGIN.name not in table.column_names
    if beliefs is None or (score_names(table) and not recorded):
        return table
    labels = torch.from_numpy(np.array(table.column("label").to_numpy(), np.int64))
    check_probabilities(beliefs, labels)
    confidence, margin, error = (pa.array(values.numpy()) for values in in_pieces(_scores, beliefs, labels))
    added = {MARGIN: margin} if recorded else {"confidence": confidence, "margin": margin, "el2n": error}
    for name, values in added.items():
        table = table.append_column(name, values)
    if "predicted" not in table.column_names:
        table = table.append_column("predicted", pa.array(beliefs.argmax(1).numpy()))
    return table


def _scores(beliefs: Tensor, column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    beliefs = beliefs.double()
    logarithms = beliefs.clamp_min(torch.finfo(torch.float64).tiny).log()
    other = logarithms.scatter(1, column, -torch.inf).amax(1)
    error = beliefs.scatter_add(1, column, torch.full(column.shape, -1.0, dtype=beliefs.dtype))
    margin = logarithms.gather(1, column).squeeze(1) - other
    return beliefs.gather(1, column).squeeze(1), margin, torch.linalg.vector_norm(error, dim=1)


@dataclass(frozen=True)
class TwoHumps:
    """A mixture of two normals fitted to a hardness score; `upper` is each sample's probability of the harder one.

    `separation` is Ashman's D, the distance of the means over the root of the mean variance. `count` is how many
    samples are more probably of the harder hump, and 0 where the humps are not separated or no valley lies between
    them: a mixture always finds two components, and one hump, skewed or flat, must not be cut in two.
    """

    upper: np.ndarray
    separation: float
    count: int


def fit_two_humps(hardness: np.ndarray) -> TwoHumps:
    """`small_loss_mixture` of any hardness score, and how far its components are apart.

    Samples whose score is missing or infinite have `upper` NaN.
    """
    values = np.where(np.isfinite(hardness), hardness, np.nan)
    upper = small_loss_mixture(torch.from_numpy(values)).numpy()
    values, known = values[~np.isnan(upper)], upper[~np.isnan(upper)]
    separation = _separation(values, known)
    apart = separation > SEPARATED and _has_valley(values, known)
    return TwoHumps(upper, separation, int((known > 0.5).sum()) if apart else 0)


def _has_valley(values: np.ndarray, upper: np.ndarray) -> bool:
    """Whether a stretch between the components' means is emptier than a place on either side of it.

    Of one hump none is, whatever its shape: at equal density, a sample of a place and a stretch lies in the place with
    the probability of the place's share of both widths.
    """
    from scipy.special import bdtrc

    ordered = np.sort(values)
    low, high = np.average(values, weights=1 - upper), np.average(values, weights=upper)
    places, reach = np.linspace(low, high, _STEPS + 1), (high - low) / _STEPS * _WIDE / 2
    starts = np.searchsorted(ordered, places - reach, "left")
    ends = np.searchsorted(ordered, places + reach, "right")
    counts = ends - starts
    # The fullest place up to each from the left, and from it on to the right.
    before, after = np.maximum.accumulate(counts), np.maximum.accumulate(counts[::-1])[::-1]
    # Every stretch from one place to the same or another one that leaves room for a place on both sides.
    first, last = np.triu_indices(_STEPS + 1 - 2 * _WIDE)
    first, last = first + _WIDE, last + _WIDE
    inside = ends[last] - starts[first]
    sides = np.minimum(before[first - _WIDE], after[last + _WIDE])
    share = _WIDE / (_WIDE + last - first + _WIDE)
    # As many on the side, or more, of all in the two.
    chances = np.where(sides > 0, bdtrc(np.maximum(sides - 1, 0), sides + inside, share), 1.0)
    return bool(chances.min() < _CHANCE)


def _separation(values: np.ndarray, upper: np.ndarray) -> float:
    shares = np.stack([1 - upper, upper])
    masses = shares.sum(1)
    if masses.min() <= 0 or len(np.unique(values)) < _FEWEST:
        return 0.0
    # Scaled, because the square of a large score may overflow and that of a small one vanish.
    values = (values - values.min()) / (values.max() - values.min())
    means = shares @ values / masses
    variances = (shares * (values - means[:, None]) ** 2).sum(1) / masses
    spread = np.sqrt(variances.mean())
    return float((means[1] - means[0]) / spread) if spread > 0 else np.inf
