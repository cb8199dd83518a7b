"""Combined scores against loops in float64, their laws, and what breaks them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from hardsight.cleaning import combined
from hardsight.cleaning.columns import rank_average, share_below
from hardsight.cleaning.confident import confident_joint


def make(samples: int = 60, classes: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Features around their class's direction, logits that follow the features, labels of which a fifth is wrong."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(classes, (samples,), generator=generator)
    features = torch.eye(classes)[truth] + 0.4 * torch.randn(samples, classes, generator=generator)
    logits = torch.stack([scale * features + torch.randn(samples, classes, generator=generator) for scale in (1, 3)])
    flipped = torch.rand(samples, generator=generator) < 0.2
    labels = torch.where(flipped, (truth + 1) % classes, truth)
    return features, logits, labels


def nearest_by_loop(features: Tensor, count: int) -> list[list[int]]:
    rows = features.double()
    found = []
    for one in range(len(rows)):
        angles = [
            (float(torch.acos((rows[one] @ rows[other] / rows[one].norm() / rows[other].norm()).clamp(-1, 1))), other)
            for other in range(len(rows))
            if other != one
        ]
        found.append([other for _, other in sorted(angles)[:count]])
    return found


def test_the_nearest_are_those_of_the_smallest_angles(monkeypatch: pytest.MonkeyPatch) -> None:
    features, _, _ = make()
    expected = torch.tensor(nearest_by_loop(features, 7))
    assert torch.equal(combined.nearest_in_angle(features, 7), expected)
    # Blocks of one row each.
    monkeypatch.setattr(combined, "_BLOCK", 1)
    assert torch.equal(combined.nearest_in_angle(features, 7), expected)


def is_unchanged_by_length_and_rotation(nearest: Callable[[Tensor, int], Tensor]) -> bool:
    features, _, _ = make()
    generator = torch.Generator().manual_seed(1)
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=generator)).Q
    lengths = 0.1 + 9 * torch.rand(len(features), 1, generator=generator)
    return torch.equal(nearest(features, 5), nearest(lengths * features @ rotation, 5))


def nearest_in_distance(features: Tensor, count: int) -> Tensor:
    distances = torch.cdist(features, features).fill_diagonal_(torch.inf)
    return distances.topk(count, largest=False).indices


def test_neighbours_are_by_direction_alone() -> None:
    assert is_unchanged_by_length_and_rotation(combined.nearest_in_angle)
    assert not is_unchanged_by_length_and_rotation(nearest_in_distance)


@pytest.mark.parametrize("count", [0, 60, 99])
def test_a_number_of_neighbours_that_is_not_there_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=rf"neighbours must lie in \[1, 59\], the other samples; got {count}"):
        combined.nearest_in_angle(make()[0], count)


def test_zero_features_have_neighbours_too() -> None:
    features = torch.zeros(5, 3)
    features[0, 0] = 1.0
    near = combined.nearest_in_angle(features, 4)
    assert all(one not in near[one].tolist() for one in range(5))


def test_disagreement_by_loop() -> None:
    features, _, labels = make()
    near = combined.nearest_in_angle(features, 9)
    expected = [
        sum(int(labels[other]) != int(labels[one]) for other in near[one].tolist()) / 9 for one in range(len(labels))
    ]
    torch.testing.assert_close(combined.neighbour_disagreement(labels, near), torch.tensor(expected))


def test_snapshots_are_averaged_after_the_softmax() -> None:
    _, logits, labels = make()
    wide = logits.double().softmax(2)
    errors = wide - torch.eye(4, dtype=torch.float64)[labels]
    expected = torch.stack([one.square().sum(1).sqrt() for one in errors]).mean(0)
    torch.testing.assert_close(combined.snapshot_el2n(logits, labels), expected.float())
    torch.testing.assert_close(combined.mean_beliefs(logits), wide.mean(0).float())


def test_smoothing_by_loop() -> None:
    features, logits, _ = make()
    beliefs, near = combined.mean_beliefs(logits), combined.nearest_in_angle(features, 3)
    expected = torch.stack([beliefs.double()[[one, *near[one].tolist()]].mean(0) for one in range(len(beliefs))])
    torch.testing.assert_close(combined.smooth(beliefs, near), expected.float())


def test_the_posterior_is_bayes_rule() -> None:
    probabilities = torch.tensor([[0.6, 0.4], [0.1, 0.9]])
    transition = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
    doubt = combined.posterior_doubt(probabilities, torch.tensor([0, 0]), transition)
    # P(wrong | labelled 0) = p_1 T[1, 0] / (p_0 T[0, 0] + p_1 T[1, 0])
    torch.testing.assert_close(doubt, torch.tensor([0.12 / 0.60, 0.27 / 0.35]))


def test_without_confusions_nothing_is_doubted_and_with_uniform_ones_it_is_plain_doubt() -> None:
    _, logits, labels = make()
    beliefs = combined.mean_beliefs(logits)
    torch.testing.assert_close(combined.posterior_doubt(beliefs, labels, torch.eye(4)), torch.zeros(60))
    uniform = combined.posterior_doubt(beliefs, labels, torch.full((4, 4), 0.25))
    torch.testing.assert_close(uniform, combined.label_doubt(beliefs, labels))


def test_a_label_that_no_class_explains_is_doubted() -> None:
    doubt = combined.posterior_doubt(torch.tensor([[0.0, 1.0]]), torch.tensor([0]), torch.eye(2))
    assert doubt.tolist() == [1.0]


def test_the_estimated_transition_finds_the_one_direction_of_the_noise() -> None:
    """Class 0 is sometimes labelled 1, never the other way round: a label 0 deserves less doubt than a label 1."""
    truth = torch.tensor([0] * 500 + [1] * 500)
    labels = truth.clone()
    labels[:150] = 1
    probabilities = torch.where(truth.unsqueeze(1) == torch.arange(2), 0.8, 0.2)
    probabilities[-1], probabilities[-2] = torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5])
    labels[-2] = 0
    doubt = combined.posterior_doubt(probabilities, labels)
    assert doubt[-1] > 2 * doubt[-2]


def test_all_candidates_come_and_their_ranks_are_those_of_their_parts() -> None:
    features, logits, labels = make()
    hardness = {name: np.random.default_rng(at).random(60) for at, name in enumerate(["el2n_mean", "aum"])}
    found = combined.combined_scores(hardness, features, logits, labels, neighbours=10)
    assert "ranks_of_training" not in found  # angular_margin_mean is not there
    parts = [hardness["el2n_mean"], found["snapshot_posterior"], found["smoothed_posterior"]]
    np.testing.assert_allclose(found["ranks_with_posterior"], np.mean([share_below(part) for part in parts], axis=0))
    assert all(np.isfinite(values).all() and len(values) == 60 for values in found.values())


def test_ranks_are_combined_from_a_table_of_scores_alone() -> None:
    generator = np.random.default_rng(0)
    hardness = {name: generator.random(30) for name in ("el2n_mean", "angular_margin", "loss")}
    found = combined.rank_combinations(hardness)
    assert set(found) == {"training_and_margin"}
    parts = [share_below(hardness[name]) for name in ("el2n_mean", "angular_margin")]
    np.testing.assert_allclose(found["training_and_margin"], np.mean(parts, axis=0))


def test_wrong_labels_get_the_larger_values() -> None:
    features, logits, labels = make(400)
    found = combined.combined_scores({}, features, logits, labels, neighbours=20)
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(4, (400,), generator=generator)
    wrong = (truth != labels).numpy()
    for name, values in found.items():
        assert values[wrong].mean() > values[~wrong].mean() + 0.1, name


def test_few_samples_have_fewer_neighbours() -> None:
    features, logits, labels = make(12)
    assert len(combined.combined_scores({}, features, logits, labels)["smoothed_doubt"]) == 12


def test_the_transition_left_out_is_that_of_the_confident_joint() -> None:
    """Row k: of the samples that are truly k, the share labelled y."""
    generator = torch.Generator().manual_seed(4)
    truth = torch.randint(3, (300,), generator=generator)
    # Half of class 0 is labelled 1, and nothing the other way round: the two directions differ.
    labels = torch.where((truth == 0) & (torch.rand(300, generator=generator) < 0.5), 1, truth)
    logits = 3 * torch.eye(3)[truth] + torch.randn(300, 3, generator=generator)
    probabilities = logits.softmax(1)
    joint = confident_joint(probabilities.double(), labels)
    transition = torch.zeros(3, 3)
    for true in range(3):
        for label in range(3):
            transition[true, label] = joint[label, true] / joint[:, true].sum()
    estimated, given = (combined.posterior_doubt(probabilities, labels, one) for one in (None, transition))
    torch.testing.assert_close(estimated, given, rtol=0, atol=1e-5)


def test_a_score_that_is_missing_does_not_count_against_a_sample() -> None:
    columns = [np.array([np.nan, 1.0, 2.0]), np.array([7.0, 5.0, 6.0])]
    np.testing.assert_allclose(rank_average(columns), [1.0, 0.0, 0.75])


def test_float64_tells_neighbours_apart_that_are_nearly_parallel() -> None:
    features = 1 + 1e-4 * torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    units = features / features.norm(dim=1, keepdim=True)
    # Between unit vectors the distance grows with the angle, and needs no cosine.
    distances = (units.unsqueeze(0) - units.unsqueeze(1)).norm(dim=2).fill_diagonal_(9.0)
    assert torch.equal(combined.nearest_in_angle(features, 5), distances.topk(5, largest=False).indices)
