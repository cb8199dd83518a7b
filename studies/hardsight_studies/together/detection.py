"""How well a score tells wrong labels from right ones: AUROC, average precision, precision at the true count."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from hardsight.cleaning.columns import direction_of

METRICS = ("average_precision", "auroc", "precision_at_count")


def detect(wrong: np.ndarray, suspicion: np.ndarray) -> dict[str, float]:
    """The three numbers of a score whose larger values should mean a wrong label; `wrong` is the truth.

    All lie in [0, 1], larger is better; a score of pure chance has 0.5, the share of wrong labels, and that again. Ties
    count as if in random order. A sample without a score (NaN) is the least suspicious.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    wrong = np.asarray(wrong, dtype=bool)
    count = int(wrong.sum())
    if not 0 < count < len(wrong):
        raise ValueError(f"wrong must mark some samples and leave some; got {count} of {len(wrong)}")
    # Ranks keep the order, and take what is infinite.
    values = np.unique(np.where(np.isnan(suspicion), -np.inf, suspicion), return_inverse=True)[1]
    last = np.sort(values)[-count]
    above, tied = values > last, values == last
    found = wrong[above].sum() + wrong[tied].mean() * (count - above.sum())
    precision, area = (float(score(wrong, values)) for score in (average_precision_score, roc_auc_score))
    return {"average_precision": precision, "auroc": area, "precision_at_count": float(found / count)}


def average_precisions(wrong: np.ndarray, suspicion: np.ndarray, counts: Iterable[np.ndarray]) -> np.ndarray:
    """Average precision where each sample counts so many times, for each of these counts: for bootstrap intervals."""
    order = np.argsort(-suspicion, kind="stable")
    # Samples of one value come in together.
    ends = np.append(np.flatnonzero(np.diff(suspicion[order])), len(order) - 1)
    found = []
    for count in counts:
        hits, seen = (np.cumsum(one[order])[ends] for one in (count * wrong, count))
        found.append((np.diff(hits, prepend=0) * hits / np.maximum(seen, 1)).sum() / hits[-1])
    return np.array(found)


def taught(samples: pa.Table) -> dict[str, float]:
    """No score but a mark to hold them against: boosted trees over all of them that were told the truth of one half.

    Trained on each half of the samples with the truth about it, used on the other. It says how much all scores of the
    run together know, as far as such trees find out.
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
    wrong: np.ndarray = samples["label"].to_numpy() != samples["clean_label"].to_numpy()
    return wrong
