"""A configuration is read into typed dataclasses; what is wrong with it is said with the key's name."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import typer
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

from hardsight import claims, datasets, models, records, training
from hardsight.cli.printing import print_table
from hardsight.cli.train import runs, train
from hardsight.datasets import CIFAR100_HIERARCHY, ArrayDataset
from hardsight.losses.registry import LOSSES, Sizes
from hardsight.training import TrainingConfig, from_config, read_settings
from hardsight.training.config import NoiseConfig, OptimizerConfig, ScheduleConfig
from hardsight.training.data import Sets, load_sets, make_loaders, noisy_labels
from hardsight.training.reading import keys_of, put
from hardsight.training.schedules import Position

CONFIG = """
name = "digits"
epochs = 2
[data]
name = "digits"
limit = 300
batch_size = 50
shift = 1
[noise]
kind = "symmetric"
rate = 0.2
[model]
name = "digits_cnn"
[optimizer]
lr = 0.05
[schedule]
kind = "steps"
milestones = [1]
"""


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(CONFIG + "\n[record]\nfit_every = 1\n", encoding="utf-8")
    return path


@pytest.fixture
def command():
    app = typer.Typer()
    app.command()(train)
    app.command()(runs)
    return lambda *arguments: CliRunner().invoke(app, [str(one) for one in arguments])


def test_every_value_arrives_typed(config_file):
    config = read_settings(TrainingConfig, config_file, ["optimizer.lr=1", "data.flip=true", "name=a b", "clip=1.5"])
    assert config.optimizer.lr == 1.0
    assert isinstance(config.optimizer.lr, float)
    assert config.data.flip is True
    assert config.name == "a b"
    assert config.clip == 1.5
    assert config.schedule.milestones == [1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            "optimizer.momentun=0.5",
            "nesterov, weight_decay, beta1, beta2; got 'momentun', did you mean 'momentum'?",
        ),
        ("data.split=train", "got 'split': splits are chosen by data.train and data.test"),
        ("loss.beta=8.0", "got 'beta': options are written loss.options.beta"),
        ("epoch=3", "a key of the configuration must be one of the 20 keys; got 'epoch', did you mean 'epochs'?"),
        ("optimizer.lr=fast", "optimizer.lr must be a valid number; got 'fast'"),
        ("epochs=1.5", "epochs must be a valid integer; got 1.5"),
        ("epochs=true", "epochs must be a valid integer; got True"),
        ("data.flip=1", "data.flip must be a valid boolean; got 1"),
        ("noise.rate=1.5", "noise.rate must be less than or equal to 1; got 1.5"),
        ("noise.kind=symetric", "noise.kind must be one of none, symmetric, pairwise"),
        ("optimizer=3", "optimizer must be a valid dictionary or instance of OptimizerConfig; got 3"),
        ("schedule.milestones=3", "schedule.milestones must be a valid list; got 3"),
        ("schedule.milestones=['a']", "schedule.milestones[0] must be a valid integer; got 'a'"),
        ("schedule.preset=amc", "schedule.preset must be one of amc-paper, amc-script; got 'amc'"),
        ("schedule.preset=amc-paper", "optimizer.name must be adam or adamw for a schedule of beta1; got 'sgd'"),
        ("epochs=0", "epochs must be greater than or equal to 1; got 0"),
        (
            "loss.name=cross_entrop",
            "loss.name must be one of the 31 losses; got 'cross_entrop', did you mean 'cross_entropy'?",
        ),
        (
            "loss.name=nope",
            "loss.name must be one of gradient_rescaling, ",
        ),
        ("loss.name=CrossEntropy", "got 'CrossEntropy', did you mean 'cross_entropy'?"),
        ("loss.name=arcface", "loss.name must be a loss on logits; 'arcface' looks at features"),
        ("loss.options.bta=3", "loss.options of cross_entropy must be one of "),
        (
            ["loss.name=gr", "loss.options.process_group=x"],
            "loss.options of gradient_rescaling must be one of ",
        ),
        (
            "model.name=mine:Net",
            "got 'mine:Net'; a model of your own is trained by hardsight.training.fit",
        ),
        (
            "model.name=digit_cnn",
            "networks; got 'digit_cnn', did you mean 'digits_cnn'?",
        ),
        (
            "model=mlp",
            "model.name must be a network that takes images of shape [1, 8, 8]; 'mlp' does not: mat1 and mat2",
        ),
        ("model=alexnet", "model.name must be a network that takes images of shape [1, 8, 8]; 'alexnet' does not"),
        ("record.tracker=tensorbord", "record.tracker must be one of"),
        ("epochs", "a change must be written key=value; got 'epochs'"),
        (["noise.kind=human", "noise.rate=0.0"], "noise.column must name a column of the data"),
        ("noise.kind=none", "noise.kind must be symmetric, say, where a rate is given, 0.2; got 'none'"),
        ("noise.seed=-1", "noise.seed must be greater than or equal to 0; got -1"),
        ("seed=99999999999999999999", "seed must be at most 9.22337203685e+18; got 99999999999999999999"),
        ("data.limit=0", "data.limit must be greater than or equal to 1; got 0"),
        ("data.shrink=100", "data.shrink must be at most the images' side, 8; got 100"),
        ("data.held_out=0.0001", "data: held_out must leave samples on both sides, of 1797; got 0.0001"),
        ("data.held_out=0.9999", "data: held_out must leave samples on both sides, of 1797; got 0.9999"),
        ("data.name=digit", "data: name must be one of the 24 data sets; got 'digit', did you mean 'digits'?"),
        ("data.class_balanced=[3, 4]", "data: class_balanced must be"),
        ("data.class_balanced=[3]", "data.class_balanced must have at least 2 items after validation, not 1; got [3]"),
        ("data.held_out=1.0", "data.held_out must be less than 1; got 1.0"),
        ("optimizer.lr=0.0", "optimizer.lr must be greater than 0; got 0.0"),
        ("record.scores=['avhh']", "got 'avhh', did you mean 'avh'?"),
        ("record.checkpoint_every=0", "record.checkpoint_every must be greater than or equal to 1; got 0"),
        ("optimizer.lr=inf", "optimizer.lr must be a finite number; got inf"),
        ("optimizer.weight_decay=nan", "optimizer.weight_decay must be a finite number; got nan"),
        ("optimizer.momentum=-1.0", "optimizer: Invalid momentum value: -1.0"),
        ("schedule.milestones=[-3]", "schedule: milestones must be 0 or later; got [-3]"),
        ("clip=0.0", "clip must be positive and finite, the largest norm of the gradient; got 0.0"),
        ("device=gpu", "device must be one that this machine has, cpu or cuda:0, say; got 'gpu'"),
        ("name=", "name must not be empty"),
        ("model.options.num_classes=5", "model.options.num_classes must be left out"),
        ("model.weights=/nowhere.safetensors", "No such file or directory: /nowhere.safetensors"),
        (f"model.weights={__file__}", "test_config.py must be a safetensors file"),
        (["loss=gr", "loss.options.beta='8'"], "loss.options.beta must be a valid number; got '8'"),
        (
            ["loss=forward_correction", "loss.options.transition=[[1, 2], [3]]"],
            "must be a rate or 10 rows of 10 numbers",
        ),
        ("feature_loss=gce", "feature_loss.name must be a loss on features, avh, "),
        (f"data.batch_size={2**63 - 1}", f"data.batch_size must be less than or equal to {2**24}; got {2**63 - 1}"),
        (
            f"data.test_batch_size={2**63 - 1}",
            f"data.test_batch_size must be less than or equal to {2**24}; got {2**63 - 1}",
        ),
        (f"data.batch_size={2**64}", f"data.batch_size must be less than or equal to {2**24}; got {2**64}"),
        ("data.shift=1000000", "data: shift must be at most 8, "),
        ("data.shift=-1", "data.shift must be greater than or equal to 0; got -1"),
        ("data.noise_std=-1.0", "data.noise_std must be greater than or equal to 0; got -1.0"),
        ("optimizer.lr=1e308", "optimizer.lr must be at most 3e+38; got 1e+308"),
        ("device=meta", "device must be one that this machine has, cpu or cuda:0, say; got 'meta'"),
        (
            ["feature_loss=amc", "feature_loss.weight=-1.0"],
            "feature_loss.weight must be greater than or equal to 0; got -1.0",
        ),
    ],
)
def test_errors_name_the_key_in_one_sentence(config_file, command, tmp_path, change, sentence):
    changes = [change] if isinstance(change, str) else change
    sets = [part for one in (f"folder={tmp_path / 'run'}", *changes) for part in ("--set", one)]
    answer = command("train", config_file, *sets)
    assert answer.exit_code == 2
    assert sentence in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_folder_in_which_another_trains_is_refused(config_file, command, tmp_path):
    folder = tmp_path / "run"
    with claims.claim(folder / ".training") as mine:
        assert mine
        answer = command("train", config_file, "--set", f"folder={folder}", "--quiet")
    assert answer.exit_code == 2
    assert f"another process is training in {folder}" in answer.stderr
    (folder / ".training").write_text(records.tag().rpartition("-")[0] + "-earlier")
    assert command("train", config_file, "--set", f"folder={folder}", "--set", "epochs=1", "--quiet").exit_code == 0
    assert not (folder / ".training").exists()


def test_missing_key_and_broken_file_are_named(command, tmp_path):
    (tmp_path / "empty.toml").write_text("epochs = 1\n[data]\nname = 'digits'\n")
    assert "model must be given" in command("train", tmp_path / "empty.toml").stderr
    (tmp_path / "broken.toml").write_text("epochs = = 1")
    assert "must be a TOML file" in command("train", tmp_path / "broken.toml").stderr
    assert "No such file" in command("train", tmp_path / "none.toml").stderr


def test_command_trains_lists_and_goes_on(config_file, command, tmp_path):
    folder = tmp_path / "runs" / "one"
    answer = command("train", config_file, "--set", f"folder={folder}", "--json", "--quiet")
    assert answer.exit_code == 0, answer.output
    results = json.loads(answer.stdout)
    details = json.loads((folder / "run.json").read_text())
    assert details["config"]["noise"] == {
        "kind": "symmetric",
        "rate": 0.2,
        "exact": False,
        "column": None,
        "seed": None,
    }
    assert details["results"]["test_accuracy"] == results["test_accuracy"]
    assert 0.1 < results["intact_accuracy"] <= 1
    listed = json.loads(command("runs", tmp_path / "runs", "--json").stdout)
    assert [(run["folder"], run["status"], run["epochs"]) for run in listed] == [(str(folder), "finished", 2)]
    assert "finished" in command("runs", tmp_path / "runs").stdout
    again = json.loads(command("train", config_file, "--set", f"folder={folder}", "--json", "--quiet").stdout)
    assert again == results
    refused = command("train", config_file, "--set", f"folder={folder}", "--set", "optimizer.lr=0.2", "--quiet")
    assert "holds a run with optimizer.lr = 0.05; got 0.2" in refused.stderr
    assert "there is no folder" in command("runs", tmp_path / "nowhere").stderr


def test_what_was_not_measured_is_no_number_in_json_and_a_dash_in_text(config_file, command, tmp_path):
    """Without wrong labels there is no accuracy on them; NaN is not JSON."""
    sets = ["--set", f"folder={tmp_path / 'run'}", "--set", "noise.rate=0.0", "--set", "epochs=1", "--quiet"]
    answer = command("train", config_file, *sets, "--json")
    results = json.loads(answer.stdout, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert results["noisy_accuracy"] is None
    assert "noisy accuracy: -\n" in command("train", config_file, *sets).stdout


def test_any_folder_can_be_listed(command, tmp_path, monkeypatch, capsys):
    """Names with markup, tabs and newlines, files that are no records, and links that lead back."""
    contents = {
        "[/red] a": {"status": "finished", "results": {"test_accuracy": 0.5}},
        "line\nand\ttab": {"status": "running"},
        "number": {"results": 5, "created": 7, "status": ["x"]},
        "text": {"results": {"test_accuracy": "much"}},
        "list": [],
    }
    for name, details in contents.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").write_text(json.dumps(details))
    (tmp_path / "back").symlink_to(tmp_path)
    lines = command("runs", tmp_path).stdout.splitlines()
    assert len(lines) == len(contents)
    assert {line.count("\t") for line in lines} == {6}
    assert [line for line in lines if line.startswith(f"{tmp_path}/[/red] a\tfinished\t-\t-\t50.00 %")]
    assert [line for line in lines if line.startswith(f"{tmp_path}/line\\nand\\ttab\trunning")]
    monkeypatch.setenv("COLUMNS", "300")
    print_table(None, ["folder"], [[run["folder"].removeprefix(str(tmp_path))] for run in training.list_runs(tmp_path)])
    assert "/[/red] a" in capsys.readouterr().out


def test_the_record_alone_gives_the_run_again(config_file, tmp_path):
    """A record is complete: a training from its own configuration ends with the same results."""
    first = training.train(read_settings(TrainingConfig, config_file, [f"folder={tmp_path / 'a'}"]), progress=False)
    kept = json.loads((tmp_path / "a" / "run.json").read_text())["config"]
    plain = {key: _without_none(value) for key, value in kept.items() if value is not None}
    config = TrainingConfig(**{**plain, "folder": str(tmp_path / "b")})
    second = training.train(config, progress=False)
    assert second.results == first.results
    assert second.samples.equals(first.samples)


def _without_none(value):
    return {key: one for key, one in value.items() if one is not None} if isinstance(value, dict) else value


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_registered_loss_trains(name, problem, small):
    model = small()
    sizes = Sizes(model.feature_dim, 3, 90)
    loss = from_config.make_loss(name, {}, sizes, "loss")
    if LOSSES[name].pairs or name == "center":
        loss = training.Objective(None, loss, pairs="labels")
    before = model.convolution.weight.detach().clone()
    samples = problem.loader(shuffle=False)
    fitted = training.fit(model, problem.loader(drop_last=True), loss, epochs=1, samples=samples, progress=False)
    assert torch.isfinite(torch.tensor(fitted.epochs[0]["train_loss"]))
    assert not torch.equal(model.convolution.weight, before)


def test_loss_options_reach_the_loss():
    sizes = Sizes(8, 3, 90)
    assert from_config.make_loss("gradient_rescaling", {"beta": 4.0}, sizes, "loss").beta == 4.0
    assert from_config.make_loss("amc_all_pairs", {"margin_radians": 0.3}, sizes, "loss").pairs == "all"
    assert from_config.make_loss("forward_correction", {"reduction": "sum"}, sizes, "loss").transition.shape == (3, 3)
    noisy = from_config.make_loss("backward_correction", {"transition": 0.5}, sizes, "loss").transition
    assert noisy.tolist() == [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    rows = [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0, 0, 1]]
    assert from_config.make_loss("forward_correction", {"transition": rows}, sizes, "loss").transition.tolist() == rows
    with pytest.raises(ValueError, match=r"loss\.options: beta must"):
        from_config.make_loss("gradient_rescaling", {"beta": -4.0}, sizes, "loss")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cosface", {"scale": 10.0}),
        ("arcface", {"scale": 10.0, "margin_radians": 0.3}),
        ("sphereface", {"margin": 2, "annealing": 5.0}),
    ],
)
def test_a_margin_loss_trains_the_cosine_head_it_is_evaluated_with(tmp_path, name, options):
    tree = {
        "epochs": 3,
        "folder": str(tmp_path / name),
        "data": {"name": "digits", "limit": 1000, "batch_size": 50},
        "model": {"name": "digits_cnn", "head": "cosine"},
        "loss": {"name": name, "options": options},
        "optimizer": {"lr": 0.02},
    }
    fitted = training.train(TrainingConfig(**tree), progress=False)
    head = fitted.model.head
    torch.manual_seed(0)
    drawn = from_config.models.create("digits_cnn", head=head.__class__).head.weight
    assert not torch.allclose(head.weight, drawn, atol=1e-2)
    assert fitted.results["test_accuracy"] > 0.5
    features = torch.randn(4, 64)
    cosines = torch.nn.functional.cosine_similarity(features[:, None], head.weight, dim=-1)
    scaled = options.get("scale", features.norm(dim=1, keepdim=True))
    torch.testing.assert_close(head(features), scaled * cosines)
    assert sum(parameter is head.weight for parameter in fitted.model.parameters()) == 1


def test_plan_and_optimizer_are_made_as_written():
    plan = from_config.make_plan(ScheduleConfig(kind="steps", milestones=[2], unit="step", warm_up=4))
    assert [plan.learning_rate(Position(step, 10, 1)) for step in range(5)] == pytest.approx(
        [0.25, 0.5, 0.075, 0.1, 0.1]
    )
    falling = from_config.make_plan(ScheduleConfig(ramp_down=2, last_beta1=0.5), 0.8)
    assert falling.beta1(Position(0, 10, 4)) == pytest.approx(0.8)
    assert falling.beta1(Position(39, 10, 4)) == pytest.approx(0.5 + 0.3 * math.exp(-12.5 / 4))
    tenth = from_config.make_plan(ScheduleConfig(preset="amc-paper", stretch=0.1))
    assert tenth.feature_loss(Position(40, 10, 30)) == pytest.approx(math.exp(-5 / 4))
    assert tenth.feature_loss(Position(80, 10, 30)) == 1.0
    assert tenth.learning_rate(Position(280, 10, 30)) == pytest.approx(math.exp(-12.5 * (1 - 2 / 5) ** 2))
    weight = [torch.nn.Parameter(torch.zeros(1))]
    made = from_config.make_optimizer(OptimizerConfig(name="adamw", lr=0.1, beta1=0.5), weight)
    assert made.defaults["betas"] == (0.5, 0.999)
    assert isinstance(made, torch.optim.AdamW)


@pytest.mark.data
def test_real_images_with_peoples_own_label_errors(data_root, tmp_path):
    config = TrainingConfig(
        **{
            "epochs": 1,
            "folder": str(tmp_path),
            "data": {
                "name": "cifar10n",
                "test_name": "cifar10",
                "root": str(data_root),
                "limit": 256,
                "batch_size": 64,
                "shift": 4,
                "flip": True,
            },
            "noise": {"kind": "human", "column": "worse_label"},
            "model": {"name": "resnet20"},
        },
    )
    fitted = training.train(config, progress=False)
    wrong = [
        given != clean
        for given, clean in zip(*(fitted.samples[name].to_pylist() for name in ("label", "clean_label")), strict=True)
    ]
    # CIFAR-10N's `worse` has 40.2 % wrong labels: 256 of them lie within four standard deviations.
    assert abs(sum(wrong) / 256 - 0.402) < 4 * (0.402 * 0.598 / 256) ** 0.5
    assert fitted.samples["id"].to_pylist() == list(range(256))
    assert {"corrupted_accuracy", "intact_accuracy", "clean_accuracy", "noisy_accuracy"} <= fitted.results.keys()


@pytest.mark.parametrize(("split", "other"), [("test", "train"), ("train", "test")])
@pytest.mark.parametrize("named", [True, False])
def test_a_split_without_labels_is_refused_before_it_is_trained_or_tested_on(tmp_path, split, other, named):
    picture = io.BytesIO()
    Image.new("L", (8, 8)).save(picture, "PNG")
    schema = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["a", "b"]}}}} if named else {}
    for part, labels in ((split, [1, -1, 0, -1]), (other, [0, 1, 0, 1])):
        table = pa.table({"image": [picture.getvalue()] * 4, "label": labels})
        table = table.replace_schema_metadata({"huggingface": json.dumps(schema)})
        pq.write_table(table, tmp_path / f"{part}.parquet")
    settings = {"data": {"name": "huggingface", "root": str(tmp_path)}, "model": "digits_cnn", "epochs": 1}
    sentence = f"data.{split} must name a split whose samples all have a label; 2 of the 4 in '{split}' have none"
    with pytest.raises(ValueError, match=sentence):
        load_sets(TrainingConfig(**settings))


def _pictures(root: Path, folders: list[str]) -> None:
    for number, folder in enumerate(folders):
        (root / folder).mkdir(parents=True)
        for part in range(5):
            Image.new("L", (8, 8), 40 * number + part).save(root / folder / f"{part}.png")


def _sets(**data: Any) -> Sets:
    return load_sets(TrainingConfig(data=data, model="digits_cnn", epochs=1))


@pytest.mark.parametrize("name", ["office31", "folder"])
def test_what_is_tested_on_is_no_part_of_all(tmp_path, name):
    # The first split of these sets is "all", which holds the others: their last split is no test set.
    domains = ("amazon", "dslr", "webcam")
    root = tmp_path / "office31" if name == "office31" else tmp_path
    _pictures(root, [f"{domain}/{kind}" for domain in domains for kind in ("bike", "mug")])
    sets = _sets(name=name, root=str(tmp_path), held_out=0.4)
    assert (len(sets.train), len(sets.test)) == (18, 12)
    assert not {image.numpy().tobytes() for image in sets.train.images} & {
        image.numpy().tobytes() for image in sets.test.images
    }
    part = "webcam" if name == "office31" else "test"
    for named in ({}, {"train": "all"}):
        with pytest.raises(ValueError, match=f"data.train must name a split apart from data.test, '{part}'; 'all'"):
            _sets(name=name, root=str(tmp_path), test=part, **named)
    if name == "office31":
        apart = _sets(name=name, root=str(tmp_path), train="dslr", test="webcam")
        assert (len(apart.train), len(apart.test)) == (10, 10)


def test_folders_called_as_splits_are_not_taken_for_classes(tmp_path):
    _pictures(tmp_path, [f"{split}/{kind}" for split in ("train", "test") for kind in ("bike", "mug")])
    with pytest.raises(ValueError, match=r"data.train must name one of the splits in .*: test, train"):
        _sets(name="folder", root=str(tmp_path))
    sets = _sets(name="folder", root=str(tmp_path), train="train", test="test")
    assert sets.train.class_names == sets.test.class_names == ("bike", "mug")


def test_a_test_set_that_numbers_other_classes_is_refused(tmp_path):
    # As many classes, and yet label 1 is bike here and mug there.
    _pictures(tmp_path, ["train/back_pack", "train/bike", "train/mug", "test/back_pack", "test/mug", "test/pen"])
    sentence = "data.test must have the 3 classes of data.train, in their order; class 1 is 'mug' instead of 'bike'"
    with pytest.raises(ValueError, match=sentence):
        _sets(name="folder", root=str(tmp_path), train="train", test="test")


def test_lists_that_number_the_classes_otherwise_are_not_tested_by_folders(tmp_path):
    _pictures(tmp_path / "office31", [f"{domain}/{kind}" for domain in ("amazon", "dslr") for kind in ("bike", "mug")])
    lines = "".join(f"amazon/{kind}/0.png {label}\n" for label, kind in enumerate(("mug", "bike")))
    (tmp_path / "office31" / "amazon.txt").write_text(lines)
    listed = {
        "name": "office31",
        "root": str(tmp_path),
        "train": "amazon",
        "options": {"lists": {"amazon": "amazon.txt"}},
    }
    with pytest.raises(ValueError, match=r"in their order; class 0 is 'bike' instead of 'mug'"):
        _sets(**listed, test_name="office31", test="dslr")


def test_a_limit_that_leaves_one_class_is_refused(tmp_path):
    _pictures(tmp_path, ["bike", "mug"])
    with pytest.raises(ValueError, match=r"data\.limit must leave two classes or more; got 3"):
        _sets(name="folder", root=str(tmp_path), limit=3)
    assert len(_sets(name="folder", root=str(tmp_path), limit=7).train) == 7


def test_coarse_labels_are_not_flipped_as_fine_ones():
    coarse = ArrayDataset(
        images=torch.zeros(20, 3, 4, 4, dtype=torch.uint8),
        labels=torch.arange(20),
        class_names=CIFAR100_HIERARCHY.coarse_names,
        name="cifar100",
        split="train",
    )
    within = NoiseConfig(kind="within_groups", rate=0.5)
    with pytest.raises(ValueError, match=r"fine classes of cifar100; got data.name 'cifar100' with 20 classes"):
        noisy_labels(coarse, within, 0)


def test_shrunk_images_are_means_of_squares(config_file):
    whole = load_sets(read_settings(TrainingConfig, config_file))
    small = load_sets(read_settings(TrainingConfig, config_file, ["data.shrink=2"]))
    squares = whole.test.images.reshape(-1, 1, 4, 2, 4, 2).double().mean((3, 5))
    assert torch.equal(small.test.images.double(), squares.round())
    assert torch.equal(small.labels, whole.labels)
    with pytest.raises(ValueError, match="shrink must be greater than or equal to 1"):
        read_settings(TrainingConfig, config_file, ["data.shrink=0"])


def test_a_table_may_be_its_name_alone(tmp_path):
    path = tmp_path / "short.toml"
    path.write_text('epochs = 1\ndata = "digits"\nmodel = "digits_cnn"\nloss = "gr"\n', encoding="utf-8")
    config = read_settings(TrainingConfig, path, ["loss.options.lam=1.0", "model=mlp"])
    assert (config.data.name, config.model.name, config.loss.name) == ("digits", "mlp", "gr")
    assert config.loss.options == {"lam": 1.0}
    with pytest.raises(ValueError, match=r"schedule must be a valid dictionary .*; got 'cosine'"):
        read_settings(TrainingConfig, path, ["schedule=cosine"])


def test_what_is_drawn_between_epochs_follows_the_seed_of_the_run(config_file):
    def seed(of: int) -> int:
        config = read_settings(TrainingConfig, config_file, [f"seed={of}"])
        sets = load_sets(config)
        return make_loaders(config, sets, torch.device("cpu"), channels_last=False).samples.seed

    assert (seed(3), seed(4)) == (3, 4)


def test_the_record_says_how_an_image_becomes_the_networks_input(tmp_path: Path) -> None:
    """Whoever has the record and an image can ask the network: by what else would it know the mean?"""
    settings = {"data": {"name": "digits", "limit": 200}, "model": {"name": "digits_cnn"}, "epochs": 1}
    config = TrainingConfig(**settings, folder=str(tmp_path / "run"))
    training.train(config, progress=False)
    said = json.loads((tmp_path / "run" / "run.json").read_text())["preprocessing"]
    assert said["size"] == [8, 8]
    model = models.create("digits_cnn").eval()
    model.load_state_dict(load_file(tmp_path / "run" / "checkpoint" / "last.safetensors"))
    samples = pq.read_table(tmp_path / "run" / "samples.parquet")
    images = datasets.load("digits").images[samples["id"].to_pylist()].float() / 255
    mean, std = (torch.tensor(said[name]).view(-1, 1, 1) for name in ("mean", "std"))
    with torch.no_grad():
        assert model((images - mean) / std).argmax(1).tolist() == samples["predicted"].to_pylist()


def test_the_list_of_keys_is_complete_and_its_defaults_are_those_in_force():
    keys = keys_of(TrainingConfig)
    assert not [key for key, _, _, meaning in keys if not meaning]
    given = {"data.name": "digits", "model.name": "digits_cnn", "epochs": 1}
    sampler = ("sampler.kind", "sampler.scores")
    assert {key for key, _, default, _ in keys if default == "required"} == {*given, "feature_loss.name", *sampler}
    tree = {}
    for key, _, default, _ in keys:
        if default not in ("", "required") and not key.startswith(("feature_loss.", "sampler.")):
            put(tree, key, json.loads(default))
    for key, value in given.items():
        put(tree, key, value)
    least = {"data": "digits", "model": "digits_cnn", "epochs": 1}
    assert TrainingConfig(**tree) == TrainingConfig(**least)
    assert len(tree["record"]) == 4
