"""What is done between epochs: accuracy on a test set, every training sample's scores, losses with a memory.

Several processes share the batches (batch i goes to process i modulo their number) and add up. The losses keep their
paper's timing as a share of the training, because the papers train for other numbers of epochs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch
import torch.distributed as dist
from torch import Tensor, nn

from hardsight.datasets.epochs import mixed_seed
from hardsight.distributed import rank_and_count, several, sum_over_processes
from hardsight.dynamics.aggregates import learning_columns
from hardsight.dynamics.detector import lead, noise_rate
from hardsight.hardness.columns import Part, SummaryColumns
from hardsight.hardness.registry import SCORES, parts_of
from hardsight.hardness.scoring import DEFAULT_SCORES, choose_scores, scores_of_summary
from hardsight.hardness.summary import Head, summarise_outputs
from hardsight.heads import evaluating, observe
from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.curriculum import D2L, SelfPaced, local_intrinsic_dimensionality
from hardsight.losses.joint import JointOptimisation
from hardsight.losses.robust import TruncatedGCELoss
from hardsight.records import with_skipped
from hardsight.training.network import IGNORED, Batch, Network, take_apart
from hardsight.training.progress import NonFiniteLossError
from hardsight.training.record import Row

Batches = Iterable[Any]
# Truncated GCE prunes from epoch 40 of 120 on, every 10 (Zhang & Sabuncu 2018, Section 4.1).
_PRUNING_STARTS, _PRUNING_EVERY = 40 / 120, 10 / 120
# Joint optimisation replaces labels from epoch 70 of 200 on (Tanaka et al. 2018, Section 4.2).
_RELABELLING_STARTS = 70 / 200
# D2L estimates the dimensionality of an epoch from ten random batches of 128 (Ma et al. 2018, Section 4).
_DIMENSION_SAMPLES, _DIMENSION_BATCH = 1280, 128


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


def share(batches: Batches, device: torch.device) -> Iterator[Batch]:
    """This process's part of the batches, on the device; ids where the batches carry them."""
    rank, world = rank_and_count()
    for index, batch in enumerate(batches):
        if index % world == rank:
            yield take_apart(batch, device)


def score_samples(
    model: nn.Module, batches: Batches, scores: Sequence[str], device: torch.device, *, head: str | None = None
) -> tuple[dict[str, Tensor], int]:
    """Every sample that has a label, by id: `id`, `label`, `predicted`, each score; and the number of classes."""
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
    held = [part for part in _gather_objects(own) if part is not None]
    if not held:
        raise ValueError("samples must hold at least one sample that has a label; they hold none")
    ids, columns = torch.cat([ids for ids, _ in held]), SummaryColumns(sum(len(ids) for ids, _ in held))
    for _, part in held:
        columns.add(part)
    summary = columns.summary()
    found = {"id": ids, "label": summary.labels, "predicted": summary.predicted, **scores_of_summary(summary, chosen)}
    order = ids.argsort(stable=True)
    return {name: values[order] for name, values in found.items()}, summary.num_classes


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


def samples_table(columns: Mapping[str, Tensor], classes: int, clean_labels: Tensor | None = None) -> pa.Table:
    """The columns as a table whose score fields say what they are; `clean_label` after `label` where it is known."""
    arrays, fields = [], []
    for name, values in columns.items():
        array, metadata = pa.array(values.numpy()), None
        if name in SCORES:
            numbers = values.float().numpy()
            if bool(values.isnan().all()):
                continue  # what this training could not measure
            array, metadata = pa.array(numbers, pa.float32(), mask=numbers != numbers), SCORES[name].describe(classes)
        arrays.append(array)
        fields.append(pa.field(name, array.type, metadata=metadata))
        if name == "label" and clean_labels is not None:
            arrays.append(pa.array(clean_labels.numpy()))
            fields.append(pa.field("clean_label", pa.int64()))
    about = {"hardness against": "given label", "classes": str(classes)}
    return pa.table(arrays, schema=pa.schema(fields, metadata=about))


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
        """Accuracy on a noisy training set, four ways (GR, Tables 3 and 11), as shares in [0, 1].

        `corrupted`: predictions against the given labels, whole set; `intact`: against the true labels, whole set;
        `clean` and `noisy`: against the given labels, on the samples whose label is right and on those whose is wrong.
        A subset without samples has no accuracy: NaN.
        """
        columns, _ = score_samples(model, self.batches, (), device, head=head)
        truth = torch.tensor(self._known("clean_labels", columns["id"]))
        fits, clean = columns["predicted"] == columns["label"], columns["label"] == truth
        right = columns["predicted"] == truth
        parts = {"corrupted": fits, "intact": right, "clean": fits[clean], "noisy": fits[~clean]}
        return {f"{name}_accuracy": float(part.double().mean()) for name, part in parts.items()}

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
        table = samples_table(columns, classes, clean)
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


def end_epoch(network: Network, samples: Iterable[Any] | None, device: torch.device, row: Row, epochs: int) -> Row:
    """Let the loss do what it does after the epoch of `row`; returns what it adds to the row."""
    loss, epoch = network.objective.loss, int(row["epoch"])
    progress = epoch / epochs
    if isinstance(loss, SelfPaced):
        loss.advance()
    if samples is None:
        return {}
    if isinstance(loss, AutomaticRescaling):
        return _emphasis(loss, network, samples, device, row, epochs)
    if epoch == epochs:
        return {}
    if isinstance(loss, TruncatedGCELoss) and loss.has_table:
        every = max(1, round(_PRUNING_EVERY * epochs))
        if progress >= _PRUNING_STARTS and epoch % every == 0:
            for logits, labels, ids in _look(network, samples, device):
                loss.prune(ids, logits, labels)
            loss.end_pruning()
    elif isinstance(loss, JointOptimisation):
        for logits, _, ids in _look(network, samples, device):
            loss.record(ids, logits)
        loss.end_epoch(update=progress >= _RELABELLING_STARTS)
    elif isinstance(loss, D2L):
        # The authors go back to the weights of the epoch before the turning point; here the training goes on.
        loss.end_epoch(_dimensionality(network, samples, device, epoch), progress)
    return {}


def _emphasis(
    loss: AutomaticRescaling, network: Network, samples: Iterable[Any], device: torch.device, row: Row, epochs: int
) -> Row:
    """Choose the emphasis by the noise, raise it, and watch for a collapse; returns the emphasis in force."""
    if loss.decided:
        loss.watch(row["train_accuracy"])
    elif row["epoch"] == max(1, min(loss.warm_up, epochs // 3)):
        looked = [(logits.argmax(1), lead(logits), labels) for logits, labels, _ in _look(network, samples, device)]
        columns = gather([torch.cat(parts).cpu() for parts in zip(*looked, strict=True)])
        _check_finite("outputs", ~columns[1].isnan(), int(row["epoch"]))
        loss.decide(noise_rate(*columns), row["train_accuracy"])
    if row["epoch"] >= loss.warm_up:
        loss.rise(row["train_accuracy"])
    said: Row = {"estimated_noise_rate": float(loss.rate)} if loss.decided else {}
    return said | ({} if loss.emphasis is None else loss.emphasis._asdict())


def _look(network: Network, samples: Iterable[Any], device: torch.device) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Logits, labels and ids, batch by batch."""
    with evaluating(network):
        for images, labels, ids in share(samples, device):
            if ids is None:
                raise ValueError("samples must carry ids, (images, labels, ids), for a loss that remembers them")
            yield network.look(images)[0], labels, ids


def _check_finite(what: str, finite: Tensor, epoch: int) -> None:
    """Stop where evaluation gives no finite numbers although the statistics of a batch kept the loss finite."""
    lost = int((~finite).sum())
    if lost:
        raise NonFiniteLossError(
            f"the {what} are no finite numbers for {lost} of {len(finite)} samples after epoch {epoch}: the training "
            "has diverged, and a lower learning rate may help"
        )


def _dimensionality(network: Network, samples: Iterable[Any], device: torch.device, epoch: int) -> float:
    """Mean local intrinsic dimensionality of the features of samples drawn each epoch; any processes agree."""
    images, turns = _drawn(samples, device, epoch)
    own: list[Tensor] = []
    if len(turns):
        with evaluating(network):
            looked: Any = [network.look(some)[1] for some in images.split(_DIMENSION_BATCH)]
            features = torch.cat(looked)
        own = [turns, features.float().cpu()]
    turns, features = gather(own)
    _check_finite("features", features.isfinite().all(1), epoch)
    batches = features[turns.argsort()[:_DIMENSION_SAMPLES]].split(_DIMENSION_BATCH)
    # A last batch of too few has no neighbours to measure by.
    measured = [
        local_intrinsic_dimensionality(one, neighbours=min(20, len(one) - 1)).mean() for one in batches if len(one) > 2
    ]
    return float(torch.stack(measured).mean()) if measured else 0.0


def _drawn(samples: Iterable[Any], device: torch.device, epoch: int) -> tuple[Tensor, Tensor]:
    """Images of this process's part of `_DIMENSION_SAMPLES` samples drawn from all, and each one's turn in the draw.

    A turn is a random number of (seed, epoch, batch), and the smallest are drawn: the same for any number of processes.
    """
    rank, world = rank_and_count()
    seed, latest = int(getattr(samples, "seed", 0)), 1.0
    turns, kept = torch.empty(0, dtype=torch.float64), []
    for at, (images, _, _) in enumerate(share(samples, device)):
        generator = torch.Generator().manual_seed(mixed_seed(seed, epoch, 1 + at * world + rank))
        fresh = torch.rand(len(images), generator=generator, dtype=torch.float64)
        early = (fresh < latest).nonzero().squeeze(1)
        turns = torch.cat([turns, fresh[early]])
        kept.append(images[early.to(images.device)])
        if len(turns) > _DIMENSION_SAMPLES:
            latest = float(turns.kthvalue(_DIMENSION_SAMPLES).values)
    if not kept:
        return torch.empty(0), turns
    first = turns.argsort()[:_DIMENSION_SAMPLES]
    return torch.cat(kept)[first.to(kept[0].device)], turns[first]
