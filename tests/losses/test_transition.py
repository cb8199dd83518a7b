"""Estimating the transition matrix: anchors found, counts."""

import pytest
import torch

from hardsight.losses import ForwardCorrection, transition_from_labels, transition_from_predictions

MATRIX = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.3, 0.4]], dtype=torch.float64)


def noisy_predictions(generator: torch.Generator) -> torch.Tensor:
    """What a perfect noisy classifier says: clean shares times T; the first three are pure."""
    clean = torch.cat([torch.eye(3), torch.rand(200, 3, generator=generator)]).double()
    return clean / clean.sum(-1, keepdim=True) @ MATRIX


def test_pure_samples_give_the_matrix_back(generator: torch.Generator) -> None:
    estimate = transition_from_predictions(noisy_predictions(generator))
    torch.testing.assert_close(estimate, MATRIX)
    ForwardCorrection(estimate)


def test_a_quantile_resists_one_outlier(generator: torch.Generator) -> None:
    predictions = torch.cat([noisy_predictions(generator), torch.eye(3, dtype=torch.float64)[:1]])
    assert transition_from_predictions(predictions)[0, 0] == 1
    assert transition_from_predictions(predictions, quantile=0.97)[0, 0] < 0.71


def test_counts() -> None:
    clean = torch.tensor([0, 0, 0, 0, 1, 1])
    noisy = torch.tensor([0, 0, 0, 1, 1, 2])
    expected = torch.tensor([[0.75, 0.25, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(transition_from_labels(clean, noisy, 3), expected)
    unknown = torch.tensor([-100, -100, 1])
    clean, noisy = torch.cat([clean, unknown]), torch.cat([noisy, unknown.flip(0)])
    torch.testing.assert_close(transition_from_labels(clean, noisy, 3), expected)


def test_a_class_of_one_sample_is_as_that_sample_is_labelled() -> None:
    found = transition_from_labels(torch.tensor([0, 1]), torch.tensor([1, 1]), 2)
    assert found.tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_rejects_in_one_sentence() -> None:
    predictions = torch.full((4, 3), 1 / 3)
    with pytest.raises(ValueError, match=r"quantile must lie in \[0, 1\]; got 97.0"):
        transition_from_predictions(predictions, quantile=97.0)
    with pytest.raises(ValueError, match="at least one sample"):
        transition_from_predictions(predictions[:0])
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 3\)"):
        transition_from_labels(torch.tensor([0]), torch.tensor([3]), 3)
