"""Scoring in this process: run a model over a loader and keep only a few numbers per sample."""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import length_hint
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from hardsight.engines.preprocessing import Inputs
from hardsight.engines.rows import IDS, LABELS, NO_IDS, first_of, id_column
from hardsight.hardness.columns import ClassSummary, Part, SummaryColumns
from hardsight.hardness.registry import Score, parts_of
from hardsight.hardness.scoring import DEFAULT_SCORES, choose_scores, scores_of_summary
from hardsight.hardness.summary import Head, summarise_outputs
from hardsight.heads import Seen, evaluating, observe, unwrap
from hardsight.records import check_ids
from hardsight.validation import check_device, check_finite, check_head, check_labels

_ONE_SAMPLE = (
    "loader must yield batches, as a DataLoader does; got single samples, as a data set has them: put it into a "
    "torch.utils.data.DataLoader"
)


def score_model(
    model: nn.Module,
    loader: Iterable[Any],
    scores: Sequence[str] = DEFAULT_SCORES,
    *,
    device: torch.device | str | None = None,
    head: str | None = None,
    views: str | None = None,
    record: Path | str | None = None,
    progress: bool | None = None,
) -> pa.Table:
    """Every sample's scores as a table: id, label, predicted, one column per score.

    The loader yields batches: images, (images, labels), (images, labels, ids), or dictionaries as Hugging Face's do, of
    tensors or arrays. Without labels hardness is measured against the predicted class; `label` is then null, and the
    table's metadata says so. Without ids, samples are counted from 0 in the order of the loader, so it must not
    shuffle. `scores` are names of `hardsight.hardness.SCORES`.

    The model runs in evaluation mode on `device` (by default where it is) and is left as and where it was. `observe`
    finds its last linear layer; `head` names it where the model leaves a choice. A model that classifies several views
    of each image in its forward needs `views="mean"`: the mean of their features and logits is scored. `record` is the
    folder of the model's training: a warning tells where the images look normalised otherwise than there. `progress`
    shows a bar or none; by default a bar on a terminal.
    """
    chosen = choose_scores(scores)
    unwrap(model)  # rejects what is no model
    _check_loader(loader)
    home = next((one.device for one in model.parameters()), torch.device("cpu"))
    device = check_device(home if device is None else device)
    # Quantised models and those spread over several devices must not be moved, and reject it.
    moved = device != home
    if moved:
        model.to(device)
    dtype = next((one.dtype for one in model.parameters() if one.is_floating_point()), torch.get_default_dtype())
    columns, prepared, compared = ScoreColumns(), None, Inputs.beside(record)
    parts: frozenset[Part] = parts_of(chosen) | {"predicted"}
    try:
        with (
            # Not in inference mode: a model may take derivatives in its forward.
            evaluating(model),
            observe(model, head, views=views) as seen,
            progress_bar(loader, progress) as step,
        ):
            for number, batch in enumerate(loader):
                inputs, labels, ids = _take_apart(batch, device, dtype)
                if compared is not None:
                    compared.add(inputs)
                with _taking(inputs, number, dtype):
                    model(**inputs) if isinstance(inputs, dict) else model(inputs)
                if prepared is None:
                    check_head(seen.weight, seen.bias)
                    prepared = Head(seen.weight, seen.bias)
                columns.add(_summarise(seen, prepared, labels, parts, number), labels is not None, ids)
                step(1)
    finally:
        if moved:
            model.to(home)
    if compared is not None and (sentence := compared.sentence()):
        warnings.warn(sentence, stacklevel=2)
    return columns.table(chosen)


def _summarise(seen: Seen, prepared: Head, labels: Tensor | None, parts: frozenset[Part], batch: int) -> ClassSummary:
    features, logits = seen.features, seen.logits
    if features.ndim == 1:
        raise ValueError(_ONE_SAMPLE)
    if features.ndim != 2:
        shape = list(features.shape)
        raise ValueError(f"model must give one feature vector per sample; its head {seen.name!r} sees {shape}")
    check_finite(f"features of batch {batch}", features)
    if not seen.is_linear:
        check_finite(f"logits of batch {batch}", logits)
    if labels is not None:
        check_labels(labels, len(features), len(seen.weight))
    return summarise_outputs(features, logits, prepared, labels, parts, linear=seen.is_linear)


def score_fields(chosen: Sequence[Score], classes: int) -> list[pa.Field]:
    """The columns that scoring makes: `predicted` and the scores."""
    scores = [pa.field(one.name, pa.float32(), metadata=one.describe(classes)) for one in chosen]
    return [pa.field("predicted", pa.int64()), *scores]


def as_float32(values: Tensor) -> np.ndarray:
    """Scores as a column holds them, which the norm of finite features in double precision may exceed."""
    largest = torch.finfo(torch.float32).max
    column: np.ndarray = values.clamp(-largest, largest).float().cpu().numpy()
    return column


class ScoreColumns:
    """Grows by a few numbers per sample, to as many as `samples` without a copy; becomes the table at the end."""

    def __init__(self, samples: int = 0) -> None:
        self.summaries = SummaryColumns(samples)
        self.labelled: bool | None = None
        self.ids: list[pa.Array] = []

    def add(self, summary: ClassSummary, labelled: bool, ids: Any) -> None:
        if self.labelled not in (None, labelled):
            raise ValueError("loader must yield labels with every batch or with none")
        self.labelled = labelled
        size = len(summary.labels)
        if ids is None:
            ids = np.arange(self.summaries.filled, self.summaries.filled + size)
        elif len(ids) != size:
            raise ValueError(f"loader must yield one id for each sample; got {len(ids)} ids for {size} samples")
        self.ids.append(id_column(ids))
        self.summaries.add(summary)

    def table(self, chosen: list[Score]) -> pa.Table:
        if not self.summaries.filled:
            raise ValueError("loader must yield at least one batch; it was empty")
        summary = self.summaries.summary()
        ids = _joined(self.ids)
        check_ids(ids)
        labels = pa.array(summary.labels.cpu().numpy()) if self.labelled else pa.nulls(len(ids), pa.int64())
        arrays = [ids, labels, pa.array(summary.predicted.cpu().numpy())]
        fields = [pa.field("id", ids.type), pa.field("label", pa.int64()), *score_fields(chosen, summary.num_classes)]
        found = scores_of_summary(summary, chosen)
        arrays += [pa.array(as_float32(found[one.name])) for one in chosen]
        against = "given label" if self.labelled else "predicted class"
        metadata = {"hardness against": against, "classes": str(summary.num_classes)}
        return pa.table(arrays, schema=pa.schema(fields, metadata=metadata))


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """The ids of all batches, hashes and small numbers in one type."""
    if len({part.type for part in parts}) > 1:
        try:
            parts = [part.cast(pa.uint64()) for part in parts]
        except pa.ArrowException:
            raise ValueError(NO_IDS) from None
    joined = pa.chunked_array(parts).combine_chunks()
    # Arrow keeps text of more than two gigabytes in pieces.
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays([one.cast(pa.large_string()) for one in parts])


def _take_apart(batch: Any, device: torch.device, dtype: torch.dtype) -> tuple[Any, Tensor | None, Any]:
    """Inputs, labels and ids of a batch, whichever of the usual forms it has; tensors go to the device.

    Arrays become tensors of the model's `dtype`: NumPy's usual numbers are double.
    """
    if isinstance(batch, Mapping):
        label, key = first_of(LABELS[::-1], list(batch)), first_of(IDS[::-1], list(batch))
        labels, ids = (None if name is None else batch[name] for name in (label, key))
        rest = {name: value for name, value in batch.items() if name not in (*LABELS, *IDS)}
        inputs: Any = {name: _moved(value, device, dtype) for name, value in rest.items()}
    elif isinstance(batch, Tensor | np.ndarray):
        inputs, labels, ids = _moved(batch, device, dtype), None, None
    elif isinstance(batch, tuple | list) and 1 <= len(batch) <= 3 and isinstance(batch[0], Tensor | np.ndarray):
        inputs, labels, ids = _moved(batch[0], device, dtype), *(*batch[1:], None, None)[:2]
        if isinstance(labels, int):
            raise ValueError(_ONE_SAMPLE)
    else:
        kind = type(batch).__name__
        if isinstance(batch, tuple | list):
            kind = f"a {kind} of {', '.join(type(part).__name__ for part in batch[:5]) or 'nothing'}"
        raise TypeError(f"loader must yield images, (images, labels), (images, labels, ids), dictionaries; got {kind}")
    try:
        return inputs, None if labels is None else torch.as_tensor(labels, device=device), ids
    except (TypeError, ValueError):
        raise TypeError(f"labels must be whole numbers; got {type(labels).__name__}") from None


def _moved(values: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Tensors and arrays of numbers on the device; anything else as it is."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        # An array may be read-only, which torch has no word for.
        values = torch.from_numpy(values if values.flags.writeable else values.copy())
        values = values.to(dtype) if values.is_floating_point() else values
    return values.to(device) if isinstance(values, Tensor) else values


@contextmanager
def progress_bar(loader: Iterable[Any], wanted: bool | None, title: str = "scoring") -> Iterator[Callable[[int], None]]:
    """A bar of the batches on stderr, where it is a terminal or one is wanted; call what it gives with the steps."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda batches: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=length_hint(loader) or None)
        yield lambda batches: bar.advance(task, batches)


def _check_loader(loader: Iterable[Any]) -> None:
    """A loader yields batches; one batch in its place would be taken for many."""
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        raise TypeError(f"loader must yield batches, as a DataLoader does; got {type(loader).__name__}")
    one = isinstance(loader, Tensor | np.ndarray | Mapping)
    if isinstance(loader, tuple | list) and len(loader) in (2, 3) and isinstance(loader[0], Tensor | np.ndarray):
        # (images, labels) or (images, labels, ids): one whole number a sample stands second.
        images, labels = loader[:2]
        if isinstance(labels, Tensor | np.ndarray):
            whole = labels.ndim == 1 and (
                labels.dtype.kind in "iu" if isinstance(labels, np.ndarray) else not labels.is_floating_point()
            )
        else:
            whole = isinstance(labels, list) and all(isinstance(each, int) for each in labels)
        one = images.ndim >= 2 and whole and len(labels) == len(images)
    if one:
        raise TypeError("loader must yield batches, as a DataLoader does; got one batch: give it as [batch]")


@contextmanager
def _taking(inputs: Any, batch: int, dtype: torch.dtype) -> Iterator[None]:
    """The model's forward over a batch of the loader: what torch says of one that does not fit, and what to do."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, AssertionError, IndexError) as error:
        reason = reason_of(error)
        if not isinstance(inputs, Tensor):
            advice = f"batch {batch}, a dictionary of {', '.join(map(str, inputs)) or 'nothing'}, ended in: {reason}"
        elif inputs.dtype != dtype and ("type" in reason or "not implemented" in reason):
            floats = "floats as in its training, most often images.float() / 255"
            wanted = f"images.to({dtype})" if inputs.is_floating_point() else floats
            advice = f"batch {batch} is of {inputs.dtype}, the model of {dtype}: give {wanted}"
        else:
            shape = list(inputs.shape)
            advice = f"give the shape of its training, for batch {batch} of shape {shape} ended in: {reason}"
        raise ValueError(f"loader must yield batches that the model takes; {advice}") from error


def reason_of(error: Exception) -> str:
    """What went wrong in a model's forward, in one line."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if "does not require grad" in reason:
        return "its forward takes derivatives, which needs `with torch.enable_grad():` around them there"
    return reason
