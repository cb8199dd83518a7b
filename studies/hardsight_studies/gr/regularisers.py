"""GR beside the standard regularisers, alone and together: the eight columns that Tables 8, 9 and 10 share.

L2 is weight decay 1e-4, dropout drops 20 % of the features, GR has β = 8, λ = 0.5; the baseline is CCE with none.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.training import Cell
from hardsight_studies.configured import train_cells
from hardsight_studies.framework import Options, Study
from hardsight_studies.gr.curves import learning_curves
from hardsight_studies.gr.judged import KINDS, judge_cells, mean_of
from hardsight_studies.gr.tables import LEGEND, accuracy_table, page, ranking, ranks
from hardsight_studies.gr.trainings import DIGITS, PRINTED, TINY, Protocol, gr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GR, L2, DROPOUT = gr(8, 0.5), 1e-4, 0.2
# Title of a column: method, and the regularisers beside it.
COLUMNS: dict[str, tuple[str, str]] = {
    "Baseline": ("cce", "none"),
    "L2": ("cce", "l2"),
    "Dropout": ("cce", "dropout"),
    "Dropout+L2": ("cce", "l2+dropout"),
    "GR": (GR, "none"),
    "GR+L2": (GR, "l2"),
    "GR+Dropout": (GR, "dropout"),
    "GR+L2+Dropout": (GR, "l2+dropout"),
}
# What is compared first.
_ORDER = ("Baseline", "GR", "L2", "GR+L2", "Dropout+L2", "GR+L2+Dropout", "Dropout", "GR+Dropout")


_COLUMNS = """- `Baseline`: cross-entropy (CCE) without any regulariser.
- `L2`: with weight decay 1e-4. `Dropout`: with 20 % of the features before the last layer dropped.
- `GR`: gradient rescaling with β = 8, λ = 0.5 in place of CCE. `+` joins what is used together."""


@dataclass(frozen=True)
class Regularisers:
    """One of the tables: its data and kind of noise, and the paper's columns by rate, in their order.

    `epochs` and `seeds` are those of the paper's preset.
    """

    data: str
    printed: Mapping[float, str]
    noise: str = "symmetric"
    epochs: int = PRINTED.epochs
    seeds: int = 1

    def protocol(self, preset: str) -> Protocol:
        """The preset's protocol before regularisers."""
        small = {"smoke": DIGITS, "cpu": TINY}
        large = dataclasses.replace(PRINTED, data=self.data, model="resnet44", epochs=self.epochs)
        return small.get(preset, large)

    def cells(self, preset: str) -> list[Cell]:
        """Baseline and GR first, alone and with weight decay."""
        if preset != "paper":
            rate = max(self.printed)
            # The small network has no dropout.
            titles = ("Baseline", "L2", "GR", "GR+L2")
            return [_cell(rate, title, 0) for title in titles]
        rates = sorted(self.printed, reverse=True)
        return [_cell(rate, title, seed) for seed in range(self.seeds) for rate in rates for title in _ORDER]

    def configure(self, preset: str, cell: Cell) -> dict[str, Any]:
        """The configuration of a cell."""
        rate, method, beside, seed = cell.settings.values()
        protocol = dataclasses.replace(
            self.protocol(preset),
            weight_decay=L2 if "l2" in beside else 0.0,
            dropout=DROPOUT if "dropout" in beside else None,
        )
        return protocol.tree(method, rate, seed, noise=self._noise(protocol.data))

    def compute(self, preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
        """Train these cells together."""
        train_cells(mine, options, lambda cell: self.configure(preset, cell))

    def judge(self, preset: str, folder: Path) -> dict[str, Any]:
        """Accuracies over seeds and curves, by rate, method and regularisers."""
        return judge_cells(self.cells(preset), folder, self.protocol(preset))

    def table(self, results: Mapping[str, Any]) -> str:
        """Ours beside the paper's, which ends best, and what GR adds to each regulariser."""
        layout = {
            f"{100 * rate:.0f} %": {
                title: (_key(rate, title), number) for title, number in zip(COLUMNS, printed.split(), strict=True)
            }
            for rate, printed in sorted(self.printed.items())
        }
        sentences = []
        for rate in sorted(self.printed):
            where, keys = f"At {100 * rate:.0f} % noise", {title: _key(rate, title) for title in COLUMNS}
            numbers = self._numbers(rate)
            sentences += [ranking(results, where, keys, numbers), _added(results, where, keys, numbers)]
        return page(
            results,
            [accuracy_table(results, "noise", layout), self._other_noise(results)],
            result=" ".join(one for one in sentences if one),
            legend=f"{LEGEND}\n\n{_COLUMNS}",
        )

    def _other_noise(self, results: Mapping[str, Any]) -> str:
        """That a small preset has not the table's noise."""
        if self._noise(results["protocol"]["data"]) == self.noise:
            return ""
        return "Wrong labels of this preset are symmetric: the coarse classes of the table's noise are CIFAR-100's."

    def _noise(self, data: str) -> str:
        """The table's kind of noise, which may need its data: wrong labels within coarse classes do."""
        return self.noise if data == self.data else "symmetric"

    def _numbers(self, rate: float) -> dict[str, float]:
        """The paper's means by title of the column."""
        return {title: float(one.split("±")[0]) for title, one in zip(COLUMNS, self.printed[rate].split(), strict=True)}

    def figures(self, results: Mapping[str, Any]) -> "Mapping[str, Figure]":
        """Learning curves of the baseline and of GR, alone and with regularisers."""
        shown = ("Baseline", "L2", "Dropout+L2", "GR", "GR+L2", "GR+L2+Dropout")
        rows = {f"{100 * rate:.0f} % noise": [(one, _key(rate, one)) for one in shown] for rate in sorted(self.printed)}
        printed = {_key(rate, title): last for rate in self.printed for title, last in self._numbers(rate).items()}
        return learning_curves(results, rows, printed)

    def study(self, id: str, title: str, about: str, reference: str) -> Study:
        """The study of this table."""
        parts: dict[str, Callable[..., Any]] = {
            name: getattr(self, name) for name in ("cells", "compute", "judge", "table", "figures")
        }
        return Study(id, title, about, reference, at_once={"smoke": 2, "cpu": 1, "paper": 4}, entries=KINDS, **parts)  # type: ignore[arg-type]


def _cell(rate: float, title: str, seed: int) -> Cell:
    method, beside = COLUMNS[title]
    return Cell({"rate": rate, "method": method, "beside": beside, "seed": seed})


def _key(rate: float, title: str) -> str:
    method, beside = COLUMNS[title]
    return f"rate={rate},method={method},beside={beside}"


def _added(results: Mapping[str, Any], where: str, keys: Mapping[str, str], printed: Mapping[str, float]) -> str:
    """What GR adds to CCE under the same regularisers, in points, ours and the paper's."""
    if not ranks(results):
        return ""
    pairs = {"no regulariser": ("Baseline", "GR"), "L2": ("L2", "GR+L2"), "dropout": ("Dropout", "GR+Dropout"),
             "both": ("Dropout+L2", "GR+L2+Dropout")}  # fmt: skip
    parts = []
    for name, (plain, with_gr) in pairs.items():
        before, after = (mean_of(results, keys[title], "last") for title in (plain, with_gr))
        if before is not None and after is not None:
            parts.append(f"{name} {after - before:+.1f} ({printed[with_gr] - printed[plain]:+.1f})")
    return f"{where}, GR adds in points, ours (paper): {', '.join(parts)}." if parts else ""
