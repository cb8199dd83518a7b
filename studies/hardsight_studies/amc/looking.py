"""What the studies of AMC-Loss share: the test set through the trained network, numbers over seeds and the p-values of
their differences, and whether AMC-Loss does what is claimed of it.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardsight.datasets.loader import DeviceLoader
from hardsight.training import Cell
from hardsight_studies.framework import finished_cells, markdown_table, run_details, shown, spread
from hardsight_studies.outputs import outputs_of


def normalised(loader: DeviceLoader, count: int | None = None) -> tuple[Tensor, Tensor]:
    """The first images of a set as the network gets them, and their labels."""
    images, labels, seen = [], [], 0
    for batch, targets, _ in loader:
        images.append(batch)
        labels.append(targets)
        seen += len(targets)
        if count is not None and seen >= count:
            break
    return torch.cat(images)[:count], torch.cat(labels)[:count]


def look(model: nn.Module, loader: DeviceLoader) -> tuple[Tensor, Tensor, Tensor]:
    """Features, predictions and labels of a set, on the host."""
    seen = outputs_of(model, loader)
    return seen.features.cpu(), seen.logits.argmax(1).cpu(), seen.labels.cpu()


def finished(folder: Path, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """What the finished ones of these cells measured, in their order."""
    return [run_details(folder / cell.name)["results"] for cell in finished_cells(folder, cells)]


def over_seeds(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """`spread` of each number over the runs that have it; None where none has."""
    found: dict[str, Any] = {}
    for name in names:
        values = [float(row[name]) for row in rows if row.get(name) is not None]
        found[name] = spread(values) if values else None
    return found


def four(number: Mapping[str, Any] | None) -> str:
    """`0.9712 ± 0.0021`; nothing where there is no number."""
    return shown(number, 4)


def p_value(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Two-sided p of Student's t-test for two independent means; None where runs are too few or all alike."""
    if min(len(ours), len(theirs)) < 2 or statistics.pvariance(ours) + statistics.pvariance(theirs) == 0:
        return None
    from scipy.stats import ttest_ind

    # Four digits that count: a p-value is never zero.
    return float(f"{ttest_ind(ours, theirs).pvalue:.4g}")


def shown_p(value: float | None) -> str:
    """A p-value with two digits that count."""
    return "" if value is None else f"{value:.2g}"


# ---------------------------------------------------------------------------------------------------------------------
# Claims: a number that AMC-Loss would have to raise or lower, against another loss.


class Claim(NamedTuple):
    """The claim in words, and whether AMC would have to raise (+1) or lower (-1) the number for it to hold."""

    words: str
    sign: int


class Difference(NamedTuple):
    """Ours minus theirs, and its standard error; None where one of them ran once."""

    value: float
    error: float | None

    def verdict(self, sign: int) -> str:
        """`yes` or `no` where it is more than twice its standard error, else `open`; nothing of a single run."""
        if self.error is None:
            return ""
        if abs(self.value) <= 2 * self.error:
            return "open"
        return "yes" if sign * self.value > 0 else "no"

    def shown(self, sign: int) -> str:
        """`yes (+0.0654 ± 0.0131)`; of a single run the difference alone."""
        if self.error is None:
            return f"{self.value:+.4f}"
        return f"{self.verdict(sign)} ({self.value:+.4f} ± {self.error:.4f})"


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Difference:
    """How two means over seeds differ, and how sure that is."""
    value = ours["mean"] - theirs["mean"]
    if ours["sd"] is None or theirs["sd"] is None:
        return Difference(value, None)
    return Difference(value, sum(one["sd"] ** 2 / len(one["values"]) for one in (ours, theirs)) ** 0.5)


def claims_part(
    claims: Mapping[str, Claim], losses: Mapping[str, Any], pairs: Mapping[str, tuple[str, str]]
) -> list[str]:
    """A legend, a table with a row a claim and a column a comparison, and a sentence each; nothing where none is made.

    `pairs`: which two of the losses a comparison, by its name, takes: ours and theirs.
    """
    pairs = {name: pair for name, pair in pairs.items() if all(loss in losses for loss in pair)}
    known = {
        key: claim
        for key, claim in claims.items()
        if all(losses[loss][key] for pair in pairs.values() for loss in pair)
    }
    if not pairs or not known:
        return []
    found = {
        name: {key: difference(losses[ours][key], losses[theirs][key]) for key in known}
        for name, (ours, theirs) in pairs.items()
    }
    rows = [[claim.words, *(one[key].shown(claim.sign) for one in found.values())] for key, claim in known.items()]
    said = [_counted(name, [one[key].verdict(known[key].sign) for key in known]) for name, one in found.items()]
    return [_CLAIMS, markdown_table(["claim", *found], rows), "\n".join(f"- {sentence}" for sentence in said)]


_CLAIMS = """**The claims.** Each row is something that AMC-Loss is claimed to do. A cell holds the verdict and, in
brackets, the difference of the means over runs (AMC minus the other loss) ± its standard error. `yes`: the
difference has the claimed sign and is more than twice its standard error. `no`: it is as large, with the other sign.
`open`: it is smaller. A single run has no verdict."""


def _counted(name: str, verdicts: Sequence[str]) -> str:
    if "" in verdicts:
        return f"{name}: a single run, so no verdict."
    yes, no, undecided = (verdicts.count(word) for word in ("yes", "no", "open"))
    return f"{name}: {yes} of {len(verdicts)} claims hold ({no} contradicted, {undecided} open)."
