"""Columns of a data set with a number for each token, and how they travel to the model's forward and no further.

A token's number counts the tokens of all documents in order; so it says which document it belongs to and where it
stands in it, wherever packing, padding and shuffling put it.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

NUMBER, WEIGHT, REFERENCE, LABEL = "token_number", "token_weight", "reference_loss", "token_label"
# What a position without a token holds.
_FILL = {NUMBER: -1, WEIGHT: 0.0, REFERENCE: 0.0}


def number_tokens(dataset: Any) -> tuple[Any, np.ndarray]:
    """The data set with a column `token_number`, and where each document begins in that count, with its end.

    `dataset` is a `datasets.Dataset` or a list of dicts with `input_ids`, one row per document.
    """
    lengths = _lengths(dataset)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return _with_column(dataset, NUMBER, [list(range(*ends)) for ends in itertools.pairwise(starts.tolist())]), starts


def with_weights(dataset: Any, table: pa.Table, weights: Any) -> Any:
    """The data set with a column `token_weight`: `weights` has one number for each row of `table`.

    Rows are tokens where the table has a `position` (tokens without a row weigh 1), else documents by `document` or
    `id`, whose tokens all weigh the same.
    """
    return _with_values(dataset, table, np.asarray(weights, dtype=np.float32), WEIGHT, 1.0)


def with_reference_loss(dataset: Any, tokens: pa.Table) -> Any:
    """The data set with a column `reference_loss`, from `score_tokens` of the same documents by a reference model."""
    if "log_probability" not in tokens.column_names:
        raise ValueError(f"tokens must have a column 'log_probability'; got {', '.join(tokens.column_names)}")
    return _with_values(dataset, tokens, -tokens.column("log_probability").to_numpy(), REFERENCE, 0.0)


def _with_values(dataset: Any, table: pa.Table, values: np.ndarray, name: str, missing: float) -> Any:
    if values.shape != (table.num_rows,):
        raise ValueError(f"weights must be one number for each of the {table.num_rows} rows; got {list(values.shape)}")
    if not np.isfinite(values).all() or (name == WEIGHT and (values < 0).any()):
        raise ValueError(f"{name} must be finite and not negative; got {values.min()} to {values.max()}")
    lengths = _lengths(dataset)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    document = table.column("document" if "document" in table.column_names else "id").to_numpy()
    if len(document) and not (document.min() >= 0 and document.max() < len(lengths)):
        raise ValueError(
            f"documents must lie in [0, {len(lengths)}), the rows of the data set; "
            f"got {document.min()} to {document.max()}"
        )
    every = np.full(starts[-1], missing, dtype=np.float32)
    if "position" in table.column_names:
        position = table.column("position").to_numpy()
        beyond = position >= lengths[document]
        if beyond.any():
            first = int(beyond.argmax())
            raise ValueError(
                f"positions must lie within the data set's documents; got {position[first]} in document "
                f"{document[first]}, which has {lengths[document[first]]} tokens"
            )
        every[starts[document] + position] = values
    else:
        of_document = np.full(len(lengths), missing, dtype=np.float32)
        of_document[document] = values
        every = np.repeat(of_document, lengths)
    return _with_column(dataset, name, [part.tolist() for part in np.split(every, starts[1:-1])])


def _lengths(dataset: Any) -> np.ndarray:
    rows = dataset["input_ids"] if hasattr(dataset, "add_column") else [row.get("input_ids") for row in dataset]
    if not len(rows) or any(row is None for row in rows):
        raise ValueError("dataset must hold at least one document, each with its input_ids; it does not")
    return np.array([len(row) for row in rows], dtype=np.int64)


def _with_column(dataset: Any, name: str, rows: list[list[Any]]) -> Any:
    if hasattr(dataset, "add_column"):
        return dataset.add_column(name, rows)
    return [{**item, name: row} for item, row in zip(dataset, rows, strict=True)]


class TokenCollator:
    """Any collator, with the columns of this module brought to the shape of its `input_ids`, and a copy of the labels.

    Columns of text, which stay in the items because the Trainer is to remove none, are left out.
    """

    def __init__(self, collator: Callable[..., Any]) -> None:
        self.collator = collator

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The collator's batch with `token_label` and those of the columns that the items carry."""
        names = [name for name in _FILL if name in items[0]]
        plain = [
            {key: one for key, one in item.items() if key not in _FILL and not isinstance(one, str)} for item in items
        ]
        batch = dict(self.collator(plain))
        if "labels" not in batch:
            raise ValueError(f"the collator must make 'labels', one for each token; got keys {sorted(batch)}")
        for name in names:
            batch[name] = _aligned(name, items, batch)
        return batch | {LABEL: batch["labels"].clone()}


def _aligned(name: str, items: Sequence[Mapping[str, Any]], batch: Mapping[str, Any]) -> Tensor:
    """A column as a tensor like `input_ids`: padded on the same side, or one row where the collator made one of all."""
    for item in items:
        length, given = len(item["input_ids"]), len(item[name])
        if given != length:
            raise ValueError(
                f"{name} must have one entry for each of the {length} input_ids; got {given}: cut documents before "
                "their tokens are numbered"
            )
    rows, length = batch["input_ids"].shape
    values = [list(item[name]) for item in items]
    if rows == 1:
        values = [[one for part in values for one in part]]
    mask = batch.get("attention_mask")
    left = mask is not None and mask.ndim == 2 and not bool(mask[:, 0].all())
    out = torch.full((rows, length), _FILL[name], dtype=torch.int64 if name == NUMBER else torch.float32)
    for row, part in enumerate(values):
        out[row, length - len(part) if left else 0 : length if left else len(part)] = torch.tensor(part).to(out.dtype)
    return out


def take_out(module: nn.Module, names: Sequence[str], into: dict[str, Tensor]) -> Any:
    """Let no column of these names reach the model's forward; the latest ones are put `into`. Returns the hook."""

    def hook(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        into.clear()
        into.update({name: kwargs.pop(name) for name in names if name in kwargs})
        return inputs, kwargs

    return module.register_forward_pre_hook(hook, with_kwargs=True)
