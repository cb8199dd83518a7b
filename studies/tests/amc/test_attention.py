"""AMC's Figures 2 and 6: the measures that a mask or none makes, and the grids that stay beside the records."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hardsight_studies.amc.attention import (
    as_percent,
    cells,
    configure,
    first_of_each_class,
    half_energy_area,
    ink_masks,
    middle,
)
from hardsight_studies.amc.attention_page import figures, table

from hardsight.explain import energy_inside
from hardsight.training.config import TrainingConfig
from hardsight.training.reading import build


@pytest.fixture(scope="module")
def smoke(ran: Callable[..., Any]) -> Any:
    return ran("amc-figure6", "seed=0")


def by_loop(one: torch.Tensor) -> float:
    """How many of the largest places it takes to hold half of the sum, one after the other."""
    values, taken = sorted(one.flatten().tolist(), reverse=True), 0.0
    for count, value in enumerate(values, 1):
        taken += value
        if taken >= sum(values) / 2:
            return count / len(values)
    raise AssertionError


def from_the_smallest(maps: torch.Tensor) -> torch.Tensor:
    values = maps.flatten(1).sort(1).values
    return (values.cumsum(1) < values.sum(1, keepdim=True) / 2).double().mean(1)


def compact_is_smaller(measure: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """The law: the more a map is sharpened, the smaller the area that holds half of it."""
    maps = torch.rand(20, 6, 6, generator=torch.Generator().manual_seed(0))
    return bool((measure(maps**6) < measure(maps)).all())


def test_half_energy_area_equals_the_loop_and_falls_with_sharper_maps() -> None:
    maps = torch.rand(10, 5, 7, generator=torch.Generator().manual_seed(1))
    assert half_energy_area(maps).tolist() == pytest.approx([by_loop(one.double()) for one in maps])
    assert compact_is_smaller(half_energy_area)
    assert not compact_is_smaller(from_the_smallest)
    peak = torch.zeros(1, 4, 4)
    peak[0, 2, 1] = 3.0
    assert float(half_energy_area(peak)) == 1 / 16
    assert float(half_energy_area(torch.zeros(1, 4, 4))) == 0.5
    assert float(half_energy_area(torch.ones(1, 4, 4))) == 0.5
    # A network whose features have nearly died has maps of any size: an area knows no unit.
    for unit in (1e-15, 1e-30, 1e30):
        assert torch.equal(half_energy_area(unit * maps), half_energy_area(maps))


def test_masks_by_hand() -> None:
    pixels = torch.zeros(1, 1, 5, 5, dtype=torch.uint8)
    pixels[0, 0, 0, 0], pixels[0, 0, 4, 4] = 200, 100
    mask = ink_masks(pixels)
    assert int(mask.sum()) == 4
    assert bool(mask[0, :2, :2].all())
    assert float(middle(torch.zeros(2, 8, 8)).mean()) == 0.25
    assert first_of_each_class(torch.tensor([3, 1, 3, 0, 1])).tolist() == [3, 1, 0]
    assert as_percent(torch.tensor([[[0.0, 2.0]], [[0.0, 0.0]]])) == [[[0, 100]], [[0, 0]]]


def test_records_hold_the_measures_and_the_grid_lies_beside_them(smoke: Any) -> None:
    losses = smoke.results["attention"]["digits"]
    assert list(losses) == ["cross-entropy", "euclidean", "amc"]
    for row in losses.values():
        assert 0 < row["energy_on_object"]["mean"] <= 1
        assert row["object_share"]["mean"] == losses["amc"]["object_share"]["mean"]
        difference = row["insertion_area"]["mean"] - row["deletion_area"]["mean"]
        assert row["insertion_minus_deletion"]["mean"] == pytest.approx(difference, abs=2e-4)
        assert len(row["maps"]) == len(row["map_ids"]) == 10
    assert (smoke.records / "figures" / "digits-0.png").stat().st_size > 1000


def test_the_page_holds_maps_and_answers_but_no_image(smoke: Any) -> None:
    assert "| the map's peak lies on the object more often | " in table(smoke.results)
    assert list(figures(smoke.results)) == ["digits-measures", "digits-maps"]
    partly = copy.deepcopy(smoke.results)
    del partly["attention"]["digits"]["amc"]
    assert "AMC against" not in table(partly)
    assert list(figures(partly)) == ["digits-measures", "digits-maps"]
    for row in partly["attention"]["digits"].values():
        assert {type(value) for one in row["maps"] for line in one for value in line} == {int}
        assert max(len(one) for one in row["maps"]) <= 8


def test_every_measure_stands_beside_what_an_even_map_gets(smoke: Any) -> None:
    losses = smoke.results["attention"]["digits"]
    panels = {axes.get_title("left"): axes for axes in figures(smoke.results)["digits-measures"].axes}
    share = losses["amc"]["object_share"]["mean"]
    expected = {"energy on the ink": share, "pointing game": share, "half-energy area": 0.5}
    for title, chance in expected.items():
        assert panels[title].lines[-1].get_xdata()[0] == chance
    even = torch.ones(1, 8, 8)
    assert float(energy_inside(even, middle(even))) == panels["energy\nin the middle quarter"].lines[-1].get_xdata()[0]
    assert panels["half-energy area"].get_xlabel() == "← claimed: smaller"
    # Without masks, no panel of them.
    bare = {loss: {**row, "energy_on_object": None, "pointing_game": None} for loss, row in losses.items()}
    drawn = figures({**smoke.results, "attention": {"cifar10": bare}})["cifar10-measures"]
    assert len(drawn.axes) == len(panels) - 2


def test_maps_have_a_scale_and_pictures_of_cifar_a_name(smoke: Any) -> None:
    results = {**smoke.results, "attention": {"cifar10": smoke.results["attention"]["digits"]}}
    drawn = figures(results)["cifar10-maps"]
    assert [axes.get_title("left") for axes in drawn.axes[:2]] == ["airplane", "automobile"]
    assert drawn.axes[-1].get_ylabel() == "% of the map's largest"


def test_every_cell_of_the_paper_is_a_configuration() -> None:
    configs = [build(TrainingConfig, configure("paper", cell)) for cell in cells("paper")]
    assert {config.model.name for config in configs} == {"cnn13", "cnn28"}
