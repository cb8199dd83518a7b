"""Every training sample at the end, and how well the model fits the right and the wrong labels on the way there."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from hardsight.dynamics.tables import learning_columns
from hardsight.hardness.registry import SCORES
from hardsight.records import with_skipped
from hardsight.training.evaluation import fitting, samples_table, score_samples


class SampleScores:
    """Scores of the training samples, seen without augmentation.

    `clean_labels` maps an id to its true label, `paths` to its file; `skipped` are files that could not be read.
    """

    def __init__(
        self,
        batches: Iterable[Any],
        device: torch.device,
        *,
        scores: Sequence[str] = (),
        clean_labels: Mapping[int, int] | Tensor | None = None,
        paths: Mapping[int, str] | None = None,
        skipped: Sequence[str] = (),
        every: int = 0,
        head: str | None = None,
    ) -> None:
        self.batches, self.device, self.scores, self.head = batches, device, tuple(scores), head
        self.clean_labels, self.paths, self.skipped, self.every = clean_labels, paths, tuple(skipped), every

    def due(self, epoch: int, epochs: int) -> bool:
        """Whether the fitting is measured after this epoch: every `every` epochs, and after the last."""
        known = self.clean_labels is not None
        return known and (epoch == epochs or (self.every > 0 and epoch % self.every == 0))

    def fitting(self, model: nn.Module) -> dict[str, float]:
        """The four accuracies on the training set (see `evaluation.fitting`)."""
        columns = score_samples(model, self.batches, (), self.device, head=self.head).columns
        clean = self._clean(columns["id"])
        assert clean is not None
        return fitting(columns, clean)

    def table(self, model: nn.Module, recorder: Any = None) -> pa.Table:
        """One row a sample: id, label, clean label, predicted, scores of the model and of the recorder, file."""
        columns, classes = score_samples(model, self.batches, self.scores, self.device, head=self.head)
        if recorder is not None:
            rows = columns["id"].long()
            if int(rows[-1]) >= recorder.num_samples:
                raise ValueError(
                    f"recorder must have a row for every id of samples, the largest {int(rows[-1])}; "
                    f"it has {recorder.num_samples}"
                )
            columns |= {name: values.cpu()[rows] for name, values in recorder.scores().items()}
        table = samples_table(columns, classes, SCORES.get, self._clean(columns["id"]))
        if recorder is not None:
            for field, column in learning_columns(recorder.aggregates):
                table = table.append_column(field, column.take(pa.array(rows.numpy())))
        table = with_skipped(table, self.skipped)
        if self.paths is None:
            return table
        return table.append_column("path", pa.array(self._files(columns["id"].tolist()), pa.string()))

    def _files(self, ids: list[int]) -> list[str]:
        assert self.paths is not None
        missing = next((one for one in ids if one not in self.paths), None)
        if missing is not None:
            raise ValueError(f"paths must have a file for every id of samples; {missing} has none")
        return [self.paths[one] for one in ids]

    def _clean(self, ids: Tensor) -> Tensor | None:
        known = self.clean_labels
        if known is None:
            return None
        there = range(len(known)) if isinstance(known, Tensor) else known
        missing = next((one for one in ids.tolist() if one not in there), None)
        if missing is not None:
            raise ValueError(f"clean_labels must have a label for every id of samples; {missing} has none")
        if isinstance(known, Tensor):
            return known.cpu()[ids.long()].long()
        return torch.tensor([known[one] for one in ids.tolist()])
