"""`record_head`: beliefs of a network while it learns, by which wrong labels show; and what cannot be recorded."""

import numpy as np
import pytest
import torch
from torch import Tensor

from hardsight.heads import record_head


def clusters(samples: int = 300) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels of which a tenth is wrong, and which are."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(samples) % 3
    features = torch.eye(3, 8)[truth] + 0.15 * torch.randn(samples, 8, generator=generator)
    wrong = torch.rand(samples, generator=generator) < 0.1
    return features, torch.where(wrong, (truth + 1) % 3, truth), wrong


def test_wrong_labels_are_believed_least() -> None:
    features, labels, wrong = clusters()
    beliefs = record_head(features, labels, seed=1)
    torch.testing.assert_close(beliefs.sum(1), torch.ones(300))
    own = beliefs[torch.arange(300), labels]
    order = own.argsort()
    assert wrong[order[: int(wrong.sum())]].float().mean() > 0.85


def test_the_same_seed_gives_the_same_bits_from_any_form(tmp_path: object) -> None:
    features, labels, _ = clusters()
    reference = record_head(features, labels, seed=3)
    on_disk = np.memmap(f"{tmp_path}/features", np.float32, "w+", shape=tuple(features.shape))
    on_disk[:] = features.numpy()
    state = torch.random.get_rng_state()
    assert torch.equal(record_head(on_disk, labels.numpy(), seed=3), reference)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.equal(record_head(features, labels, seed=4), reference)


def test_what_cannot_be_recorded() -> None:
    features, labels, _ = clusters(30)
    for change, words in (
        ({"epochs": 0}, "epochs"),
        ({"labels": labels[:7]}, r"labels .*30.*\[7\]"),
        ({"features": torch.ones(30, 2)}, "same"),
        ({"features": torch.full((30, 2), torch.nan)}, "features"),
    ):
        with pytest.raises(ValueError, match=words):
            record_head(**{"features": features, "labels": labels} | change)
