"""Every figure's study, run once at its smallest: records, results, tables and figures, and what they say."""

import copy
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hardsight_studies import Options, Study, get_study, run_study, studies
from hardsight_studies.avh import dynamics
from hardsight_studies.avh.dynamics import spread_known
from hardsight_studies.avh.dynamics_table import Measured, better_is_lower
from hardsight_studies.avh.figure4 import CIFAR10, CIFAR100
from hardsight_studies.results_file import compact_json

from hardsight.training.sweeps import status_of

IDS = (
    "avh-figure2",
    "avh-figure3",
    "avh-figure4",
    "avh-figure15",
    "avh-figure17",
    "avh-figure19",
    "avh-figure20",
    "avh-figure22",
)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Records and results of the smoke preset, made when they are first asked for."""
    folder, made = tmp_path_factory.mktemp("figures"), {}

    class Runs(dict[str, Any]):
        def __missing__(self, id: str) -> dict[str, Any]:
            path = run_study(get_study(id), "smoke", folder / id, folder / "results", options=Options(say=str))
            self[id] = json.loads(path.read_text())
            return self[id]

    made = Runs()
    made["folder"] = folder
    return made


@pytest.mark.parametrize("id", IDS)
def test_it_runs_and_says_what_it_found(runs: dict[str, Any], id: str) -> None:
    study: Study = get_study(id)
    found = runs[id]
    assert found["cells"] == found["cells_planned"] == len(study.cells("smoke"))
    assert all(status_of(runs["folder"] / id / cell.name) == "finished" for cell in study.cells("smoke"))
    printed = study.table(found)
    assert "**" in printed
    assert "nan" not in printed
    assert len(compact_json(found)) < 200_000
    assert study.figures is not None
    for name, figure in study.figures(found).items():
        assert figure.axes[0].get_ylabel(), name
        # The panels of a column may share the label below them; a bar of colours has none.
        assert any(axes.get_xlabel() for axes in figure.axes), name
        for axes in figure.axes:
            assert axes.get_title(loc="left") or axes.get_xlabel() or axes.get_ylabel()


def test_the_panels_of_a_training_share_the_end_of_their_accuracies(runs: dict[str, Any]) -> None:
    networks = runs["avh-figure4"]["networks"]
    figure = get_study("avh-figure4").figures(runs["avh-figure4"])["figure11"]
    panels = figure.axes[2::3]
    assert {axes.get_ylabel() for axes in panels} == {"accuracy"}
    ends = {axes.get_ylim() for axes in panels}
    highest = max(max(group["correct"]) for one in networks.values() for group in one["curves"]["noise"])
    assert len(ends) == 1
    assert highest <= ends.pop()[1] <= 1.02


@pytest.mark.parametrize("id", ["avh-figure4", "avh-figure15"])
def test_a_band_ends_where_its_quantity_does(runs: dict[str, Any], id: str) -> None:
    """A norm is never negative, AVH and confidence are shares: a deviation wider than the mean is cut, the mean not."""
    found = copy.deepcopy(runs[id])
    networks = found["networks"].values() if "networks" in found else [{"curves": {"all": [found["curves"]]}}]
    for one in networks:
        for curves in (curves for groups in one["curves"].values() for curves in groups):
            for quantity in ("norm", "avh", "confidence"):
                curves[f"{quantity}_sd"] = [None if value is None else value + 9.0 for value in curves[quantity]]
    titles = {"feature norm": math.inf, "AVH": 1.0, "confidence in the label": 1.0}
    looked_at = []
    for figure in get_study(id).figures(found).values():
        for axes in figure.axes:
            # Beside each other, the panels of one quantity are named once.
            label = axes.get_ylabel() or figure.axes[0].get_ylabel()
            bands = [path.vertices[:, 1] for band in axes.collections for path in band.get_paths()]
            if label not in titles or not bands:
                continue
            looked_at.append(label)
            low, high = min(band.min() for band in bands), max(band.max() for band in bands)
            assert low == 0.0, label
            assert 9.0 < high < 1e6 if math.isinf(titles[label]) else high == titles[label], label
    assert set(looked_at) == ({"feature norm", "AVH"} if id == "avh-figure15" else set(titles))
    assert "cut" in get_study(id).about


def test_avh_of_many_classes_keeps_its_digits() -> None:
    found = spread_known([0.001_234, None, 0.001_236, math.nan])
    assert found is not None
    # Four decimals, as for other numbers, would make the two one.
    assert found["values"] == [0.001234, 0.001236]
    assert found["mean"] == 0.001235
    assert spread_known([math.nan]) is None


def test_people_who_are_missing_are_missed_before_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(name: str) -> torch.Tensor:
        raise FileNotFoundError("cifar10h-counts.npy")

    monkeypatch.setattr(dynamics, "human_frequency", nobody)
    cell = get_study("avh-figure4").cells("smoke")[0]
    with pytest.raises(FileNotFoundError, match="cifar10h-counts"):
        dynamics.compute_dynamics(CIFAR10["smoke"], [(cell, tmp_path / cell.name)], Options())
    assert not (tmp_path / cell.name / "epochs.parquet").exists()


def test_every_figure_of_the_paper_is_named() -> None:
    named = " ".join(one.reference for one in studies() if one.id.startswith("avh-")).replace(",", " ").split()
    for number in (2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22):
        assert any(word.rstrip(";") == str(number) for word in named), number


def test_training_lowers_avh_and_the_curves_are_all_there(runs: dict[str, Any]) -> None:
    found = runs["avh-figure4"]["networks"]
    assert set(found) == {"digits_cnn", "resnet20"}
    for network in found.values():
        (curves,) = network["curves"]["all"]
        assert len(curves["avh"]) == network["epochs"] == 4
        assert curves["avh"][-1] < curves["avh"][0]
        assert curves["correct"][-1] > curves["correct"][0]
        # The level that changes nothing is easier than the hardest.
        for name in ("noise", "contrast"):
            assert network["curves"][name][0]["avh"][-1] > network["curves"][name][4]["avh"][-1]
        assert network["measures"]["avh_rho_last"]["mean"] < 0 < network["measures"]["confidence_rho_last"]["mean"]
        assert sum(network["human_sizes"]) == 240


def test_agreement_over_the_epochs_keeps_its_sign(runs: dict[str, Any]) -> None:
    """A network whose AVH follows people at the end and runs against them at first does not follow throughout."""
    found = json.loads(json.dumps(runs["avh-figure4"]))
    found["networks"] = {"resnet20": found["networks"]["resnet20"]}
    network = found["networks"]["resnet20"]
    network["rho"]["avh"] = [0.1, None, -0.2, -0.3]
    network["measures"]["avh_rho_first"] = {"mean": 0.1, "sd": None, "values": [0.1]}
    printed = get_study("avh-figure4").table(found)
    assert "| −0.100 to +0.300 |" in printed
    assert "is positive after every epoch in 0 of 1 network" in printed
    assert "| -0.100 |" in printed
    network["rho"]["avh"] = [-0.1, -0.2, -0.2, -0.3]
    assert "positive after every epoch in 1 of 1 network" in get_study("avh-figure4").table(found)


def test_partly_finished_results_still_make_a_page(runs: dict[str, Any]) -> None:
    study, found = get_study("avh-figure4"), runs["avh-figure4"]
    partly = {**found, "networks": {"resnet20": found["networks"]["resnet20"]}}
    assert "1 network cannot test an order" in study.table(partly)
    assert study.table(partly).count("| ResNet-20 (1 seed) |") == 3
    assert "figure4" in study.figures(partly)
    nobody_asked = json.loads(json.dumps(partly))
    network = nobody_asked["networks"]["resnet20"]
    network["curves"].pop("human")
    network |= {"rho": {}, "levels": None, "human_sizes": None}
    network["measures"] = {k: v for k, v in network["measures"].items() if not k.endswith(("rho_last", "rho_first"))}
    drawn = get_study("avh-figure14").figures(nobody_asked)
    assert set(drawn) == {"figure14", "noise", "contrast"}
    assert "Observation 3" not in study.table(nobody_asked)


def test_degradation_makes_images_harder(runs: dict[str, Any]) -> None:
    (found,) = runs["avh-figure17"]["networks"].values()
    assert found["noise"]["correlations"]["avh"]["spearman"] > 0
    assert found["contrast"]["correlations"]["avh"]["spearman"] < 0
    assert found["noise"]["levels"] == [0.4, 0.3, 0.2, 0.1, 0.0]


def test_a_norm_that_follows_the_noise_more_closely_is_said(runs: dict[str, Any]) -> None:
    study, found = get_study("avh-figure17"), copy.deepcopy(runs["avh-figure17"])
    of = found["networks"]["digits_cnn"]["noise"]["correlations"]
    for name, rho in (("avh", 0.6), ("confidence", -0.5), ("norm", -0.8)):
        of[name]["spearman"] = rho
    assert "in 1 of 1 network, and is stronger than that of confidence in 1 and than that of the norm in 0." in (
        study.table(found)
    )
    of["norm"]["spearman"] = None
    assert "and than that of the norm in 1." in study.table(found)


def test_longer_features_change_confidence_and_not_avh(runs: dict[str, Any]) -> None:
    (found,) = runs["avh-figure20"]["networks"].values()
    assert found["right_confidence"][-1] > 0.99 > found["right_confidence"][0]
    assert found["wrong_confidence"][-1] < 0.05
    assert found["largest_change_of_avh"] < 1e-6


def test_attacks_switch_predictions(runs: dict[str, Any]) -> None:
    (found,) = runs["avh-figure22"]["networks"].values()
    shares = found["pgd"]["switched_by_step"]
    assert shares[0] == 0.0
    assert shares[-1] > 0.8
    assert found["pgd"]["switched"] >= found["fgsm"]["switched"]
    assert found["pgd"]["angle"][1][-1] > found["pgd"]["angle"][1][0]


def test_the_first_iterations_are_looked_at_one_by_one(runs: dict[str, Any]) -> None:
    found = runs["avh-figure15"]
    assert len(found["curves"]["avh"]) == 20
    assert all(math.isfinite(value) for value in found["curves"]["norm"])
    assert found["curves"]["avh"][-1] < found["curves"]["avh"][0]


def test_a_seed_that_ends_where_it_began_does_not_decide_what_is_made_early(runs: dict[str, Any]) -> None:
    found = copy.deepcopy(runs["avh-figure15"])
    found["measures"]["avh_by_10"] = {"mean": 35.0, "sd": 60.0, "values": [0.3, 0.31, 104.4]}
    assert "by iteration 10 AVH has made 31% of its change" in get_study("avh-figure15").table(found)


def test_a_network_that_dies_has_no_part_in_the_means(runs: dict[str, Any], tmp_path: Path) -> None:
    study, found = get_study("avh-figure15"), runs["avh-figure15"]
    assert found["trainings"] == found["learned"] == 2
    assert "left out" not in study.table(found)
    shutil.copytree(runs["folder"] / "avh-figure15", tmp_path / "records")
    path = tmp_path / "records" / "seed=1" / "steps.parquet"
    rows = pq.read_table(path).to_pylist()
    rows[-1] |= {"all0_correct": 0.09, "all0_norm": 1e6}
    pq.write_table(pa.Table.from_pylist(rows), path)
    one = found | study.judge("smoke", tmp_path / "records")
    assert (one["trainings"], one["learned"]) == (2, 1)
    assert len(one["measures"]["avh_settled"]["values"]) == 1
    assert one["curves"]["norm"][-1] < 1e5
    printed = study.table(one)
    assert "1 of 2 trainings ends no better than a guess and is left out." in printed
    assert "of 1 seed;" in printed


def test_paper_cells_come_in_order_of_value() -> None:
    names = [cell.name for cell in get_study("avh-figure4").cells("paper")]
    assert names[:4] == [f"network={name},seed=0" for name in ("resnet20", "alexnet", "vgg19_bn", "densenet121")]
    assert len(set(names)) == 12
    assert {one.name for one in CIFAR100["paper"].networks} < {one.name for one in CIFAR10["paper"].networks}


@pytest.mark.data
def test_public_networks_are_measured_on_real_images(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARDSIGHT_DATA", str(data_root))
    study = get_study("avh-figure20")
    path = run_study(study, "cpu", tmp_path / "records", tmp_path, options=Options(say=str))
    (found,) = json.loads(path.read_text())["networks"].values()
    # The public ResNet-20 is right on 92.6 % of all 10,000 images.
    assert found["wrong"] / found["images"] < 0.12


def ranked(*networks: tuple[float, float]) -> list[Measured]:
    """Networks of these accuracies and mean AVH."""

    def network(at: int, accuracy: float, avh: float) -> Measured:
        numbers = {"last_accuracy": accuracy, "avh_last": avh, "avh_mean": avh}
        measures = {name: {"mean": value, "sd": None, "values": [value]} for name, value in numbers.items()}
        return Measured(f"net{at}", {"seeds": 1, "epochs": 3, "shortcuts": False, "measures": measures, "rho": {}})

    return [network(at, *one) for at, one in enumerate(networks)]


@pytest.mark.parametrize("count", range(3, 10))
def test_a_strict_order_holds_however_many_networks_there_are(count: int) -> None:
    held = better_is_lower(ranked(*((0.9 - 0.1 * at, 0.05 + 0.01 * at) for at in range(count))))
    assert "is -1.00 at the end and -1.00 for AVH averaged over training: it holds, as one order in " in held
    assert f"one order in {math.factorial(count):,} does by chance." in held
    swapped = better_is_lower(ranked(*((0.9 - 0.1 * at, 0.05 + 0.01 * (at ^ 1)) for at in range(count))))
    assert "it does not hold as a strict order" in swapped


def test_networks_of_one_accuracy_have_no_order_to_hold() -> None:
    # Three images of ten thousand apart: a coin's toss, which a rank correlation of -1 hides.
    close = "net0 and net1 are less than a point apart, and another seed may change places"
    said = better_is_lower(ranked((0.8869, 0.0631), (0.8866, 0.0669), (0.7141, 0.0742)))
    assert f"it holds in the 2 pairs of networks a point or more apart in accuracy; {close}." in said
    assert "it holds in the 2 pairs" in better_is_lower(ranked((0.8869, 0.0669), (0.8866, 0.0631), (0.7141, 0.0742)))
    said = better_is_lower(ranked((0.8869, 0.0631), (0.8866, 0.0669), (0.7141, 0.0642)))
    assert f"it does not hold as a strict order; {close}." in said
    said = better_is_lower(ranked((0.887, 0.06), (0.886, 0.07), (0.885, 0.08)))
    assert "no two networks are a point apart in accuracy, and another seed may order them otherwise." in said
