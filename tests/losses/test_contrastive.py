"""AMC-Loss and the Euclidean contrastive loss: loops over pairs, halves and all, predictions and truth."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hardsight.losses import AMCLoss, ContrastiveLoss, amc_loss, contrastive_loss


@pytest.fixture
def features(generator: torch.Generator) -> Tensor:
    return torch.randn(8, 3, generator=generator, dtype=torch.float64)


@pytest.fixture
def labels() -> Tensor:
    return torch.tensor([0, 1, 2, 0, 0, 2, 1, 0])


def angle(x: Tensor, y: Tensor) -> float:
    return math.acos(float(x @ y) / float(x.norm()) / float(y.norm()))


def distance(x: Tensor, y: Tensor) -> float:
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x.tolist(), y.tolist(), strict=True)))


def loop(features: Tensor, labels: Tensor, pairs: str, margin: float, measure: object) -> Tensor:
    count = len(features)
    chosen = [(i, i + count // 2) for i in range(count // 2)]
    if pairs == "all":
        chosen = [(i, j) for i in range(count) for j in range(i + 1, count)]
    losses = []
    for i, j in chosen:
        apart = measure(features[i], features[j])
        losses.append(apart**2 if labels[i] == labels[j] else max(0.0, margin - apart) ** 2)
    return torch.tensor(losses, dtype=torch.float64)


@pytest.mark.parametrize("pairs", ["halves", "all"])
def test_equal_slow_loops(features: Tensor, labels: Tensor, pairs: str) -> None:
    amc = amc_loss(features, labels, margin_radians=1.5, pairs=pairs, reduction="none")
    torch.testing.assert_close(amc, loop(features, labels, pairs, 1.5, angle))
    euclidean = contrastive_loss(features, labels, margin=2.0, pairs=pairs, reduction="none")
    torch.testing.assert_close(euclidean, loop(features, labels, pairs, 2.0, distance))


@pytest.mark.parametrize("pairs", ["halves", "all"])
def test_a_distance_per_dimension_is_the_root_of_a_mean(features: Tensor, labels: Tensor, pairs: str) -> None:
    """SNTG's reading of Eq. 1, and the law that ties the two: the sum's loss of a margin sqrt(dim) as wide, by dim."""

    def root_mean_square(x: Tensor, y: Tensor) -> float:
        return math.sqrt(sum((a - b) ** 2 for a, b in zip(x.tolist(), y.tolist(), strict=True)) / len(x))

    found = contrastive_loss(features, labels, margin=1.2, per_dimension=True, pairs=pairs, reduction="none")
    torch.testing.assert_close(found, loop(features, labels, pairs, 1.2, root_mean_square))
    by_length = contrastive_loss(features, labels, margin=1.2 * math.sqrt(3), pairs=pairs, reduction="none")
    torch.testing.assert_close(found, by_length / 3)
    torch.testing.assert_close(ContrastiveLoss(1.2, per_dimension=True, pairs=pairs)(features, labels), found.mean())


def test_hand_computed() -> None:
    """Neighbours at a right angle cost (pi/2)^2; strangers at 0.3 cost (0.5 - 0.3)^2, at 1 nothing."""
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0], [0.0, 0.0]])
    features[4] = torch.tensor([math.cos(0.3), math.sin(0.3)])
    features[5] = torch.tensor([math.cos(1.0), math.sin(1.0)])
    losses = AMCLoss(reduction="none")(features, torch.tensor([0, 0, 0, 0, 1, 1]))
    torch.testing.assert_close(losses, torch.tensor([(math.pi / 2) ** 2, 0.04, 0.0]))


def test_logits_are_predictions_and_integers_the_truth(features: Tensor, labels: Tensor) -> None:
    """Eq. 3: neighbours are samples that are predicted alike, whatever their labels."""
    logits = torch.nn.functional.one_hot(labels, 3).double() * 4 - 1
    for loss in (AMCLoss(), ContrastiveLoss()):
        torch.testing.assert_close(loss(features, logits), loss(features, labels))
        assert not torch.allclose(loss(features, logits.roll(1, 0)), loss(features, labels))


def test_only_angles_count_for_amc(features: Tensor, labels: Tensor, generator: torch.Generator) -> None:
    rotation, _ = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))
    lengths = torch.rand(8, 1, generator=generator, dtype=torch.float64) + 0.1
    moved = lengths * features @ rotation
    torch.testing.assert_close(amc_loss(moved, labels), amc_loss(features, labels))
    assert not torch.allclose(contrastive_loss(moved, labels), contrastive_loss(features, labels))
    torch.testing.assert_close(contrastive_loss(features @ rotation + 1, labels), contrastive_loss(features, labels))


def test_gradients_pull_neighbours_and_push_strangers() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.96, 0.28]], requires_grad=True)
    amc_loss(features, torch.tensor([0, 0, 0, 1]), margin_radians=1.0).backward()
    with torch.no_grad():
        moved = features - 0.1 * features.grad
    assert angle(moved[0], moved[2]) < math.pi / 2
    assert angle(moved[1], moved[3]) > angle(features[1].detach(), features[3].detach())


@pytest.mark.parametrize("kind", [AMCLoss, ContrastiveLoss])
def test_an_odd_batch_is_rejected_or_loses_its_last(kind: type, features: Tensor, labels: Tensor) -> None:
    with pytest.raises(ValueError, match=r"even number of samples .*leaves out the last, number 6\); got 7"):
        kind()(features[:7], labels[:7])
    dropped = kind(odd="drop_last")(features[:7], labels[:7])
    torch.testing.assert_close(dropped, kind()(features[:6], labels[:6]))
    kind(pairs="all")(features[:7], labels[:7])


def test_weights_multiply_over_a_pair(features: Tensor, labels: Tensor) -> None:
    weight = torch.arange(8, dtype=torch.float64)
    losses = amc_loss(features, labels, reduction="none")
    pair_weight = weight[:4] * weight[4:]
    expected = (losses * pair_weight).sum() / pair_weight.sum()
    torch.testing.assert_close(amc_loss(features, labels, sample_weight=weight), expected)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"margin_radians": 0.0}, r"margin_radians must lie in \(0, 3.14159\]; got 0.0"),
        ({"margin_radians": 30.0}, r"margin_radians must lie in \(0, 3.14159\]; got 30.0"),
        ({"pairs": "thirds"}, "pairs must be one of halves, all; got 'thirds'"),
        ({"odd": "pad"}, "odd must be one of raise, drop_last; got 'pad'"),
    ],
)
def test_rejects_in_one_sentence(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AMCLoss(**options)


def test_rejects_wrong_shapes() -> None:
    with pytest.raises(ValueError, match=r"features must be \[batch, dim\] .*got shape \[4\]"):
        amc_loss(torch.zeros(4), torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="pair_labels must be 4 class indices, or logits of that many rows"):
        amc_loss(torch.zeros(4, 2), torch.zeros(4))
    with pytest.raises(ValueError, match="margin must be greater than 0"):
        ContrastiveLoss(0.0)


def test_the_page_prints_what_the_loss_costs_a_training() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "losses.md").read_text(encoding="utf-8")
    found = json.loads((root / "benchmarks" / "results" / "amc_overhead-nvidia-h200.json").read_text())["losses"]
    for name, said in (("amc", "times that of cross-entropy alone\n"), ("amc, all pairs", "")):
        low, high = found[name]["ratio_range"]
        assert f"{found[name]['ratio']:.3f} {said}({low:.3f} to {high:.3f}" in page
    # The paper's pairs: at most 2 % of an epoch.
    assert found["amc"]["ratio"] < 1.02
