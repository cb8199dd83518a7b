"""Energy inside a mask and the pointing game, against loops, with what chance gives to maps that say nothing."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from hardsight.explain import box_masks, energy_inside, pointing_game


def random_case(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    maps = torch.rand(4, 5, 7, generator=generator)
    return maps, torch.rand(4, 5, 7, generator=generator) < 0.4


def energy_by_loops(maps: Tensor, masks: Tensor) -> list[float]:
    found = []
    for one, mask in zip(maps.double(), masks.double(), strict=True):
        inside = total = 0.0
        for value, share in zip(one.flatten().tolist(), mask.flatten().tolist(), strict=True):
            inside, total = inside + value * share, total + value
        found.append(inside / total)
    return found


def pointing_by_loops(maps: Tensor, masks: Tensor, tolerance: float) -> list[float]:
    hits = []
    for one, mask in zip(maps, masks, strict=True):
        row, column = divmod(int(one.argmax()), one.shape[1])
        places = mask.nonzero().tolist()
        hits.append(float(any(math.hypot(i - row, j - column) <= tolerance for i, j in places)))
    return hits


@pytest.mark.parametrize("seed", range(3))
def test_equals_loops(seed: int) -> None:
    maps, masks = random_case(seed)
    torch.testing.assert_close(energy_inside(maps, masks), torch.tensor(energy_by_loops(maps, masks)))
    for tolerance in (0.0, 1.0, 1.5, 2.9):
        found = pointing_game(maps, masks, tolerance=tolerance)
        assert found.tolist() == pointing_by_loops(maps, masks, tolerance)


def test_a_place_exactly_as_far_as_the_tolerance_is_a_hit() -> None:
    """Every distance that two places of a picture can have: rounding its square or its root decides nothing."""
    maps = torch.zeros(1, 9, 7)
    maps[0, 0, 0] = 1.0
    for row, column in itertools.product(range(9), range(7)):
        masks = torch.zeros(1, 9, 7)
        masks[0, row, column] = 1.0
        distance = math.hypot(row, column)
        assert float(pointing_game(maps, masks, tolerance=distance)) == 1.0
        assert float(pointing_game(maps, masks, tolerance=max(0.0, distance - 1e-3))) == float(distance == 0)


def test_few_places_far_apart_equal_loops() -> None:
    generator = torch.Generator().manual_seed(3)
    maps, masks = torch.rand(12, 11, 16, generator=generator), torch.rand(12, 11, 16, generator=generator) > 0.985
    hits = []
    for tolerance in (2.0, 4.5, 7.0, 12.0):
        found = pointing_game(maps, masks, tolerance=tolerance).tolist()
        assert found == pointing_by_loops(maps, masks, tolerance)
        hits.append(sum(found))
    assert hits[0] < hits[1] < hits[-1]


def test_energy_of_mask_and_background_is_all_of_it() -> None:
    maps, masks = random_case(0)
    torch.testing.assert_close(energy_inside(maps, masks) + energy_inside(maps, ~masks), torch.ones(4))
    assert energy_inside(maps, torch.ones_like(masks)).eq(1).all()
    assert energy_inside(maps, torch.zeros_like(masks)).eq(0).all()


def test_neither_knows_the_scale_of_a_map() -> None:
    maps, masks = random_case(1)
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(energy_inside(maps * scale, masks), energy_inside(maps, masks))
        assert torch.equal(pointing_game(maps * scale, masks), pointing_game(maps, masks))
    huge = torch.full((1, 3, 3), torch.finfo(torch.float32).max)
    assert energy_inside(huge, torch.eye(3)[None]).isfinite().all()


def test_energy_knows_a_shift_that_the_pointing_game_does_not() -> None:
    maps, masks = random_case(2)
    assert torch.equal(pointing_game(maps + 1, masks), pointing_game(maps, masks))
    assert not torch.allclose(energy_inside(maps + 1, masks), energy_inside(maps, masks), atol=1e-2)


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_a_map_that_says_nothing_gets_what_chance_gives(value: float) -> None:
    maps, masks = torch.full((1, 4, 5), value), box_masks(torch.tensor([[1.0, 0.0, 3.0, 4.0]]), (4, 5))
    torch.testing.assert_close(energy_inside(maps, masks), torch.tensor([0.4]))
    torch.testing.assert_close(pointing_game(maps, masks), torch.tensor([0.4]))


def test_ties_count_by_their_share() -> None:
    maps = torch.tensor([[[1.0, 0.0], [1.0, 0.5]]])
    assert pointing_game(maps, torch.tensor([[[True, True], [False, False]]])).tolist() == [0.5]


def test_half_precision() -> None:
    maps, masks = random_case(0)
    torch.testing.assert_close(energy_inside(maps.half(), masks), energy_inside(maps, masks), atol=1e-3, rtol=1e-3)


def test_boxes_cover_shares_of_pixels() -> None:
    found = box_masks(torch.tensor([[0.5, 1.0, 2.25, 2.0], [-5.0, -5.0, 50.0, 50.0], [1.0, 1.0, 1.0, 2.0]]), (3, 4))
    expected = torch.zeros(3, 3, 4)
    expected[0, 1] = torch.tensor([0.5, 1.0, 0.25, 0.0])
    expected[1] = 1
    torch.testing.assert_close(found, expected)
    whole = box_masks(torch.tensor([[1, 0, 3, 2]]), (3, 4))
    assert whole.nonzero().tolist() == [[0, 0, 1], [0, 0, 2], [0, 1, 1], [0, 1, 2]]


@pytest.mark.parametrize(("maps", "masks", "sentence"), [
    (torch.rand(2, 3), torch.ones(2, 3), r"^maps .*\[samples, height, width\].*\[2, 3\]"),
    (torch.rand(2, 3, 3), torch.ones(2, 6, 6), r"^maps and masks .*\[2, 3, 3\].*\[2, 6, 6\]"),
    (torch.full((1, 2, 2), -1.0), torch.ones(1, 2, 2), r"^maps .*\[0, inf\]; .*-1 to -1$"),
    (torch.full((1, 2, 2), torch.nan), torch.ones(1, 2, 2), "^maps .*finite.*nan"),
    (torch.ones(1, 2, 2), torch.full((1, 2, 2), 255), r"^masks .*\[0, 1\].*255"),
])  # fmt: skip
def test_bad_input_in_one_sentence(maps: Tensor, masks: Tensor, sentence: str) -> None:
    for measure in (energy_inside, pointing_game):
        with pytest.raises(ValueError, match=sentence):
            measure(maps, masks)


def test_a_tolerance_beyond_the_picture_allows_every_place() -> None:
    maps, masks = torch.zeros(2, 4, 6), torch.zeros(2, 4, 6)
    maps[:, 0, 0], masks[0, 3, 5] = 1.0, 1.0
    for tolerance in (math.hypot(3, 5), 1e6, math.inf):
        assert pointing_game(maps, masks, tolerance=tolerance).tolist() == [1.0, 0.0]
    assert pointing_game(maps, masks, tolerance=5.8).tolist() == [0.0, 0.0]


def test_bad_boxes_and_tolerance() -> None:
    with pytest.raises(ValueError, match=r"^size .*\(height, width\).*\(0, 2\)$"):
        box_masks(torch.zeros(1, 4), (0, 2))
    with pytest.raises(ValueError, match=r"^boxes .*\[samples, 4\].*\[4\]$"):
        box_masks(torch.zeros(4), (2, 2))
    with pytest.raises(ValueError, match=r"left <= right.*boxes\[1\] is \[2.0, 0.0, 1.0, 1.0\]"):
        box_masks(torch.tensor([[0.0, 0.0, 1.0, 1.0], [2.0, 0.0, 1.0, 1.0]]), (2, 2))
    with pytest.raises(ValueError, match=r"^tolerance .*0 or more.*-1"):
        pointing_game(torch.ones(1, 2, 2), torch.ones(1, 2, 2), tolerance=-1.0)
