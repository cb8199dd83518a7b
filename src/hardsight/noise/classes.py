"""Noise that depends on the class alone: symmetric, within groups, by mapping, by transition matrix, by people.

And the confusions that the public data sets are tested with: which class is mistaken for which, and who is kin.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from hardsight import validation
from hardsight.validation import check_count, check_integers, check_share, check_tensor

Labels = Integer[Tensor, "samples"]
# Patrini et al. (2017): truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog.
CIFAR10_LOOKALIKES = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}

# Patrini et al. (2017): 2 -> 7, 3 -> 8, 7 -> 1, 5 <-> 6.
MNIST_LOOKALIKES = {2: 7, 3: 8, 7: 1, 5: 6, 6: 5}

# Coarse class of each of CIFAR-100's fine classes, as in the files of the data set: 20 groups of 5.
CIFAR100_COARSE = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7),
    *(6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10),
    *(16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16),
    *(12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)


class NoisyLabels(NamedTuple):
    """Labels after noise, and which of them differ from what they were."""

    labels: Labels
    changed: Bool[Tensor, "samples"]


def flip_symmetric(
    labels: Labels, rate: float, num_classes: int, *, generator: torch.Generator, exact: bool = False
) -> NoisyLabels:
    """Replace each label, with probability `rate`, by another class drawn uniformly (GR, Section 4.2).

    The new class always differs, so `rate` is the share of wrong labels. With `exact`, round(rate * samples)
    labels change: neither more nor fewer.

    >>> clean = torch.arange(10).repeat(100)
    >>> noisy = flip_symmetric(clean, 0.4, 10, generator=torch.Generator().manual_seed(0), exact=True)
    >>> int(noisy.changed.sum()), bool((noisy.labels[noisy.changed] != clean[noisy.changed]).all())
    (400, True)
    """
    check_labels(labels, num_classes, generator, rate)
    chosen = choose(torch.ones_like(labels, dtype=torch.bool), rate, exact, generator)
    # One of the other classes is one of the C - 1 steps forward around the circle of classes.
    steps = torch.randint(1, num_classes, labels.shape, generator=generator, device=labels.device)
    return replaced(labels, (labels.long() + steps) % num_classes, chosen)


def flip_within_groups(
    labels: Labels,
    rate: float,
    groups: Sequence[int] | Integer[Tensor, "classes"],
    *,
    generator: torch.Generator,
    exact: bool = False,
) -> NoisyLabels:
    """Replace each label, with probability `rate`, by another class of its own group, uniformly (GR, Appendix D).

    `groups[c]` is the group of class c: `CIFAR100_COARSE` for the appendix. A class alone in its group has nowhere
    to go and keeps its labels; `exact` counts among the labels that can change.
    """
    check_tensor("labels", labels)
    group_of = torch.as_tensor(groups, device=labels.device).long()
    check_labels(labels, group_of.numel(), generator, rate)
    # Classes sorted by group: a group is then a run of neighbours, and another member a step around that run.
    order = torch.argsort(group_of, stable=True)
    position = torch.argsort(order)
    _, group_index, sizes = torch.unique(group_of, return_inverse=True, return_counts=True)
    starts = (sizes.cumsum(0) - sizes)[group_index]
    size = sizes[group_index][labels.long()]
    chosen = choose(size > 1, rate, exact, generator)
    uniform = torch.rand(labels.shape, generator=generator, device=labels.device, dtype=torch.float64)
    # A uniform number below one may still round up to the whole group: that would be the class itself.
    steps = 1 + torch.minimum((uniform * (size - 1)).long(), (size - 2).clamp_min(0))
    start = starts[labels.long()]
    return replaced(labels, order[start + (position[labels.long()] - start + steps) % size], chosen)


def flip_by_mapping(
    labels: Labels,
    rate: float,
    mapping: Mapping[int, int],
    num_classes: int,
    *,
    generator: torch.Generator,
    exact: bool = False,
) -> NoisyLabels:
    """Replace each label whose class is in `mapping`, with probability `rate`, by the class it maps to.

    The asymmetric noise of Patrini et al. (2017): `CIFAR10_LOOKALIKES`, `MNIST_LOOKALIKES`, or
    `next_in_group(CIFAR100_COARSE)`. Classes that are not in it stay clean, so the share over all labels is lower
    than `rate`; `exact` counts among the labels that can change.
    """
    check_labels(labels, num_classes, generator, rate)
    known = range(num_classes)
    for source, target in mapping.items():
        if source not in known or target not in known:
            last = num_classes - 1
            raise ValueError(f"mapping must lead from classes to classes in [0, {last}]; got {source} -> {target}")
    target_of = torch.tensor([mapping.get(label, label) for label in range(num_classes)], device=labels.device)
    targets = target_of[labels.long()]
    return replaced(labels, targets, choose(targets != labels, rate, exact, generator))


def next_in_group(groups: Sequence[int]) -> dict[int, int]:
    """Map each class to the next class of its group, the last to the first; a class alone is left out.

    With `CIFAR100_COARSE`, the asymmetric CIFAR-100 noise of Patrini et al. (2017).

    >>> next_in_group([0, 1, 0, 2, 0])
    {0: 2, 2: 4, 4: 0}
    """
    members: dict[int, list[int]] = {}
    for label, group in enumerate(groups):
        members.setdefault(int(group), []).append(label)
    several = [kin for kin in members.values() if len(kin) > 1]
    return {label: kin[(place + 1) % len(kin)] for kin in several for place, label in enumerate(kin)}


def flip_pairwise(
    labels: Labels, rate: float, num_classes: int, *, generator: torch.Generator, exact: bool = False
) -> NoisyLabels:
    """Replace each label, with probability `rate`, by the next class, the last by the first (Han et al., 2018)."""
    following = {label: (label + 1) % num_classes for label in range(num_classes)}
    return flip_by_mapping(labels, rate, following, num_classes, generator=generator, exact=exact)


def flip_by_matrix(
    labels: Labels, transition: Float[Tensor, "classes classes"], *, generator: torch.Generator
) -> NoisyLabels:
    """Draw each new label from its class's row of `transition`: T[i, j] is the probability that i becomes j.

    By inverting the cumulative rows: a transition of probability zero never happens, and no [samples, classes]
    table is made.
    """
    check_tensor("transition", transition)
    num_classes = transition.shape[0]
    check_labels(labels, num_classes, generator)
    matrix = transition.to(labels.device, torch.float64)
    if not bool((matrix >= 0).all()):
        raise ValueError("transition must hold probabilities, none negative or NaN")
    sums = matrix.sum(1)
    # Loose enough for a matrix that was normalised in half precision; the rows are normalised again below.
    if not bool(((sums - 1).abs() <= 1e-3).all()):
        worst = int((sums - 1).abs().argmax())
        raise ValueError(f"transition must have rows that sum to 1; row {worst} sums to {float(sums[worst]):.6g}")
    uniform = torch.rand(labels.shape, generator=generator, device=labels.device, dtype=torch.float64)
    return replaced(labels, draw_from_rows(matrix, labels.long(), uniform), torch.ones_like(uniform, dtype=torch.bool))


def human_labels(
    labels: Labels,
    annotations: Integer[Tensor, "rows"] | Integer[Tensor, "rows annotators"],
    num_classes: int,
    *,
    generator: torch.Generator | None = None,
) -> NoisyLabels:
    """What people said instead of `labels`: one column of answers (CIFAR-N's `worse`), or one of several at random.

    With several annotators a column, each sample takes the answer of one of them, drawn by `generator`.
    """
    check_labels(labels, num_classes, generator)
    check_rows("annotations", annotations, labels)
    validation.check_labels(annotations.flatten(), annotations.numel(), num_classes, "annotations")
    answers = annotations.to(labels.device)
    if answers.ndim == 2:
        if generator is None:
            raise ValueError("generator must be given to draw one of several annotators; got None")
        column = torch.randint(answers.shape[1], labels.shape, generator=generator, device=labels.device)
        answers = answers.gather(1, column.unsqueeze(1)).squeeze(1)
    return replaced(labels, answers, torch.ones_like(labels, dtype=torch.bool))


def measured_transition(labels: Labels, noisy: Labels, num_classes: int) -> Float[Tensor, "classes classes"]:
    """Share of each class's samples under each noisy label, float64; the row of an absent class is zero."""
    check_labels(labels, num_classes)
    validation.check_labels(noisy, len(labels), num_classes, "noisy")
    pairs = labels.long() * num_classes + noisy.to(labels.device).long()
    counts = torch.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes).double()
    return counts / counts.sum(1, keepdim=True).clamp_min(1)


def draw_from_rows(
    weights: Float[Tensor, "rows classes"], rows: Integer[Tensor, "samples"], uniform: Float[Tensor, "samples"]
) -> Integer[Tensor, "samples"]:
    """Class whose share of `weights[row]` holds the uniform number of each sample; never one of weight zero."""
    classes = weights.shape[1]
    cumulative = weights.cumsum(1)
    cumulative = cumulative / cumulative[:, -1:]
    # All rows on one line, row r in [r, r + 1): one search in a sorted line serves every sample.
    offset = torch.arange(len(weights), device=weights.device, dtype=torch.float64)
    line = (cumulative + offset.unsqueeze(1)).flatten()
    start = rows.double()
    # Adding the row's number may round up into the next row.
    wanted = torch.minimum(start + uniform, torch.nextafter(start + 1, start))
    return torch.searchsorted(line, wanted, right=True) - rows * classes


def choose(
    candidates: Bool[Tensor, "samples"], rate: float, exact: bool, generator: torch.Generator
) -> Bool[Tensor, "samples"]:
    """A random share `rate` of the candidates: each by its own draw, or exactly the rounded share of their number."""
    if not exact:
        draws = torch.rand(candidates.shape, generator=generator, device=candidates.device, dtype=torch.float64)
        return candidates & (draws < rate)
    places = candidates.nonzero().squeeze(1)
    order = torch.randperm(len(places), generator=generator, device=candidates.device)
    chosen = torch.zeros_like(candidates)
    chosen[places[order[: round(rate * len(places))]]] = True
    return chosen


def check_labels(
    labels: Tensor, num_classes: int, generator: torch.Generator | None = None, rate: float | None = None
) -> None:
    """At least two classes, labels of a type that can hold them all, a generator on their device, a share as rate."""
    check_integers("labels", labels)
    check_count("num_classes", num_classes, "so that there is another class", least=2)
    if num_classes - 1 > torch.iinfo(labels.dtype).max:
        # New labels come in the type of the old, where class 256 of uint8 would be class 0.
        raise ValueError(f"labels must be of a type that can hold {num_classes} classes; got {labels.dtype}")
    validation.check_labels(labels, len(labels), num_classes)
    if generator is not None:
        check_generator(generator, labels.device)
    if rate is not None:
        check_share("rate", rate, "the share of labels to change")


def check_generator(generator: torch.Generator, device: torch.device) -> None:
    """A generator that draws on the device of the data."""
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator; got {type(generator).__name__}")
    if generator.device.type != device.type:
        raise ValueError(f"generator must be on the data's device, {device}; got one on {generator.device}")


def check_rows(name: str, values: Tensor, labels: Tensor) -> None:
    """A tensor with one row for each label."""
    check_tensor(name, values)
    if len(values) != len(labels):
        raise ValueError(f"{name} must have one row for each label; got {len(values)} rows for {len(labels)} labels")


def replaced(labels: Tensor, new: Tensor, where: Tensor) -> NoisyLabels:
    """The new labels there, in the type of the old, and which of them differ."""
    noisy = torch.where(where, new.to(labels.dtype), labels)
    return NoisyLabels(noisy, noisy != labels)
