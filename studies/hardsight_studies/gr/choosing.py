"""Automatic GR as a method of studies: its names, its loss, and what it estimated and chose, from records on."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from hardsight.training import Cell
from hardsight.training.sweeps import FINISHED, status_of
from hardsight_studies.configured import Tree
from hardsight_studies.framework import markdown_table, spread
from hardsight_studies.gr.judged import key_of, percent
from hardsight_studies.gr.trainings import loss_of, title_of

# A cell's name says which rule trained it: "auto" are the paper's settings as printed, the first form of the rule,
# "auto-limited" the same within bounds, the second.
AUTO = "auto-rising"
AUTO_BOUNDED = "auto-limited"
AUTO_AS_PRINTED = "auto"
CHOOSING = (AUTO, AUTO_BOUNDED, AUTO_AS_PRINTED)
_TITLES = {
    AUTO: "GR (auto)",
    AUTO_BOUNDED: "GR (auto, settings within bounds)",
    AUTO_AS_PRINTED: "GR (auto, settings as printed)",
}


def method_loss(method: str, rate: float, data: str, epsilon: float = 0.0) -> Tree:
    """The loss of a method's name as configuration, every form of auto among them; `epsilon` of a fixed setting."""
    chosen: Tree = {"beta": "auto", "lam": "auto"}
    if method == AUTO:
        return {"name": "gr", "options": chosen}
    if method == AUTO_BOUNDED:
        return {"name": "gr", "options": chosen | {"bounded": True}}
    if method == AUTO_AS_PRINTED:
        return {"name": "gr", "options": chosen | {"as_printed": True, "epsilon": 0.0}}
    return loss_of(method, rate, data, epsilon=epsilon)


def method_title(method: str) -> str:
    """A method as it is shown."""
    return _TITLES.get(method) or title_of(method)


def choices(planned: Iterable[Cell], folder: Path) -> dict[str, Any]:
    """What automatic cells estimated and chose, over seeds, and how many of them fell back to cross-entropy."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for cell in planned:
        place = folder / cell.name
        chooses = cell.settings["method"] in CHOOSING
        if chooses and status_of(place) == FINISHED and (place / "epochs.parquet").is_file():
            rows.setdefault(key_of(cell), []).append(_choice(place))
    return {
        key: {
            "rate": spread([one["rate"] for one in found]),
            "beta": [one["beta"] for one in found],
            "lam": [one["lam"] for one in found],
            "fell_back": sum(one["fell_back"] for one in found),
        }
        for key, found in rows.items()
    }


def _choice(place: Path) -> dict[str, Any]:
    """The rate, the last beta and lam (None: cross-entropy stayed), and whether they were given up."""
    table = pq.read_table(place / "epochs.parquet").to_pydict()
    rates = table["estimated_noise_rate"]
    decided = next(at for at, rate in enumerate(rates) if rate is not None)
    betas, lams = (table.get(name, [None] * len(rates)) for name in ("beta", "lam"))
    # The last before it fell back, where it did.
    chosen = [([None] + [round(value, 3) for value in one[decided:] if value is not None])[-1] for one in (betas, lams)]
    fell_back = betas[decided] is not None and betas[-1] is None
    return {"rate": rates[decided], "beta": chosen[0], "lam": chosen[1], "fell_back": fell_back}


def chosen_table(results: Mapping[str, Any], lines: Iterable[tuple[str, str, str]]) -> str:
    """What auto estimated and chose, by title of the labels, method and kind of cell; empty where nothing was."""
    rows = [
        [title, method_title(method), *_chosen(choice)]
        for title, method, key in lines
        if (choice := results["choices"].get(key)) is not None
    ]
    return markdown_table(["labels", "method", "noise that it estimated", "(β, λ) that it chose"], rows) if rows else ""


def _chosen(choice: Mapping[str, Any]) -> tuple[str, str]:
    rate = choice["rate"]
    estimate = f"{percent(rate)} %"
    pairs = [
        "cross-entropy" if beta is None else f"({beta:.1f}, {lam:.2f})"
        for beta, lam in zip(choice["beta"], choice["lam"], strict=True)
    ]
    fell = f"; {choice['fell_back']} of {len(pairs)} fell back to cross-entropy" if choice["fell_back"] else ""
    return estimate, ", ".join(pairs) + fell
