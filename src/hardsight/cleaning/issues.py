"""`find_label_issues`: which labels are probably wrong, how many of them, and what they probably should be."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from hardsight.cleaning.columns import (
    hardness_values,
    labels_of,
    rank_average,
    require_rows,
    score_names,
    share_below,
    share_below_within,
)
from hardsight.cleaning.confident import (
    beliefs_of,
    check_probabilities,
    confident_joint,
    expected_issues,
    fit_two_humps,
    in_pieces,
    with_scores,
)
from hardsight.names import check_name
from hardsight.records import require_column
from hardsight.validation import check_classes

ESTIMATES = ("auto", "confident_joint", "disagreement", "mixture")

# The scores to rank by when none is named: the first group that the table has whole. What training said on average and
# what the trained model says err on different samples, so their mean rank beats both: on people's errors, where means
# over training are the stronger, and on errors between pairs of classes, where the last angular margin is by far.
# Features or held-out probabilities take the last margin's place, ahead of it and of either alone (development sets).
DEFAULTS = (
    ("el2n_mean", "margin_with_neighbours"),
    ("el2n_mean", "margin_of_probabilities"),
    ("el2n_mean", "angular_margin", "smoothed_last_posterior"),
    ("el2n_mean", "angular_margin"),
    ("el2n_mean", "angular_margin_last"),
    ("margin_with_neighbours",),
)
# Where none of these is whole, the first single score that the table has. On CIFAR-10N's human label errors mean EL2N
# had the highest average precision, then AUM, the last angular margin, the last AVH and the mean AVH; the others stand
# beside their kin.
PREFERRED = (
    "el2n_mean", "aum", "angular_margin_last", "margin_last", "angular_margin_mean", "confidence_mean", "loss_mean",
    "angular_margin", "margin", "el2n", "confidence", "loss", "avh_last", "avh", "avh_mean",
)  # fmt: skip
# A score is named of the samples that are among these shares of the hardest, and so many scores by name.
_EXTREME, _HIGH, _NAMED = 0.01, 0.05, 3
# What a recorder says beside its scores.
NEVER_LEARNED = "never_learned"
# A 64-bit code says which reasons hold: two bits a score, and four for the rest.
_MOST_SCORES = 30
_SUSPICION = {"kind": "score", "title": "Suspicion", "direction": "larger is harder", "range": "[0, 1]"}
# Mean margins over training: negative where another class was ahead of the label on average.
_MEAN_MARGINS = ("aum", "angular_margin_mean")


@dataclass(frozen=True)
class LabelIssues:
    """Every labelled sample, most suspicious first, and how many of them are estimated to be wrong.

    `table` has the columns id, label, expected (the class the label probably should be), suspicion (the share of the
    samples that look less suspicious, in [0, 1]), rank (from 1), issue (whether the rank is within the estimate) and
    reasons; with class names also label_name and expected_name. A sample whose score is missing comes last, with
    suspicion and rank null; `order` holds each row's place in the table that was given. `estimate` names how the number
    was found, `one_look` is true where the model's own mistakes count too, by a single prediction of each sample.

    `agreed` is how many of the suspects the trained model agrees with, where they were counted over the training: they
    were learned late, or are wrong and were memorised, which no count can tell apart.
    """

    table: pa.Table
    estimated: int
    estimate: str
    scores: tuple[str, ...]
    order: np.ndarray
    one_look: bool = False
    agreed: int | None = None
    of: int | None = None
    """`samples`, where the table lists only the most suspicious."""

    def __repr__(self) -> str:
        ranked = f"ranked by {', '.join(self.scores)}"
        return f"LabelIssues({self.estimated} of {len(self.table)} labels, by {self.estimate}; {ranked})"

    @property
    def samples(self) -> int:
        """How many samples were looked at."""
        return self.table.num_rows if self.of is None else self.of

    def suspects(self) -> pa.Table:
        """The rows estimated to be wrong, most suspicious first."""
        return self.table.slice(0, self.estimated)


def find_label_issues(
    table: pa.Table,
    score: str | Sequence[str] | None = None,
    *,
    class_names: Sequence[str] | None = None,
    probabilities: Tensor | np.ndarray | None = None,
    estimate: str = "auto",
) -> LabelIssues:
    """Rank all samples by how little their label fits, with an estimated number of issues and the expected class.

    `table` has id, label and score columns, as `score_model` and a recorder make it. `score` names the column to rank
    by; several are combined by the mean of their ranks; left out, the first of `DEFAULTS` that the table has whole,
    else the first of `PREFERRED`. `probabilities` [samples, classes] may come as an argument or as a list column of
    that name; a table that has no score is ranked by their `margin`. Samples without a label are left out.

    The number of issues uses no clean label. `confident_joint`: off the diagonal of the confident joint, needs
    probabilities of models that did not train on the sample. `disagreement`: the samples where another class was
    ahead of the label, over training where a mean margin is recorded, else in the prediction. `mixture`: those of
    the harder of two humps of the score, none where the score shows one hump. `auto` takes the first that it can.
    """
    require_rows(table)
    require_column(table, "id")
    table, beliefs, labelled = _labelled(table, probabilities)
    names = _choose(table, score)
    labels = labels_of(table)
    if labels.dtype.kind in "iu":
        check_classes("column 'label'", labels, "write null where a sample has no label")
    columns = [hardness_values(table, name) for name in names]
    hardness = columns[0] if len(columns) == 1 else rank_average(columns)
    suspicion = share_below(hardness)
    ranked = ~np.isnan(suspicion)
    if not ranked.any():
        raise ValueError(f"score must be known for at least one sample; {', '.join(names)} is missing for all of them")
    estimated, how = _estimate(table, labels, beliefs, columns, estimate)
    estimated = min(estimated, int(ranked.sum()))
    # Stable, so that equal samples keep the table's order whatever the platform.
    order = np.argsort(np.where(ranked, -suspicion, np.inf), kind="stable")
    expected = _expected(table, labels, beliefs)
    # Where the model's own choice is another class than the label.
    disagrees = np.zeros(len(labels), bool) if expected.null_count else np.asarray(expected) != labels
    ranks = np.arange(1, len(order) + 1)
    found = pa.table({
        "id": table.column("id").take(pa.array(order)),
        "label": pa.array(labels[order]),
        "expected": expected.take(pa.array(order)),
        **_names(labels[order], expected.take(pa.array(order)), class_names),
        "suspicion": pa.array(suspicion[order], pa.float64(), from_pandas=True),
        "rank": pa.array(ranks, pa.int64(), mask=~ranked[order]),
        "issue": pa.array(ranks <= estimated),
        "reasons": _reasons(table, names, labels, disagrees).take(pa.array(order)),
    })  # fmt: skip
    suspicious = pa.field("suspicion", pa.float64(), metadata=_SUSPICION)
    found = found.set_column(found.column_names.index("suspicion"), suspicious, found["suspicion"])
    one_look = how == "disagreement" and _mean_margin(table) is None
    over_training = how == "disagreement" and not one_look
    agreed = int((~disagrees[order[:estimated]]).sum()) if over_training and not expected.null_count else None
    return LabelIssues(found, estimated, how, tuple(names), labelled[order], one_look, agreed)


def _choose(table: pa.Table, score: str | Sequence[str] | None) -> list[str]:
    if score is None:
        described = score_names(table)
        groups = (*DEFAULTS, *((name,) for name in (*PREFERRED, *described)))
        found = next((group for group in groups if set(group) <= set(described)), None)
        if found is None:
            raise ValueError(
                "table must have a score column whose direction is known, such as confidence, the probability of the "
                f"label, or probabilities of all classes; it has {', '.join(table.column_names)}"
            )
        return list(found)
    names = [score] if isinstance(score, str) else list(score)
    if not names:
        raise ValueError("score must name at least one column; got none")
    return names


def _labelled(table: pa.Table, given: Tensor | np.ndarray | None) -> tuple[pa.Table, Tensor | None, np.ndarray]:
    """The rows that have a label, with scores; what is believed of them; and their places."""
    if (table.schema.metadata or {}).get(b"hardness against") == b"predicted class":
        raise ValueError("table must be scored against given labels; this one was scored against the predicted class")
    require_column(table, "label")
    kinds = {field.name: field.type for field in table.schema if field.name in ("label", "expected", "predicted")}
    plain = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds.values()]
    # Classes numbered in one column and named in another differ everywhere.
    if len({pa.types.is_integer(kind) for kind in plain}) > 1:
        said = ", ".join(f"{name!r} {kind}" for name, kind in kinds.items())
        raise TypeError(f"columns of classes must all hold integers, or all text; {said}")
    known = table.column("label").is_valid().to_numpy(zero_copy_only=False)
    if not known.any():
        raise ValueError(f"column 'label' must be filled for at least one sample; all {len(known)} are null")
    beliefs = beliefs_of(table, given)
    places = np.flatnonzero(known)
    if len(places) < len(known):
        table, beliefs = table.take(pa.array(places)), None if beliefs is None else beliefs[places]
    scored = with_scores(table, beliefs)
    if beliefs is not None and scored is table:
        # Where scores were made of them, they have been looked at.
        check_probabilities(beliefs, torch.from_numpy(labels_of(table).astype(np.int64)))
    return scored, beliefs, places


def _estimate(
    table: pa.Table, labels: np.ndarray, beliefs: Tensor | None, columns: list[np.ndarray], how: str
) -> tuple[int, str]:
    check_name("estimate", how, ESTIMATES)
    if how == "auto":
        differs = _mean_margin(table) is not None or "predicted" in table.column_names
        how = "confident_joint" if beliefs is not None else "disagreement" if differs else "mixture"
    if how == "confident_joint":
        if beliefs is None:
            raise ValueError('estimate="confident_joint" needs probabilities; got none')
        return round(
            expected_issues(confident_joint(beliefs, torch.from_numpy(labels.astype(np.int64)), checked=True))
        ), how
    if how == "disagreement":
        margin = _mean_margin(table)
        if margin is not None:
            return int((hardness_values(table, margin) > 0).sum()), how
        if "predicted" not in table.column_names:
            raise ValueError("estimate=\"disagreement\" needs a column 'predicted' or a mean margin over training")
        return int((labels_of(table, "predicted") != labels).sum()), how
    # Ranks are spread evenly by construction: humps are looked for in each score itself.
    return int(np.median([fit_two_humps(column).count for column in columns])), how


def _mean_margin(table: pa.Table) -> str | None:
    return next((name for name in _MEAN_MARGINS if name in table.column_names), None)


def _expected(table: pa.Table, labels: np.ndarray, beliefs: Tensor | None) -> pa.Array:
    """The class the label probably should be; null where nothing but the label itself is known."""

    def likeliest(rows: Tensor, own: Tensor) -> tuple[Tensor]:
        # The label, where another one is only as probable.
        return (torch.where(rows.amax(1) > rows.gather(1, own).squeeze(1), rows.argmax(1), own.squeeze(1)),)

    if beliefs is not None:
        return pa.array(in_pieces(likeliest, beliefs, torch.from_numpy(labels.astype(np.int64)))[0].numpy())
    source = next((name for name in ("expected", "predicted") if name in table.column_names), None)
    if source is None:
        return pa.nulls(len(labels), pa.array(labels[:1]).type)
    return pa.array(labels_of(table, source))


def _names(labels: np.ndarray, expected: pa.Array, class_names: Sequence[str] | None) -> dict[str, pa.Array]:
    if class_names is None:
        return {}
    names = [str(name) for name in class_names]
    if labels.dtype.kind not in "iu":
        raise TypeError("class_names must be left out where the labels are text already")
    highest = max(int(labels.max()), pc.max(expected).as_py() or 0)
    if highest >= len(names):
        raise ValueError(f"class_names must have a name for every class; got {len(names)} names and class {highest}")
    known = pa.array(names)
    return {"label_name": known.take(pa.array(labels)), "expected_name": known.take(expected)}


def _reasons(table: pa.Table, ranked_by: Sequence[str], labels: np.ndarray, disagrees: np.ndarray) -> pa.Array:
    """One line a sample, as a dictionary-encoded column: a million samples share a few hundred different lines."""
    names = list(dict.fromkeys([*ranked_by, *score_names(table)]))[:_MOST_SCORES]
    recorded = NEVER_LEARNED in table.column_names and pa.types.is_boolean(table.schema.field(NEVER_LEARNED).type)
    never = pc.fill_null(table.column(NEVER_LEARNED), False).to_numpy() if recorded else np.zeros(len(labels), bool)
    first = hardness_values(table, names[0])
    of_class = np.unique(labels, return_inverse=True)[1].reshape(-1)
    members = np.bincount(of_class, weights=~np.isnan(first))[of_class]
    hardest_of_class = _among_hardest(share_below_within(first, labels), members) <= _EXTREME
    facts = [disagrees, never, np.isnan(first), hardest_of_class]
    for name in names:
        values = hardness_values(table, name)
        among = _among_hardest(share_below(values), (~np.isnan(values)).sum())
        facts += [among <= _EXTREME, (among > _EXTREME) & (among <= _HIGH)]
    code = np.zeros(len(labels), np.uint64)
    for bit, holds in enumerate(facts):
        code |= holds.astype(np.uint64) << np.uint64(bit)
    found, inverse = np.unique(code, return_inverse=True)
    lines = [_line([bool(one >> bit & 1) for bit in range(len(facts))], names) for one in found.tolist()]
    return pa.DictionaryArray.from_arrays(pa.array(inverse.reshape(-1), pa.int32()), pa.array(lines, pa.string()))


def _among_hardest(below: np.ndarray, samples: np.ndarray | np.integer) -> np.ndarray:
    """The share of the hardest samples, itself counted, that a sample is the last of: of two no one is a hundredth."""
    return 1 - below * (samples - 1) / np.maximum(samples, 1)


def _line(facts: Sequence[bool], names: Sequence[str]) -> str:
    expects, never, missing, of_class, *by = facts
    said = ["the model expects another class"] * expects + ["never learned"] * never
    for share, holding in (("1 %", by[::2]), ("5 %", by[1::2])):
        hard = [name for name, holds in zip(names, holding, strict=True) if holds]
        # Scores of one model agree mostly: a list of all says no more.
        shown = hard if len(hard) <= _NAMED + 1 else [*hard[:_NAMED], f"{len(hard) - _NAMED} more"]
        if shown:
            first = f"{', '.join(shown[:-1])} and " if len(shown) > 1 else ""
            said.append(f"hardest {share} by {first}{shown[-1]}")
    return "; ".join(said + ["hardest 1 % of its class"] * of_class + ["its score is missing"] * missing)
