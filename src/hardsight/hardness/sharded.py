"""The summary of samples against a head whose classes are divided among processes."""

import math

import torch
from torch import Tensor

from hardsight.class_shards import ShardedHead
from hardsight.geometry import angles_to_classes, full_precision, norms, widen
from hardsight.hardness.columns import COLUMNS, ClassSummary, Part, SummaryColumns
from hardsight.hardness.summary import summarise_logits

# Samples x own classes of one chunk, and the most samples.
_ELEMENTS, _MOST_SAMPLES = 2**24, 4096


@torch.no_grad()
def summarise_shards(
    features: Tensor, head: ShardedHead, labels: Tensor | None, parts: frozenset[Part], chunk: int | None = None
) -> ClassSummary:
    """Summary of this process's samples, to which every process adds what its classes have. All must call it.

    The processes take turns of `chunk` samples from each; one that has none left takes part all the same.
    """
    counts = head.counts(features, labels)
    largest = int(head.reduce(torch.tensor(len(head.weight), device=head.weight.device), "max"))
    rows = chunk or max(1, min(_MOST_SAMPLES, _ELEMENTS // largest // head.processes))
    if not max(counts):
        raise ValueError("features must not be empty in every process; got no sample at all")
    columns = SummaryColumns(len(features))
    for start in range(0, max(counts), rows):
        here = [max(0, min(rows, count - start)) for count in counts]
        before = sum(here[: head.rank])
        some = head.gather(widen(features[start : start + rows]), here)
        given = None if labels is None else head.gather(labels[start : start + rows].long(), here)
        found = _summarised(some, head, given, parts)
        own = {name: value[before : before + here[head.rank]] for name, value in found.items()}
        summary = ClassSummary(head.classes, head.bias is not None, **own)
        if here[head.rank]:
            columns.add(summary)
    return columns.summary() if len(features) else summary


def _summarised(x: Tensor, head: ShardedHead, labels: Tensor | None, parts: frozenset[Part]) -> dict[str, Tensor]:
    """The columns of everybody's samples."""
    weight = widen(head.weight).to(torch.promote_types(x.dtype, head.weight.dtype))
    x = x.to(weight.dtype)
    found = {"feature_norm": norms(x)}
    with full_precision(x):
        logits = x @ weight.T
    logits = logits if head.bias is None else logits + widen(head.bias)
    if labels is None or "predicted" in parts:
        top, place = logits.max(1)
        best = head.reduce(top, "max")
        # Of equal ones the first class.
        first = torch.where(top == best, place + head.first, head.classes)
        found["predicted"] = head.reduce(first, "min")
    found["labels"] = found["predicted"] if labels is None else labels
    if "angles" in parts:
        mine, place = head.own(found["labels"])
        column = place.unsqueeze(1)
        at_label = torch.zeros_like(logits, dtype=torch.bool).scatter(1, column, mine.unsqueeze(1))
        angles = angles_to_classes(x, weight)
        sums = torch.stack([torch.where(mine, angles.gather(1, column).squeeze(1), 0.0), angles.sum(1)])
        found["label_angle"], found["angle_sum"] = head.reduce(sums).unbind()
        found["nearest_other_angle"] = head.reduce(torch.where(at_label, math.inf, angles).amin(1), "min")
    if parts & {"logits", "spread", "rank"}:
        found |= summarise_logits(logits, found["labels"], parts, consume=True, shards=head)
    asked = {name for part in parts for name in COLUMNS[part]} | {"feature_norm", "labels", "predicted"}
    return {name: value for name, value in found.items() if name in asked}
