"""Looks at a network and their statistics by group, against slow loops."""

import math

import numpy as np
import pytest
import torch
from hardsight_studies.avh.levels import (
    LEVELS,
    STATISTICS,
    GroupedImages,
    agreement,
    found_at,
    group_statistics,
)
from hardsight_studies.avh.looking import Look, joined, look, look_at_features
from torch import Tensor

from hardsight import hardness, models
from hardsight.datasets.augment import pixel_scale

SCALE = pixel_scale(torch.tensor([0.4]), torch.tensor([0.3]))


@pytest.fixture
def seen() -> Look:
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(4, 40, generator=generator)
    return Look(10 * values[0] + 100, values[1], values[2], values[3].round())


@pytest.fixture
def images() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (30, 1, 8, 8), generator=generator, dtype=torch.uint8)
    return pixels, torch.randint(0, 10, (30,), generator=generator)


@pytest.fixture
def model() -> models.Classifier:
    torch.manual_seed(0)
    return models.create("digits_cnn")


def test_a_look_is_the_scores_as_they_are_defined(model: models.Classifier, images: tuple[Tensor, Tensor]) -> None:
    pixels, labels = images
    found = look(model, pixels, labels, SCALE)
    model.eval()
    with torch.no_grad():
        features = model.forward_features((pixels.float() / 255 - 0.4) / 0.3)
        logits = model.head(features)
    torch.testing.assert_close(found.norm, features.norm(dim=1))
    torch.testing.assert_close(
        found.avh, hardness.angular_visual_hardness(features, model.head.weight.detach(), labels)
    )
    torch.testing.assert_close(found.confidence.float(), logits.softmax(1)[torch.arange(30), labels])
    assert torch.equal(found.correct, (logits.argmax(1) == labels).float())


def test_looking_leaves_the_training_mode(model: models.Classifier, images: tuple[Tensor, Tensor]) -> None:
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    look(model, *images, SCALE)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_statistics_equal_a_slow_loop_and_leave_out_who_has_no_group(seen: Look) -> None:
    groups = torch.arange(40) % 4 - 1
    found = group_statistics(seen, groups, 4, "bin")
    for group in range(3):
        for title in STATISTICS:
            values = [
                float(v) for v, g in zip(getattr(seen, title.removesuffix("_sd")), groups, strict=True) if g == group
            ]
            mean = sum(values) / len(values)
            spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
            expected = spread if title.endswith("_sd") else mean
            assert found[f"bin{group}_{title}"] == pytest.approx(expected, rel=1e-4)
    assert math.isnan(found["bin3_avh"])


def test_levels_end_in_the_images_as_they_are(model: models.Classifier, images: tuple[Tensor, Tensor]) -> None:
    pixels, labels = images
    groups = GroupedImages(pixels, labels, SCALE, torch.linspace(0, 1, 30, dtype=torch.float64), degraded=20)
    clean, at_levels = groups.looks(model)
    assert set(at_levels) == set(LEVELS)
    for looks in at_levels.values():
        assert [len(one) for one in looks] == [20] * 5
        assert torch.equal(looks[-1].avh, clean.avh[:20])
        assert not torch.equal(looks[0].avh, looks[-1].avh)
    assert sum(groups.sizes) == 30
    again = GroupedImages(pixels, labels, SCALE, degraded=20)
    assert all(
        torch.equal(one, other) for one, other in zip(groups.levels["noise"], again.levels["noise"], strict=True)
    )
    row = groups.statistics(model)
    assert row["noise4_avh"] == pytest.approx(float(clean.avh[:20].mean()))
    assert row["all0_correct"] == pytest.approx(float(clean.correct.mean()))
    assert "human0_avh" not in again.statistics(model)


def test_agreement_has_a_sign_and_a_constant_has_none() -> None:
    frequency = np.linspace(0, 1, 20)
    rising = torch.linspace(0, 1, 20)
    found = agreement(Look(torch.ones(20), -rising, rising**3, rising), frequency)
    assert found["avh_rho"] == pytest.approx(-1)
    assert found["confidence_rho"] == pytest.approx(1)
    assert math.isnan(found["norm_rho"])


def test_levels_are_judged_by_hand() -> None:
    # Two images whose AVH rises with the level by different amounts, one that does not vary.
    avh = torch.tensor([[0.3, 0.25, 0.2, 0.15, 0.1], [0.9, 0.7, 0.5, 0.3, 0.1], [0.4] * 5])
    looks = [Look(avh[:, at], avh[:, at], 1 - avh[:, at], torch.ones(3)) for at in range(5)]
    followed, *by_level = found_at({"noise": looks})
    assert [one.settings["level"] for one in by_level] == list(LEVELS["noise"])
    assert [one.metrics["avh"] for one in by_level] == pytest.approx([1.6 / 3, 1.35 / 3, 1.1 / 3, 0.85 / 3, 0.2])
    assert followed.metrics["avh_within"] == pytest.approx(1.0)
    assert followed.metrics["confidence_within"] == pytest.approx(-1.0)
    assert [sum(one.columns["y"]) for one in by_level] == [3] * 5
    assert 0 < followed.metrics["avh_spearman"] < 1
    assert followed.metrics["norm_spearman"] == followed.metrics["avh_spearman"]


def test_joined_looks_keep_their_order(seen: Look) -> None:
    both = joined([seen, seen.first(3)])
    assert torch.equal(both.avh, torch.cat([seen.avh, seen.avh[:3]]))
    assert len(both) == 43


def test_confidences_that_round_to_one_do_not_tie() -> None:
    head = torch.nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    features = torch.tensor([[one, 0.0] for one in (10.0, 10.5, 11.0, 12.0)])
    seen = look_at_features(features, head, torch.zeros(4, dtype=torch.int64))
    assert (seen.confidence.float() == 1).all()
    assert (seen.confidence.diff() > 0).all()
    torch.testing.assert_close(1 - seen.confidence, torch.exp(-2 * features[:, 0].double()), rtol=1e-4, atol=1e-15)
