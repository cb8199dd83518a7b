"""Triton: what the losses' kernels share: who counts and how much, and numbers that may come as tensors."""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def label_and_weight(labels, sample_weight, sample, inside, ignore_index):
    """The label of each sample (0 where ignored), and its weight: 1 where none is given, 0 where ignored or outside."""
    # A byte without sign would be taken for one with it where it moves a pointer.
    label = tl.load(labels + sample, mask=inside, other=0).to(tl.int64)
    kept = inside & (label != ignore_index)
    if sample_weight is None:
        weight = tl.where(kept, 1.0, 0.0)
    else:
        weight = tl.load(sample_weight + sample, mask=kept, other=0.0).to(tl.float32)
    return tl.where(kept, label, 0), weight


@triton.jit
@no_type_check
def number_at(pointer, value):
    """A number that comes as a tensor of one element, or as itself where there is no tensor."""
    if pointer is None:  # noqa: SIM108, the branch not taken must not be compiled
        number = value
    else:
        number = tl.load(pointer).to(tl.float32)
    return number
