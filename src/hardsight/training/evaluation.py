"""Evaluate a model without changing it: accuracy on a test set, and every training sample's scores.

Several processes share the batches (batch i goes to process i modulo their number) and add up.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import torch
import torch.distributed as dist
from torch import Tensor, nn

from hardsight.distributed import rank_and_count, several, sum_over_processes
from hardsight.dynamics.aggregates import learning_columns
from hardsight.hardness.columns import ClassSummary, Part, SummaryColumns
from hardsight.hardness.registry import SCORES, Score, parts_of
from hardsight.hardness.scoring import DEFAULT_SCORES, choose_scores, scores_of_summary
from hardsight.hardness.summary import Head, summarise_outputs
from hardsight.heads import evaluating, observe
from hardsight.records import with_skipped
from hardsight.training.feed import IGNORED, take_apart

Batches = Iterable[Any]


def evaluate(model: nn.Module, batches: Batches, device: torch.device) -> dict[str, float]:
    """Mean cross-entropy and accuracy (a share, in [0, 1]) over all samples that have a label."""
    sums = torch.zeros(3, dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)
    with evaluating(model):
        for images, labels, _ in share(batches, device):
            logits = model(images).float()
            sums[0] += nn.functional.cross_entropy(logits, labels, reduction="sum")
            sums[1] += (logits.argmax(1) == labels).sum()
            sums[2] += (labels != IGNORED).sum()
    loss, correct, count = sum_over_processes(sums).tolist()
    if count == 0:
        raise ValueError("the evaluation batches must hold at least one sample; they were empty")
    return {"loss": loss / count, "accuracy": correct / count}


def share(batches: Batches, device: torch.device) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """This process's part of the batches, on the device; ids where the batches carry them."""
    rank, world = rank_and_count()
    for index, batch in enumerate(batches):
        if index % world == rank:
            yield take_apart(batch, device)


class ScoredSamples(NamedTuple):
    """One row a sample that has a label, by id: `id`, `label`, `predicted`, each score; and the number of classes."""

    columns: dict[str, Tensor]
    classes: int


def score_samples(
    model: nn.Module, batches: Batches, scores: Sequence[str], device: torch.device, *, head: str | None = None
) -> ScoredSamples:
    """Every sample that has a label, scored against that label."""
    chosen = choose_scores(scores) if scores else []
    parts: frozenset[Part] = parts_of(chosen) | {"predicted"}
    columns, every_id, prepared = SummaryColumns(0), [], None
    with evaluating(model), observe(model, head) as seen:
        for images, labels, ids in share(_numbered(batches), device):
            model(images)
            prepared = prepared or Head(seen.weight, seen.bias)
            assert ids is not None
            known = labels != IGNORED
            features, logits, labels, ids = (part[known] for part in (seen.features, seen.logits, labels, ids))
            every_id.append(ids.cpu())
            if len(labels):
                columns.add(summarise_outputs(features, logits, prepared, labels, parts, linear=seen.is_linear))
    # A score may depend on the whole set, so all processes' summaries come together before any score is made.
    own = (torch.cat(every_id), columns.summary().cpu()) if columns.filled else None
    ids, summary = _gather(own)
    found = {"id": ids, "label": summary.labels, "predicted": summary.predicted, **scores_of_summary(summary, chosen)}
    order = ids.argsort(stable=True)
    return ScoredSamples({name: values[order] for name, values in found.items()}, summary.num_classes)


def _numbered(batches: Batches) -> Iterator[Any]:
    """The batches; those without ids get their samples' places, counted over all processes' batches."""
    place = 0
    for batch in batches:
        if isinstance(batch, tuple | list) and len(batch) == 2:
            images, labels = batch
            yield images, labels, torch.arange(place, place + len(labels))
            place += len(labels)
        else:
            yield batch


def _gather(own: tuple[Tensor, ClassSummary] | None) -> tuple[Tensor, ClassSummary]:
    """Ids and summaries of all processes, in order of rank; a process without a batch has none."""
    held = [part for part in _gather_objects(own) if part is not None]
    if not held:
        raise ValueError("samples must hold at least one sample that has a label; they hold none")
    together = SummaryColumns(sum(len(ids) for ids, _ in held))
    for _, summary in held:
        together.add(summary)
    return torch.cat([ids for ids, _ in held]), together.summary()


def gather(columns: Sequence[Tensor]) -> list[Tensor]:
    """The columns of all processes, in order of rank; a process without a batch has none."""
    held = [part for part in _gather_objects(columns) if part]
    return [torch.cat(parts) for parts in zip(*held, strict=True)]


def _gather_objects(own: Any) -> list[Any]:
    if not several():
        return [own]
    parts: list[Any] = [None] * rank_and_count()[1]
    dist.all_gather_object(parts, own)
    return parts


def accuracies_by_label(columns: Mapping[str, Tensor], clean_labels: Tensor) -> dict[str, float]:
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


@dataclass(frozen=True)
class Samples:
    """The training set without augmentation, and what is known about it.

    `scores` are computed for every sample at the end. `clean_labels` maps an id to its true label; with them, the
    accuracy on the corrupted, intact, clean and noisy labels is measured too, after the last epoch and after every
    `fit_every` epochs. `paths`: the file of each id, written beside its scores; `skipped`: files that could not be
    read, for the table.
    """

    batches: Iterable[Any]
    scores: Sequence[str] = DEFAULT_SCORES
    clean_labels: Mapping[int, int] | Tensor | None = None
    fit_every: int = 0
    paths: Mapping[int, str] | None = None
    skipped: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.scores:
            choose_scores(self.scores)  # rejects unknown ones now, not after the last epoch

    def due(self, epoch: int, epochs: int) -> bool:
        """Whether the accuracies are taken after this epoch."""
        known = self.clean_labels is not None
        return known and (epoch == epochs or (self.fit_every > 0 and epoch % self.fit_every == 0))

    def accuracies(self, model: nn.Module, device: torch.device, *, head: str | None = None) -> dict[str, float]:
        """The four accuracies on the training set (see `accuracies_by_label`)."""
        columns = score_samples(model, self.batches, (), device, head=head).columns
        return accuracies_by_label(columns, torch.tensor(self._known("clean_labels", columns["id"])))

    def table(
        self, model: nn.Module, device: torch.device, recorder: Any = None, *, head: str | None = None
    ) -> pa.Table:
        """One row per sample: id, label, clean label, predicted, scores of the model and of the recorder, file."""
        columns, classes = score_samples(model, self.batches, self.scores, device, head=head)
        ids = columns["id"].long()
        if recorder is not None:
            if int(ids[-1]) >= recorder.num_samples:
                raise ValueError(
                    f"recorder must have a row for every id of samples, the largest {int(ids[-1])}; "
                    f"it has {recorder.num_samples}"
                )
            columns |= {name: values.cpu()[ids] for name, values in recorder.scores().items()}
        clean = None if self.clean_labels is None else torch.tensor(self._known("clean_labels", ids))
        table = samples_table(columns, classes, SCORES.get, clean)
        if recorder is not None:
            learned = learning_columns(recorder.aggregates).take(pa.array(ids.numpy()))
            for field in learned.schema:
                table = table.append_column(field, learned.column(field.name))
        table = with_skipped(table, self.skipped)
        return table if self.paths is None else table.append_column("path", pa.array(self._known("paths", ids)))

    def _known(self, name: str, ids: Tensor) -> list[Any]:
        """What `clean_labels` or `paths` says of each id."""
        known = getattr(self, name)
        if isinstance(known, Tensor):
            known = dict(enumerate(known.tolist()))
        missing = next((one for one in ids.tolist() if one not in known), None)
        if missing is not None:
            raise ValueError(f"{name} must have every id of samples; {missing} has none")
        return [known[one] for one in ids.tolist()]
