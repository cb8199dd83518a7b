"""Homogeneity, completeness and V-measure against their entropies; k-means on directions."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from hardsight.explain import agreement, cluster_features


def by_entropies(groups: list[int], labels: list[int]) -> tuple[float, float, float]:
    """Rosenberg & Hirschberg's definitions, count by count."""
    total = len(labels)

    def entropy(values: list[int]) -> float:
        return -sum(count / total * math.log(count / total) for count in Counter(values).values())

    def conditional(values: list[int], given: list[int]) -> float:
        joint, outer = Counter(zip(values, given, strict=True)), Counter(given)
        return -sum(count / total * math.log(count / outer[g]) for (_, g), count in joint.items())

    homogeneity = 1 - conditional(labels, groups) / entropy(labels)
    completeness = 1.0 if entropy(groups) == 0 else 1 - conditional(groups, labels) / entropy(groups)
    both = homogeneity + completeness
    return homogeneity, completeness, 2 * homogeneity * completeness / both if both else 0.0


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_entropies(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (60,), generator=generator)
    # Half of them right: predictions as well as clusters.
    groups = torch.where(
        torch.rand(60, generator=generator) < 0.5, labels, torch.randint(6, (60,), generator=generator)
    )
    found = agreement(groups, labels)
    assert found == pytest.approx(by_entropies(groups.tolist(), labels.tolist()), abs=1e-9)
    assert found._fields == ("homogeneity", "completeness", "v_measure")


def test_names_do_not_matter_and_the_sides_swap() -> None:
    labels, groups = torch.tensor([0, 0, 1, 1, 2, 2, 2]), torch.tensor([5, 5, 5, -3, -3, 8, 8])
    renamed = agreement(groups * 10 + 7, 2 - labels)
    assert renamed == pytest.approx(agreement(groups, labels))
    swapped = agreement(labels, groups)
    assert (swapped.completeness, swapped.homogeneity) == pytest.approx(agreement(groups, labels)[:2])
    # The law rejects accuracy, which knows names.
    assert agreement(2 - labels, labels) == (1.0, 1.0, 1.0)
    assert not (2 - labels).eq(labels).all()


def test_the_definitions_in_words() -> None:
    labels = [0, 0, 1, 1]
    assert agreement([7, 7, 3, 3], labels) == (1.0, 1.0, 1.0)
    pure = agreement([0, 1, 2, 3], labels)
    assert pure.homogeneity == pytest.approx(1)
    assert pure.completeness == pytest.approx(0.5)
    assert agreement([0, 0, 0, 0], labels)[:2] == (0.0, 1.0)
    assert agreement([0, 1, 0, 1], labels) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)


def rays(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three directions, lengths from 0.01 to 100: clusters in angle that distance does not see."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(60) % 3
    angle = labels * 2.0 + 0.2 * torch.randn(60, generator=generator)
    length = 10 ** (4 * torch.rand(60, generator=generator) - 2)
    return torch.stack([angle.cos(), angle.sin()], 1) * length[:, None], labels


def test_clusters_of_directions() -> None:
    features, labels = rays()
    clusters = cluster_features(features, 3, seed=0)
    assert agreement(clusters, labels) == (1.0, 1.0, 1.0)
    assert agreement(cluster_features(features, 3, seed=0, metric="euclidean"), labels).v_measure < 0.9
    rescaled = cluster_features(features * torch.rand(60, 1).add(0.1), 3, seed=0)
    assert agreement(rescaled, clusters) == (1.0, 1.0, 1.0)


def test_the_same_seed_gives_the_same_clusters() -> None:
    features = torch.randn(80, 5, generator=torch.Generator().manual_seed(3))
    first = cluster_features(features, 6, seed=4, restarts=1)
    assert torch.equal(first, cluster_features(features, 6, seed=4, restarts=1))
    assert not torch.equal(first, cluster_features(features, 6, seed=5, restarts=1))
    assert first.unique().tolist() == list(range(6))


def test_every_sample_is_nearest_to_its_own_clusters_mean() -> None:
    features = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double()
    found = cluster_features(features, 4, seed=0, metric="euclidean")
    means = torch.stack([features[found == at].mean(0) for at in range(4)])
    assert torch.equal(torch.cdist(features, means).argmin(1), found)


@pytest.mark.parametrize("exponent", [1000, 300, -300, -1040])
def test_clusters_of_features_of_any_size(exponent: int) -> None:
    """A power of two changes no bit of a feature, and so no cluster; squares of such features overflow or vanish."""
    features = torch.randn(30, 3, generator=torch.Generator().manual_seed(1)).round(decimals=1).double()
    scaled = torch.from_numpy(np.ldexp(features.float().numpy().astype(np.float64), exponent))
    for metric in ("angle", "euclidean"):
        found, expected = (cluster_features(one, 4, seed=0, metric=metric) for one in (scaled, features))
        assert agreement(found, expected) == (1.0, 1.0, 1.0)


def test_collapsed_features_give_fewer_clusters() -> None:
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(5, 1)
    found = cluster_features(features, 4, seed=0)
    assert agreement(found, torch.arange(10) % 2) == (1.0, 1.0, 1.0)
    assert cluster_features(torch.zeros(3, 2), 2, seed=0).shape == (3,)


def test_one_class_only_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^labels .*at least 2 .*\[4\]$"):
        agreement([0, 1, 2], [4, 4, 4])
    with pytest.raises(ValueError, match=r"^labels .*at least 2 .*\[\]$"):
        agreement(torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))


@pytest.mark.parametrize(("arguments", "sentence"), [
    ({"clusters": 11}, r"^clusters .*\[1, 10\].*11$"),
    ({"clusters": 0}, r"^clusters .*\[1, 10\].*0$"),
    ({"metric": "cosine"}, "^metric .*angle, euclidean; got 'cosine'"),
    ({"features": torch.ones(10)}, r"^features .*\[samples, dim\].*\[10\]$"),
    ({"features": torch.ones(10, 2).long()}, "^features .*floating point.*torch.int64$"),
    ({"features": torch.tensor([[1.0], [torch.nan]])}, "^features .*finite; 1 of 2 .*row 1$"),
])  # fmt: skip
def test_bad_input_in_one_sentence(arguments: dict, sentence: str) -> None:
    given = {"features": torch.ones(10, 2), "clusters": 2, "seed": 0, **arguments}
    with pytest.raises((ValueError, TypeError), match=sentence):
        cluster_features(**given)


def test_bad_groups_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^groups .*\b2\b.*\[3\]$"):
        agreement([0, 1, 2], [0, 1])
    with pytest.raises(TypeError, match=r"^groups .*integers.*torch.float32$"):
        agreement([0.5, 0.1], [0, 1])
    with pytest.raises(TypeError, match=r"^labels .*integers.*\['cat', 'dog'\]$"):
        agreement([0, 1], ["cat", "dog"])
