"""cleanlab's names: its own numbers where it is installed, low is bad, and what hs.audit finds in its columns."""

import numpy as np
import pytest

from hardsight.compat.cleanlab import METHODS, Datalab, find_label_issues, get_label_quality_scores

pandas = pytest.importorskip("pandas")


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features and probabilities of 240 samples, labels of which 12 are wrong, and the places of these."""
    generator = np.random.default_rng(3)
    truth = generator.integers(0, 3, 240)
    features = np.eye(3, 6)[truth] + 0.15 * generator.normal(size=(240, 6))
    wrong = np.sort(generator.permutation(240)[:12])
    labels = truth.copy()
    labels[wrong] = (labels[wrong] + 1) % 3
    features[239] = features[238]
    raised = np.exp(6 * features[:, :3])
    return features.astype(np.float32), raised / raised.sum(1, keepdims=True), labels, wrong


def test_quality_is_as_written() -> None:
    beliefs = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [1.0, 0.0, 0.0]])
    labels = [0, 2, 1]
    np.testing.assert_allclose(get_label_quality_scores(labels, beliefs), [0.7, 0.3, 0.0])
    margin = get_label_quality_scores(labels, beliefs, method="normalized_margin")
    np.testing.assert_allclose(margin, [0.75, 0.4, 0.0])
    entropy = -(beliefs[1] * np.log(beliefs[1])).sum() / np.log(3) / 0.3
    found = get_label_quality_scores(labels, beliefs, method="confidence_weighted_entropy")
    assert found[1] == pytest.approx(np.log(entropy + 1) / entropy)


@pytest.mark.parametrize("method", METHODS)
def test_quality_is_cleanlabs(data: tuple, method: str) -> None:
    rank = pytest.importorskip("cleanlab.rank")
    _, beliefs, labels, _ = data
    ours = get_label_quality_scores(labels, beliefs, method=method)
    np.testing.assert_allclose(ours, rank.get_label_quality_scores(labels, beliefs, method=method), atol=1e-12)


def test_issues_as_mask_and_as_indices(data: tuple) -> None:
    _, beliefs, labels, wrong = data
    mask = find_label_issues(labels, beliefs, n_jobs=1)
    assert mask.dtype == bool
    assert set(wrong) <= set(np.flatnonzero(mask)) | set(wrong)
    assert abs(mask.sum() - 12) <= 3
    ranked = find_label_issues(labels, pred_probs=beliefs, return_indices_ranked_by="self_confidence")
    assert sorted(ranked) == np.flatnonzero(mask).tolist()
    quality = get_label_quality_scores(labels, beliefs)
    assert (np.diff(quality[ranked]) >= 0).all()
    differ = find_label_issues(labels, beliefs, filter_by="predicted_neq_given")
    np.testing.assert_array_equal(differ, beliefs.argmax(1) != labels)


def test_datalab_has_its_columns(data: tuple, capsys: pytest.CaptureFixture) -> None:
    features, beliefs, labels, wrong = data
    broken = features.copy()
    broken[5] = np.nan
    lab = Datalab({"kind": np.array(["ant", "bee", "cat"])[labels]}, label_name="kind", verbosity=0)
    lab.find_issues(features=broken)
    issues = lab.issues
    assert issues.columns.tolist() == [
        f"{name}" for kind in ("label", "outlier", "near_duplicate") for name in (f"is_{kind}_issue", f"{kind}_score")
    ]
    assert len(issues) == 240
    assert np.isnan(issues["label_score"][5])
    assert not issues["is_label_issue"][5]
    worst = issues["label_score"].nsmallest(12).index
    assert len(set(worst) & set(wrong)) >= 11
    assert issues["label_score"].dropna().between(0, 1).all()
    copies = lab.get_issues("near_duplicate")
    assert copies["is_near_duplicate_issue"][238]
    assert 239 in copies["near_duplicate_sets"][238]
    assert copies["near_duplicate_score"][238] == copies["near_duplicate_score"].min()
    given = lab.get_issues("label")
    assert set(given["given_label"].dropna()) == {"ant", "bee", "cat"}
    summary = lab.issue_summary.set_index("issue_type")
    assert summary["num_issues"]["label"] == issues["is_label_issue"].sum()
    lab.report()
    assert "labels" in capsys.readouterr().out
    plain = Datalab(pandas.DataFrame({"label": labels}), "label", verbosity=0)
    plain.find_issues(pred_probs=beliefs)
    assert plain.issues.columns.tolist() == ["is_label_issue", "label_score"]


def test_what_cannot_be() -> None:
    beliefs = np.full((4, 2), 0.5)
    for work, words in (
        (lambda: get_label_quality_scores([0, 1], beliefs), "probabilities"),
        (lambda: get_label_quality_scores([0, 1, 0, 1], beliefs, method="best"), "method"),
        (lambda: find_label_issues([0, 1, 0, 1], beliefs, filter_by="both"), "filter_by"),
        (lambda: Datalab({"label": [0, 1]}, "kind"), "label_name"),
        (lambda: Datalab({"label": [0, 1]}, "label").issues, "find_issues"),
        (lambda: Datalab({"label": [0, 1]}, "label", task="regression"), "task"),
    ):
        with pytest.raises(ValueError, match=words):
            work()
    with pytest.raises(TypeError, match="frac_noise"):
        find_label_issues([0, 1, 0, 1], beliefs, frac_noise=0.5)
