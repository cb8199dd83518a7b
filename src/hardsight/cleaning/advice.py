"""Advice: what kind of noise a record shows, whether it was memorised, which loss was best there, how many to look at.

Losses and recalls come from `advice.json`, a table made from the studies' rows; nothing of it is decided here.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hardsight.files import reading
from hardsight.files.parquet import read_table
from hardsight.records import AUDIT_FILE, RUN_FILE, SAMPLES_FILE, TABLE_FILE, read_run, require_column

# So much of the suspects is looked at: where the wrong labels beyond them are, the posterior does not say.
_PARTS = (0.25, 0.5, 1.0)
# A share of the wrong labels, fitted by the trained model, from which a run counts as one that memorised.
MEMORISED = 0.4
# Points of training over test accuracy from which it counts as one too, where there are too few suspects: CE's of
# `gr-auto` are 0.14 and more where it memorised, below 0.05 without noise, and below 0 where it did not memorise.
_GAP = 0.1
# Where noise counts as between pairs, on a scale from uniform (0) to one wrong label for each class (1): between what
# suspects by heads on frozen features gave, 0.05 and 0.07 for two sets of CIFAR-10N and 0.00 for uniform noise.
_PAIRS = 0.03
# Rates of noise so far apart count as one.
_SAME_RATE = 0.05
# Fewer suspects are not judged.
_FEWEST = 20


@dataclass(frozen=True)
class Advice:
    """Numbers and choices; printed, a short summary.

    `estimated` labels of `samples` are wrong, by `estimate`; `low` and `high` are its 95 % interval over samples.
    `kind` is none, uniform, pairs, outside or unknown; `concentration` lies between 0 (uniform) and 1 (each class is
    mistaken for one other), None where too little is known. `memorised` is None where the record cannot say; `fitted`
    is the share of suspects that the trained model agrees with. `losses` are the rows measured in the nearest
    conditions, surest gain first: last test accuracy, that of CE (`plain`), the paired gain with 95 % over seeds, and
    what `[loss]` in a configuration takes. `review` holds pairs of a share of the wrong labels and the number of
    labels, most suspicious first, among which it is expected; `review_by` says whether by the posterior or as measured.
    """

    samples: int
    estimated: int
    low: int
    high: int
    estimate: str
    kind: str
    concentration: float | None
    suspects: int
    outliers: int | None
    memorised: bool | None
    fitted: float | None
    train_accuracy: float | None
    test_accuracy: float | None
    losses: tuple[Mapping[str, Any], ...]
    review: tuple[tuple[float, int], ...]
    review_by: str

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The loss whose gain is surest; None where none was surely better than CE."""
        return self.losses[0] if self.losses and self.losses[0]["low"] > 0 else None

    @property
    def loss(self) -> Mapping[str, Any]:
        """What `[loss]` in a configuration takes."""
        found: Mapping[str, Any] = {"name": "cross_entropy"} if self.best is None else self.best["loss"]
        return found

    def facts(self) -> dict[str, Any]:
        """All of it as plain values, with the chosen loss."""
        return asdict(self) | {"loss": dict(self.loss)}

    def lines(self) -> list[tuple[str, str]]:
        """A name and a line for each part of the summary."""
        n = self.samples
        noise = f"{self.estimated:,} of {n:,} labels ({self.estimated / n:.1%}), 95 % {self.low / n:.1%} to "
        noise += f"{self.high / n:.1%}, by {self.estimate.replace('_', ' ')}"
        if self.memorised and self.estimate != "confident_joint":
            noise += "; a training that memorised hides wrong labels: audit features too"
        kind = {"pairs": "between pairs of classes", "outside": "from outside the classes"}.get(self.kind, self.kind)
        if self.kind == "unknown":
            kind += f": {self.suspects:,} suspects with another expected class do not say"
        elif self.concentration is not None and self.kind in ("pairs", "uniform"):
            kind += f" (concentration {self.concentration:.2f}; 0 is uniform, 1 one partner for each class)"
        shown = {None: "not known from this record", True: "yes", False: "no"}[self.memorised]
        known = (("of the suspects fitted", self.fitted), ("training accuracy", self.train_accuracy),
                 ("test accuracy", self.test_accuracy))  # fmt: skip
        shown += "".join(f"; {value:.1%} {name}" for name, value in known if value is not None)
        found = [("noise", noise), ("kind", kind), ("memorised", shown), ("loss", self._loss_line())]
        if self.review:
            counts = ", ".join(f"{count:,} for {recall:.0%}" for recall, count in self.review)
            found.append(("look at", f"{counts} of the wrong labels ({self.review_by})"))
        return found

    def _loss_line(self) -> str:
        best = self.best
        if best is None:
            return "cross_entropy; " + ("none was surely better where measured" if self.losses else "nothing measured")
        options = ", ".join(f"{name} {value}" for name, value in self.loss.get("options", {}).items())
        named = self.loss["name"] + (f" ({options})" if options else "")
        gain, low, high = (100 * best[name] for name in ("gain", "low", "high"))
        where = f"{best['data']}, {best['kind']}, noise of {best['rate']:.0%} ({best['study']})"
        return (
            f"{named}; gained {gain:.1f} points of final test accuracy on CE's {best['plain']:.1%} (95 % {low:.1f} to "
            f"{high:.1f} over {best['seeds']} seeds): {where}"
        )

    def __repr__(self) -> str:
        return "\n".join(f"{name:10} {line}" for name, line in self.lines())


@cache
def measured() -> Mapping[str, Any]:
    """The table that studies measured: `losses` and `review`."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("advice.json").read_text(encoding="utf-8"))
    return found


def advise_folder(folder: Path | str) -> Advice:
    """Advice on the folder of an audit, from its files alone."""
    with reading(Path(folder) / AUDIT_FILE, "an audit with findings"):
        details = read_run(folder) or {}
        results, source = details["results"], str(details["config"]["source"])
        return advice_on(read_table(Path(folder) / TABLE_FILE), results, Path(source))


def advice_on(table: pa.Table, results: Mapping[str, Any], source: Path) -> Advice:
    """Advice on the table of an audit, most suspicious first, with the `results` and the source of `audit.json`."""
    issues, counts = results["label_issues"], results["findings"]["kinds"]["mislabelled"]
    samples, estimate = table.num_rows, str(issues["estimate"])
    estimated, low, high = (int(one) for one in (issues["estimated"], counts["low"], counts["high"]))
    if min(estimated, low, high) < 0 or estimated > samples:
        raise ValueError("counts must lie between 0 and the samples")
    require_column(table, "label")
    if not samples:
        raise ValueError("table must have at least one row; it has none")
    suspects = table.slice(0, estimated)
    outside = _outside(table)
    (concentration, error), pairs, count = _concentration(suspects)
    kind = "uniform" if concentration <= _PAIRS else "pairs"
    if pairs < _FEWEST or math.isnan(concentration) or abs(concentration - _PAIRS) < 2 * error:
        kind = "unknown"
    memory = _memory(table, suspects, estimate, source)
    # A training that memorised its labels has nothing against them.
    hidden = memory["memorised"] and estimate != "confident_joint"
    if not hidden and (low == 0 or (count < _FEWEST and high < 0.01 * samples)):
        kind = "none"
    if outside is not None and outside.sum() >= _FEWEST and outside.sum() > (~outside[:estimated]).sum():
        kind = "outside"
    share, classes = estimated / samples, max(2, len(pc.unique(table["label"])))
    known = None if math.isnan(concentration) else concentration
    alike = (1 + max(0.0, known or 0.0) * (classes - 2)) / (classes - 1)
    review, by = _review(table, estimated, estimate, "el2n_mean" in issues["ranked_by"], kind, alike)
    losses = nearest_losses(kind, share, memory["memorised"])
    return Advice(samples, estimated, low, high, estimate, kind, known, count,
                  None if outside is None else int(outside.sum()), **memory, losses=losses, review=review,
                  review_by=by)  # fmt: skip


def _concentration(suspects: pa.Table) -> tuple[tuple[float, float], int, int]:
    """How far wrong labels concentrate, with its standard error; pairs of suspects compared, and suspects.

    The share of pairs of suspects of one expected class that carry the same label (Simpson's index, unbiased), from
    1 / (C - 1) for uniform noise to 1 for one partner, on a scale from 0 to 1.
    """
    if "expected" not in suspects.column_names:
        return (math.nan, math.nan), 0, 0
    apart = suspects.filter(pc.not_equal(suspects["label"], suspects["expected"]))
    both = pc.unique(pa.chunked_array([*suspects["label"].chunks, *suspects["expected"].chunks]))
    label, expected = (pc.index_in(apart[name], both).to_numpy() for name in ("label", "expected"))
    matrix = np.zeros((len(both), len(both)))
    np.add.at(matrix, (expected, label), 1)
    totals = matrix.sum(1)
    pairs, same = (totals * (totals - 1)).sum(), (matrix * (matrix - 1)).sum()
    if not pairs or len(both) < 3:
        return (math.nan, math.nan), int(pairs), len(apart)
    uniform, share = 1 / (len(both) - 1), same / pairs
    error = math.sqrt(max(share, uniform) * (1 - min(share, 1 - uniform)) / (pairs / 2))
    return (float((share - uniform) / (1 - uniform)), float(error / (1 - uniform))), int(pairs), len(apart)


def _outside(table: pa.Table) -> np.ndarray | None:
    """Who is an outlier whose neighbours carry other labels; None where nobody looked, as without features."""
    if not {"kinds", "neighbours", "neighbour_disagreement"} <= set(table.column_names):
        return None
    kinds = table.column("kinds").combine_chunks()
    outliers = pc.list_parent_indices(kinds).filter(pc.equal(pc.list_flatten(kinds), "outlier"))
    found: np.ndarray = table.column("neighbour_disagreement").to_numpy() >= 0.5
    return found & np.isin(np.arange(len(found)), outliers.to_numpy())


def _memory(table: pa.Table, suspects: pa.Table, estimate: str, source: Path) -> dict[str, Any]:
    """Whether the trained model fits what is suspected, from the samples and the epochs of a training's record."""
    found: dict[str, Any] = dict.fromkeys(("memorised", "fitted", "train_accuracy", "test_accuracy"))
    folder = source.parent if source.name == SAMPLES_FILE else source
    if not (folder / RUN_FILE).is_file() or not (folder / "epochs.parquet").is_file():
        return found
    epochs = read_table(folder / "epochs.parquet")
    for name in ("train_accuracy", "test_accuracy"):
        if name in epochs.column_names and epochs.num_rows:
            found[name] = epochs.column(name)[-1].as_py()
    # Counted by one prediction, suspects are those that the model does not fit.
    over_training = estimate != "disagreement" or {"aum", "angular_margin_mean"} & set(table.column_names)
    if over_training and "predicted" in suspects.column_names and len(suspects) >= _FEWEST:
        found["fitted"] = pc.mean(pc.equal(suspects["predicted"], suspects["label"]).cast("double")).as_py()
        found["memorised"] = found["fitted"] >= MEMORISED
    elif None not in (found["train_accuracy"], found["test_accuracy"]):
        gap = found["train_accuracy"] - found["test_accuracy"]
        found["memorised"] = True if gap >= _GAP else False if gap <= 0 else None
    return found


def nearest_losses(kind: str, share: float, memorised: bool | None) -> tuple[Mapping[str, Any], ...]:
    """The rows measured at the nearest rate in these conditions, the surest gain first."""
    rows = [row for row in measured()["losses"] if (row["rate"] == 0) == (kind == "none")]
    if kind != "none":
        rows = [row for row in rows if kind in (row["kind"], "unknown") and memorised in (None, row["memorised"])]
    nearest = min((abs(row["rate"] - share) for row in rows), default=0.0)
    kept = [row for row in rows if abs(row["rate"] - share) <= nearest + _SAME_RATE]
    return tuple(sorted(kept, key=lambda row: -row["low"]))


def _review(
    table: pa.Table, estimated: int, estimate: str, recorded: bool, kind: str, alike: float
) -> tuple[tuple[tuple[float, int], ...], str]:
    """How many labels to look at: by the posterior of models that did not see the sample, else as studies measured."""
    share = estimated / table.num_rows
    if estimated and estimate == "confident_joint" and "confidence" in table.column_names:
        confidence = table.column("confidence").cast(pa.float64()).to_numpy()
        found = np.cumsum(posterior(confidence, share, alike))
        counts = [max(1, round(part * estimated)) for part in _PARTS]
        expected = [min(1.0, round(float(found[count - 1]) / estimated, 4)) for count in counts]
        return tuple(zip(expected, counts, strict=True)), "expected by the posterior"
    rows = [row for row in measured()["review"] if kind in (row["kind"], "unknown")]
    if not estimated or not rows or not recorded:
        return (), ""
    nearest = min(rows, key=lambda row: abs(row["rate"] - share))
    about = f"{nearest['kind']} noise of {nearest['rate']:.0%}, seeds: {nearest['seeds']}"
    return ((nearest["recall"], estimated),), f"measured by {nearest['study']}: {about}"


def posterior(confidence: np.ndarray, rate: float, alike: float) -> np.ndarray:
    """The probability that each label is wrong, from that of the label by models of noisy labels that did not see it.

    A label is right with the probability p (1 - rate) / confidence, where confidence = p (1 - rate) + (1 - p) rate
    alike: a wrong label is the given one with the probability `alike`, 1 / (C - 1) for uniform noise, 1 for pairs.
    """
    confidence, by_chance = np.nan_to_num(np.clip(confidence, 1e-9, 1.0), nan=1e-9), rate * alike
    if rate + by_chance >= 1:
        return 1 - confidence
    true = np.clip((confidence - by_chance) / (1 - rate - by_chance), 0, 1)
    return np.asarray(np.clip(1 - true * (1 - rate) / confidence, 0, 1))
