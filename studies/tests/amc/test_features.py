"""AMC's Figures 1, 4 and 5: numbers of features that are known, points as they are drawn, pages of partial results."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hardsight_studies.amc.feature_pages import figures_of, table1, table4
from hardsight_studies.amc.features import PRESETS, cells, configure, feature_numbers, points_of
from hardsight_studies.amc.looking import Claim, claims_part, difference

from hardsight.training.config import TrainingConfig
from hardsight.training.reading import build


@pytest.fixture(scope="module")
def smoke(ran: Callable[..., Any]) -> Any:
    return ran("amc-figure4")


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


def test_points_are_in_the_plane_on_the_sphere_or_a_view() -> None:
    labels = torch.arange(40) % 4
    flat = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    drawn = points_of(flat, labels, 30)
    assert len(drawn) == 30
    assert drawn[5] == [1, *(round(value, 3) for value in flat[5].tolist())]
    solid = points_of(torch.randn(40, 3), labels, 40)
    assert all(math.hypot(*row[1:]) == pytest.approx(1, abs=2e-3) for row in solid)
    wide = points_of(torch.randn(40, 8), labels, 40)
    assert {len(row) for row in wide} == {3}


def test_the_records_hold_what_is_judged(smoke: Any) -> None:
    losses = smoke.results["features"]["digits"]
    assert list(losses) == ["euclidean", "amc"]
    assert len(losses["amc"]["within"]["values"]) == 2
    assert "| claim | AMC against Euclidean |" in table4(smoke.results)
    assert list(figures_of(smoke.results)) == ["digits"]


def test_pages_cope_with_what_is_not_finished(smoke: Any) -> None:
    partly = copy.deepcopy(smoke.results)
    del partly["features"]["digits"]["amc"]
    partly["not_computed"] = ["svhn"]
    assert "AMC against" not in table4(partly)
    assert "SVHN" in table4(partly)
    assert list(figures_of(partly)) == ["digits"]
    # The page of Figure 1, from numbers that nobody measured.
    row = partly["features"]["digits"]["euclidean"]
    row["norm_v_measure"] = {"mean": 0.99, "sd": None, "values": [0.99]}
    row["cluster_v_measure"] = {"mean": 0.5, "sd": None, "values": [0.5]}
    assert "angular does not hold" in table1(partly)
    assert "homogeneity of clusters | completeness of clusters" in table1(partly)


def test_panels_say_what_their_axes_are_and_classes_differ(smoke: Any) -> None:
    view = figures_of(smoke.results)["digits"]
    assert {axes.get_xlabel() for axes in view.axes} == {"t-SNE, no unit"}
    looks = [(tuple(dots.get_facecolor()[0]), str(dots.get_paths()[0].vertices)) for dots in view.axes[0].collections]
    assert len(set(looks)) == len(looks) == 10
    named = figures_of({**smoke.results, "features": {"cifar10": smoke.results["features"]["digits"]}})["cifar10"]
    assert [text.get_text() for text in named.legends[0].get_texts()][:2] == ["airplane", "automobile"]
    shown = smoke.results["features"]["digits"]["amc"]["cluster_homogeneity"]["values"][0]
    assert f"homogeneity {shown:.3f}" in view.axes[1].get_title("left")


def test_figure_1_keeps_angles_and_names_only_true_features(smoke: Any) -> None:
    """Five digits, of the training set too; both axes to one scale, the same in every panel."""
    flat = copy.deepcopy(smoke.results)
    for row in flat["features"]["digits"].values():
        rows = [[label, float(label), 1.0] for label in range(10)]
        row["points"] = {"test": rows, "train": rows}
    flat["features"]["mnist"] = flat["features"]["digits"]
    panels = figures_of(flat)["mnist"].axes
    assert len(panels) == 4
    assert {(axes.get_xlabel(), axes.get_ylabel()) for axes in panels} == {("first feature", "second feature")}
    assert {axes.get_aspect() for axes in panels} == {1.0}
    assert len({axes.get_xlim() for axes in panels} | {axes.get_ylim() for axes in panels}) == 1
    colours = {tuple(dots.get_facecolor()[0]) for dots in panels[0].collections}
    assert len(colours) == len(panels[0].collections) == 5
    # The network of the digits has 64 features, so the two that are drawn are t-SNE's.
    assert {axes.get_xlabel() for axes in figures_of(flat)["digits"].axes} == {"t-SNE, no unit"}


def test_a_sphere_is_drawn_with_every_loss_in_its_own_column(smoke: Any) -> None:
    solid = copy.deepcopy(smoke.results)
    row = solid["features"]["digits"].pop("euclidean")
    row["points"] = {"test": [[label, 0.6, 0.8, 0.0] for label in range(5)], "train": []}
    solid["features"]["digits"] = dict.fromkeys(("cross-entropy", "euclidean", "amc", "euclidean 0.1", "amc 0.1"), row)
    panels = figures_of(solid)["digits"].axes
    places = [(axes.get_subplotspec().rowspan.start, axes.get_subplotspec().colspan.start) for axes in panels]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]
    assert len(panels[0].collections) == 1 + 5


def numbers(mean: float, sd: float | None = 0.1) -> dict[str, Any]:
    return {"mean": mean, "sd": sd, "values": [mean] * (1 if sd is None else 4)}


def test_a_claim_holds_only_beyond_the_noise() -> None:
    base = numbers(0.45)
    assert difference(numbers(0.5), base).shown(1) == "open (+0.0500 ± 0.0707)"
    assert difference(numbers(0.75), base).verdict(1) == "yes"
    assert difference(numbers(0.75), base).verdict(-1) == "no"
    assert difference(numbers(0.15), base).verdict(-1) == "yes"
    assert difference(numbers(0.75, None), base).shown(1) == "+0.3000"


def test_claims_are_counted_where_both_losses_were_measured() -> None:
    claims = {"size": Claim("smaller", -1), "depth": Claim("deeper", 1), "ink": Claim("more ink", 1)}
    losses = {"amc": {"size": numbers(0.1), "depth": numbers(0.1), "ink": None}}
    losses["other"] = {"size": numbers(0.9), "depth": numbers(0.9), "ink": None}
    _, rows, said = claims_part(claims, losses, {"AMC against other": ("amc", "other"), "absent": ("amc", "gone")})
    assert [line.split(" | ")[0] for line in rows.splitlines()[2:]] == ["| smaller", "| deeper"]
    assert said == "- AMC against other: 1 of 2 claims hold (1 contradicted, 0 open)."
    once = {loss: {**row, "size": numbers(0.1, None)} for loss, row in losses.items()}
    assert "a single run, so no verdict" in claims_part(claims, once, {"AMC against other": ("amc", "other")})[-1]
    assert claims_part(claims, losses, {"absent": ("amc", "gone")}) == []


@pytest.mark.parametrize("study", PRESETS)
def test_every_cell_of_the_paper_is_a_configuration(study: str) -> None:
    for cell in cells(study, "paper"):
        config = build(TrainingConfig, configure(study, "paper", cell))
        if study != "amc-figure5":
            assert (config.epochs, config.schedule.ramp_up, config.schedule.ramp_down) == (150, 40, 30)
            assert config.model.options["feature_dim"] in (2, 3)
        if cell.settings["loss"] == "euclidean":
            assert config.feature_loss is not None
            assert config.feature_loss.options["per_dimension"] == (cell.settings["weight"] == 10)
