"""The torchmetrics: against slow loops, over any batches, and over two processes."""

import math

import pytest
import torch

from hardsight.dynamics.metrics import AccuracyByHardness, MeanAngularVisualHardness
from hardsight.hardness import angular_visual_hardness


def batch(count: int = 40, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    features, weight = torch.randn(count, 6, generator=generator), torch.randn(4, 6, generator=generator)
    return features, weight, torch.randint(4, (count,), generator=generator)


def test_mean_avh_is_the_mean_over_any_batches():
    features, weight, labels = batch()
    metric = MeanAngularVisualHardness()
    for part in torch.arange(40).split(7):
        metric.update(features[part], weight, labels[part])
    assert metric.compute().item() == pytest.approx(angular_visual_hardness(features, weight, labels).mean().item())
    metric.reset()
    metric.update(features[:1], weight, labels[:1])
    assert metric.compute().item() == pytest.approx(angular_visual_hardness(features, weight, labels)[0].item())


def test_accuracy_by_hardness_equals_the_slow_loop():
    features, weight, labels = batch()
    logits, hardness = features @ weight.T, torch.linspace(-0.2, 1.2, 40)
    hardness[[3, 20]] = torch.tensor([0.5, 1.0])  # an inner edge belongs above it, the last one below it
    hardness[7] = math.nan
    metric = AccuracyByHardness(bins=4)
    for part in torch.arange(40).split(11):
        metric.update(logits[part], labels[part], hardness[part])
    heaps: list[list[bool]] = [[] for _ in range(4)]
    for i in range(40):
        if i != 7:
            place = min(max(int(hardness[i].item() * 4 // 1), 0), 3)
            heaps[place].append(bool(logits[i].argmax() == labels[i]))
    torch.testing.assert_close(metric.compute(), torch.tensor([sum(heap) / len(heap) for heap in heaps]))
    assert metric.seen.tolist() == [len(heap) for heap in heaps]


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("bins", "high"), [(10, 1.0), (5, 0.5), (7, 1.0), (20, 0.2)])
def test_an_inner_edge_belongs_above_it_in_every_precision(bins, high, kind):
    for number in range(bins):
        metric = AccuracyByHardness(bins, high=high)
        metric.update(torch.eye(2)[:1], torch.tensor([0]), torch.tensor([high * number / bins], dtype=kind))
        assert metric.seen.tolist() == [int(one == number) for one in range(bins)]


def test_a_negative_label_is_left_out():
    metric = AccuracyByHardness(bins=1)
    metric.update(torch.eye(2).repeat(2, 1), torch.tensor([0, -100, 1, -100]), torch.full((4,), 0.5))
    assert metric.seen.tolist() == [2]
    assert metric.compute() == 0.5


def test_an_empty_bin_has_no_accuracy():
    metric = AccuracyByHardness(bins=2)
    metric.update(torch.eye(2), torch.tensor([0, 0]), torch.tensor([0.1, 0.2]))
    assert metric.compute()[0] == 0.5
    assert metric.compute()[1].isnan()
    with pytest.raises(ValueError, match=r"bins.*at least 1.*low.*high.*got bins="):
        AccuracyByHardness(bins=3, low=1.0, high=1.0)


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_two_processes_equal_one(in_two_processes):
    features, weight, labels = batch(31)
    hardness = angular_visual_hardness(features, weight, labels)
    right, place = (features @ weight.T).argmax(1) == labels, (hardness * 10).long().clamp(max=4)

    def work(rank: int) -> None:
        mine = torch.arange(rank, 31, 2)
        mean, accuracy = MeanAngularVisualHardness(), AccuracyByHardness(bins=5, high=0.5)
        mean.update(features[mine], weight, labels[mine])
        accuracy.update(features[mine] @ weight.T, labels[mine], hardness[mine])
        torch.testing.assert_close(mean.compute(), hardness.mean())
        found = accuracy.compute()
        for one in range(5):
            torch.testing.assert_close(found[one], right[place == one].float().mean(), equal_nan=True)

    in_two_processes(work)
