"""Coordinates to look at: on the circle, on the sphere, by t-SNE and UMAP."""

import math

import pytest
import torch
from torch import Tensor

from hardsight.explain import on_sphere, t_sne


def test_on_the_circle_by_hand() -> None:
    points = on_sphere(torch.tensor([[3.0, 0.0], [0.0, 2.0], [-1.0, -1.0], [0.0, 0.0]]))
    half = math.sqrt(0.5)
    torch.testing.assert_close(points, torch.tensor([[1.0, 0.0], [0.0, 1.0], [-half, -half], [0.0, 0.0]]))


def test_on_the_sphere_only_directions_count() -> None:
    features = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double() * 1e4
    points = on_sphere(features)
    torch.testing.assert_close(points, features / features.norm(dim=1, keepdim=True))
    torch.testing.assert_close(on_sphere(features / 1e9), points)


def test_other_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^features .*2 or 3 .*128.*t_sne"):
        on_sphere(torch.ones(4, 128))


def two_rays() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 2
    features = torch.eye(5)[labels] + 0.05 * torch.randn(40, 5, generator=generator)
    return features * 10 ** (2 * torch.rand(40, 1, generator=generator)), labels


def separated(view: Tensor, labels: Tensor) -> bool:
    """Each sample's nearest other one is of its class."""
    apart = torch.cdist(view, view).fill_diagonal_(torch.inf)
    return torch.equal(labels[apart.argmin(1)], labels)


def test_t_sne_keeps_neighbours_and_repeats() -> None:
    features, labels = two_rays()
    view = t_sne(features, seed=0, perplexity=5.0)
    assert view.shape == (40, 2)
    assert separated(view, labels)
    assert torch.equal(view, t_sne(features, seed=0, perplexity=5.0))
    # In angle, a sample's length changes nothing but rounding: twice the length is exact.
    assert torch.equal(view, t_sne(features * 2, seed=0, perplexity=5.0))
    assert not torch.equal(view, t_sne(features, seed=0, perplexity=5.0, metric="euclidean"))


def test_t_sne_of_fewer_features_than_dimensions() -> None:
    features = torch.randn(12, 1, generator=torch.Generator().manual_seed(0))
    assert t_sne(features, seed=0, perplexity=3.0, metric="euclidean").isfinite().all()


@pytest.mark.parametrize("perplexity", [0.0, 12.0, 30.0])
def test_a_perplexity_of_too_few_samples_is_refused(perplexity: float) -> None:
    with pytest.raises(ValueError, match=rf"perplexity must lie in \(0, 12\), .*; got {perplexity}"):
        t_sne(torch.ones(12, 3), seed=0, perplexity=perplexity)


@pytest.mark.parametrize("features", [torch.zeros(12, 3), torch.ones(12, 3), torch.eye(3)[[0] * 12]])
def test_samples_that_are_all_one_have_a_view(features: Tensor) -> None:
    assert t_sne(features, seed=0, perplexity=3.0).isfinite().all()


def test_t_sne_of_features_of_any_size() -> None:
    """A view does not depend on scale, so that of huge and of tiny features exists too."""
    features = torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tiny, huge = (t_sne(features * 2.0**n, seed=0, perplexity=3.0, metric="euclidean") for n in (-600, 600))
    torch.testing.assert_close(tiny, huge)


def test_bad_input_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^metric .*angle, euclidean; got 'cosine'"):
        t_sne(torch.ones(50, 3), seed=0, metric="cosine")
