"""Hardness by loss: people's bins from made numbers, degraded images, configurations that differ in the loss alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hardsight_studies.engine.grid import plan
from hardsight_studies.engine.rows import Row, Rows, read
from hardsight_studies.engine.running import run_study
from hardsight_studies.engine.study import get
from hardsight_studies.engine.trainings import config_of
from hardsight_studies.together.hardness import BINS, _agreement, by_bin, by_people


def test_people_by_bin() -> None:
    generator = np.random.default_rng(0)
    human = np.round(50 * generator.beta(6, 1, 400)) / 50
    avh, right = 0.2 - 0.15 * human, generator.random(400) < human
    found = by_bin(avh, right, human.astype(np.float32))
    assert sum(found["images_by_bin"]) == 400
    last = np.round(50 * human) >= 48
    assert found["avh_by_bin"][-1] == pytest.approx(avh[last].mean(), abs=1e-6)
    assert found["accuracy_by_bin"][-1] == pytest.approx(right[last].mean())


@pytest.mark.parametrize("edge", BINS[1:-1])
def test_a_share_at_an_edge_is_in_the_bin_above_it(edge: float) -> None:
    # 48 of 50 people are 0.96; in float32 that lies below the edge of 0.96.
    found = by_bin(np.ones(400), np.ones(400, bool), np.array([edge] * 399 + [1.0], np.float32))
    at = BINS.index(edge)
    assert found["images_by_bin"][at] == 399 + (at == len(BINS) - 2)
    assert found["avh_by_bin"][0] is None


def test_a_network_that_tells_no_images_apart_agrees_with_nobody() -> None:
    human = np.linspace(0, 1, 50)
    assert _agreement(np.full(50, 0.1), human) is None
    assert _agreement(human**3, human) == pytest.approx(1.0)


def test_every_loss_is_a_configuration_and_changes_nothing_else() -> None:
    configs = {run.settings["loss"]: config_of(run) for run in plan(get("hardness-by-loss"), "paper")}
    base = configs["cross-entropy"]
    assert len(configs) == 10
    for config in configs.values():
        assert (config.epochs, config.optimizer, config.schedule) == (base.epochs, base.optimizer, base.schedule)
    assert configs["avh"].model.head == "angular"
    assert configs["arcface"].model.head == "cosine"


def test_a_degradation_weighs_the_same_whatever_the_number_of_its_levels(tmp_path: Path) -> None:
    study = get("hardness-by-loss")
    run_study(study, "smoke", tmp_path / "results", output=tmp_path / "runs", only=["loss=cross-entropy,seed=0"])
    (row,) = found = read("hardness-by-loss", tmp_path / "results")
    by_kind: dict[str, list[float]] = {}
    for one in found.points.to_pylist():
        kind, name = one["series"].split(", ")
        if name == "accuracy":
            by_kind.setdefault(kind, []).append(one["y"])
    assert {len(levels) for levels in by_kind.values()} == {4, 5}
    means = {kind: np.mean(levels) for kind, levels in by_kind.items()}
    assert row.metrics["degraded_accuracy"] == pytest.approx(np.mean(list(means.values())))
    assert row.metrics["degraded_blur"] == pytest.approx(means["blur"])
    assert row.metrics["accuracy"] > row.metrics["degraded_accuracy"]


def test_the_ratio_is_of_bins_with_more_than_a_handful() -> None:
    def row(loss: str, **metrics: Any) -> Row:
        return Row("hardness-by-loss", "paper", {"loss": loss}, 0, metrics)

    made = row("avh", avh_by_bin=[0.9, None, 0.3, 0.2, 0.2, 0.1, 0.05], images_by_bin=[5, 0, 40, 50, 60, 70, 500])
    (line,) = by_people(Rows("hardness-by-loss", "paper", [made]))[1]
    assert line == ["avh", "0.9000", "–", "0.3000", "0.2000", "0.2000", "0.1000", "0.0500", "6.00"]
