"""Which samples come when: the orders and seeds that a loader draws, the same on every device and in every process."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


def balanced_order(
    labels: Int[Tensor, "samples"], classes: int, each: int, batches: int, *, generator: torch.Generator
) -> Int[Tensor, "places"]:
    """Samples of that many batches, each of `classes` different classes drawn uniformly with `each` images a class.

    A class's images come in random order, and again from the start when all have come; labels below 0 never come.
    """
    shuffled = torch.randperm(len(labels), generator=generator)
    shuffled = shuffled[labels[shuffled] >= 0]
    # Sorted by class, in random order within: class c is the run that starts at starts[c].
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    counts = torch.bincount(labels[by_class])
    starts = counts.cumsum(0) - counts
    present = counts.nonzero().squeeze(1)
    keys = torch.rand(batches, len(present), generator=generator)
    chosen = keys.argsort(1)[:, :classes]
    # How often a class has come before this batch says how far into its run to read.
    taken = torch.zeros(batches, len(present), dtype=torch.int64).scatter_(1, chosen, 1)
    turn = (taken.cumsum(0) - taken).gather(1, chosen)
    names = present[chosen]
    offsets = turn.unsqueeze(2) * each + torch.arange(each)
    return by_class[(starts[names].unsqueeze(2) + offsets % counts[names].unsqueeze(2)).flatten()]


def mixed_seed(*words: int) -> int:
    """One seed from several numbers; neighbouring numbers give unrelated seeds, zeros at the end count as none."""
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))
