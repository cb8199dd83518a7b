"""cleanlab's names and directions: scores lie in [0, 1], and low is bad.

    from hardsight.compat.cleanlab import Datalab, find_label_issues, get_label_quality_scores

`get_label_quality_scores` gives cleanlab's numbers. `find_label_issues` and `Datalab` count and rank as `hs.audit`
does. Labels number the classes from 0; `Datalab` also takes text.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from hardsight.cleaning.auditing import Audit, audit
from hardsight.cleaning.neighbours import angles_to
from hardsight.cleaning.reading import arrow_table
from hardsight.cleaning.samples import labelled_arrays
from hardsight.names import check_name

METHODS = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
FILTERS = ("prune_by_noise_rate", "predicted_neq_given")
ISSUES = ("label", "outlier", "near_duplicate")
_LEAST = 1e-6


def get_label_quality_scores(labels: Any, pred_probs: Any, *, method: str = "self_confidence") -> np.ndarray:
    """How well each label fits what a model that did not train on the sample says; in [0, 1], low is bad.

    `self_confidence` is the label's probability, `normalized_margin` that minus the largest other, in [0, 1],
    `confidence_weighted_entropy` ranks what is undecided lowest.
    """
    check_name("method", method, METHODS)
    codes, beliefs = _checked(labels, pred_probs)
    own: np.ndarray = beliefs[np.arange(len(codes)), codes]
    if method == "self_confidence":
        return own
    if method == "normalized_margin":
        others = beliefs.copy()
        others[np.arange(len(codes)), codes] = -np.inf
        return np.asarray((own - others.max(1) + 1) / 2)
    entropy = -(beliefs * np.log(beliefs.clip(np.finfo(float).tiny))).sum(1) / np.log(beliefs.shape[1])
    doubt = entropy / own.clip(_LEAST)
    return np.asarray(np.log1p(doubt) / doubt.clip(_LEAST))


def find_label_issues(
    labels: Any,
    pred_probs: Any,
    *,
    return_indices_ranked_by: str | None = None,
    filter_by: str = "prune_by_noise_rate",
    **ignored: Any,
) -> np.ndarray:
    """Which labels are probably wrong, as a mask, or as indices with the worst first by the method that is named.

    `prune_by_noise_rate`: as many as the confident joint counts, those that fit least. `predicted_neq_given`: where
    another class is likelier. `n_jobs` and `verbose` need not be taken out of a script.
    """
    unknown = next((name for name in ignored if name not in ("n_jobs", "verbose")), None)
    if unknown is not None:
        raise TypeError(f"find_label_issues of hardsight.compat.cleanlab has no parameter {unknown!r}")
    check_name("filter_by", filter_by, FILTERS)
    codes, beliefs = _checked(labels, pred_probs)
    if filter_by == "predicted_neq_given":
        mask: np.ndarray = beliefs.max(1) > beliefs[np.arange(len(codes)), codes]
    else:
        mask = np.zeros(len(codes), bool)
        mask[audit(labels=codes, probabilities=beliefs).issues.suspects().column("id").to_numpy()] = True
    if return_indices_ranked_by is None:
        return mask
    quality = get_label_quality_scores(codes, beliefs, method=return_indices_ranked_by)
    order = np.argsort(quality, kind="stable")
    found: np.ndarray = order[mask[order]]
    return found


class Datalab:
    """`hs.audit` with cleanlab's columns: `issues`, `issue_summary`, `get_issues`, as pandas; `audit` is ours.

    `data` is anything that speaks Arrow, or a mapping of columns; `label_name` names that of the labels.
    """

    def __init__(self, data: Any, label_name: str, *, task: str = "classification", verbosity: int = 1) -> None:
        check_name("task", task, ("classification",))
        table = pa.table(dict(data)) if isinstance(data, Mapping) else arrow_table(data)
        check_name("label_name", label_name, table.column_names)
        self.labels, self.verbosity = table.column(label_name), verbosity
        self.audit: Audit | None = None
        self._found: Any = None

    def find_issues(self, *, pred_probs: Any = None, features: Any = None) -> None:
        """Audit the labels by probabilities, features or both; outliers and near duplicates need features."""
        self.audit = audit(labels=self.labels, probabilities=pred_probs, features=features)
        if self.verbosity:
            print(self.audit)
        found = self.audit.to_pandas()
        self._found = found.set_index("id").sort_index().rename_axis(None)
        if "neighbours" in found:
            # Neighbours are places in the audit's order.
            ids = self._found.index.to_numpy(copy=True)
            nearest = found["id"].to_numpy()[[one[0] for one in self._found["neighbours"]]]
            wide = torch.as_tensor(np.asarray(features), dtype=torch.float32)[torch.from_numpy(ids)]
            near = torch.from_numpy(np.searchsorted(ids, nearest))
            self._found["nearest"] = angles_to(wide - wide.mean(0), near[:, None])[:, 0].double().numpy()

    @property
    def issues(self) -> Any:
        """A pandas.DataFrame with `is_*_issue` and `*_score` of every kind that was looked for, a row for each row."""
        import pandas

        kinds = [kind for kind, source in _SOURCES.items() if source in self._looked()]
        parts = [self.get_issues(kind)[[f"is_{kind}_issue", f"{kind}_score"]] for kind in kinds]
        return pandas.concat(parts, axis=1)

    @property
    def issue_summary(self) -> Any:
        """A pandas.DataFrame of kind, mean score and count."""
        import pandas

        frame = self.issues
        kinds = [name.removesuffix("_score") for name in frame.columns if name.endswith("_score")]
        scores = [frame[f"{kind}_score"].mean() for kind in kinds]
        counts = [int(frame[f"is_{kind}_issue"].sum()) for kind in kinds]
        return pandas.DataFrame({"issue_type": kinds, "score": scores, "num_issues": counts})

    def get_issues(self, issue_name: str) -> Any:
        """One kind as a pandas.DataFrame, with what belongs to it; a row that was left out has no score."""
        check_name("issue_name", issue_name, ISSUES)
        found = self._looked()
        if _SOURCES[issue_name] not in found:
            raise ValueError(f"{issue_name} issues must be found from features; find_issues was given none")
        marked, score = f"is_{issue_name}_issue", f"{issue_name}_score"
        if issue_name == "label":
            named = "_name" if "label_name" in found else ""
            frame = found[["issue", "suspicion", f"label{named}", f"expected{named}"]]
            frame = frame.set_axis([marked, score, "given_label", "predicted_label"], axis=1)
            frame[score] = 1 - frame[score].astype(float)
        elif issue_name == "outlier":
            frame = found[["kinds", "neighbour_angle"]].set_axis([marked, score], axis=1)
            frame[marked] = ["outlier" in one for one in frame[marked]]
            frame[score] = 1 - frame[score].astype(float) / np.pi
        else:
            groups = found["duplicate_group"].astype("float64")
            frame = groups.notna().to_frame(marked)
            frame[score] = found["nearest"] / np.pi
            members = {key: list(rows.index) for key, rows in groups.dropna().groupby(groups.dropna())}
            frame["near_duplicate_sets"] = [
                [each for each in members.get(one, ()) if each != own] for own, one in groups.items()
            ]
        frame = frame.reindex(range(len(self.labels)))
        frame[marked] = frame[marked].fillna(False).astype(bool)
        return frame

    def report(self) -> None:
        """Print the audit in short."""
        self._looked()
        print(self.audit)

    def _looked(self) -> Any:
        if self._found is None:
            raise ValueError("find_issues must be called first, with pred_probs or features")
        return self._found


_SOURCES = {"label": "suspicion", "outlier": "neighbour_angle", "near_duplicate": "duplicate_group"}


def _checked(labels: Any, pred_probs: Any) -> tuple[np.ndarray, np.ndarray]:
    given = labelled_arrays(labels, probabilities=np.asarray(pred_probs))
    if (given.codes < 0).any():
        raise ValueError(f"labels must be filled for every sample; {int((given.codes < 0).sum())} are missing")
    return given.codes, np.asarray(given.probabilities, np.float64)
