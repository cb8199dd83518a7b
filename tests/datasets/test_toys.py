"""Two Gaussians on the sphere: on it, seeded, apart by the stated angle, overlapping."""

import math

import pytest
import torch

from hardsight.datasets.digits import two_gaussians_on_sphere


def made(seed: int = 0, **options):
    return two_gaussians_on_sphere(generator=torch.Generator().manual_seed(seed), **options)


def test_as_many_points_as_the_paper_all_on_the_sphere():
    dataset = made()
    assert dataset.images.shape == (2000, 3)
    assert dataset.class_counts().tolist() == [1000, 1000]
    torch.testing.assert_close(dataset.images.norm(dim=1), torch.ones(2000))


def test_the_seed_decides():
    assert torch.equal(made(3).images, made(3).images)
    assert not torch.equal(made(3).images, made(4).images)


def test_means_lie_the_stated_angle_apart():
    for angle in (0.3, 1.0, 2.5):
        dataset = made(samples_per_class=20000, angle_radians=angle, spread=0.05)
        left, right = (dataset.images[dataset.labels == label].mean(0) for label in (0, 1))
        cosine = torch.nn.functional.cosine_similarity(left, right, dim=0)
        assert math.acos(float(cosine)) == pytest.approx(angle, abs=0.01)


def test_the_classes_overlap_but_can_be_told_apart():
    dataset = made()
    # The best boundary by symmetry is the plane between the means.
    right = (dataset.images[:, 1] > 0).long()
    agreement = float((right == dataset.labels).double().mean())
    assert 0.85 < agreement < 0.99


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"samples_per_class": 0}, "samples_per_class must be at least 1"),
        ({"spread": -1.0}, "spread must be"),
        ({"spread": math.inf}, "spread must be"),
    ],
)
def test_nonsense_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        made(**options)


def test_an_angle_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="angle_radians must be finite"):
        two_gaussians_on_sphere(2, angle_radians=math.nan, generator=torch.Generator())
