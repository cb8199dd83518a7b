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
    rows = block_rows(len(head.weight))
    columns: dict[str, Tensor] = {}
    usable, extreme = (torch.full((len(features),), value, device=features.device) for value in (True, False))
    for start in range(0, max(1, len(features)), rows):
        place = slice(start, start + rows)
        # Widened a block at a time, while it is in the cache.
        block = widen(features[place].detach()).to(head.weight.dtype)
        norms = torch.linalg.vector_norm(block, dim=1)
        odd = ~((norms > SAFE_NORMS[0]) & (norms < SAFE_NORMS[1]))
        if bool(odd.any()):
            usable[place] = block.isfinite().all(1)
            # These are multiplied in another way, with all that are in their block: apart from the others.
            extreme[place] = odd & usable[place] & (block != 0).any(1)
            block = block.masked_fill(odd.unsqueeze(1), 0.0)
        found = _of_block(block, head, None if labels is None else labels[place], chosen, rows)
        columns = columns or {name: values.new_empty(len(features)) for name, values in found.items()}
        for name, values in found.items():
            columns[name][place] = values
    for places in extreme.nonzero().squeeze(1).split(rows):
        block = widen(features[places].detach()).to(head.weight.dtype)
        found = _of_block(block, head, None if labels is None else labels[places], chosen, rows)
        for name, values in found.items():
            columns[name][places] = values
    return columns, usable


def _of_block(
    features: Tensor, head: Head, labels: Tensor | None, chosen: Sequence[Score], rows: int
) -> dict[str, Tensor]:
    """`predicted` and the scores of at most `rows` samples, from a product of so many."""
    parts: frozenset[Part] = parts_of(chosen) | {"predicted"}
    given = None if labels is None else _filled(labels, rows)
    summary = summarise_chunk(_filled(features, rows), head, given, parts)
    found = {"predicted": summary.predicted, **scores_of_summary(summary, chosen)}
    return {name: values[: len(features)] for name, values in found.items()}


def _filled(values: Tensor, rows: int) -> Tensor:
    """With zeros behind, as many rows as a block has."""
    if len(values) == rows:
        return values
    filled = values.new_zeros(rows, *values.shape[1:])
    filled[: len(values)] = values
    return filled
