"""Scores of samples each of which is the same to the bit whichever samples are scored with it, and in how many parts.

A matrix product rounds a row otherwise among few rows than among many. Here every product has the same number of rows,
the last ones zeros where there are no more samples, so shards, batches and processes of any number agree.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from hardsight.geometry import widen
from hardsight.hardness.columns import Part
from hardsight.hardness.registry import Score, parts_of
from hardsight.hardness.scoring import scores_of_summary
from hardsight.hardness.summary import SAFE_NORMS, Head, summarise_chunk

# Elements of one block (samples x classes), and bounds of its samples.
_ELEMENTS, _FEWEST, _MOST = 2**20, 64, 4096


def block_rows(classes: int) -> int:
    """How many samples are multiplied together: a power of two."""
    return max(_FEWEST, min(_MOST, 1 << (max(1, _ELEMENTS // classes).bit_length() - 1)))


@torch.no_grad()
def score_rows(
    features: Tensor, head: Head, labels: Tensor | None, chosen: Sequence[Score]
) -> tuple[dict[str, Tensor], Tensor]:
    """`predicted` and the scores of every sample by name, and which samples have them: none with NaN or infinity has.

    What stands for a sample without scores is not defined. Without labels, against the predicted class.
    """
    features = widen(features.detach()).to(head.weight.dtype)
    norms = torch.linalg.vector_norm(features, dim=1)
    usable = norms.isfinite()
    if not bool(usable.all()):
        # The norm of large finite features may exceed the largest number.
        suspects = (~usable).nonzero().squeeze(1)
        usable[suspects] = features[suspects].isfinite().all(1)
        features = features.masked_fill(~usable.unsqueeze(1), 0.0)
    low, high = SAFE_NORMS
    # Such norms are multiplied in another way, with all that are in their block.
    extreme = usable & ~((norms > low) & (norms < high)) & (features != 0).any(1)
    if not bool(extreme.any()):
        return _in_blocks(features, head, labels, chosen), usable
    columns = _in_blocks(features.masked_fill(extreme.unsqueeze(1), 0.0), head, labels, chosen)
    apart = _in_blocks(features[extreme], head, None if labels is None else labels[extreme], chosen)
    for name, values in apart.items():
        columns[name][extreme] = values
    return columns, usable


def _in_blocks(features: Tensor, head: Head, labels: Tensor | None, chosen: Sequence[Score]) -> dict[str, Tensor]:
    rows = block_rows(len(head.weight))
    parts: frozenset[Part] = parts_of(chosen) | {"predicted"}
    columns: dict[str, Tensor] = {}
    for start in range(0, max(1, len(features)), rows):
        place = slice(start, start + rows)
        given = None if labels is None else _filled(labels[place], rows)
        summary = summarise_chunk(_filled(features[place], rows), head, given, parts)
        found = {"predicted": summary.predicted, **scores_of_summary(summary, chosen)}
        columns = columns or {name: values.new_empty(len(features)) for name, values in found.items()}
        for name, values in found.items():
            columns[name][place] = values[: len(features) - start]
    return columns


def _filled(values: Tensor, rows: int) -> Tensor:
    """With zeros behind, as many rows as a block has."""
    if len(values) == rows:
        return values
    filled = values.new_zeros(rows, *values.shape[1:])
    filled[: len(values)] = values
    return filled
