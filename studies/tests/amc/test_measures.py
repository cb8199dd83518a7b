"""What the AMC-Loss studies measure: maps and features whose numbers are known, claims beyond the noise."""

import math
from collections.abc import Callable

import pytest
import torch
from hardsight_studies.amc.attention import first_of_each_class, half_energy_area, ink_masks, map_points, middle
from hardsight_studies.amc.claims import verdict
from hardsight_studies.amc.features import _places, feature_numbers
from hardsight_studies.engine.grid import plan
from hardsight_studies.engine.rows import Number
from hardsight_studies.engine.study import get
from hardsight_studies.engine.trainings import config_of

from hardsight.explain import energy_inside


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
    # A network whose features have nearly died has maps of any size: an area knows no unit.
    for unit in (1e-15, 1e-30, 1e30):
        assert torch.equal(half_energy_area(unit * maps), half_energy_area(maps))


def test_masks_by_hand() -> None:
    pixels = torch.zeros(1, 1, 5, 5, dtype=torch.uint8)
    pixels[0, 0, 0, 0], pixels[0, 0, 4, 4] = 200, 100
    mask = ink_masks(pixels)
    assert int(mask.sum()) == 4
    assert bool(mask[0, :2, :2].all())
    even = torch.ones(1, 8, 8)
    assert float(energy_inside(even, middle(even))) == float(middle(even).mean()) == 0.25
    assert first_of_each_class(torch.tensor([3, 1, 3, 0, 1])).tolist() == [3, 1, 0]
    maps = torch.tensor([[[0.0, 2.0]], [[0.0, 0.0]]])
    found = map_points(maps, torch.tensor([4, 7]), torch.tensor([30, 50]))
    assert found["value"] == [0, 100, 0, 0]
    assert (found["x"], found["y"]) == ([0, 1, 0, 1], [0, 0, 0, 0])
    assert (found["label"], found["id"]) == ([4, 4, 7, 7], [30, 30, 50, 50])


def fans(by: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Five classes in the plane that differ by the angle of their features alone, or by their length alone."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(5).repeat(60)
    free = torch.rand(300, generator=generator)
    own = labels / 5 + 0.02 * torch.rand(300, generator=generator)
    angle, length = (own, free) if by == "angle" else (free, own)
    angle = 2 * math.pi * angle
    return torch.stack([angle.cos(), angle.sin()], 1) * (1 + 9 * length).unsqueeze(1), labels


def test_classes_by_angle_and_classes_by_length_are_told_apart() -> None:
    by_angle, labels = fans("angle")
    found = feature_numbers(by_angle, labels, labels)
    assert found["cluster_v_measure"] == pytest.approx(1.0)
    assert found["norm_v_measure"] < 0.2
    assert found["v_measure"] == 1.0
    assert found["within"] < 0.1 < found["between"]
    assert found["silhouette"] > 0.9
    by_length, labels = fans("length")
    found = feature_numbers(by_length, labels.roll(1), labels)
    assert found["norm_v_measure"] == pytest.approx(1.0)
    assert found["cluster_v_measure"] < 0.2


def test_places_are_in_the_plane_on_the_sphere_or_a_view() -> None:
    labels = torch.arange(40) % 4
    flat = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    assert {name: values[5] for name, values in _places(flat, labels).items()} == {
        "label": 1, "x": float(flat[5, 0]), "y": float(flat[5, 1])
    }  # fmt: skip
    on_sphere = _places(torch.randn(40, 3), labels)
    assert torch.tensor([on_sphere[name] for name in "xyz"]).norm(dim=0).tolist() == pytest.approx([1] * 40)
    assert {*_places(torch.randn(40, 8), labels)} == {"label", "x", "y"}


def test_a_claim_holds_only_beyond_the_noise() -> None:
    def of(mean: float, sd: float | None = 0.1) -> Number:
        return Number(mean, sd, 1 if sd is None else 4)

    base = of(0.45)
    assert verdict(of(0.5), base, 1) == "open (+0.0500 ± 0.0707)"
    assert verdict(of(0.75), base, 1).startswith("yes")
    assert verdict(of(0.75), base, -1).startswith("no")
    assert verdict(of(0.15), base, -1).startswith("yes")
    assert verdict(of(0.75, None), base, 1) == "+0.3000"


def test_weight_and_length_go_with_the_schedule() -> None:
    planned = plan(get("amc-table1"), "paper")
    assert len(planned) == 240
    for run in planned:
        config, schedule = config_of(run), run.settings["schedule"]
        full = 300 if schedule.startswith("paper") else 200
        assert config.epochs == full * float(schedule.partition("-")[2])
        assert config.schedule.stretch == config.epochs / full
        assert (config.average_decay is None, config.data.shift) == ((True, 0) if full == 300 else (False, 2))
        if config.feature_loss is not None:
            assert config.feature_loss.weight == (0.1 if full == 300 else 10.0)
            if config.feature_loss.name == "contrastive":
                assert config.feature_loss.options["per_dimension"] == (full == 200)


@pytest.mark.parametrize("id", ["amc-figure1", "amc-figure4", "amc-figure5", "amc-figure6", "amc-figure7"])
def test_every_run_is_a_configuration(id: str) -> None:
    for preset in ("smoke", "cpu", "paper"):
        configs = [config_of(run) for run in plan(get(id), preset)]
        if preset == "paper" and id in ("amc-figure1", "amc-figure4"):
            assert {(one.epochs, one.schedule.ramp_up, one.schedule.ramp_down) for one in configs} == {(150, 40, 30)}
            assert {one.model.options["feature_dim"] for one in configs} <= {2, 3}


def test_one_weight_or_margin_is_varied_at_a_time() -> None:
    for schedule, printed in (("script-0.1", 10.0), ("paper-0.1", 0.1)):
        points = {(one.settings["weight"], one.settings["margin"]) for one in plan(get("amc-figure7"), "paper")
                  if one.settings["schedule"] == schedule}  # fmt: skip
        assert points == {(round(weight * printed, 6), 0.5) for weight in (0, 1, 10, 0.1, 0.01)} | {
            (printed, margin) for margin in (0.5, 0.75, 1.0, 1.25, 1.5)
        }
