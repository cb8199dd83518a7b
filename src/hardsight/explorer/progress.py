"""How far a review has come: how many suspects were wrong so far, and how many are to be expected in the rest."""

from typing import NamedTuple

import numpy as np

# Suspects are judged in so many groups of neighbouring ranks.
_GROUPS, _FEWEST, _DRAWS = 8, 10, 4000
_INTERVAL = (0.025, 0.975)
UNDECIDED, RIGHT, WRONG, UNSURE = 0, 1, 2, 3


class Progress(NamedTuple):
    """Counts over the suspects, and the expected number of wrong labels among those not decided, with 95 %.

    `expected`, `low` and `high` are None where nothing has been decided yet.
    """

    suspects: int
    right: int
    wrong: int
    unsure: int
    expected: float | None
    low: float | None
    high: float | None


def progress(outcome: np.ndarray) -> Progress:
    """Progress over the suspects, most suspicious first; `outcome` is UNDECIDED, RIGHT, WRONG or UNSURE.

    In each group of neighbouring ranks those not decided are taken to be wrong as often as those decided (a Beta
    distribution; its prior is the share over all decided and weighs as much as one sample). A group without a decision
    borrows those of the nearest group of higher suspicion that has one, else of lower. Where suspicion orders well this
    expects too many rather than too few.
    """
    counts = np.bincount(outcome, minlength=4)
    found = Progress(len(outcome), int(counts[RIGHT]), int(counts[WRONG]), int(counts[UNSURE]), None, None, None)
    left = int(counts[UNDECIDED] + counts[UNSURE])
    if not found.right + found.wrong:
        return found
    if not left:
        return found._replace(expected=0.0, low=0.0, high=0.0)
    groups = np.array_split(outcome, min(_GROUPS, max(1, len(outcome) // _FEWEST)))
    overall = (found.wrong + 0.5) / (found.wrong + found.right + 1)
    wrong, right = (np.array([(group == one).sum() for group in groups]) for one in (WRONG, RIGHT))
    judged = np.flatnonzero(wrong + right)
    generator, total = np.random.default_rng(0), np.zeros(_DRAWS)
    sources = [max((one for one in judged if one <= at), default=judged[0]) for at in range(len(groups))]
    for source in sorted(set(sources)):
        undecided = sum(
            int(((group == UNDECIDED) | (group == UNSURE)).sum())
            for group, own in zip(groups, sources, strict=True)
            if own == source
        )
        # The groups that borrow from one are wrong together or right together: one share for all of them.
        share = generator.beta(wrong[source] + overall, right[source] + 1 - overall, _DRAWS)
        total += generator.binomial(undecided, share)
    low, high = np.quantile(total, _INTERVAL)
    return found._replace(expected=float(total.mean()), low=float(low), high=float(high))
