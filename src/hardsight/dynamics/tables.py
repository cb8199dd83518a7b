"""The recorder's scores as a table: ids, labels, counts, and one column per score with its range and direction."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from torch import Tensor

from hardsight.dynamics.aggregates import Aggregates
from hardsight.hardness import Score


def scores_table(aggregates: Aggregates, scores: Iterable[Score]) -> pa.Table:
    """One row per sample; a sample never recorded has nulls."""
    unseen = (aggregates["epochs"] == 0).cpu().numpy()
    fields = [
        pa.field("id", pa.int64()),
        pa.field("label", pa.int32()),
        pa.field("epochs", pa.int32(), metadata={"title": "Epochs in which the sample was recorded"}),
        pa.field("flagged", pa.int32(), metadata={"title": "Measurements thrown away: logits not finite"}),
    ]
    columns = [
        pa.array(np.arange(aggregates.layout.num_samples)),
        pa.array(aggregates["label"].cpu().numpy(), pa.int32(), mask=unseen),
        pa.array(aggregates["epochs"].int().cpu().numpy()),
        pa.array(aggregates["flagged"].cpu().numpy()),
    ]
    for field, column in learning_columns(aggregates):
        fields.append(field)
        columns.append(column)
    for score in scores:
        fields.append(pa.field(score.name, pa.float32(), metadata=score.describe(aggregates.layout.num_classes)))
        columns.append(_column(score.definition(aggregates)))
    return pa.table(columns, schema=pa.schema(fields))


def learning_columns(aggregates: Aggregates) -> list[tuple[pa.Field, pa.Array]]:
    """`never_learned` and `forgotten`, which the scores combine into one number; null for a sample never recorded."""
    unseen = (aggregates["epochs"] == 0).cpu().numpy()
    titles = {
        "never_learned": "Whether the label never won",
        "forgotten": "How often the label, having won, lost again",
    }
    columns = [
        pa.array((aggregates["first_correct"] < 0).cpu().numpy(), pa.bool_(), mask=unseen),
        pa.array(aggregates["forgotten"].int().cpu().numpy(), pa.int32(), mask=unseen),
    ]
    fields = [
        pa.field(name, one.type, metadata={"title": titles[name]}) for name, one in zip(titles, columns, strict=True)
    ]
    return list(zip(fields, columns, strict=True))


def _column(values: Tensor) -> pa.Array:
    numbers = values.float().cpu().numpy()
    return pa.array(numbers, pa.float32(), mask=numbers != numbers)
