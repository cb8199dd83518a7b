"""What one round of self-training is made of: batches of both domains, a look at the target, its numbers.

The order of an epoch is drawn from (seed, epoch) and has the same length in every round, however many samples are
selected: a captured step stays valid, and any epoch can be made without those before it.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from hardsight.datasets.augment import Draws, draw
from hardsight.datasets.epochs import EpochLoader, EpochPlan, mixed_seed
from hardsight.datasets.interface import ArrayDataset
from hardsight.datasets.loader import DeviceLoader
from hardsight.distributed import count_samples, gather_samples
from hardsight.domains.rows import RowBatches
from hardsight.domains.selection import Evidence, Selection, certainty_of
from hardsight.geometry import angles_to_classes, norms
from hardsight.hardness.definitions import share_of_sum
from hardsight.heads import evaluating, observe
from hardsight.training.evaluation import share

Statistics = dict[str, Any]


class Mixing(EpochLoader):
    """Batches of source samples, then target samples, in fixed shares; what is labelled -1 never comes."""

    def mix(
        self,
        source_samples: int,
        *,
        target_share: float | None,
        steps: int,
        balance_classes: bool = False,
    ) -> None:
        """The first `source_samples` rows are the source.

        `target_share` of each batch is drawn from the selected target samples; None draws from source and selected
        alike, as Eq. 2 of AVH sums over both. `steps`: batches of an epoch.
        """
        self.source_samples, self.balance_classes = source_samples, balance_classes
        whole = self.batch_size
        self.target_rows = None if target_share is None else min(whole - 1, max(1, round(target_share * whole)))
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def assign(self, target_labels: Int64[Tensor, "targets"]) -> None:
        """Give the target these labels, in place: a captured step reads them where they are."""
        self._labels[self.source_samples :] = target_labels.to(self.device)

    def plan(self, epoch: int) -> EpochPlan:
        """Order and draws of an epoch; source rows lead each batch."""
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, epoch))
        labels = self._labels.cpu()
        chosen = (labels[self.source_samples :] >= 0).nonzero().squeeze(1) + self.source_samples
        source = torch.arange(self.source_samples)
        if self.target_rows is None:
            order = _round_and_round(torch.cat([source, chosen]), self.steps * self.batch_size, generator)
        else:
            parts = [_round_and_round(source, self.steps * (self.batch_size - self.target_rows), generator)]
            wanted = self.steps * self.target_rows
            if self.balance_classes:
                parts.append(_balanced(chosen, labels[chosen], wanted, generator))
            else:
                parts.append(_round_and_round(chosen, wanted, generator))
            order = torch.cat([part.reshape(self.steps, -1) for part in parts], 1).flatten()
        draws = draw(self.augmentation, len(order), generator)
        return EpochPlan(epoch, order.to(self.device), Draws(*(column.to(self.device) for column in draws)))


class MixedPictures(Mixing, DeviceLoader):
    """Mixed batches of uint8 images."""


class MixedRows(Mixing, RowBatches):
    """Mixed batches of points or features."""


def plain_batches(data: ArrayDataset, labels: Tensor, batch_size: int, **options: Any) -> EpochLoader:
    """Batches of one domain, of pictures or of rows; ids are places in it."""
    kind: Any = DeviceLoader if data.images.ndim == 4 else RowBatches
    loader: EpochLoader = kind(data.images, labels, None, batch_size, **options)
    return loader


def mixed_batches(source: ArrayDataset, target: ArrayDataset, batch_size: int, **options: Any) -> Mixing:
    """Batches of both domains, the source's rows first, the target without labels yet; `mix` them before use."""
    images = torch.cat([source.images, target.images])
    labels = torch.cat([source.labels, torch.full((len(target),), -1)])
    kind: Any = MixedPictures if images.ndim == 4 else MixedRows
    mixing: Mixing = kind(images, labels, None, batch_size, **options)
    return mixing


class Look(NamedTuple):
    """What a model says of every target sample, in order, in main memory; `hardness` is the AVH under each class."""

    evidence: Evidence
    hardness: Float[Tensor, "samples classes"]
    norms: Float[Tensor, "samples"]


def head_of(model: nn.Module, batches: EpochLoader, device: torch.device, head: str | None, num_classes: int) -> str:
    """The head's name, from one forward pass; rejects a model that does not fit the samples or their classes.

    Angles need it, and a step that knows it is captured as it is.
    """
    images, _, _ = next(iter(batches))
    with evaluating(model.to(device)), observe(model, head) as seen:
        try:
            model(images[:2])
        except RuntimeError as reason:
            shape = list(images.shape[1:])
            raise ValueError(f"model must take samples of shape {shape}; it says: {reason}") from reason
    if seen.logits.shape[1] != num_classes:
        raise ValueError(
            f"model must give one logit for each of the source's {num_classes} classes; it gives {seen.logits.shape[1]}"
        )
    return seen.name


def look(model: nn.Module, batches: EpochLoader, device: torch.device, head: str | None = None) -> Look:
    """One forward of every sample without augmentation; several processes share the batches and put them together."""
    parts: list[tuple[Tensor, ...]] = []
    with evaluating(model), observe(model, head) as seen:
        for images, _, ids in share(batches, device):
            model(images)
            angles = angles_to_classes(seen.features.float(), seen.weight.float())
            near, classes = torch.pi - angles, angles.shape[1]
            visual, hard = (share_of_sum(one, one.sum(1, keepdim=True), classes) for one in (near, angles))
            assert ids is not None
            sure = seen.logits.float().softmax(1), certainty_of(seen.logits)
            parts.append((ids, *sure, visual, hard, norms(seen.features.float())))
    own = [torch.cat(column) for column in zip(*parts, strict=True)]
    counts = count_samples(own[0])
    ids, *columns = (gather_samples(column, counts=counts).cpu() for column in own)
    order = ids.argsort()
    softmax, certainty, visual, hard, lengths = (column[order] for column in columns)
    return Look(Evidence(softmax, visual, certainty), hard, lengths)


def statistics(seen: Look, selection: Selection, truth: Int64[Tensor, "samples"]) -> Statistics:
    """Table 4 of AVH: how many are selected, how many of them rightly, their mean AVH, confidence and norm."""
    rows = selection.selected.nonzero().squeeze(1)
    found: Statistics = {"selected": len(rows), "selected_share": len(rows) / len(selection.labels)}
    if not len(rows):
        return found | dict.fromkeys(("true_positive_rate", "avh", "confidence", "norm"))
    labels, true = selection.labels[rows], truth[rows]
    known = true >= 0
    right = (labels == true)[known]
    return found | {
        "true_positive_rate": float(right.double().mean()) if len(right) else None,
        "avh": _mean_at(seen.hardness[rows], labels),
        "confidence": _mean_at(seen.evidence.softmax[rows], labels),
        "norm": float(seen.norms[rows].double().mean()),
    }


def class_accuracy(seen: Look, truth: Int64[Tensor, "samples"]) -> Statistics:
    """Accuracy over the labelled samples, its mean over their classes, and by class (None without samples)."""
    known = truth >= 0
    if not bool(known.any()):
        return {}
    classes = seen.evidence.softmax.shape[1]
    right = (seen.evidence.softmax.argmax(1) == truth)[known]
    count = torch.bincount(truth[known], minlength=classes).double()
    hits = torch.bincount(truth[known], weights=right.double(), minlength=classes)
    shares = [hit / total if total else None for hit, total in zip(hits.tolist(), count.tolist(), strict=True)]
    present = [one for one in shares if one is not None]
    return {
        "accuracy": float(right.double().mean()),
        "class_mean_accuracy": sum(present) / len(present),
        "class_accuracy": shares,
    }


def _mean_at(values: Tensor, labels: Tensor) -> float:
    return float(values.gather(1, labels.unsqueeze(1)).double().mean())


def _round_and_round(rows: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
    """That many of the rows, each as often as any other up to one: shuffled rounds, one after the other."""
    rounds = -(-wanted // len(rows))
    shuffled = torch.rand(rounds, len(rows), generator=generator).argsort(1)
    return rows[shuffled.flatten()[:wanted]]


def _balanced(rows: Tensor, labels: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
    """That many of the rows, every label as likely as any other."""
    weights = (1 / torch.bincount(labels).clamp(min=1))[labels]
    return rows[torch.multinomial(weights, wanted, replacement=True, generator=generator)]
