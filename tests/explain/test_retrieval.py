"""Recall at k beside a slow loop, and its invariances."""

import pytest
import torch

from hardsight.explain import recall_at_k


def test_recall_equals_a_loop_and_does_not_see_lengths() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (60,), generator=generator)
    found = recall_at_k(features, labels, (1, 3))
    for k in (1, 3):
        hits = 0
        for at in range(60):
            cosines = torch.nn.functional.cosine_similarity(features[at : at + 1], features)
            cosines[at] = -2
            hits += int((labels[cosines.topk(k).indices] == labels[at]).any())
        assert found[k] == pytest.approx(hits / 60)
    lengths = 0.1 + torch.rand(60, 1, generator=generator, dtype=torch.float64)
    assert recall_at_k(lengths * features, labels, (1, 3)) == found


def test_bad_k_is_named() -> None:
    with pytest.raises(ValueError, match=r"k.*1 to 2.*3"):
        recall_at_k(torch.eye(3), torch.zeros(3, dtype=torch.int64), (3,))
