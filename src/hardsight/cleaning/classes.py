"""What is a class and what is none."""

import numpy as np
from torch import Tensor


def require_classes(name: str, numbers: Tensor | np.ndarray, instead: str = "leave those samples out") -> None:
    """Refuse negative numbers, which stand for no class as PyTorch's -100 does: they would be a class of their own.

    `instead` says what to do with a sample that has none.
    """
    negative = numbers[numbers < 0]
    if not len(negative):
        return
    among = f" ({len(negative)} of {len(numbers)})" if len(numbers) > 1 else ""
    raise ValueError(
        f"{name} must be 0 or larger, the number of a class; got {int(negative[0])}, which stands for none{among}: "
        f"{instead}"
    )
