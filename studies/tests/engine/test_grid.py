"""Which runs a preset has, in which order, and what each setting changes of the configuration."""

from pathlib import Path
from typing import Any

import pytest
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import picked, plan
from hardsight_studies.engine.running import run_study
from hardsight_studies.engine.study import Study, merged

STUDY = """
title = "Digits"
question = "Which runs?"
[base]
epochs = 1
data = { name = "digits", limit = 128, batch_size = 64 }
model.name = "digits_cnn"
noise.kind = "symmetric"
[axes]
seed = [0, 1]
rate = [0.0, 0.4]
method = ["cce", "forward"]
[axis.rate]
key = "noise.rate"
[values.method]
cce.set.loss.name = "cross_entropy"
forward.set.loss = { name = "forward_correction", options.transition = "{rate}" }
[metrics]
last = "test_accuracy"
[presets.smoke]
axes.seed = [0]
[presets.cpu]
base.epochs = 2
skip = [{ rate = 0.0, method = "forward" }]
extra = [{ method = ["cce", "forward"], rate = 0.6, length = "long" }]
first = [{ length = "long" }]
values.length.long.set.epochs = 9
"""


def study(folder: Path, *changes: tuple[str, str]) -> Study:
    text = STUDY
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "digits.toml").write_text(text)
    return studies.load(folder / "digits.toml")


def test_the_first_axis_varies_slowest_and_the_seed_is_named_last(tmp_path: Path) -> None:
    runs = plan(study(tmp_path), "smoke")
    assert [run.name for run in runs] == [
        "rate=0.0,method=cce,seed=0",
        "rate=0.0,method=forward,seed=0",
        "rate=0.4,method=cce,seed=0",
        "rate=0.4,method=forward,seed=0",
    ]
    assert runs[3].config["loss"] == {"name": "forward_correction", "options": {"transition": 0.4}}
    assert (runs[3].config["noise"], runs[3].config["seed"], runs[3].config["epochs"]) == (
        {"kind": "symmetric", "rate": 0.4}, 0, 1,
    )  # fmt: skip


def test_a_preset_changes_skips_and_adds(tmp_path: Path) -> None:
    runs = plan(study(tmp_path), "cpu")
    long = [run for run in runs if "length" in run.settings]
    assert runs[:2] == long, "what is named first runs first"
    assert [run.config["epochs"] for run in runs] == [9, 9, *[2] * 6]
    assert {(run.point["rate"], run.point["method"]) for run in runs[2:]} == {
        (0.0, "cce"),
        (0.4, "cce"),
        (0.4, "forward"),
    }


def test_merging_leaves_what_it_merges_as_it_was() -> None:
    below: dict[str, Any] = {"a": {"b": 1, "c": [1]}, "d": 2}
    assert merged(below, {"a": {"c": [2]}, "d": {"e": 3}}) == {"a": {"b": 1, "c": [2]}, "d": {"e": 3}}
    assert below == {"a": {"b": 1, "c": [1]}, "d": 2}
    assert merged(below, {}) == merged({}, below) == merged(below, below) == below


def test_words_pick_runs(tmp_path: Path) -> None:
    one = study(tmp_path)
    runs = plan(one, "cpu")
    assert [run.name for run in picked(one, runs, ["method=forward,seed=1"])] == ["rate=0.4,method=forward,seed=1"]
    assert len(picked(one, runs, ["seed=1", "length=long"])) == 5
    assert picked(one, runs, []) == runs


@pytest.mark.parametrize(
    ("word", "near"), [("metod=cce", "method"), ("method=cc", "cce"), ("method=cce,rate=0.6,seed=1", "cce")]
)
def test_words_that_pick_nothing_come_with_what_there_is(word: str, near: str, tmp_path: Path) -> None:
    one = study(tmp_path)
    with pytest.raises(ValueError, match=near):
        picked(one, plan(one, "cpu"), [word])


@pytest.mark.parametrize(
    ("change", "near"),
    [
        (("epochs = 1", "epoch = 1"), "epochs"),
        (("limit = 128", "limt = 128"), "limit"),
        (('key = "noise.rate"', 'key = "noise.rat"'), "rate"),
        (("cce.set", "cee.set"), "cee"),
        (("[axis.rate]", "[axis.rat]"), "rate"),
        (("skip = [{ rate", "skip = [{ rat"), "rate"),
        (("base.epochs", "bas.epochs"), "base"),
    ],
)
def test_a_slip_in_the_file_is_found_before_anything_is_trained(
    change: tuple[str, str], near: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=near):
        run_study(study(tmp_path, change), "smoke", tmp_path, output=tmp_path / "records", options=Options())
    assert not (tmp_path / "records").exists()


def test_a_study_has_only_its_own_presets(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="smoke, cpu"):
        plan(study(tmp_path), "paper")
