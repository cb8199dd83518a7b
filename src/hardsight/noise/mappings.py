"""The confusions that the public data sets are tested with: which class is mistaken for which, and who is kin."""

from collections.abc import Sequence

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


def next_in_group(groups: Sequence[int]) -> dict[int, int]:
    """Map each class to the next class of its group, the last to the first; a class alone is left out.

    With `CIFAR100_COARSE`, the asymmetric CIFAR-100 noise of Patrini et al. (2017).

    >>> next_in_group([0, 1, 0, 2, 0])
    {0: 2, 2: 4, 4: 0}
    """
    members: dict[int, list[int]] = {}
    for label, group in enumerate(groups):
        members.setdefault(int(group), []).append(label)
    return {
        label: kin[(place + 1) % len(kin)]
        for kin in members.values()
        if len(kin) > 1
        for place, label in enumerate(kin)
    }
