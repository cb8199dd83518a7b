"""Looking at a model without changing it: accuracy on a test set, and every training sample's scores.

Several processes share the batches (batch i goes to process i modulo their number) and add up.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import torch
import torch.distributed as dist
from torch import Tensor, nn

from hardsight.hardness.registry import Score, parts_of
from hardsight.hardness.scoring import choose_scores, scores_of_summary
from hardsight.hardness.summary import ClassSummary, Head, summarise_chunk, summarise_logits
from hardsight.heads import Seen, observe

Batches = Iterable[Any]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no gradients; afterwards each module trains or not as before."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def evaluate(model: nn.Module, batches: Batches, device: torch.device) -> dict[str, float]:
    """Mean cross-entropy and accuracy (a share, in [0, 1]) over all batches."""
    sums = torch.zeros(3, dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)
    with evaluating(model):
        for images, labels, _ in share(batches, device):
            logits = model(images).float()
            sums[0] += nn.functional.cross_entropy(logits, labels, reduction="sum")
            sums[1] += (logits.argmax(1) == labels).sum()
            sums[2] += len(labels)
    loss, correct, count = add_up(sums).tolist()
    if count == 0:
        raise ValueError("the evaluation batches must hold at least one sample; they were empty")
    return {"loss": loss / count, "accuracy": correct / count}


def share(batches: Batches, device: torch.device) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """This process's part of the batches, on the device; ids where the batches carry them."""
    rank, world = process()
    for index, batch in enumerate(batches):
        if index % world == rank:
            yield take_apart(batch, device)


def take_apart(batch: Any, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """(images, labels, ids) of a batch, on the device; ids are None where the batch has none."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        kind = f"{len(batch)} parts" if isinstance(batch, tuple | list) else type(batch).__name__
        raise TypeError(f"batches must be (images, labels) or (images, labels, ids); got {kind}")
    images, labels = (part.to(device, non_blocking=True) for part in batch[:2])
    return images, labels, torch.as_tensor(batch[2]).to(device, non_blocking=True) if len(batch) == 3 else None


def process() -> tuple[int, int]:
    """Rank of this process and number of processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def wait_for_all() -> None:
    """Go on when every process has come here."""
    if process()[1] > 1:
        dist.barrier()


def add_up(values: Tensor) -> Tensor:
    """The sum over all processes."""
    if process()[1] > 1:
        dist.all_reduce(values)
    return values


def score_samples(
    model: nn.Module, batches: Batches, scores: Sequence[str], device: torch.device, *, head: str | None = None
) -> dict[str, Tensor]:
    """One row a sample, sorted by id: `id`, `label`, `predicted` and each score, against the given label."""
    chosen = choose_scores(scores) if scores else []
    columns: dict[str, list[Tensor]] = {}
    with evaluating(model), observe(model, head) as seen:
        count = 0
        for images, labels, ids in share(batches, device):
            model(images)
            predicted = seen.logits.argmax(1)
            values = scores_of_summary(_summarise(seen, labels, chosen), chosen) if chosen else {}
            ids = torch.arange(count, count + len(labels), device=device) if ids is None else ids
            count += len(labels)
            for name, column in {"id": ids, "label": labels, "predicted": predicted, **values}.items():
                columns.setdefault(name, []).append(column.cpu())
    gathered = _gather({name: torch.cat(parts) for name, parts in columns.items()})
    order = gathered["id"].argsort(stable=True)
    return {name: values[order] for name, values in gathered.items()}


def _summarise(seen: Seen, labels: Tensor, chosen: list[Score]) -> ClassSummary:
    features, parts = seen.features.float(), parts_of(chosen)
    if seen.is_linear:
        return summarise_chunk(features, Head(seen.weight, seen.bias), labels, parts)
    # A head whose logits are not a plain product: angles from features and weight, the rest from its own logits.
    angular = summarise_chunk(features, Head(seen.weight, None), labels, parts & {"angles"})
    columns: dict[str, Any] = dict(summarise_logits(seen.logits.float(), labels.long(), "spread" in parts))
    return replace(angular, **columns)


def _gather(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    if process()[1] == 1:
        return columns
    parts: list[Any] = [None] * process()[1]
    dist.all_gather_object(parts, columns)
    names = next(part for part in parts if part)
    return {name: torch.cat([part[name] for part in parts if part]) for name in names}


def fitting(columns: Mapping[str, Tensor], clean_labels: Tensor) -> dict[str, float]:
    """Accuracy on a noisy training set, four ways (GR, Tables 3 and 11), as shares in [0, 1].

    `corrupted`: predictions against the given labels, whole set; `intact`: against the true labels, whole set;
    `clean` and `noisy`: against the given labels, on the samples whose label is right and on those whose is wrong.
    A subset without samples has no accuracy: NaN.
    """
    fits, right = columns["predicted"] == columns["label"], columns["predicted"] == clean_labels
    clean = columns["label"] == clean_labels
    return {
        "corrupted_accuracy": _share(fits),
        "intact_accuracy": _share(right),
        "clean_accuracy": _share(fits[clean]),
        "noisy_accuracy": _share(fits[~clean]),
    }


def _share(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else float("nan")


def samples_table(
    columns: Mapping[str, Tensor], classes: int, describe: Callable[[str], Score | None], clean_labels: Tensor | None
) -> pa.Table:
    """The columns as a table whose score fields say what they are; `clean_label` after `label` where it is known."""
    arrays, fields = [], []
    for name, values in columns.items():
        score = describe(name)
        if score is not None and bool(values.isnan().all()):
            continue  # what this training could not measure
        array = _nullable(values) if score else pa.array(values.numpy())
        arrays.append(array)
        fields.append(pa.field(name, array.type, metadata=score.describe(classes) if score else None))
        if name == "label" and clean_labels is not None:
            arrays.append(pa.array(clean_labels.numpy()))
            fields.append(pa.field("clean_label", pa.int64()))
    metadata = {"hardness against": "given label", "classes": str(classes)}
    return pa.table(arrays, schema=pa.schema(fields, metadata=metadata))


def _nullable(values: Tensor) -> pa.Array:
    numbers = values.float().numpy()
    return pa.array(numbers, pa.float32(), mask=numbers != numbers)
