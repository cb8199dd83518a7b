"""What the pictures measure: the two Gaussians, granularities, the formula of two classes."""

import math

import numpy as np
import pytest
import torch
from hardsight_studies.avh.pictures import (
    GATHERED,
    NARROW,
    SHOWN,
    WIDE,
    ambiguity,
    binary_case,
    train_toy,
    within_groups,
)

from hardsight import hardness
from hardsight.datasets.cifar import CIFAR10_CLASSES
from hardsight.datasets.hierarchy import Hierarchy


def test_the_overlap_is_highest_between_the_means() -> None:
    points = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0, 0.3], [1.0, 0.2, 0.0], [1.0, -0.6, 0.1]]), dim=1)
    found = ambiguity(points)
    assert float(found[0]) == pytest.approx(0.0, abs=1e-6)
    assert float(found[0]) > float(found[1]) > float(found[2])
    # On the mean itself the angles differ by all of the 60 degrees between them.
    mean = torch.tensor([[math.cos(math.pi / 6), math.sin(math.pi / 6), 0.0]])
    assert float(ambiguity(mean)) == pytest.approx(-math.pi / 3, abs=1e-6)


def test_the_toy_is_repeatable_and_leaves_the_global_generator() -> None:
    before = torch.get_rng_state()
    first, second = (train_toy(3, 5)[1] for _ in range(2))
    assert torch.equal(first.avh, second.avh)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_coarse_class_counts_everyone_who_chose_any_of_it() -> None:
    """Cats taken for dogs are easy among the animals: what follows people there does not follow them among the cats."""
    generator = np.random.default_rng(0)
    as_cat, as_dog = generator.integers(0, 40, 30), generator.integers(0, 10, 30)
    ships = generator.integers(40, 51, 30)
    votes = torch.tensor(np.stack([np.r_[as_cat, 0 * ships], np.r_[as_dog, 0 * ships], np.r_[0 * as_cat, ships]], 1))
    votes[:, 2] += torch.tensor(np.r_[50 - as_cat - as_dog, 0 * ships])
    votes[:, 1] += torch.tensor(np.r_[0 * as_cat, 50 - ships])
    labels = torch.tensor([0] * 30 + [2] * 30)
    scores = {"norm": np.r_[(as_cat + as_dog) / 7.0, ships], "avh": np.r_[-as_cat, -ships].astype(float)}
    gathered = Hierarchy.from_groups(("cat", "dog", "ship"), {"animal": ("cat", "dog"), "vehicle": ("ship",)})
    alone = Hierarchy.from_groups(("cat", "dog", "ship"), {name: (name,) for name in ("cat", "dog", "ship")})
    coarse, fine = (within_groups(one, votes, labels, scores) for one in (gathered, alone))
    # Of the animals only the cats occur: one fine class is seen.
    assert [(of.settings["group"], of.metrics["classes"], of.metrics["images"]) for of in coarse] == [
        ("animal", 1, 30),
        ("vehicle", 1, 30),
    ]
    assert [of.settings["group"] for of in fine] == ["cat", "ship"]
    assert coarse[0].metrics["norm"] == 1.0 > fine[0].metrics["norm"]
    assert fine[0].metrics["avh"] == -1.0 < coarse[0].metrics["avh"]
    assert sum(coarse[0].columns["count"]) == sum(fine[0].columns["count"]) == 30
    assert not fine[1].columns


def test_where_all_people_agree_no_score_follows_them() -> None:
    labels = torch.tensor([0] * 5 + [1] * 5)
    as_dog = torch.tensor([0] * 5 + [10, 20, 30, 40, 50])
    votes = torch.stack([50 - as_dog, as_dog], 1)
    alone = Hierarchy.from_groups(("cat", "dog"), {name: (name,) for name in ("cat", "dog")})
    cat, dog = within_groups(alone, votes, labels, {"norm": np.arange(10.0)})
    assert cat.metrics["unanimous"] == 1
    assert "norm" not in cat.metrics
    assert dog.metrics["norm"] == pytest.approx(1)


def test_every_granularity_holds_every_class() -> None:
    found = [Hierarchy.from_groups(CIFAR10_CLASSES, groups) for groups in GATHERED["cifar10h"].values()]
    assert [len(one.coarse_names) for one in found] == [2, 7]
    assert {"animal", "carnivore"} <= {*SHOWN} & {name for one in found for name in one.coarse_names}


def test_the_formula_is_the_scores_of_two_classes() -> None:
    # Weights of length 1 on either side of the feature, at the paper's angles.
    weight = torch.tensor(
        [[math.cos(NARROW), math.sin(NARROW)], [math.cos(WIDE), -math.sin(WIDE)]], dtype=torch.float64
    )
    norms = np.array([0.5, 3.0, 40.0])
    features = torch.stack([torch.from_numpy(norms), torch.zeros(3, dtype=torch.float64)], 1)
    labels = torch.zeros(3, dtype=torch.int64)
    confidence, avh = binary_case(norms, NARROW, WIDE)
    np.testing.assert_allclose(confidence, hardness.model_confidence(features @ weight.T, labels).numpy())
    np.testing.assert_allclose(avh, hardness.angular_visual_hardness(features, weight, labels).numpy())
    np.testing.assert_allclose(binary_case(norms, WIDE, NARROW)[0], 1 - confidence)
