"""The study of label errors: published noise rates, halves that do not overlap, a run that goes on, its table."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import plan
from hardsight_studies.engine.rows import Row, Rows, read
from hardsight_studies.engine.running import run_study
from hardsight_studies.engine.study import get
from hardsight_studies.engine.trainings import config_of
from hardsight_studies.together.label_errors import _SNAPSHOTS, OUT_OF_FOLD, TAUGHT, average_precision, halved

from hardsight.training.data import load_sets

STUDY = get("label-errors")


def test_no_sample_is_judged_by_a_network_that_trained_on_it() -> None:
    labels = torch.randint(4, (101,), generator=torch.Generator().manual_seed(0))
    first, second = halved(labels, 0)
    assert torch.equal(torch.cat([first, second]).sort().values, torch.arange(101))
    assert (labels[first].bincount() - labels[second].bincount()).abs().max() <= 1


def test_every_length_of_training_has_its_snapshots_and_ends_with_one() -> None:
    for preset in STUDY.presets:
        for run in plan(STUDY, preset):
            epochs = config_of(run).epochs
            assert _SNAPSHOTS[epochs][-1] == epochs


def test_paper_runs_come_in_order_of_value() -> None:
    runs = [(run.settings["training"], run.seed, run.settings["noise"]) for run in plan(STUDY, "paper")]
    assert runs[:3] == [("whole", 0, noise) for noise in ("aggre", "random1", "worse")]
    assert [kind for kind, _, _ in runs].index("stronger") == 18
    assert [kind for kind, _, _ in runs].index("halves") == 24
    assert len(runs) == 42


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    folder = tmp_path_factory.mktemp("label-errors")
    options = Options(say=lambda line: None)
    run_study(STUDY, "smoke", folder, output=folder / "runs", only=["noise=symmetric20"], options=options)
    return read("label-errors", folder)


def test_a_score_finds_wrong_labels_far_above_chance(smoke: Rows) -> None:
    whole = {"noise": "symmetric20", "training": "whole"}
    for name in ("el2n_mean", "snapshot_el2n", TAUGHT):
        assert (smoke.number(f"auroc_of_{name}", **whole) or 0).mean > 0.8
    assert smoke.number("wrong_labels", **whole).mean == pytest.approx(0.2, abs=0.05)
    assert smoke.number(f"auroc_of_{OUT_OF_FOLD}", noise="symmetric20", training="halves").mean > 0.6
    assert smoke.number("auroc_of_el2n_mean", noise="symmetric20", training="halves") is None


def test_the_table_ranks_by_peoples_errors() -> None:
    def row(noise: str, training: str, **metrics: Any) -> Row:
        named = {f"average_precision_of_{name}": value for name, value in metrics.items()}
        return Row("label-errors", "paper", {"noise": noise, "training": training}, 0, named)

    made = [
        row("aggre", "whole", avh=0.6, aum=0.8), row("symmetric20", "whole", avh=0.99, aum=0.9),
        row("aggre", "halves", out_of_fold_doubt=0.7), row("aggre", "stronger", aum=0.85),
    ]  # fmt: skip
    heads, lines = average_precision(Rows("label-errors", "paper", made))
    assert heads == ["score", "aggre", "symmetric20"]
    assert [line[0] for line in lines] == ["`aum` (stronger)", "`aum`", "`out_of_fold_doubt`", "`avh`"]
    assert lines[1] == ["`aum`", "0.800 [0.772]", "0.900"]


@pytest.mark.data
def test_the_noises_have_their_published_rates(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARDSIGHT_DATA", str(data_root))
    expected = {"aggre": 0.09, "random1": 0.172, "worse": 0.402, "symmetric40": 0.4, "symmetric20": 0.2}
    expected["asymmetric40"] = 0.2
    for run in plan(STUDY, "paper")[:6]:
        sets = load_sets(config_of(run))
        assert sets.clean is not None
        rate = float((sets.labels != sets.clean).float().mean())
        assert rate == pytest.approx(expected[run.settings["noise"]], abs=5e-3)
