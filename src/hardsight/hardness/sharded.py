"""The summary of samples against a head whose classes are divided among processes."""

import math

import torch
from torch import Tensor

from hardsight.class_shards import ShardedHead
from hardsight.geometry import angles_to_classes, full_precision, norms, widen
from hardsight.hardness.columns import COLUMNS, ClassSummary, Part, SummaryColumns

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
    mine, place = head.own(found["labels"])
    column = place.unsqueeze(1)
    at_label = torch.zeros_like(logits, dtype=torch.bool).scatter(1, column, mine.unsqueeze(1))
    if "angles" in parts:
        angles = angles_to_classes(x, weight)
        sums = torch.stack([torch.where(mine, angles.gather(1, column).squeeze(1), 0.0), angles.sum(1)])
        found["label_angle"], found["angle_sum"] = head.reduce(sums).unbind()
        found["nearest_other_angle"] = head.reduce(torch.where(at_label, math.inf, angles).amin(1), "min")
    if parts & {"logits", "spread", "rank"}:
        found |= _logit_columns(head, logits, torch.where(mine, logits.gather(1, column).squeeze(1), 0.0), at_label)
    asked = {name for part in parts for name in COLUMNS[part]} | {"feature_norm", "labels", "predicted"}
    return {name: value for name, value in found.items() if name in asked}


def _logit_columns(head: ShardedHead, logits: Tensor, label_here: Tensor, at_label: Tensor) -> dict[str, Tensor]:
    """What the softmax over all processes' classes gives."""
    others = torch.where(at_label, -math.inf, logits)
    label = head.reduce(label_here)
    largest_other = head.reduce(others.amax(1), "max")
    top = torch.maximum(largest_other, label)
    below = others - top.unsqueeze(1)
    exponentials = below.exp()
    terms = torch.where(at_label, 0.0, exponentials * -below.clamp_min(torch.finfo(below.dtype).min))
    sums = (
        exponentials.sum(1), exponentials.square().sum(1), terms.sum(1),
        (others > label.unsqueeze(1)).sum(1).to(logits.dtype),
    )  # fmt: skip
    mass, squares, spread, above = head.reduce(torch.stack(sums)).unbind()
    label_mass = (label - top).exp()
    total = mass + label_mass
    # Where the label leads its own term is 1, and adding it would round small masses away.
    log_total = torch.where(label >= largest_other, mass.log1p(), total.log())
    return {
        "label_logit": label,
        "largest_other_logit": largest_other,
        "log_sum_exp": top + log_total,
        "other_probability": mass / total,
        "other_squares": squares / total.square(),
        "entropy": (spread + label_mass * (top - label)) / total + log_total,
        "others_above": above,
    }
