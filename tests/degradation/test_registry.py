"""One set of laws over the registry; a degradation nobody gave levels would fail them."""

import dataclasses
import itertools

import pytest
import torch

from hardsight.degradation import DEGRADATIONS, degrade

ALL = sorted(DEGRADATIONS)


def fresh() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def apply(name: str, images: torch.Tensor, level, entry=None) -> torch.Tensor:
    entry = entry or DEGRADATIONS[name]
    return entry.function(images, level, **({"generator": fresh()} if entry.random else {}))


def distance(one: torch.Tensor, two: torch.Tensor) -> float:
    return float((one.double() - two.double()).square().mean())


def moves_further_level_by_level(entry, images: torch.Tensor) -> bool:
    """Hardest first: the mean squared change must fall from level to level."""
    changes = [distance(apply(entry.name, images, level, entry), images) for level in entry.levels]
    return all(hard > easy for hard, easy in itertools.pairwise(changes))


def test_the_papers_levels():
    assert DEGRADATIONS["contrast"].levels == (0.1, 0.2, 0.3, 0.6, 1.0)
    assert DEGRADATIONS["uniform_noise"].levels == (0.4, 0.3, 0.2, 0.1, 0.0)


@pytest.mark.parametrize("name", ALL)
def test_levels_run_from_hard_to_easy(name, pictures):
    entry = DEGRADATIONS[name]
    assert list(entry.levels) == sorted(entry.levels, reverse=entry.larger_is_harder)
    assert moves_further_level_by_level(entry, pictures)


def test_the_law_of_levels_rejects_a_level_that_does_nothing(pictures):
    stuck = dataclasses.replace(DEGRADATIONS["contrast"], function=lambda images, level: images * 0.5)
    assert not moves_further_level_by_level(stuck, pictures)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.uint8])
def test_the_type_stays_the_range_holds_and_the_input_is_untouched(name, dtype, pictures):
    images = (pictures * 255).round().to(dtype) if dtype == torch.uint8 else pictures.to(dtype)
    before = images.clone()
    out = apply(name, images, DEGRADATIONS[name].levels[1])
    assert out.dtype == dtype
    assert out.shape == images.shape
    assert torch.equal(images, before)
    assert out.data_ptr() != images.data_ptr()
    assert float(out.float().min()) >= 0
    assert float(out.float().max()) <= (255 if dtype == torch.uint8 else 1)
    wide = apply(name, pictures, DEGRADATIONS[name].levels[1])
    scale = 255 if dtype == torch.uint8 else 1
    if name != "jpeg":  # rounds on its way, so a rounded input may land on the other side of a step
        tolerance = {torch.uint8: 6e-3, torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(dtype, 1e-6)
        if not DEGRADATIONS[name].random or dtype != torch.float64:
            torch.testing.assert_close(out.float() / scale, wide, atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", [name for name in ALL if DEGRADATIONS[name].no_change is not None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_the_level_of_no_change_changes_nothing(name, dtype, pictures):
    images = (pictures * 255).round().to(dtype) if dtype == torch.uint8 else pictures
    torch.testing.assert_close(apply(name, images, DEGRADATIONS[name].no_change), images, atol=0, rtol=0)


@pytest.mark.parametrize("name", ALL)
def test_one_level_a_sample_equals_one_sample_at_a_time(name, pictures):
    entry = DEGRADATIONS[name]
    levels = torch.tensor([*entry.levels, entry.levels[0]])
    together = apply(name, pictures, levels)
    for index, level in enumerate(levels.tolist()):
        # The same draws: the whole batch at this sample's level, of which only this sample is looked at.
        alone = apply(name, pictures, level)[index]
        torch.testing.assert_close(together[index], alone, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ALL)
def test_a_batch_of_none_gives_none(name, pictures):
    assert apply(name, pictures[:0], DEGRADATIONS[name].levels[0]).shape == (0, 3, 20, 24)


@pytest.mark.parametrize("name", [name for name in ALL if DEGRADATIONS[name].random])
def test_random_ones_follow_their_generator(name, pictures):
    level = DEGRADATIONS[name].levels[0]
    assert torch.equal(apply(name, pictures, level), apply(name, pictures, level))
    other = DEGRADATIONS[name].function(pictures, level, generator=torch.Generator().manual_seed(4))
    assert not torch.equal(apply(name, pictures, level), other)
    with pytest.raises(ValueError, match="generator must be given"):
        degrade(pictures, name, level)


@pytest.mark.parametrize("name", ALL)
def test_degrade_is_the_function_of_that_name(name, pictures):
    level = DEGRADATIONS[name].levels[2]
    assert torch.equal(degrade(pictures, name, level, generator=fresh()), apply(name, pictures, level))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("level", [-0.5, float("nan"), float("inf")])
def test_impossible_levels_are_refused_in_one_sentence(name, level, pictures):
    with pytest.raises(ValueError, match=r"level of \w+ must") as refused:
        apply(name, pictures, level)
    assert "\n" not in str(refused.value)


def test_other_refusals(pictures, generator):
    with pytest.raises(ValueError, match="name must be one of"):
        degrade(pictures, "fog", 0.5)
    with pytest.raises(ValueError, match="one for each of the 6 images; got 4"):
        degrade(pictures, "contrast", torch.ones(4))
    with pytest.raises(TypeError, match="images must be uint8 or floats"):
        degrade(pictures.long(), "contrast", 0.5)
    with pytest.raises(ValueError, match=r"lie in \[0, 1\]; got 1.5"):
        degrade(pictures, "contrast", 1.5)
    with pytest.raises(ValueError, match="1 or 3 channels"):
        degrade(pictures[:, :2], "jpeg", 50.0)
    with pytest.raises(ValueError, match="whole number"):
        degrade(pictures, "jpeg", 50.5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ALL)
def test_a_gpu_gives_the_same(name, pictures):
    entry = DEGRADATIONS[name]
    if entry.random:
        out = degrade(pictures.cuda(), name, entry.levels[0], generator=torch.Generator("cuda").manual_seed(0))
        assert out.is_cuda
        assert distance(out.cpu(), pictures) > 0
    else:
        apart = (degrade(pictures.cuda(), name, entry.levels[0]).cpu() - degrade(pictures, name, entry.levels[0])).abs()
        # A cosine coefficient on the edge of a step may fall on either side: in jpeg a whole block moves, rarely.
        assert float(apart.mean() if name == "jpeg" else apart.max()) < (1 / 255 if name == "jpeg" else 1e-5)
