"""Signs that a training goes wrong, in one line each with what to try: accuracy at chance, classes that disappear."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Int
from torch import Tensor

from hardsight.losses.rescaling import GradientRescaling
from hardsight.losses.rescaling_limit import largest_beta

# An epoch at chance is a beginning, several are a sign: an epoch of a small set is a few steps.
PATIENCE = 5
# Above chance is what lies this many standard deviations above it.
_DEVIATIONS = 2
# A class with fewer labels may well be predicted for none of them.
_LEAST_LABELS = 5
_NAMED = 5


class Watch:
    """Looks at every epoch's predictions of the training, and says once what a person should know."""

    def __init__(self, class_names: Sequence[str] = ()) -> None:
        self.class_names = class_names
        self.at_chance, self.told_chance, self.told_missing = 0, False, 0
        self.missing: list[int] = []

    def epoch(
        self, row: Mapping[str, Any], counts: Int[Tensor, "2 classes"], loss: object, learning_rate: float
    ) -> list[str]:
        """What is to be said after this epoch; `counts` are the labels and the predictions by class."""
        given, predicted = counts.double()
        total, classes = float(given.sum()), len(given)
        # What labels and predictions would agree in if they had nothing to do with each other (Cohen 1960).
        chance = float(given @ predicted) / max(total, 1.0) ** 2
        bound = chance + _DEVIATIONS * math.sqrt(chance * (1 - chance) / max(total, 1.0))
        several = int((given > 0).sum()) > 1
        self.at_chance = self.at_chance + 1 if several and row["train_accuracy"] <= bound else 0
        gone = (predicted == 0) & (given >= _LEAST_LABELS)
        held = self.missing if len(self.missing) == classes else [0] * classes
        self.missing = [epochs + 1 if now else 0 for epochs, now in zip(held, gone.tolist(), strict=True)]
        advice = _advice(loss, classes, learning_rate)
        if self.at_chance >= PATIENCE:
            if self.told_chance:
                return []
            self.told_chance = True
            accuracy = f"{100 * row['train_accuracy']:.1f} %"
            return [f"the training accuracy has been at chance for {PATIENCE} epochs ({accuracy}): {advice}"]
        return self._missing(advice)

    def _missing(self, advice: str) -> list[str]:
        lasting = [number for number, epochs in enumerate(self.missing) if epochs >= PATIENCE]
        if len(lasting) < max(1, 2 * self.told_missing):
            return []
        self.told_missing = len(lasting)
        names = [str(self.class_names[one]) if one < len(self.class_names) else str(one) for one in lasting[:_NAMED]]
        more = f" and {len(lasting) - _NAMED} others" if len(lasting) > _NAMED else ""
        return [f"for {PATIENCE} epochs no training sample has been predicted as {', '.join(names)}{more}: {advice}"]

    def state_dict(self) -> dict[str, Any]:
        """What must survive an interruption."""
        return {name: value for name, value in vars(self).items() if name != "class_names"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)


def _advice(loss: object, classes: int, learning_rate: float) -> str:
    if isinstance(loss, GradientRescaling) and loss.transform == "exp":
        limit = largest_beta(loss.lam, classes)
        if loss.beta > limit:
            return f"rescaling with beta {loss.beta:g} rules classes out; at lam {loss.lam:g} try less than {limit:.3g}"
    return f"try another learning rate (it is {learning_rate:.3g}, and often too high), or cross-entropy first"
