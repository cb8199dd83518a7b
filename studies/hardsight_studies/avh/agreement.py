"""What the studies of agreement share: a cell's answers read back, coefficients over seeds, intervals of their means.

Every score is turned so that larger is easier: a positive coefficient is agreement with people, a negative one says
that the score ranks against them. Coefficients have no sign in the paper's tables.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hardsight.alignment import Bootstrap, Interval, bootstrap_correlations
from hardsight.alignment.bootstrap import interval_of
from hardsight.hardness import SCORES
from hardsight.training import Cell
from hardsight.training.sweeps import FINISHED, status_of
from hardsight_studies.avh.people import PUBLIC, key_of, title_of
from hardsight_studies.avh.people_looks import PEOPLE
from hardsight_studies.framework import shown, spread
from hardsight_studies.wording import plural

LEVEL = 0.95
# Where people look, the last look of training is the look at the trained network: said twice, it would win twice.
_DOUBLES = ("loss", "avh_last", "angular_margin_last", "margin_last", "loss_last")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Answers:
    """What people and one network say of the same images. `scores` are float64, larger is easier.

    `people`: human selection frequency; `votes`: how many chose the class, and how many there were, [2, N].
    """

    people: np.ndarray
    votes: np.ndarray
    labels: np.ndarray
    correct: np.ndarray
    scores: Mapping[str, np.ndarray]
    logits: np.ndarray
    averaged: np.ndarray | None

    @property
    def accuracy(self) -> float:
        """Share of images that the network classifies as labelled."""
        return float(self.correct.mean())


def read_answers(path: Path) -> Answers:
    """The answers of a cell, from its record."""
    table = pq.read_table(path)
    scores = {}
    for one in table.schema:
        if (one.metadata or {}).get(b"kind") == b"score" and one.name not in _DOUBLES:
            values = -SCORES[one.name].hardness(table[one.name].to_numpy().astype(np.float64))
            # What was never measured, or is the same for all, ranks nothing.
            if np.isfinite(values).all() and np.ptp(values) > 0:
                scores[one.name] = values
    if "loss" in table.column_names:
        # In float32 many confidences are exactly 1 and tie; the loss still tells them apart.
        scores["confidence"] = np.exp(-table["loss"].to_numpy().astype(np.float64))
    labels = table["label"].to_numpy()
    votes = np.stack([table[name].to_numpy().astype(np.int64) for name in ("votes_chosen", "votes_people")])
    return Answers(
        people=votes[0] / votes[1],
        votes=votes,
        labels=labels,
        correct=table["predicted"].to_numpy() == labels,
        scores=scores,
        logits=_rows(table, "logits"),
        averaged=_rows(table, "probabilities_mean") if "probabilities_mean" in table.column_names else None,
    )


def _rows(table: pa.Table, name: str) -> np.ndarray:
    column = table[name].combine_chunks()
    return column.flatten().to_numpy().astype(np.float64).reshape(len(table), -1)


def answers_by_network(cells: Sequence[Cell], folder: Path) -> dict[str, list[Answers]]:
    """The answers of all finished cells, the seeds of a network together, in the order of the cells."""
    found: dict[str, list[Answers]] = {}
    for cell in cells:
        path = folder / cell.name / PEOPLE
        if status_of(folder / cell.name) == FINISHED and path.is_file():
            found.setdefault(key_of(cell), []).append(read_answers(path))
    return found


def at_once(work: Callable[[Any], Result], items: Sequence[Any]) -> list[Result]:
    """Work on all items, several at a time: most of it is NumPy, which lets go of the interpreter."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(work, items))


# ---------------------------------------------------------------------------------------------------------------------
# Intervals. Every cell is resampled by the same draws, so that means over seeds and differences have intervals too.


def resample(answers: Answers, names: Sequence[str], method: str, resamples: int) -> Bootstrap:
    """These scores on draws of images that depend on their number alone."""
    scores = np.stack([answers.scores[name] for name in names])
    return bootstrap_correlations(
        scores, answers.people, method, resamples=resamples, generator=np.random.default_rng(0)
    )


def rows_of(drawn: Bootstrap, rows: Sequence[int]) -> Bootstrap:
    """These scores of it, in this order."""
    at = list(rows)
    return Bootstrap(drawn.estimates[at], drawn.replicates[at], drawn.left_out[at])


def mean_bootstrap(drawn: Sequence[Bootstrap]) -> Bootstrap:
    """The mean over seeds of the coefficients on each draw of images: spread over images, not over trainings."""
    return Bootstrap(
        np.mean([one.estimates for one in drawn], 0),
        np.mean([one.replicates for one in drawn], 0),
        np.mean([one.left_out for one in drawn], 0),
    )


def ends(interval: Interval) -> list[float]:
    """Both ends, four digits."""
    return [round(interval.low, 4), round(interval.high, 4)]


def difference_of(first: Bootstrap, second: Bootstrap, at: int = 0) -> list[float]:
    """Ends of the interval of first - second."""
    parts = ((getattr(first, name)[at], getattr(second, name)[at]) for name in ("estimates", "replicates", "left_out"))
    estimate, replicates, left_out = (one - other for one, other in parts)
    return ends(interval_of(estimate, replicates, left_out, LEVEL, "bca"))


def maybe_spread(values: Sequence[float | None]) -> dict[str, Any] | None:
    """`spread` of what could be measured; None where nothing could."""
    known = [value for value in values if value is not None]
    return spread(known) if known else None


# ---------------------------------------------------------------------------------------------------------------------
# Words and numbers of the tables.


def signed(number: Mapping[str, Any] | None) -> str:
    """Three digits with the spread over seeds; a dash where there is no coefficient."""
    return "–" if number is None else shown(number).replace("-", "−")


def with_interval(number: Mapping[str, Any], interval: Sequence[float]) -> str:
    """`0.359 [0.341, 0.377]`."""
    return f"{signed(number)} [{interval[0]:.3f}, {interval[1]:.3f}]".replace("-", "−")


def network_name(key: str, seeds: int) -> str:
    """`ResNet-20 (5 seeds)`, `ResNet-20, public`."""
    return title_of(key) if key.endswith(PUBLIC) else f"{title_of(key)} ({plural(seeds, 'seed')})"


def seeds_planned(cells: Sequence[Cell]) -> dict[str, int]:
    """How many seeds each network that is trained here is to have."""
    return dict(Counter(key_of(cell) for cell in cells if "seed" in cell.settings))


def seeds_sentence(results: Mapping[str, Any]) -> list[str]:
    """How many seeds of each network were measured, and of how many, as one part of a table; none where all were."""
    planned: Mapping[str, int] = results.get("seeds_planned", {})
    measured = {key: results["networks"].get(key, {}).get("seeds", 0) for key in planned}
    if measured == planned:
        return []
    texts = [f"{title_of(key)} {measured[key]} of {planned[key]}" for key in planned]
    return [f"Not all is measured yet. Seeds of each network trained here: {', '.join(texts)}."]


def p_text(p_value: float) -> str:
    """A p-value as a table prints it."""
    return "< 0.0001" if p_value < 1e-4 else f"{p_value:.4f}"
