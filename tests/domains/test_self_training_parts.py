"""The parts of a round: batches of both domains, the loss under pseudo-labels, domains read by name."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from hardsight.datasets.augment import Augmentation
from hardsight.domains.data import in_memory, mixed_batches, read_domain, same_channels, target_labels
from hardsight.domains.looking import worth_showing
from hardsight.domains.self_training import PseudoLabelLoss


def mixed(domains: Any, labels: Tensor, *, batch_size: int = 20, **options: Any) -> Any:
    given = {key: options.pop(key) for key in ("rank", "world_size", "augmentation") if key in options}
    mixing = {"target_share": 0.25, "steps": 8} | options
    loader = mixed_batches(domains.source, domains.target, batch_size, seed=5, device="cpu", **mixing, **given)
    loader.assign(labels)
    return loader


@pytest.fixture
def pseudo() -> Tensor:
    """Labels of 40 of the 150 target samples, class 0 ten times as often as class 1."""
    labels = torch.full((150,), -1)
    labels[10:50] = torch.tensor([0] * 30 + [1] * 3 + [2] * 7)
    return labels


def test_batches_hold_their_shares_and_only_what_is_selected(domains: Any, pseudo: Tensor) -> None:
    loader = mixed(domains, pseudo)
    batches = list(loader)
    assert len(batches) == len(loader) == 8  # 120 source samples, 15 a batch
    ids = torch.stack([batch[2] for batch in batches])
    assert bool((ids[:, :15] < 120).all())
    assert sorted(ids[:, :15].flatten().tolist()) == list(range(120))
    chosen = ids[:, 15:].flatten() - 120
    assert sorted(chosen.tolist()) == list(range(10, 50))
    labels = torch.cat([batch[1] for batch in batches])
    assert torch.equal(labels.reshape(8, 20)[:, 15:].flatten(), pseudo[chosen])


def test_the_union_draws_from_all_alike(domains: Any, pseudo: Tensor) -> None:
    loader = mixed(domains, pseudo, target_share=None, steps=8)
    ids = torch.cat([batch[2] for batch in loader]).tolist()
    assert sorted(ids) == [*range(120), *range(130, 170)]


def test_classes_come_as_often_as_they_are_selected(domains: Any, pseudo: Tensor) -> None:
    labels = torch.cat([batch[1][15:] for batch in mixed(domains, pseudo, steps=300)])
    shares = (torch.bincount(labels, minlength=3) / len(labels)).tolist()
    assert shares == pytest.approx([0.75, 0.075, 0.175], abs=0.01)


def test_an_epoch_is_a_function_of_seed_and_number_in_any_process(domains: Any, pseudo: Tensor) -> None:
    whole = mixed(domains, pseudo)
    whole.set_epoch(3)
    shards = [mixed(domains, pseudo, rank=rank, world_size=2) for rank in range(2)]
    for shard in shards:
        shard.set_epoch(3)
    for one, *parts in zip(whole, *shards, strict=True):
        assert torch.equal(one[0], torch.cat([part[0] for part in parts]))
    assert not torch.equal(next(iter(mixed(domains, pseudo)))[2], next(iter(whole))[2])


def test_every_round_has_noise_of_its_own(domains: Any, pseudo: Tensor) -> None:
    def noise(epoch: int) -> Tensor:
        clean, noisy = mixed(domains, pseudo), mixed(domains, pseudo, augmentation=Augmentation(noise_std=1.0))
        for loader in (clean, noisy):
            loader.set_epoch(epoch)
        return next(iter(noisy))[0] - next(iter(clean))[0]

    assert torch.equal(noise(3), noise(3))
    assert float((noise(0) - noise(2)).abs().mean()) > 0.5


def by_hand(logits: Tensor, targets: list[list[float]], is_target: list[bool], alpha: float) -> float:
    """Mean over the batch of -sum y log p, plus alpha times -sum log p / C of each target row."""
    total = 0.0
    for row, shares, labelled in zip(logits.tolist(), targets, is_target, strict=True):
        largest = max(row)
        log_sum = largest + math.log(sum(math.exp(value - largest) for value in row))
        total -= sum(share * (value - log_sum) for share, value in zip(shares, row, strict=True))
        if labelled:
            total += alpha * sum(log_sum - value for value in row) / len(row)
    return total / len(targets)


@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("soft", [False, True])
def test_the_loss_equals_its_sum_by_hand(alpha: float, soft: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    labels, ids = torch.tensor([0, 2, 1, 1]), torch.tensor([4, 11, 3, 10])
    table = torch.randn(5, 3, generator=generator).softmax(1)
    loss = PseudoLabelLoss(first_target=10, soft_rows=(5, 3) if soft else None, divergence_weight=alpha)
    targets = nn.functional.one_hot(labels, 3).double()
    if soft:
        place = loss.soft.data_ptr()
        loss.set_soft(table)
        assert loss.soft.data_ptr() == place
        targets[1], targets[3] = table[1].double(), table[0].double()
    found = loss(logits, labels, ids)
    assert found.item() == pytest.approx(by_hand(logits, targets.tolist(), [False, True, False, True], alpha), rel=1e-6)
    assert torch.autograd.gradcheck(lambda one: loss(one, labels, ids), (logits,))
    # Wrong on purpose: a divergence over all samples is another loss.
    everywhere = PseudoLabelLoss(first_target=0, soft_rows=(12, 3) if soft else None, divergence_weight=alpha)
    if soft:
        full = nn.functional.one_hot(torch.tensor([0] * 12), 3).float()
        full[ids] = targets.float()
        everywhere.set_soft(full)
    assert (abs((everywhere(logits, labels, ids) - found).item()) > 1e-3) == (alpha > 0)


def test_the_divergence_pulls_towards_uniform() -> None:
    logits = torch.tensor([[5.0, 0.0, 0.0]], requires_grad=True)
    labels, ids = torch.tensor([0]), torch.tensor([0])
    slopes = []
    for alpha in (0.0, 0.1):
        (slope,) = torch.autograd.grad(
            PseudoLabelLoss(first_target=0, divergence_weight=alpha)(logits, labels, ids), logits
        )
        slopes.append(float(slope[0, 0]))
    assert slopes[0] < 0 < slopes[1]


def test_every_class_is_shown_before_one_is_shown_again() -> None:
    rows = [(7, 0, 0, 0.3), (8, 0, 0, 0.2), (9, 1, -1, 0.9), (5, 1, 0, 0.1), (8, 0, 0, 0.5), (6, 1, 1, 0.95)]
    columns = dict(zip(("id", "pseudo_label", "label", "confidence"), map(list, zip(*rows, strict=True)), strict=True))
    table = pa.table({**columns, "round": [0] * 6, "by_cbst": [False] * 6})
    # 5 is labelled wrongly; 8 was selected twice.
    assert worth_showing(table) == [8, 9, 7, 6]
    assert worth_showing(table, 3) == [8, 9, 7]
    assert worth_showing(table.set_column(5, "by_cbst", [[True] * 6])) == []


def test_labels_keep_their_names_and_unknown_ones_stay_unknown(domains: Any) -> None:
    some = domains.target.labels.clone()
    some[:5] = -1
    found = target_labels(domains.source, domains.target.with_labels(some))
    assert torch.equal(found, some)


def save(path: Path, *, grey: bool, size: tuple[int, int] = (9, 7)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if grey else "RGB", size, 128).save(path)


def test_domains_are_read_by_name_by_folder_and_without_labels(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        save(tmp_path / "source" / name / "a.png", grey=False)
    save(tmp_path / "flat" / "x.png", grey=False)
    save(tmp_path / "flat" / "y.png", grey=True)
    source = read_domain(str(tmp_path / "source"), size=8)
    assert (source.class_names, source.images.shape) == (("cat", "dog"), (2, 3, 8, 8))
    flat = read_domain(str(tmp_path / "flat"), size=8, class_names=source.class_names)
    assert flat.labels.tolist() == [-1, -1]
    with pytest.raises(ValueError, match="must hold one folder for each class"):
        read_domain(str(tmp_path / "flat"))
    digits = read_domain("digits", size=16)
    assert digits.images.shape == (1797, 1, 16, 16)
    wide, colour = same_channels(in_memory(digits.subset([0, 1]), 8), source)
    assert wide.images.shape == (2, 3, 8, 8)
    assert torch.equal(wide.images[:, 0], wide.images[:, 2])
    assert colour is source
    with pytest.raises(ValueError, match="digits must be followed by one of its splits or domains, all; got 'test'"):
        read_domain("digits:test")
    with pytest.raises(ValueError, match="a domain that is no folder of images must be one of digits"):
        read_domain("nowhere")


@pytest.mark.data
def test_public_domains(data_root: Path) -> None:
    amazon = read_domain("office-caltech10:amazon", data_root, size=16)
    assert (len(amazon), amazon.num_classes) == (958, 10)
    photo = read_domain("pacs:photo", data_root, size=16)
    assert (len(photo), photo.num_classes) == (1670, 7)
    assert read_domain("usps:test", data_root, size=28).images.shape == (2007, 1, 28, 28)
