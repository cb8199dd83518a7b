# ruff: noqa: N803
"""Triton: a sample's numbers as `AngularScores` has them, from what was found of its logits."""

from typing import no_type_check

import triton
import triton.language as tl

from hardsight.kernels.fused.angles import softplus


@triton.jit
@no_type_check
def store_logits(out, predicted, row, samples, inside, own_class, largest_other, masses, SPREAD: tl.constexpr):
    """The numbers that logits give: from the labelled class and its logit, the largest other one, and the others' sums.

    The sums are of exponentials below that largest one, of those times how far they are below it, and of their squares.
    """
    label, label_logit = own_class
    place, top = largest_other
    mass, below, mass_squares = masses
    total_top = tl.maximum(top, label_logit)
    others = mass * tl.exp(top - total_top)
    own = tl.exp(label_logit - total_top)
    total = others + own
    # Where the label leads its own term is 1, and log (1 + others) keeps what 1 + others would round away.
    log_total = tl.where(label_logit >= top, softplus(tl.log(others)), tl.log(total))
    wins = (label_logit > top) | ((label_logit == top) & (label < place))
    tl.store(predicted + row, tl.where(wins, label, place.to(tl.int64)), mask=inside)
    tl.store(out + 4 * samples + row, label_logit, mask=inside)
    tl.store(out + 5 * samples + row, top, mask=inside)
    tl.store(out + 6 * samples + row, total_top + log_total, mask=inside)
    tl.store(out + 7 * samples + row, others / total, mask=inside)
    squares = total * 0.0
    entropy = squares
    if SPREAD:
        squares = mass_squares * tl.exp(2.0 * (top - total_top)) / (total * total)
        spread_others = below * tl.exp(top - total_top) + others * (total_top - top)
        entropy = (spread_others + own * (total_top - label_logit)) / total + log_total
    tl.store(out + 8 * samples + row, squares, mask=inside)
    tl.store(out + 9 * samples + row, entropy, mask=inside)
