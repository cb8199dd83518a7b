"""From the records of adaptations to accuracies, averages, paired tests, Table 4 and the pictures of Figure 21."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from PIL import Image
from scipy import stats

from hardsight.domains.selection import SELECTORS
from hardsight.training import Cell
from hardsight_studies.adaptation.runs import (
    CORE,
    METHODS,
    OURS,
    PICTURED,
    RIVALS,
    SHOWN,
    TABLE_4,
    Family,
)
from hardsight_studies.framework import finished_cells, run_details, spread

# What a finished cell found, by pair, method and seed.
Runs = Mapping[tuple[str, str, int], Any]
# Results are a small file: pictures of so many pairs of a family, so many of a pair.
_PICTURED_PAIRS, _PICTURES = 3, 6


def judge_cells(cells: Sequence[Cell], folder: Path, families: Sequence[Family]) -> dict[str, Any]:
    """Accuracies by pair and method over the seeds, paired tests, the first selections, accuracy by round."""
    runs: dict[tuple[str, str, int], dict[str, Any]] = {}
    for cell in finished_cells(folder, cells):
        found = run_details(folder / cell.name)["results"]
        runs[cell.settings["pair"], cell.settings["method"], int(cell.settings["seed"])] = found
    by_family = {}
    for family in families:
        of_pairs = {pair.name: _judge_pair(runs, pair.name) for pair in family.pairs}
        by_family[family.name] = {name: rows for name, rows in of_pairs.items() if rows}
    return {
        "settings": {family.name: family.settings for family in families},
        "pairs": {family: rows for family, rows in by_family.items() if rows},
        "average": average(runs),
        "tests": {f"{OURS} against {rival}": paired(runs, rival) for rival in RIVALS},
        "table4": first_selections(runs),
        "figure21": {
            pair.name: pictures
            for family in families
            for pair in family.pairs[:_PICTURED_PAIRS]
            if (pictures := examples(folder, pair.name))
        },
    }


def _judge_pair(runs: Runs, pair: str) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for method in METHODS:
        mine = [run for (its, how, _), run in sorted(runs.items()) if (its, how) == (pair, method)]
        if mine:
            rows[method] = {
                key: spread([run[key] for run in mine])
                for key in ("accuracy", "class_mean_accuracy", "test_accuracy")
                if all(run.get(key) is not None for run in mine)
            }
            if all("by_round" in run for run in mine):
                columns = zip(*(run["by_round"] for run in mine), strict=False)
                rows[method]["by_round"] = [round(sum(one) / len(one), 4) for one in columns]
    return rows


def average(runs: Runs) -> dict[str, Any]:
    """Mean accuracy over the pairs that the core methods have most seeds of; spread over the seeds' means.

    Every method is averaged over the same pairs, by those of its seeds that have them all.
    """
    complete: dict[str, int] = {}
    for pair, seed in {(pair, seed) for pair, _, seed in runs}:
        complete[pair] = complete.get(pair, 0) + all((pair, how, seed) in runs for how in CORE)
    pairs = sorted(pair for pair, count in complete.items() if count == max(complete.values()) > 0)
    found: dict[str, Any] = {"pairs": pairs}
    for method in METHODS if pairs else ():
        seeds = sorted({its for _, _, its in runs if all((pair, method, its) in runs for pair in pairs)})
        if seeds:
            found[method] = spread([_mean([runs[pair, method, its]["accuracy"] for pair in pairs]) for its in seeds])
    return found


def paired(runs: Runs, rival: str) -> dict[str, Any] | None:
    """Differences in accuracy, AVH minus the rival, from the same source model; tested over pairs of domains.

    Seeds of one pair are no independent trials, so the test is over the pairs' means; over all runs it is given too.
    """
    keys = sorted((pair, seed) for pair, how, seed in runs if how == OURS and (pair, rival, seed) in runs)
    if not keys:
        return None
    differences = {
        key: runs[key[0], OURS, key[1]]["accuracy"] - runs[key[0], rival, key[1]]["accuracy"] for key in keys
    }
    pairs = sorted({pair for pair, _ in keys})
    means = [_mean([differences[key] for key in keys if key[0] == pair]) for pair in pairs]
    return {
        "mean_difference": round(_mean(list(differences.values())), 5),
        "pairs_won": sum(mean > 0 for mean in means),
        "pairs": len(pairs),
        "runs": len(keys),
        "p_over_pairs": _p_value(means),
        "p_over_runs": _p_value(list(differences.values())),
        "by_pair": {pair: round(mean, 5) for pair, mean in zip(pairs, means, strict=True)},
    }


def _mean(values: Sequence[float | int]) -> float:
    return sum(values) / len(values)


def _p_value(differences: Sequence[float]) -> float | None:
    """Two-sided paired t-test; None where there are too few differences, or all are the same."""
    if len(differences) < 3 or max(differences) == min(differences):
        return None
    # Four digits that count: a p-value is never zero.
    return float(f"{stats.ttest_1samp(differences, 0.0).pvalue:.4g}")


def first_selections(runs: Runs) -> dict[str, Any]:
    """Table 4: of what each selector selects from the source model, means over the runs that all of them have."""
    methods = [method for method in SELECTORS if any(how == method for _, how, _ in runs)]
    keys = {(pair, seed) for pair, _, seed in runs}
    shared = sorted((pair, seed) for pair, seed in keys if all((pair, how, seed) in runs for how in methods))
    found = {}
    for method in methods if shared else ():
        mine = [runs[pair, method, seed]["first_selection"] for pair, seed in shared]
        known = {key: [one[key] for one in mine if one.get(key) is not None] for key in TABLE_4}
        found[method] = {key: round(_mean(values), 5) for key, values in known.items() if values} | {"runs": len(mine)}
    return found


def examples(folder: Path, pair: str) -> list[dict[str, Any]]:
    """Figure 21: pictures that AVH selects first, labelled rightly, and CBST does not; least confident first."""
    record = folder / Cell({"pair": pair, **PICTURED}).name
    if not (record / "thumbnails.parquet").is_file() or not (record / SHOWN).is_file():
        return []
    names = run_details(record)["class_names"]
    rows = {row["id"]: row for row in pq.read_table(record / SHOWN).to_pylist()}
    pictures = pq.read_table(record / "thumbnails.parquet").to_pylist()[:_PICTURES]
    return [
        {
            "class": names[rows[one["id"]]["pseudo_label"]],
            "confidence": round(rows[one["id"]]["confidence"], 3),
            "picture": base64.b64encode(_smaller(one["png"])).decode(),
        }
        for one in pictures
    ]


def _smaller(png: bytes) -> bytes:
    """The picture as a JPEG where that takes less room."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.save(buffer, format="JPEG", quality=80)
    return min(png, buffer.getvalue(), key=len)
