"""Combined scores against loops in float64, their laws, and what breaks them."""

import numpy as np
import torch
from torch import Tensor

from hardsight.cleaning import combined
from hardsight.cleaning.columns import rank_average, share_below
from hardsight.cleaning.confident import confident_joint
from hardsight.cleaning.neighbours import nearest_in_angle


def make(samples: int = 60, classes: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Features around their class's direction, logits that follow the features, labels of which a fifth is wrong."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(classes, (samples,), generator=generator)
    features = torch.eye(classes)[truth] + 0.4 * torch.randn(samples, classes, generator=generator)
    logits = torch.stack([scale * features + torch.randn(samples, classes, generator=generator) for scale in (1, 3)])
    flipped = torch.rand(samples, generator=generator) < 0.2
    labels = torch.where(flipped, (truth + 1) % classes, truth)
    return features, logits, labels


def test_snapshots_are_averaged_after_the_softmax() -> None:
    _, logits, labels = make()
    wide = logits.double().softmax(2)
    errors = wide - torch.eye(4, dtype=torch.float64)[labels]
    expected = torch.stack([one.square().sum(1).sqrt() for one in errors]).mean(0)
    torch.testing.assert_close(combined.snapshot_el2n(logits, labels), expected.float())
    torch.testing.assert_close(combined.mean_beliefs(logits), wide.mean(0).float())


def test_smoothing_by_loop() -> None:
    features, logits, _ = make()
    beliefs, near = combined.mean_beliefs(logits), nearest_in_angle(features, 3)
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
