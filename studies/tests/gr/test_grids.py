"""Every run of gradient rescaling is a training that can be made, and the printed one is what the paper prints."""

import json
from typing import Any

import pytest
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.grid import Run, plan
from hardsight_studies.engine.rows import PUBLISHED, read
from hardsight_studies.engine.study import PRESETS
from hardsight_studies.engine.trainings import config_of

from hardsight import models
from hardsight.losses.registry import Sizes
from hardsight.training import from_config

TRAINED = ["gr-protocol", "gr-table2", "gr-table3", "gr-table4", "gr-table5", "gr-table8", "gr-table9", "gr-table10",
           "gr-table11", "gr-table12", "gr-human-noise", "gr-auto"]  # fmt: skip


def runs_of(id: str, preset: str = "paper", **settings: Any) -> list[Run]:
    runs = plan(studies.get(id), preset)
    return [run for run in runs if all(run.settings.get(name) == value for name, value in settings.items())]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("id", TRAINED)
def test_every_run_is_a_training_that_can_be_made(id: str, preset: str) -> None:
    runs = runs_of(id, preset)
    made = {run.name: config_of(run) for run in runs}
    kinds = {(one.model.name, str(one.model.options), one.loss.name, str(one.loss.options)): one
             for one in made.values()}  # fmt: skip
    for config in kinds.values():
        assert set(config.model.options) <= set(models.options(config.model.name))
        from_config.make_loss(config.loss.name, config.loss.options, Sizes(4, 10, 8), "loss")
    # A training again on predictions has the configuration of the first one.
    different = {json.dumps({**run.config, "stage": run.settings.get("stage")}, sort_keys=True) for run in runs}
    assert len(different) == len(runs), "two runs would train the same"


@pytest.mark.parametrize("id", TRAINED)
def test_every_table_of_the_papers_size_has_seeds_and_begins_with_one(id: str) -> None:
    seeds = [run.seed for run in runs_of(id)]
    assert {0, 1, 2} <= {*seeds}
    assert not any(seeds[:4])


def test_the_printed_protocol_is_section_4_1() -> None:
    config = config_of(runs_of("gr-table3", rate=0.4, method="gr-16-1", protocol="printed", seed=2)[0])
    assert (config.data.name, config.data.batch_size, config.data.shift, config.data.flip) == ("cifar10", 128, 4, True)
    assert (config.optimizer.lr, config.optimizer.momentum, config.optimizer.weight_decay) == (0.1, 0.9, 1e-4)
    assert (config.noise.kind, config.noise.rate, config.seed) == ("symmetric", 0.4, 2)
    assert config.loss.options == {"beta": 16, "lam": 1, "epsilon": 1e-6}
    steps = 50_000 // 128
    falls = [epoch * steps for epoch in config.schedule.milestones]
    assert falls == pytest.approx([5000, 10_000, 15_000], rel=0.02)
    assert config.epochs * steps == pytest.approx(20_000, rel=0.01)


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {name: value for key, of in tree.items() for name, value in flat(of, f"{prefix}.{key}".strip(".")).items()}


# What each change of the protocol may touch, and must.
FALLS, DECAY, BALANCED = "schedule.milestones", "optimizer.weight_decay", "data.class_balanced"
TOUCHES = {
    "released-falls": {FALLS},
    "lr-tenth": {"optimizer.lr"},
    "decay-5e-4": {DECAY},
    "no-augmentation": {"data.shift", "data.flip"},
    "no-crop": {"data.shift"},
    "no-flip": {"data.flip"},
    "warm-up": {"schedule.warm_up"},
    "clip": {"clip"},
    "balanced": {BALANCED},
    "mean": {"loss.options.reduction"},
    "mean-lr-tenth": {"loss.options.reduction", "optimizer.lr"},
    "falls-and-decay": {FALLS, DECAY},
    "released": {FALLS, DECAY, BALANCED},
    "epsilon": {"loss.options.epsilon"},
    "released-epsilon": {FALLS, DECAY, BALANCED, "loss.options.epsilon"},
    "float32": {"precision"},
    "twice-as-long": {"epochs", FALLS},
    "late-falls": {"epochs", FALLS},
    "late-epsilon": {"epochs", FALLS, "loss.options.epsilon"},
    "right-labels": {"noise.rate"},
}


def test_a_change_touches_what_it_says_and_nothing_else() -> None:
    runs = {run.settings["change"]: flat(run.config) for run in runs_of("gr-protocol", method="gr-16-1", seed=0)}
    printed = runs.pop("printed")
    assert {change: {name for name in {*one, *printed} if one.get(name) != printed.get(name)}
            for change, one in runs.items()} == TOUCHES  # fmt: skip


def test_ten_of_the_measured_changes_change_one_thing() -> None:
    rows = read("gr-protocol", PUBLISHED, "paper")
    measured = {*rows.options("change", method="gr-16-1")} - {"printed", "right-labels"}
    counts = [len(TOUCHES[change]) for change in measured if change != "float32"]
    assert (counts.count(1), len(counts) - counts.count(1), len(measured) + 1) == (10, 6, 18)


def test_long_trainings_touch_length_and_batch_alone() -> None:
    runs = {run.settings["protocol"]: flat(run.config)
            for run in runs_of("gr-table3", rate=0.4, method="cce", seed=0)}  # fmt: skip
    apart = {name for name in runs["long"] if runs["long"][name] != runs["printed"].get(name)}
    assert apart == {"epochs", FALLS, "data.batch_size"}


def test_no_first_training_of_table_11_is_made_twice() -> None:
    """Those of the paper's size are Table 3's, down to the folder of their records."""
    first = {run.folder for run in runs_of("gr-table11") if "stage" not in run.settings}
    assert first <= {run.folder for run in runs_of("gr-table3")}


def test_auto_is_compared_with_the_best_printed_setting_of_each_noise_rate() -> None:
    # Of ten classes: Table 2 for clean labels, Table 3 (CIFAR-10, ResNet-56).
    best = ((0.0, 2.0, 0.0), (0.2, 12.0, 0.5), (0.4, 16.0, 1.0), (0.6, 12.0, 2.0), (0.8, 12.0, 2.0))
    expected = {(rate, f"gr-{beta:g}-{lam:g}") for rate, beta, lam in best}
    planned = {(run.settings["rate"], run.settings["method"]) for run in runs_of("gr-auto", protocol="long")}
    assert expected <= planned


def test_every_fixed_setting_lets_go_of_fitted_samples_but_the_one_to_the_letter() -> None:
    for run in runs_of("gr-human-noise"):
        options = run.config["loss"].get("options", {})
        if run.settings["method"].startswith("gr-"):
            assert options["epsilon"] == (0.0 if run.settings["method"].endswith("-letter") else 1e-6)


def test_corrections_know_the_rate_and_sl_its_classes() -> None:
    options = {run.settings["rate"]: run.config["loss"]["options"] for run in runs_of("gr-table5", method="forward")}
    assert options == {rate: {"transition": rate} for rate in (0.2, 0.4, 0.6)}
    assert runs_of("gr-table5", method="sl")[0].config["loss"]["options"] == {"alpha": 6.0, "beta": 0.1}
    assert "options" not in runs_of("gr-auto", method="sl")[0].config["loss"]
