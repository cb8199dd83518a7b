"""Kinds of findings and of classes: hand-made cases, planted ones found, and loops as references."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

import hardsight as hs
from hardsight.cleaning.classes import alike, confused_pairs, imbalance, several_in_one, wilson
from hardsight.cleaning.kinds import KINDS, kinds_of
from hardsight.cleaning.neighbours import (
    SCORES_OF_FEATURES,
    angles_to,
    find_outliers,
    in_mixed_group,
    margin_with_neighbours,
    near_duplicates,
    nearest_in_angle,
    surroundings,
)


def clusters(samples: int = 300, classes: int = 3, dim: int = 8, spread: float = 0.15) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (samples,), generator=generator)
    features = torch.eye(classes, dim)[labels] + spread * torch.randn(samples, dim, generator=generator)
    return features, labels


def around(features: torch.Tensor) -> tuple[torch.Tensor, ...]:
    centred = features - features.mean(0)
    near = nearest_in_angle(centred, 10)
    return centred, near, angles_to(centred, near)


def test_each_sample_has_its_kinds() -> None:
    beliefs = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.4, 0.1], [0.0, 0.1, 0.9], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7],
                            [0.9, 0.05, 0.05], [0.05, 0.35, 0.6]], dtype=torch.float64)  # fmt: skip
    labels, expected = np.array([0, 1, 2, 1, 0, 0, 2]), np.array([0, 0, 2, 1, 2, 0, 2])
    kinds, reasons, found = kinds_of(
        labels,
        expected,
        labels != labels + np.eye(7, dtype=int)[4],
        beliefs=beliefs,
        disagreement=np.array([0.1, 0.2, 0.0, 0.6, 0.9, 0.0, 0.0]),
        outlier=np.arange(7) == 5,
        groups=np.array([0, -1, 0, 1, -1, 1, -1], np.int32),
        splits=np.array([0, 0, 0, 0, 1, 1, 1]),
        class_names=["ant", "bee", "cat"],
    )
    assert kinds.to_pylist() == [
        ["near_duplicate", "conflict"],
        ["ambiguous"],
        ["near_duplicate", "conflict"],
        ["hard", "near_duplicate", "leakage", "conflict"],
        ["mislabelled"],
        ["outlier", "near_duplicate", "leakage", "conflict"],
        ["ambiguous"],
    ]
    assert {name: one.count for name, one in found.items()} == {
        "mislabelled": 1, "ambiguous": 2, "hard": 1, "outlier": 1, "near_duplicate": 4, "leakage": 2, "conflict": 4
    }  # fmt: skip
    said = reasons.to_pylist()
    assert "ant" in said[1]
    assert "bee" in said[1]
    assert said[4] == ""
    assert found["near_duplicate"].low is None


def test_kinds_that_nothing_is_known_of_are_not_counted() -> None:
    kinds, _, found = kinds_of(np.array([0, 1]), None, np.array([True, False]))
    assert list(found) == ["mislabelled"]
    assert kinds.to_pylist() == [["mislabelled"], []]


def test_an_interval_holds_the_share_it_was_drawn_with() -> None:
    generator = np.random.default_rng(0)
    held = [low <= 0.07 <= high for low, high in (wilson(generator.binomial(200, 0.07), 200) for _ in range(2000))]
    assert 0.93 < np.mean(held) < 0.97
    assert wilson(0, 50)[0] == 0
    assert wilson(50, 50)[1] == 1


def test_the_interval_of_issues_is_that_of_samples_drawn_again() -> None:
    generator = np.random.default_rng(1)

    def drawn() -> tuple[torch.Tensor, np.ndarray]:
        truth = generator.integers(0, 3, 400)
        labels = np.where(generator.random(400) < 0.2, (truth + 1) % 3, truth)
        beliefs = 0.05 + 0.85 * np.eye(3)[truth]
        return torch.from_numpy(beliefs / beliefs.sum(1, keepdims=True)), labels

    counts = []
    for _ in range(40):
        beliefs, labels = drawn()
        issue = np.arange(400) < (beliefs.argmax(1).numpy() != labels).sum()
        counts.append(kinds_of(labels, None, issue, beliefs=beliefs, estimate="confident_joint")[2]["mislabelled"])
    assert np.mean([one.low <= 80 <= one.high for one in counts]) > 0.8
    widths = [one.high - one.low for one in counts]
    # Binomial: 2 x 1.96 x root of 400 x 0.2 x 0.8.
    assert np.mean(widths) == pytest.approx(31, rel=0.2)


@pytest.mark.parametrize("overlap", [True, False])
def test_a_count_of_what_may_be_the_predictions_mistakes_says_so(overlap: bool, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    # Either nobody can tell the classes apart in the middle, or a tenth of the labels is wrong wherever they are.
    sure = 1 / (1 + np.exp(-3 * generator.normal(size=4000))) if overlap else generator.choice([0.1, 0.9], 4000)
    labels = (generator.random(4000) < sure).astype(np.int64)
    found = hs.audit(labels=labels, probabilities=np.stack([1 - sure, sure], 1))
    assert found.issues.estimated > 200
    assert len(found.findings.notes) == overlap
    assert found.findings.facts()["notes"] == list(found.findings.notes)
    assert ("surest" in repr(found)) == overlap
    assert ("surest" in (found.save(tmp_path / "audit") / "report.html").read_text()) == overlap


def test_planted_duplicates_are_groups_and_nothing_else_is() -> None:
    features, _ = clusters(dim=32, spread=0.3)
    features[10] = features[20]
    features[30] = 3 * features[40] + 1e-3 * torch.randn(32, generator=torch.Generator().manual_seed(1))
    features[50] = features[40]
    centred = features - features.mean(0)
    near = nearest_in_angle(centred, 10)
    groups = near_duplicates(centred, near, angles_to(centred, near), within=0.02)
    assert groups[10] == groups[20] == 0
    assert groups[40] == groups[50] == 1
    assert sorted(np.flatnonzero(groups >= 0)) == [10, 20, 40, 50]
    rescaled = centred.clone()
    rescaled[30] = 3 * centred[40]
    near = nearest_in_angle(rescaled, 10)
    assert near_duplicates(rescaled, near, angles_to(rescaled, near))[30] == groups[40]


def test_more_copies_than_neighbours_are_one_group() -> None:
    features, _ = clusters(200, dim=16)
    features[:60] = features[0]
    assert (near_duplicates(*around(features))[:60] == 0).all()


def test_mixed_groups() -> None:
    groups = np.array([0, 0, 1, 1, -1, 2, 2])
    assert in_mixed_group(groups, np.array([0, 1, 3, 3, 1, 2, -1])).tolist() == [True, True, *[False] * 5]
    assert not in_mixed_group(np.full(3, -1), np.arange(3)).any()


def test_planted_outliers_are_the_farthest() -> None:
    features, labels = clusters(400, dim=16)
    generator = torch.Generator().manual_seed(2)
    features[:8] = torch.randn(8, 16, generator=generator) * torch.cat([torch.zeros(3), torch.ones(13)])
    centred, _, angles = around(features)
    class_angle, found = find_outliers(centred, labels, angles)
    assert set(np.argsort(-class_angle)[:8]) == set(range(8))
    assert found[:8].all()
    assert found[8:].mean() < 0.02
    rotation = torch.linalg.qr(torch.randn(16, 16, generator=generator)).Q
    rotated, _ = find_outliers(2 * centred @ rotation, labels, angles)
    np.testing.assert_allclose(rotated, class_angle, atol=1e-3)


def test_a_sample_is_no_part_of_the_class_it_is_compared_with() -> None:
    features, labels = clusters(60, dim=8)
    labels[0], features[0] = 2, -torch.eye(8)[7]
    lonely = torch.where(torch.arange(60) < 1, 2, labels % 2)
    centred, _, angles = around(features)
    # A class of this sample alone would otherwise be at no distance from it.
    assert find_outliers(centred, lonely, angles)[0][0] > 1


def test_pairs_of_classes_that_nothing_tells_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(3, (600,), generator=generator)
    labels = torch.where(truth == 2, 1 + torch.randint(2, (600,), generator=generator), truth)
    labels = torch.where(truth == 1, 1 + torch.randint(2, (600,), generator=generator), labels)
    apart = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.45, 0.45], [0.1, 0.45, 0.45]])
    beliefs = (apart[truth] + 0.05 * torch.rand(600, 3, generator=generator)).clamp(min=0)
    beliefs /= beliefs.sum(1, keepdim=True)
    (pair,) = alike(beliefs, labels, ["ant", "bee", "cat"])
    assert pair["labels"] == ["bee", "cat"]
    assert pair["low"] < 0.5 < pair["high"]
    assert pair["high"] - pair["low"] < 0.15
    assert alike(torch.eye(3)[truth], truth, ["ant", "bee", "cat"]) == []


def test_a_class_of_two_groups_looks_like_several() -> None:
    features, labels = clusters(600, classes=4, dim=32, spread=0.2)
    merged = labels.clamp(max=2)
    nothing = np.zeros(600, bool)
    found = several_in_one(features, merged, nothing, ["ant", "bee", "cat"])
    assert [one["label"] for one in found] == ["cat"]
    assert found[0]["share"] == pytest.approx(0.5, abs=0.1)
    assert several_in_one(features, labels, nothing, list("abcd")) == []
    # In many dimensions two clusters are always found; the gap between them is not.
    wide = torch.randn(200, 256, generator=torch.Generator().manual_seed(0))
    assert several_in_one(wide, torch.zeros(200, dtype=torch.int64), np.zeros(200, bool), ["one"]) == []


def test_confused_pairs_and_small_classes() -> None:
    labels, expected = np.array([0, 0, 0, 0, 1, 1]), np.array([1, 1, 0, 2, 0, 1])
    issue = np.array([1, 1, 1, 0, 1, 0], bool)
    found = confused_pairs(labels, expected, issue, ["ant", "bee", "cat"])
    assert [(one["label"], one["expected"], one["count"]) for one in found] == [("ant", "bee", 2), ("bee", "ant", 1)]
    assert found[0]["share"] == 0.5
    assert found[0]["low"] < 0.5 < found[0]["high"]
    counts = imbalance(np.repeat([0, 1, 2], [50, 50, 2]), ["ant", "bee", "cat"])
    assert counts == {"smallest": 2, "largest": 50, "small": [{"label": "cat", "count": 2}]}


def test_an_audit_names_kinds_places_and_groups() -> None:
    features, labels = clusters(300, dim=8, spread=0.05)
    features[1], labels[1] = features[0], (labels[0] + 1) % 3
    features[3], labels[3] = features[2], labels[2]
    split = ["train"] * 3 + ["test"] * 297
    source = pa.table({"label": labels.numpy(), "features": list(features.numpy()), "split": split})
    found = hs.audit(source)
    table = found.table
    rows = {row["id"]: row for row in table.to_pylist()}
    assert set(rows[1]["kinds"]) >= {"mislabelled", "near_duplicate", "conflict"}
    assert set(rows[2]["kinds"]) == {"near_duplicate", "leakage"}
    assert rows[0]["duplicate_group"] == rows[1]["duplicate_group"] != rows[2]["duplicate_group"]
    assert rows[9]["duplicate_group"] is None
    # Neighbours are places in this very table.
    ids = table.column("id").to_pylist()
    assert ids[rows[0]["neighbours"][0]] == 1
    assert set(table.column("neighbours").combine_chunks().value_lengths().to_pylist()) == {10}
    near = rows[0]["neighbours"][1:]
    close = np.mean(
        [(rows[ids[one]]["x"] - rows[0]["x"]) ** 2 + (rows[ids[one]]["y"] - rows[0]["y"]) ** 2 for one in near]
    )
    assert close < np.var(table.column("x").to_numpy()) + np.var(table.column("y").to_numpy())
    assert found.findings.counts["conflict"].count == 2
    assert set(found.findings.counts) <= set(KINDS)
    assert found.findings.classes["imbalance"]["largest"] >= found.findings.classes["imbalance"]["smallest"] > 0


def test_neighbours_and_beliefs_are_mixed_as_written() -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(70, 5, generator=generator), torch.arange(70) % 3
    beliefs = torch.randn(70, 3, generator=generator).softmax(1)
    found = margin_with_neighbours(surroundings(features, labels), beliefs, labels)
    units = torch.nn.functional.normalize((features - features.mean(0)).double(), dim=1)
    cosines = (units @ units.T).fill_diagonal_(-2)
    for at in range(70):
        near = cosines[at].argsort(descending=True)[:10]
        weight = cosines[at, near].clamp_min(0) ** 2
        shares = torch.stack([weight[labels[near] == one].sum() for one in range(3)]) / weight.sum()
        likely = (0.75 * beliefs[at].double() + 0.25 * shares).log()
        own, likely[labels[at]] = likely[labels[at]].clone(), -torch.inf
        assert abs(float(own - likely.max()) - found[at]) < 1e-5
    assert SCORES_OF_FEATURES["margin_with_neighbours"]["direction"] == "larger is easier"
