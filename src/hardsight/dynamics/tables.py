"""The recorder's scores as a table: ids, labels, one column a score with its range, direction and source."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from torch import Tensor

from hardsight.dynamics.aggregates import Aggregates
from hardsight.dynamics.catalogue import DynamicsScore


def scores_table(aggregates: Aggregates, scores: Iterable[DynamicsScore]) -> pa.Table:
    """One row a sample; a sample never recorded has nulls."""
    unseen = (aggregates["epochs"] == 0).cpu().numpy()
    fields = [
        pa.field("id", pa.int64()),
        pa.field("label", pa.int32()),
        pa.field("epochs", pa.int32(), metadata={"title": "Epochs in which the sample was recorded"}),
        pa.field("flagged", pa.int32(), metadata={"title": "Measurements thrown away: logits not finite"}),
    ]
    columns = [
        pa.array(np.arange(aggregates.frame.num_samples)),
        pa.array(aggregates["label"].cpu().numpy(), pa.int32(), mask=unseen),
        pa.array(aggregates["epochs"].int().cpu().numpy()),
        pa.array(aggregates["flagged"].cpu().numpy()),
    ]
    for score in scores:
        fields.append(pa.field(score.name, pa.float32(), metadata=score.describe(aggregates.frame.num_classes)))
        columns.append(_column(score.definition(aggregates)))
    return pa.table(columns, schema=pa.schema(fields))


def _column(values: Tensor) -> pa.Array:
    numbers = values.float().cpu().numpy()
    return pa.array(numbers, pa.float32(), mask=numbers != numbers)
