"""What the pictures measure: paths of attacks, the two Gaussians, the formula of two classes, the cones."""

import math

import numpy as np
import pytest
import torch
from hardsight_studies.avh import figure3, figure5, figure19, figure20, figure22_table
from hardsight_studies.avh.figure3 import ambiguity, train_toy
from hardsight_studies.avh.figure19 import SHOWN, judge_level, levels_of, sentence
from hardsight_studies.avh.figure20 import NARROW, WIDE, binary_case
from hardsight_studies.avh.figure22 import half_time, judge_paths, mean_with_interval

from hardsight import hardness
from hardsight.datasets.cifar_classes import CIFAR10_CLASSES
from hardsight.datasets.hierarchy import Hierarchy


def test_half_way_is_found_between_steps() -> None:
    values = np.array([[1.0, 0.8, 0.4, 0.0], [0.0, 1.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0]])
    # 1 to 0: half-way at 0.5, three quarters of the way from 0.8 to 0.4. 0 to 4: exactly at step 2.
    np.testing.assert_allclose(half_time(values), [1.75, 2.0, np.nan])


def path(norm: list[float], angle: list[float]) -> dict[str, np.ndarray]:
    """Three copies of one path that switches at its last step."""
    switched = [0.0] * (len(norm) - 1) + [1.0]
    rows = {"norm": norm, "angle": angle, "end_angle": angle[::-1], "switched": switched}
    return {name: np.tile(np.array(values), (3, 1)) for name, values in rows.items()}


def test_which_comes_first_is_told_by_the_path_and_not_by_the_attack() -> None:
    early, late = [1.0, 0.6, 0.52, 0.5, 0.5], [0.4, 0.42, 0.45, 0.6, 1.2]
    shrinking = judge_paths(path(early, late))
    assert shrinking["lead"]["mean"] > 0.3
    assert shrinking["norm_first"]["mean"] == 1.0
    assert shrinking["norm_at_switch"] == {"mean": 0.5, "low": 0.5, "high": 0.5, "n": 3}
    # The same two curves with their roles exchanged: the angle turns at once, the norm shrinks at the end.
    turning = judge_paths(path([2 - value for value in [0.4, 0.42, 0.45, 0.6, 1.2]], [1.5 - value for value in early]))
    assert turning["lead"]["mean"] == pytest.approx(-shrinking["lead"]["mean"], abs=1e-3)
    assert turning["norm_first"]["mean"] == 0.0
    said = figure22_table.result({"one": {"pgd": shrinking}, "other": {"pgd": turning}})
    assert "this is the order in 1 of 2 networks" in said
    assert "**one**: the angle comes first." in figure22_table.sentence("one", turning)


def test_a_path_that_never_switches_or_grows_says_nothing() -> None:
    paths = path([1.0, 1.2, 1.4], [0.4, 0.5, 0.6])
    assert judge_paths(paths)["lead"] is None
    assert judge_paths(paths)["shrinks"]["mean"] == 0.0
    paths["switched"][:] = 0
    assert judge_paths(paths)["switched"] == 0
    assert judge_paths(paths)["norm_at_switch"] is None


def test_the_interval_holds_the_mean_and_narrows() -> None:
    generator = np.random.default_rng(0)
    few, many = (mean_with_interval(generator.normal(1.0, 1.0, count)) for count in (20, 2000))
    assert few is not None and many is not None  # noqa: PT018
    assert few["low"] < few["mean"] < few["high"]
    assert many["high"] - many["low"] < few["high"] - few["low"]
    assert many["high"] - many["low"] == pytest.approx(2 * 1.96 / math.sqrt(2000), rel=0.15)


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
    coarse = judge_level("kind", gathered, votes, labels, scores, ("animal",))
    fine = judge_level("class", alone, votes, labels, scores)
    # Of the animals only the cats occur: one fine class is seen.
    assert [(of["name"], of["classes"], of["images"]) for of in coarse] == [("animal", 1, 30), ("vehicle", 1, 30)]
    assert [of["name"] for of in fine] == ["cat", "ship"]
    assert coarse[0]["norm"][0] == 1.0 > fine[0]["norm"][0]
    assert fine[0]["avh"][0] == -1.0 < coarse[0]["avh"][0]
    assert np.sum(coarse[0]["counts"]) == 30
    assert "counts" not in fine[0]
    assert "+1.000 to +1.000 by kind" in sentence("made up", [*coarse, *fine])


def test_where_all_people_agree_no_norm_follows_them() -> None:
    group = {"level": "class", "name": "cat", "norm": None}
    said = sentence("a network", [group, {**group, "name": "dog"}])
    assert said.endswith("a network: nobody disagrees, or too few do.")
    assert "in all of them" not in said
    assert sentence("a network", [group, {**group, "norm": [0.2, 0.001]}]).endswith("here it does in all of them.")
    assert "nothing can be compared" in figure19.result({"one": {"groups": [group]}})
    some = [{**group, "norm": [-0.2, 0.001]}, {**group, "norm": [0.3, 0.001]}, {**group, "norm": [0.01, 0.8]}]
    said = figure19.result({"one": {"groups": some}})
    assert "in 1 of 3 classes of 1 network, and lies between −0.200 and +0.300." in said


def test_the_page_of_lengthened_features_says_what_moves() -> None:
    still = {"factors": [1.0, 32.0], "right_confidence": [0.9, 0.99], "wrong_confidence": [0.2, 0.1], "wrong": 3}
    other = {**still, "right_confidence": [0.9, 0.8], "largest_change_of_avh": 1e-7}
    said = figure20.result({"one": {**still, "largest_change_of_avh": 0.0}, "other": other})
    assert "in 1 of 2 networks, while no image's AVH moves by more than 1.0e-07" in said
    never_wrong = {**still, "wrong": 0, "wrong_confidence": [None, None], "largest_change_of_avh": 0.0}
    assert "in 1 of 1 network, while no image's AVH moves at all" in figure20.result({"one": never_wrong})


def test_every_granularity_holds_every_class() -> None:
    found = levels_of("cifar10h", CIFAR10_CLASSES)
    assert [len(one.coarse_names) for one in found.values()] == [2, 7, 10]
    assert set(SHOWN["cifar10h"]) <= {name for one in found.values() for name in one.coarse_names}


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


MADE = {"preset": "paper", "cells_planned": 3, "hardware": ["a"], "versions": {"torch": "2"}, "date": "2026-01-01"}


def test_the_page_of_the_toy_names_every_seed_of_its_one_cell() -> None:
    trial = {"mean": 0.5, "sd": 0.1, "values": [0.5, 0.4, 0.6]}
    trials = dict.fromkeys(("avh_rho", "norm_rho", "confidence_rho", "accuracy"), trial)
    printed = figure3.table({**MADE, "cells": 1, "seeds": [0], "trials": trials})
    assert "1 of 3 cells, seeds 0, 1, 2; a" in printed


def test_the_page_of_human_frequency_says_that_the_first_seed_is_shown() -> None:
    scores = {name: {"spearman": 0.3, "medians": [0.1] * 5} for name in figure5.SCORES}
    results = {**MADE, "seeds": [0, 1, 2], "networks": {"resnet20": {"scores": scores}}}
    several, one = (figure5.table({**results, "cells": cells}) for cells in (3, 1))
    said = " Of each network only the first seed is shown, here and in the figures: 1 of these cells."
    assert f"2026-01-01.{said}\n\n" in several
    assert "2026-01-01.\n\n" in one
