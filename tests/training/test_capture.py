"""The captured step on a GPU: the same training, the same bits when resumed, bad losses still found."""

import pytest
import torch
from torch import nn

from hardsight import models, training
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.loader import DeviceLoader
from hardsight.dynamics import Recorder
from hardsight.training.feed import CapturedStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("untyped"),
    pytest.mark.filterwarnings(
        "ignore:TensorFloat32 tensor cores:UserWarning"
    ),  # advice that this project does not take
]


def loader(seed: int = 0, samples: int = 640) -> DeviceLoader:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (samples, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (samples,), generator=generator)
    augmentation = Augmentation(shift=4, flip=True)
    return DeviceLoader(
        images, labels, batch_size=64, device="cuda", seed=seed, augmentation=augmentation, channels_last=True
    )


def loop(seed: int = 0, *, kind: str = "sgd", name: str = "resnet20", samples: int = 640, **options) -> training.Loop:
    torch.manual_seed(seed)
    model = models.create(name).to("cuda", memory_format=torch.channels_last)
    optimizers = {
        "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        "adam": lambda: torch.optim.Adam(model.parameters(), lr=0.001),
    }
    held = {name: options.pop(name) for name in ("epochs", "folder", "plan") if name in options}
    settings = {"epochs": 2, "recorder": Recorder(samples), "progress": False} | held
    steps = training.Steps(**{"average_decay": 0.9} | options)
    return training.Loop(model, loader(seed, samples), None, optimizers[kind](), steps=steps, **settings)


def weights(fitted) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in fitted.model.parameters()])


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_captured_equals_uncaptured(kind):
    """In float32, over 20 steps; what differs is the order of sums in fused kernels."""
    captured = loop(kind=kind, precision="float32")
    assert isinstance(captured.take_step, CapturedStep)
    ours = captured.run()
    assert captured.take_step.graph is not None
    theirs = loop(kind=kind, precision="float32", capture=False).run()
    apart = (weights(ours) - weights(theirs)).norm() / weights(theirs).norm()
    assert apart < 0.02, float(apart)
    assert ours.epochs[0]["train_loss"] == pytest.approx(theirs.epochs[0]["train_loss"], rel=0.02)
    recorded = [one.step.recorder.aggregates["epochs"].tolist() for one in (captured,)]
    assert recorded == [[2] * 640]


def test_captured_twice_is_the_same_bits():
    assert torch.equal(weights(loop().run()), weights(loop().run()))


def test_captured_run_resumed_is_the_same_bits(tmp_path):
    whole = loop(folder=tmp_path / "whole", epochs=3, name="cnn13").run()
    broken = loop(folder=tmp_path / "broken", epochs=3, name="cnn13", checkpoint_every=7)
    steps = broken.stepwise()
    for _ in range(16):
        next(steps)
    steps.close()
    resumed = loop(seed=5, folder=tmp_path / "broken", epochs=3, name="cnn13", checkpoint_every=7)
    resumed.feed.batches.seed = 0
    assert torch.equal(weights(resumed.run()), weights(whole))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a GPU beside the current one")
def test_another_gpu_than_the_current_one_trains(tmp_path):
    def other(folder=None):
        torch.manual_seed(0)
        model = models.create("cnn13").to("cuda:1", memory_format=torch.channels_last)
        batches = loader()
        there = DeviceLoader(batches.images, batches.labels, batch_size=64, device="cuda:1", channels_last=True)
        return training.Loop(
            model,
            there,
            epochs=3,
            device="cuda:1",
            folder=folder,
            progress=False,
            steps=training.Steps(checkpoint_every=7),
        )

    whole = other().run()
    assert whole.epochs[-1]["train_loss"] < whole.epochs[0]["train_loss"]
    broken = other(tmp_path)
    with torch.cuda.device(1):
        steps = broken.stepwise()
        for _ in range(16):
            next(steps)
        steps.close()
    assert torch.equal(weights(other(tmp_path).run()), weights(whole))


def test_changed_beta1_is_recorded_anew():
    plan = training.Plan(beta1=lambda position: 0.9 if position.epoch == 0 else 0.5)
    fitted = loop(kind="adam", plan=plan).run()
    plain = loop(kind="adam").run()
    assert fitted.epochs[0] == fitted.epochs[0] | {"train_loss": plain.epochs[0]["train_loss"]}
    assert fitted.epochs[1]["train_loss"] != plain.epochs[1]["train_loss"]


def test_ragged_last_batch_is_trained_too():
    made = loop(samples=650)
    made.run()
    assert made.step.recorder.aggregates["epochs"].tolist() == [2] * 650


def test_bad_loss_is_found_in_a_replay():
    made = loop(check_every=1)
    made.feed.batches.images[3].zero_()
    made.feed.batches._labels[3] = 0

    class Broken(nn.Module):
        def forward(self, logits, labels, ids):
            # Sample 3 comes at some step of the first epoch.
            bad = torch.where((ids == 3).any(), torch.nan, 0.0)
            return nn.functional.cross_entropy(logits, labels) + bad

    torch.manual_seed(0)
    model = models.create("resnet20").to("cuda", memory_format=torch.channels_last)
    batches = loader()
    order = batches.plan(0).order.tolist()
    step = order.index(3) // 64
    with pytest.raises(training.NonFiniteLossError, match=rf"step {step + 1} \(epoch 1\), in the batch with ids"):
        training.fit(model, batches, Broken(), epochs=1, progress=False)
