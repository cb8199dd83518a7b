"""How well a score tells wrong labels from right ones: AUROC, average precision, precision at the true count."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hardsight.cleaning.columns import direction_of

METRICS = ("auroc", "average_precision", "precision_at_count")


class Detection(NamedTuple):
    """All in [0, 1], larger is better. A score of pure chance has 0.5, the share of wrong labels, and that again."""

    auroc: float
    average_precision: float
    precision_at_count: float


def detect(wrong: np.ndarray, suspicion: np.ndarray) -> Detection:
    """The three numbers of a score whose larger values should mean a wrong label; `wrong` is the truth.

    Ties count as if in random order: half in the AUROC, one threshold in the average precision, their share of wrong
    labels in the precision at the count. A sample without a score (NaN) is the least suspicious.
    """
    wrong = np.asarray(wrong, dtype=bool)
    count = int(wrong.sum())
    if not 0 < count < len(wrong):
        raise ValueError(f"wrong must mark some samples and leave some; got {count} of {len(wrong)}")
    values = np.where(np.isnan(suspicion), -np.inf, suspicion)
    order = np.argsort(-values, kind="stable")
    ends = np.flatnonzero(np.append(values[order][1:] != values[order][:-1], True))
    # Samples and wrong labels at or above each distinct value, and within it.
    taken, hits = ends + 1, np.cumsum(wrong[order])[ends]
    new_taken, new_hits = np.diff(taken, prepend=0), np.diff(hits, prepend=0)
    right_below = (len(wrong) - count) - (taken - hits)
    pairs = (new_hits * (right_below + (new_taken - new_hits) / 2)).sum()
    average_precision = (new_hits / count * (hits / taken)).sum()
    at = int(np.searchsorted(taken, count))
    before, found = taken[at] - new_taken[at], hits[at] - new_hits[at]
    in_count = found + new_hits[at] * (count - before) / new_taken[at]
    return Detection(float(pairs / (count * (len(wrong) - count))), float(average_precision), float(in_count / count))


def taught(samples: pa.Table) -> Detection:
    """No score but a mark to hold them against: boosted trees over all of them that were told the truth of one half.

    Trained on each half of the samples with the truth about it, used on the other. It says how much all scores of the
    run together know, as far as such trees find out; a combination that was told nothing cannot be expected above it.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    wrong = wrong_labels(samples)
    facts = [samples[name].to_numpy() for name in ("label", "predicted")]
    known = np.column_stack([*suspicions(samples).values(), *facts])
    half = np.random.default_rng(0).permutation(len(wrong)) % 2
    found = np.zeros(len(wrong))
    for one in (0, 1):
        trees = HistGradientBoostingClassifier(random_state=0).fit(known[half != one], wrong[half != one])
        found[half == one] = trees.predict_proba(known[half == one])[:, 1]
    return detect(wrong, found)


def suspicions(samples: pa.Table) -> dict[str, np.ndarray]:
    """Every score column of a table, float64, turned so that larger is harder by its own direction or its score's."""
    found = {}
    for field in samples.schema:
        if (field.metadata or {}).get(b"kind") != b"score":
            continue
        values = samples[field.name].to_numpy().astype(np.float64)
        found[field.name] = -values if direction_of(field) is False else values
    return found


def wrong_labels(samples: pa.Table) -> np.ndarray:
    """Where the given label differs from the true one."""
    unknown = samples["clean_label"].null_count
    if unknown:
        raise ValueError(f"clean_label must be known for every sample; {unknown} of {len(samples)} are null")
    return samples["label"].to_numpy() != samples["clean_label"].to_numpy()


def detect_all(samples: pa.Table) -> dict[str, Detection]:
    """Each score of a table, judged."""
    wrong = wrong_labels(samples)
    return {name: detect(wrong, values) for name, values in suspicions(samples).items()}
