"""find_label_issues: ranking, combination, estimate, expected class, reasons, and what it refuses."""

import math
from collections.abc import Callable

import jaxtyping
import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.metrics import roc_auc_score

from hardsight.cleaning import find_label_issues
from hardsight.cleaning.columns import rank_average, share_below, share_below_within
from hardsight.dynamics import Recorder
from hardsight.hardness import SCORES

Make = Callable[..., pa.Table]


def share_by_loops(values: list[float]) -> list[float]:
    known = [value for value in values if value == value]
    shares = []
    for value in values:
        if value != value:
            shares.append(float("nan"))
        elif len(known) == 1:
            shares.append(0.5)
        else:
            below = sum(other < value for other in known) + 0.5 * (sum(other == value for other in known) - 1)
            shares.append(below / (len(known) - 1))
    return shares


@pytest.mark.parametrize("values", [[3.0], [1.0, 1.0], [2.0, 1.0, 5.0, 1.0], [float("nan"), 4.0, 2.0], [float("nan")]])
def test_share_below_equals_the_loops(values: list[float]) -> None:
    np.testing.assert_allclose(share_below(np.array(values)), share_by_loops(values))


def test_share_within_groups_equals_the_loops() -> None:
    generator = np.random.default_rng(0)
    values, groups = generator.integers(0, 9, 60).astype(float), generator.integers(0, 4, 60)
    expected = np.empty(60)
    for group in range(4):
        expected[groups == group] = share_by_loops(values[groups == group].tolist())
    np.testing.assert_allclose(share_below_within(values, groups), expected)


def test_rank_average_ignores_every_scale_and_a_plain_mean_does_not() -> None:
    generator = np.random.default_rng(1)
    one, two = generator.random(50), generator.random(50)
    np.testing.assert_allclose(rank_average([one, np.exp(9 * two)]), rank_average([one, two]))
    plain = np.argsort((one + two) / 2)
    assert not np.array_equal(np.argsort((one + np.exp(9 * two)) / 2), plain)


def test_most_suspicious_first_whatever_the_direction(make_table: Make) -> None:
    columns = {"id": [10, 11, 12], "label": [0, 1, 2], "predicted": [0, 2, 2]}
    harder = find_label_issues(make_table({**columns, "avh": [0.1, 0.9, 0.4]}), "avh")
    easier = find_label_issues(make_table({**columns, "confidence": [0.9, 0.1, 0.6]}), "confidence")
    for issues in (harder, easier):
        assert issues.table.column("id").to_pylist() == [11, 12, 10]
        assert issues.table.column("suspicion").to_pylist() == [1.0, 0.5, 0.0]
        assert issues.table.column("rank").to_pylist() == [1, 2, 3]
        assert issues.table.column("expected").to_pylist() == [2, 2, 0]
        assert issues.table.column("issue").to_pylist() == [True, False, False]
        assert (issues.estimated, issues.estimate) == (1, "disagreement")
        assert issues.suspects().column("id").to_pylist() == [11]


def test_a_direction_in_the_column_beats_the_name() -> None:
    field = pa.field("mine", pa.float64(), metadata={"direction": "larger is easier"})
    schema = pa.schema([("id", pa.int64()), ("label", pa.int64()), field])
    table = pa.table([pa.array([0, 1]), pa.array([0, 0]), pa.array([5.0, 1.0])], schema=schema)
    assert find_label_issues(table, "mine").table.column("id").to_pylist() == [1, 0]


def test_finds_flipped_labels_and_their_number(
    noisy: tuple[np.ndarray, np.ndarray, np.ndarray], make_table: Make
) -> None:
    probabilities, labels, truth = noisy
    confidence = probabilities[np.arange(len(labels)), labels]
    table = make_table({"id": np.arange(len(labels)), "label": labels, "confidence": confidence}, 4)
    issues = find_label_issues(table, probabilities=probabilities)
    wrong = (labels != truth)[issues.table.column("id").to_numpy()]
    suspicion = issues.table.column("suspicion").to_numpy()
    assert roc_auc_score(wrong, suspicion) > 0.97
    assert issues.estimate == "confident_joint"
    assert issues.estimated == pytest.approx(int(wrong.sum()), rel=0.15)
    top = issues.suspects()
    right = top.column("expected").to_numpy() == truth[top.column("id").to_numpy()]
    assert right.mean() > 0.85


def test_probabilities_alone_are_enough(noisy: tuple[np.ndarray, np.ndarray, np.ndarray], make_table: Make) -> None:
    probabilities, labels, truth = noisy
    table = make_table({"id": np.arange(len(labels)), "label": labels})
    issues = find_label_issues(table, probabilities=probabilities)
    doubt = [
        math.log(max(p for at, p in enumerate(row) if at != label)) - math.log(row[label])
        for row, label in zip(probabilities.tolist(), labels.tolist(), strict=True)
    ]
    assert issues.scores == ("margin",)
    assert (np.diff(np.array(doubt)[issues.order]) <= 1e-9).all()
    assert issues.estimate == "confident_joint"
    wrong = (labels != truth)[issues.order]
    assert wrong[: issues.estimated].mean() > 5 * wrong[issues.estimated :].mean()
    # A score that the table has is not put aside for them.
    ranked = find_label_issues(
        make_table({"id": [0, 1], "label": [0, 1], "avh": [0.9, 0.1]}), probabilities=np.array([[0.9, 0.1], [0.9, 0.1]])
    )
    assert ranked.scores == ("avh",)
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\].*logits need a softmax"):
        find_label_issues(table, probabilities=100 * probabilities, estimate="mixture")


def test_probabilities_may_be_a_column(noisy: tuple[np.ndarray, np.ndarray, np.ndarray], make_table: Make) -> None:
    probabilities, labels, _ = noisy
    confidence = probabilities[np.arange(len(labels)), labels]
    table = make_table({"id": np.arange(len(labels)), "label": labels, "confidence": confidence}, 4)
    inside = table.append_column("probabilities", pa.array(probabilities.tolist()))
    assert find_label_issues(inside).table.equals(find_label_issues(table, probabilities=probabilities).table)


def test_expected_is_the_most_probable_class_and_the_label_where_none_is_more_so(make_table: Make) -> None:
    table = make_table({"id": [0, 1, 2, 3], "label": [0, 0, 2, 1], "loss": [0.1, 2.0, 0.7, 0.6]})
    beliefs = np.array([[0.7, 0.1, 0.2], [0.1, 0.8, 0.1], [0.4, 0.2, 0.4], [0.4, 0.35, 0.25]])
    found = find_label_issues(table, probabilities=beliefs).table.sort_by("id")
    # Of equal ones the label counts: nobody says that it is another.
    assert found["expected"].to_pylist() == [0, 1, 2, 0]
    apart = [label != expected for label, expected in zip([0, 0, 2, 1], [0, 1, 2, 0], strict=True)]
    assert ["expects another class" in reasons for reasons in found["reasons"].to_pylist()] == apart


def test_mean_margins_over_training_count_the_disagreements(make_table: Make) -> None:
    table = make_table({"id": [0, 1, 2, 3], "label": [0] * 4, "predicted": [0] * 4, "avh": [0.1, 0.2, 0.3, 0.4]})
    assert find_label_issues(table).estimated == 0
    field = pa.field("aum", pa.float64(), metadata={"direction": "larger is easier"})
    with_margin = table.append_column(field, pa.array([3.0, -1.0, 2.0, -4.0]))
    assert find_label_issues(with_margin, "avh").estimated == 2


def test_the_margin_of_the_logits_counts_first_and_a_tie_is_no_disagreement(make_table: Make) -> None:
    """AUM before the angular margin; a label as far ahead as behind has lost to nobody."""
    columns = {"id": [0, 1, 2, 3], "label": [0, 1, 2, 0], "predicted": [1, 2, 0, 1]}
    margins = {"angular_margin_mean": [-1.0, -1.0, -1.0, 1.0], "aum": [-2.0, 0.0, 3.0, 4.0]}
    issues = find_label_issues(make_table(columns | margins))
    assert (issues.estimated, issues.estimate, issues.one_look) == (1, "disagreement", False)
    angular = find_label_issues(make_table(columns | {"angular_margin_mean": margins["angular_margin_mean"]}))
    assert (angular.estimated, angular.one_look) == (3, False)
    # A single prediction: the model's own mistakes count too.
    once = find_label_issues(make_table(columns | {"el2n": [0.1, 0.2, 0.3, 0.4]}))
    assert (once.estimated, once.one_look) == (4, True)


def test_suspects_counted_over_training_that_the_model_agrees_with(make_table: Make) -> None:
    columns = {"id": [0, 1, 2, 3], "label": [0] * 4, "aum": [-2.0, -1.0, 3.0, 4.0]}
    assert find_label_issues(make_table(columns)).agreed is None
    issues = find_label_issues(make_table(columns | {"predicted": [0, 1, 0, 1]}))
    assert (issues.estimated, issues.agreed) == (2, 1)
    assert [one for one in ("LabelIssues(", "2 of 4", "disagreement", "aum") if one not in repr(issues)] == []


def test_no_more_issues_are_estimated_than_samples_are_ranked(make_table: Make) -> None:
    columns = {"id": [0, 1, 2], "label": [0, 1, 2], "predicted": [1, 2, 0], "el2n": [None, 0.4, None]}
    issues = find_label_issues(make_table(columns))
    assert issues.estimated == 1
    assert issues.suspects()["id"].to_pylist() == [1]
    assert issues.table["issue"].to_pylist() == [True, False, False]


def test_a_column_of_expected_classes_goes_before_the_prediction(make_table: Make) -> None:
    columns = {"id": [0, 1], "label": [0, 1], "predicted": [0, 1], "expected": [2, 0], "el2n": [0.9, 0.1]}
    assert find_label_issues(make_table(columns)).table["expected"].to_pylist() == [2, 0]


def test_mixture_only_where_nothing_was_predicted(make_table: Make) -> None:
    generator = np.random.default_rng(2)
    loss = np.concatenate([generator.normal(0.2, 0.05, 900), generator.normal(3.0, 0.4, 100)])
    table = make_table({"id": np.arange(1000), "label": np.zeros(1000, int), "loss": loss})
    issues = find_label_issues(table)
    assert (issues.estimated, issues.estimate) == (100, "mixture")
    assert issues.table.column("expected").null_count == 1000


def test_of_several_scores_humps_the_median_counts(make_table: Make) -> None:
    """300, 100 and none: one score that is carried away, or sees nothing, does not decide."""
    generator = np.random.default_rng(2)

    def humps(harder: int) -> np.ndarray:
        easy, hard = generator.normal(0.2, 0.05, 1000 - harder), generator.normal(3.0, 0.4, harder)
        return generator.permutation(np.concatenate([easy, hard]))

    columns = {"loss": humps(300), "el2n": humps(100), "entropy": humps(0)}
    table = make_table({"id": np.arange(1000), "label": np.zeros(1000, int)} | columns)
    alone = [find_label_issues(table, name, estimate="mixture").estimated for name in columns]
    assert alone == [300, 100, 0]
    assert find_label_issues(table, list(columns), estimate="mixture").estimated == 100


def test_missing_scores_come_last_unranked(make_table: Make) -> None:
    table = make_table({"id": [0, 1, 2], "label": [0, 0, 0], "predicted": [1, 1, 0], "avh": [float("nan"), 0.5, 0.2]})
    issues = find_label_issues(table)
    assert issues.table.column("id").to_pylist() == [1, 2, 0]
    assert issues.table.column("rank").to_pylist() == [1, 2, None]
    assert issues.table.column("suspicion").to_pylist() == [1.0, 0.0, None]
    assert issues.table.column("issue").to_pylist() == [True, True, False]
    assert "score is missing" in issues.table.column("reasons").to_pylist()[2]


def test_samples_without_a_label_are_left_out(make_table: Make) -> None:
    columns = {"id": [0, 1, 2], "label": [0, None, 1], "predicted": [0, 1, 0], "avh": [0.2, 0.9, 0.5]}
    table = make_table({**columns, "label": pa.array(columns["label"], pa.int64())})
    beliefs = np.array([[0.9, 0.1], [0.5, 0.5], [0.8, 0.2]])
    issues = find_label_issues(table, probabilities=beliefs)
    assert issues.table.column("id").to_pylist() == [2, 0]
    assert issues.table.column("expected").to_pylist() == [0, 0]
    assert issues.order.tolist() == [2, 0]


def test_a_recorders_table_is_understood() -> None:
    generator = torch.Generator().manual_seed(0)
    recorder = Recorder(5, num_classes=3, scores=("aum", "el2n_mean"))
    labels = torch.tensor([0, 1, 2, 0])
    for _ in range(3):
        logits = 3 * torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 2]), 3).float()
        recorder.update(torch.arange(4), logits + 0.1 * torch.randn(4, 3, generator=generator), labels)
        recorder.end_epoch()
    issues = find_label_issues(recorder.table())
    assert issues.scores == ("el2n_mean",)
    assert issues.table.column("id").to_pylist()[0] == 3
    assert len(issues.table) == 4
    assert issues.estimated == 1


def test_reasons_name_what_is_extreme(make_table: Make) -> None:
    count = 200
    avh, label = np.linspace(0, 1, count), np.zeros(count, int)
    table = make_table({"id": np.arange(count), "label": label, "predicted": np.r_[label[:-1], 1], "avh": avh})
    reasons = find_label_issues(table).table.column("reasons").to_pylist()
    assert reasons[0].split("; ")[1:] == ["hardest 1 % by avh", "hardest 1 % of its class"]
    assert reasons[5] == "hardest 5 % by avh"
    assert reasons[-1] == ""


def test_a_sample_that_was_never_learned_is_told_from_one_that_was_forgotten(make_table: Make) -> None:
    columns = {"id": [0, 1, 2], "label": [0, 0, 0], "aum": [-2.0, -3.0, 1.0], "never_learned": [True, False, None]}
    found = find_label_issues(make_table(columns | {"forgotten": [0, 5, None]}))
    assert found.scores == ("aum",)
    assert (
        dict(zip(found.table["id"].to_pylist(), found.table["reasons"].to_pylist(), strict=True))[0] == "never learned"
    )
    assert sum("never learned" in reasons for reasons in found.table["reasons"].to_pylist()) == 1


def test_many_extreme_scores_are_named_shortly(make_table: Make) -> None:
    values = np.linspace(0, 1, 200)
    names = ("avh", "loss", "el2n", "entropy", "grand")
    for count, said in (
        (1, "avh"),
        (2, "avh and loss"),
        (4, "avh, loss, el2n and entropy"),
        (5, "avh, loss, el2n and 2 more"),
    ):
        columns = dict.fromkeys(names[:count], values)
        table = make_table({"id": np.arange(200), "label": np.arange(200), **columns})
        assert find_label_issues(table, "avh").table.column("reasons")[0].as_py() == f"hardest 1 % by {said}"


def test_class_names_are_added(make_table: Make) -> None:
    table = make_table({"id": [0, 1], "label": [0, 1], "predicted": [1, 1], "avh": [0.5, 0.1]})
    named = find_label_issues(table, class_names=["cat", "dog"]).table
    assert named.column("label_name").to_pylist() == ["cat", "dog"]
    assert named.column("expected_name").to_pylist() == ["dog", "dog"]
    with pytest.raises(ValueError, match="name for every class"):
        find_label_issues(table, class_names=["cat"])


def test_labels_may_be_text() -> None:
    table = pa.table({"id": ["x", "y"], "label": ["cat", "dog"], "predicted": ["dog", "dog"], "avh": [0.5, 0.1]})
    issues = find_label_issues(table)
    assert issues.table.column("expected").to_pylist() == ["dog", "dog"]
    assert issues.estimated == 1


def test_a_label_that_stands_for_none_is_no_suspect(make_table: Make) -> None:
    # PyTorch's -100 would otherwise be the most suspicious label of all: no model ever predicts it.
    table = make_table({"id": [0, 1, 2], "label": [0, -100, 1], "predicted": [0, 1, 1], "avh": [0.1, 0.9, 0.2]})
    with pytest.raises(
        ValueError, match=r"^column 'label' must be 0 or larger, .*; got -100, which stands for none \(1 of 3\): .*null"
    ):
        find_label_issues(table)


def test_probabilities_may_come_from_a_graph(noisy: tuple[np.ndarray, ...], make_table: Make) -> None:
    probabilities, labels, _ = noisy
    table = make_table({"id": np.arange(len(labels)), "label": labels})
    attached = torch.tensor(probabilities, requires_grad=True)
    assert find_label_issues(table, probabilities=attached).table.equals(
        find_label_issues(table, probabilities=probabilities).table
    )


def test_equal_samples_keep_their_order(make_table: Make) -> None:
    table = make_table({"id": [7, 3, 9], "label": [0, 0, 0], "avh": [0.5, 0.5, 0.5]})
    issues = find_label_issues(table)
    assert issues.table.column("id").to_pylist() == [7, 3, 9]
    assert issues.table.column("suspicion").to_pylist() == [0.5, 0.5, 0.5]
    assert issues.estimated == 0


def test_shuffling_the_rows_changes_nothing_but_ties(noisy: tuple[np.ndarray, ...], make_table: Make) -> None:
    probabilities, labels, _ = noisy
    own = probabilities[np.arange(len(labels)), labels]
    table = make_table({"id": np.arange(len(labels)), "label": labels, "confidence": own, "loss": -np.log(own)}, 4)
    shuffle = np.random.default_rng(3).permutation(len(labels))
    for score in ("confidence", ["confidence", "loss"]):
        straight = find_label_issues(table, score, probabilities=probabilities)
        mixed = find_label_issues(table.take(pa.array(shuffle)), score, probabilities=probabilities[shuffle])
        assert mixed.table.equals(straight.table)


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ({"label": [0], "avh": [0.1]}, {}, "column 'id'"),
        ({"id": [0], "avh": [0.1]}, {}, "column 'label'"),
        ({"id": [0], "label": [0]}, {}, "score column whose direction is known"),
        ({"id": [0], "label": [0], "avh": [0.1]}, {"score": "nope"}, "column 'nope'"),
        ({"id": [0], "label": [0], "mine": [0.1]}, {"score": "mine"}, "says its direction"),
        ({"id": [0], "label": [0], "avh": [0.1]}, {"score": []}, "at least one column"),
        ({"id": [0], "label": [None], "avh": [0.1]}, {}, "'label' must be filled for at least one"),
        ({"id": [], "label": [], "avh": []}, {}, "at least one row"),
        ({"id": [0], "label": [0], "avh": np.array([np.nan])}, {}, "missing for all"),
        ({"id": [0], "label": [0], "avh": [0.1]}, {"estimate": "disagreement"}, "needs a column 'predicted'"),
        ({"id": [0], "label": [0], "avh": [0.1]}, {"estimate": "confident_joint"}, "needs probabilities"),
        ({"id": [0], "label": [0], "avh": [0.1]}, {"probabilities": np.ones((2, 2)) / 2}, "a row for each"),
    ],
)
def test_refusals(columns: dict, options: dict, sentence: str, make_table: Make) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        find_label_issues(make_table(columns), **options)


def test_a_table_scored_against_its_predictions_is_refused(make_table: Make) -> None:
    table = make_table({"id": [0], "label": [0], "avh": [0.1]})
    table = table.replace_schema_metadata({"hardness against": "predicted class"})
    with pytest.raises(ValueError, match="against the predicted class"):
        find_label_issues(table)


def test_without_a_name_the_first_group_that_is_whole_ranks(make_table: Make) -> None:
    generator = np.random.default_rng(3)
    table = make_table({"id": np.arange(40), "label": np.zeros(40, int), "loss": generator.random(40)})
    expected: tuple[str, ...] = ("loss",)
    for name, group in (
        ("angular_margin_last", ("angular_margin_last",)),
        ("el2n_mean", ("el2n_mean", "angular_margin_last")),
        ("angular_margin", ("el2n_mean", "angular_margin")),
        ("smoothed_last_posterior", ("el2n_mean", "angular_margin", "smoothed_last_posterior")),
    ):
        assert find_label_issues(table).scores == expected
        described = SCORES[name].describe(3) if name in SCORES else {"direction": "larger is harder"}
        field = pa.field(name, pa.float64(), metadata=described)
        table, expected = table.append_column(field, pa.array(generator.random(40))), group
    issues = find_label_issues(table)
    assert issues.scores == expected
    assert issues.table.equals(find_label_issues(table, expected).table)
    assert not issues.table.equals(find_label_issues(table, "el2n_mean").table)


def test_two_looks_that_err_apart_are_better_together_than_either(make_table: Make) -> None:
    generator = np.random.default_rng(4)
    wrong = generator.random(2000) < 0.2
    means, margins = (wrong + generator.normal(0, 0.5, 2000) for _ in range(2))
    columns = {"id": np.arange(2000), "label": np.zeros(2000, int), "el2n_mean": means, "angular_margin": -margins}
    table = make_table(columns)

    def found(score: str | None) -> float:
        issues = find_label_issues(table, score)
        return float(roc_auc_score(wrong[issues.order], issues.table.column("suspicion").to_numpy()))

    assert found(None) > max(found("el2n_mean"), found("angular_margin")) + 0.02


def test_what_is_no_table_is_refused_with_what_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(TypeError, match=r"table must be a pyarrow\.Table with id, label and scores, .*; got dict"):
        find_label_issues({"avh": torch.rand(3)})  # type: ignore[arg-type]


@pytest.mark.parametrize("other", ["predicted", "expected"])
def test_classes_of_two_kinds_are_refused_instead_of_all_called_wrong(other: str) -> None:
    table = pa.table({"id": [0, 1, 2], "label": [0, 1, 0], other: ["a", "b", "a"], "confidence": [0.9, 0.2, 0.8]})
    with pytest.raises(TypeError, match=f"must all hold integers, or all text; 'label' int64, '{other}' string"):
        find_label_issues(table)
    table = pa.table({"id": [0, 1], "label": ["a", "b"], other: [0, 1], "confidence": [0.9, 0.2]})
    with pytest.raises(TypeError, match=r"'label' string, .* int64"):
        find_label_issues(table)
    mixed = {"id": [0, 1], "label": pa.array([0, 1], pa.int32()), other: [0, 1], "confidence": [0.9, 0.2]}
    assert find_label_issues(pa.table(mixed)).estimated >= 0


def test_what_holds_no_column_of_probabilities_is_named() -> None:
    beliefs = [[0.5, 0.5], [0.9, 0.1]]
    with pytest.raises(TypeError, match="the table holds double"):
        find_label_issues(pa.table({"id": [0, 1], "label": [0.0, 1.0], "probabilities": beliefs}))


def test_equal_probabilities_contradict_no_label(make_table: Make) -> None:
    table = make_table({"id": [0, 1, 2], "label": [1, 0, 1], "avh": [0.1, 0.2, 0.3]})
    found = find_label_issues(table, probabilities=np.array([[0.5, 0.5], [0.9, 0.1], [0.8, 0.2]])).table
    said = dict(zip(found["id"].to_pylist(), found["reasons"].to_pylist(), strict=True))
    assert ["another class" in said[one] for one in range(3)] == [False, False, True]


@pytest.mark.parametrize("estimate", ["mixture", "disagreement", "confident_joint"])
@pytest.mark.parametrize(
    ("first", "label", "sentence"),
    [
        ([np.nan, np.nan], 1, "probabilities must be finite"),
        ([3.0, -2.0], 1, "probabilities must lie"),
        ([0.5, 0.5], 5, "labels must lie"),
    ],
)
def test_probabilities_are_looked_at_whatever_estimates(
    estimate: str, first: list[float], label: int, sentence: str, make_table: Make
) -> None:
    table = make_table({"id": [0, 1], "label": [label, 0], "predicted": [0, 0], "avh": [0.1, 0.2]})
    with pytest.raises(ValueError, match=sentence):
        find_label_issues(table, probabilities=np.array([first, [0.9, 0.1]]), estimate=estimate)


def test_one_of_two_is_not_the_hardest_hundredth(make_table: Make) -> None:
    avh, label = np.linspace(0, 1, 150), np.r_[np.zeros(148, int), 1, 1]
    reasons = find_label_issues(make_table({"id": np.arange(150), "label": label, "avh": avh})).table["reasons"]
    # Of class 1 there are two samples; of class 0 there are 148, of which one is a hundredth.
    assert [("of its class" in one) for one in reasons.to_pylist()[:4]] == [False, False, True, False]
    assert [("hardest 1 % by" in one) for one in reasons.to_pylist()[:3]] == [True, False, False]
    few = find_label_issues(make_table({"id": [0, 1, 2], "label": [0, 0, 0], "avh": [0.1, 0.2, 0.3]})).table
    assert few["reasons"].to_pylist() == ["", "", ""]
