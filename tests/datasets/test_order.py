"""Orders and seeds: what comes evenly comes evenly, and neighbouring seeds have nothing in common."""

import torch

from hardsight.datasets.augment import Augmentation
from hardsight.datasets.epochs import balanced_order, mixed_seed
from hardsight.datasets.loader import DeviceLoader


def test_balanced_order_uses_each_image_of_a_class_before_one_comes_again():
    """Classes of 1, 3, 8 and 50 images: within a class the counts differ by at most one."""
    labels = torch.tensor([0] + [1] * 3 + [2] * 8 + [3] * 50 + [-1] * 5)
    order = balanced_order(labels, 2, 4, 200, generator=torch.Generator().manual_seed(0))
    uses = torch.bincount(order, minlength=len(labels))
    assert int(uses[labels == -1].sum()) == 0
    for label in range(4):
        assert int(uses[labels == label].max() - uses[labels == label].min()) <= 1
    chosen = labels[order].reshape(200, 2, 4)
    assert bool((chosen == chosen[:, :, :1]).all())
    assert bool((chosen[:, 0, 0] != chosen[:, 1, 0]).all())


def test_balanced_order_draws_the_classes_evenly_although_their_sizes_differ():
    labels = torch.cat([torch.zeros(900), torch.ones(50), torch.full((50,), 2.0)]).long()
    order = balanced_order(labels, 1, 1, 3000, generator=torch.Generator().manual_seed(1))
    shares = torch.bincount(labels[order]) / 3000
    torch.testing.assert_close(shares, torch.full((3,), 1 / 3), atol=0.03, rtol=0)


def test_neighbouring_seeds_have_nothing_in_common():
    words = [(seed, epoch, batch) for seed in range(8) for epoch in range(8) for batch in range(8)]
    seeds = [mixed_seed(*each) for each in words]
    assert len(set(seeds)) == len(words)
    assert all(0 <= seed < 2**63 for seed in seeds)
    drawn = torch.stack([torch.rand(64, generator=torch.Generator().manual_seed(seed)) for seed in seeds])
    # The largest of as many correlations of independent rows is about 0.57; a sum of the words makes equal rows.
    assert largest_correlation(drawn) < 0.7
    sums = torch.stack([torch.rand(64, generator=torch.Generator().manual_seed(sum(each))) for each in words])
    assert largest_correlation(sums) > 0.99


def test_the_noise_of_no_batch_is_drawn_with_the_seed_of_the_order():
    images, labels = torch.zeros(64, 1, 8, 8, dtype=torch.uint8), torch.zeros(64, dtype=torch.int64)
    loader = DeviceLoader(images, labels, batch_size=16, seed=3, augmentation=Augmentation(noise_std=1.0))
    of_the_order = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(mixed_seed(3, 0)))
    noises = [batch.images - batch.images.mean() for batch in loader]
    rows = torch.stack([one.flatten() for one in (of_the_order, *noises)])
    # Of 1,024 independent numbers the correlation is about 0.03; of the same ones 1.
    assert largest_correlation(rows) < 0.2


def largest_correlation(rows: torch.Tensor) -> float:
    return float((torch.corrcoef(rows) - torch.eye(len(rows))).abs().max())
