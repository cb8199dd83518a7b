"""`Scorer`: the scores of one batch of features after another, for any loop that hands out batches."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from hardsight.engines.files import read_head
from hardsight.engines.rows import LABELS, first_of, rows_of_table, tensor_of
from hardsight.hardness.scoring import DEFAULT_SCORES, block_head, choose_scores, score_rows
from hardsight.validation import check_device, check_head, check_labels, check_matrix


class Scorer:
    """Called with a batch, it gives the batch without its features, with `predicted` and a column for each score.

    A batch is a pyarrow Table or RecordBatch, or a dictionary of arrays, as `map_batches` of Ray Data, Daft and any
    loop of one's own have them. `head` is a file of weight and bias, or these tensors. `label` (or `labels`) is the
    column of classes; without it, or with `labelled=False`, hardness is measured against the predicted class. Samples
    whose features hold NaN or infinity get null in a Table, and NaN (-1 for `predicted`) in a dictionary. A sample's
    scores are the same to the bit in batches of any size.

    >>> scorer = Scorer((torch.eye(2), None), ("avh",))
    >>> scorer({"features": np.eye(2, dtype=np.float32), "label": np.array([0, 1])})["avh"].tolist()
    [0.0, 0.0]
    """

    def __init__(
        self,
        head: Path | str | tuple[Tensor, Tensor | None],
        scores: Sequence[str] = DEFAULT_SCORES,
        *,
        features: str = "features",
        labelled: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        self.chosen = choose_scores(scores)
        weight, bias = head if isinstance(head, tuple) else read_head(head)
        check_head(weight, bias)
        self.device = check_device(device)
        self.dim = weight.shape[1]
        self.head = block_head(weight.to(self.device), None if bias is None else bias.to(self.device))
        self.features, self.labelled = features, labelled

    @property
    def classes(self) -> int:
        """How many classes the head has."""
        return len(self.head.weight)

    @property
    def fields(self) -> list[pa.Field]:
        """The columns that are made: `predicted` and the scores."""
        scores = [pa.field(one.name, pa.float32(), metadata=one.describe(self.classes)) for one in self.chosen]
        return [pa.field("predicted", pa.int64()), *scores]

    def score(self, features: Tensor, labels: Tensor | None) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """`predicted` and each score of every sample, and which samples have them."""
        if len(features):
            check_matrix("features", features, "[samples, dim]")
        if features.shape[1] != self.dim:
            raise ValueError(f"features must have the dim of the head, {self.dim}; got {features.shape[1]}")
        if labels is not None:
            check_labels(labels, len(features), self.classes)
            labels = labels.to(self.device)
        columns, usable = score_rows(features.to(self.device), self.head, labels, self.chosen)
        largest = torch.finfo(torch.float32).max
        predicted = columns.pop("predicted").cpu().numpy()
        numbers = {name: values.clamp(-largest, largest).float().cpu().numpy() for name, values in columns.items()}
        return {"predicted": predicted, **numbers}, usable.cpu().numpy()

    def __call__(self, batch: Any) -> Any:
        """The batch without its features, with `predicted` and the scores."""
        if isinstance(batch, Mapping):
            return self._of_arrays(batch)
        if not isinstance(batch, pa.Table | pa.RecordBatch):
            raise TypeError(f"batch must be a pyarrow Table or a dictionary of arrays; got {type(batch).__name__}")
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        rows = rows_of_table(table, "the batch", self.features, labelled=self.labelled)
        for field, column in zip(self.fields, self.arrays(*self.score(rows.features, rows.labels)), strict=True):
            table = table.append_column(field, column)
        return table.drop_columns([self.features])

    def arrays(self, columns: Mapping[str, np.ndarray], usable: np.ndarray) -> list[pa.Array]:
        """What `score` gives as Arrow holds it: null where a sample has no scores."""
        mask = None if usable.all() else ~usable
        return [pa.array(columns[field.name], field.type, mask=mask) for field in self.fields]

    def _of_arrays(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        if self.features not in batch:
            raise ValueError(f"the batch must have a column {self.features!r}; it has {', '.join(batch) or 'none'}")
        values = np.asarray(batch[self.features])
        if values.dtype == object:
            values = np.stack([np.asarray(one) for one in values]) if len(values) else np.zeros((0, self.dim), "f4")
        labels = None
        if self.labelled and (name := first_of(LABELS, list(batch))) is not None:
            labels = tensor_of(np.asarray(batch[name]))
        columns, usable = self.score(tensor_of(values), labels)
        for name, numbers in columns.items():
            numbers[~usable] = -1 if name == "predicted" else np.nan
        return {name: value for name, value in batch.items() if name != self.features} | columns
