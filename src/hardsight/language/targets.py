"""Which tokens of a batch are predicted, and from which position's features."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Integer
from torch import Tensor

from hardsight.validation import check_integers

IGNORED = -100


class Targets(NamedTuple):
    """One row per predicted token: its document and column in the batch, its position, and the column that predicts it.

    `position` counts the tokens of the document before it, so padding on the left does not count.
    """

    document: Int[Tensor, "rows"]
    column: Int[Tensor, "rows"]
    position: Int[Tensor, "rows"]
    source: Int[Tensor, "rows"]
    token: Int[Tensor, "rows"]


def targets_of(
    input_ids: Integer[Tensor, "documents length"],
    mask: Bool[Tensor, "documents length"],
    labels: Integer[Tensor, "documents length"] | None,
    causal: bool,
) -> Targets:
    """Every token under the mask whose label is not -100; in a causal model only where a token stands before it."""
    tokens = input_ids if labels is None else labels
    there = mask & (tokens != IGNORED)
    if causal:
        there = there.clone()
        there[:, 1:] &= mask[:, :-1]
        there[:, :1] = False
    document, column = there.nonzero(as_tuple=True)
    position = mask.long().cumsum(1)[document, column] - 1
    return Targets(document, column, position, column - int(causal), tokens[document, column].long())


def check_tokens(
    input_ids: Tensor, attention_mask: Tensor | None, labels: Tensor | None, known: int, classes: int
) -> Bool[Tensor, "documents length"]:
    """Ids are [documents, length] in [0, known), labels in [0, classes) or -100; gives the mask as booleans."""
    check_integers("input_ids", input_ids)
    if input_ids.ndim != 2 or input_ids.numel() == 0:
        raise ValueError(f"input_ids must be [documents, length] and not empty; got {list(input_ids.shape)}")
    _check_range("input_ids", input_ids, (input_ids < 0) | (input_ids >= known), known)
    if attention_mask is None:
        mask = torch.ones_like(input_ids, dtype=torch.bool)
    elif attention_mask.shape != input_ids.shape:
        raise ValueError(
            f"attention_mask must be of the shape of input_ids, {list(input_ids.shape)}; "
            f"got {list(attention_mask.shape)}"
        )
    else:
        mask = attention_mask.to(input_ids.device) != 0
    if labels is not None:
        check_integers("labels", labels)
        if labels.shape != input_ids.shape:
            raise ValueError(
                f"labels must be of the shape of input_ids, {list(input_ids.shape)}; got {list(labels.shape)}"
            )
        _check_range("labels", labels, (labels != IGNORED) & ((labels < 0) | (labels >= classes)), classes)
    return mask


def _check_range(name: str, values: Tensor, wrong: Tensor, limit: int) -> None:
    if bool(wrong.any()):
        row, column = (int(one) for one in wrong.nonzero()[0])
        also = " or be -100" if name == "labels" else ""
        raise ValueError(
            f"{name} must lie in [0, {limit}), the model's vocabulary{also}; "
            f"got {int(values[row, column])} in document {row} at position {column}"
        )
