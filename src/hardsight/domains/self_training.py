"""Self-training: a labelled source, then rounds on the target samples that the model is surest of.

A round looks at the target, selects pseudo-labels (see `selection`) and retrains on both domains; each round takes a
larger portion. The target's own labels, where it has any, are used for measuring alone.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hardsight.datasets.augment import Augmentation
from hardsight.datasets.interface import ArrayDataset
from hardsight.domains.selection import Selection, Selector, check_portion, get_selector
from hardsight.geometry import widen
from hardsight.losses.inputs import reduce
from hardsight.losses.terms import Term, label_count, mean_over, value_of, value_over
from hardsight.names import check_name
from hardsight.training.network import IGNORED

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
DEFAULT_OPTIMIZER: MakeOptimizer = partial(torch.optim.SGD, lr=0.03, momentum=0.9, weight_decay=5e-4)
# What a training needs of steps, whatever the size of its data; more in a round would fit its wrong labels.
_SOURCE_EPOCHS, _SOURCE_STEPS, _ROUND_STEPS = 3, 1000, (50, 200)


@dataclass(frozen=True)
class SelfTrained:
    """What self-training gives back: the model that was given, trained, and what was seen on the way.

    `rounds`: one row for each look at the target, the last one after all training (`looking.ROUND_COLUMNS`).
    `selection` is the last one, `selected` a row for each selected sample of each round. `notes`: one sentence for each
    thing a person should know.
    """

    model: nn.Module
    rounds: list[dict[str, Any]]
    epochs: list[dict[str, Any]]
    selection: Selection | None
    selected: pa.Table
    notes: list[str]
    folder: Path | None


@dataclass(frozen=True)
class SelfTraining:
    """Self-training by `selector`, one of `SELECTORS` or your own: "avh", "cbst", "crst", ...

    Round r, from 0, labels the portion min(portion + r portion_step, portion_cap) of the target; the defaults are
    those of CBST's public code. A round is `epochs_per_round` epochs; `regenerate` makes the labels again before every
    "round" or every "epoch". An epoch is `steps_per_epoch` batches, left out as many as one pass over the target needs,
    from 50 to 200; `target_share` of each batch is target (None: drawn from all, as Eq. 2 sums over both).
    `source_epochs` train on the source first, left out as many as make 1,000 steps, at least 3; 0 where the model comes
    trained.

    `loss`: any loss of (logits, labels); soft labels (LRENT) need one that takes class probabilities. `optimizer`
    makes one of parameters; in the rounds its learning rate is multiplied by `rate_in_rounds`. `augmentation` of
    images; left out, shifts by up to a fourteenth of the width. `when_empty`: what to do when a round selects nothing,
    with the last model kept: "stop", or "go_on" with the next portion. `precision` and `capture` as in
    `training.Steps`.

    >>> SelfTraining("cbst", rounds=9).portions()
    [0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.5, 0.5]
    """

    selector: str | Selector = "avh"
    _: dataclasses.KW_ONLY
    rounds: int = 7
    epochs_per_round: int = 1
    source_epochs: int | None = None
    regenerate: Literal["round", "epoch"] = "round"
    portion: float = 0.20
    portion_step: float = 0.05
    portion_cap: float = 0.50
    batch_size: int = 128
    target_share: float | None = 0.5
    steps_per_epoch: int | None = None
    when_empty: Literal["stop", "go_on"] = "stop"
    loss: Callable[..., Tensor] | None = None
    optimizer: MakeOptimizer = DEFAULT_OPTIMIZER
    rate_in_rounds: float = 0.3
    augmentation: Augmentation | None = None
    precision: str = "auto"
    capture: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        get_selector(self.selector)
        for name in ("portion", "portion_cap"):
            check_portion(getattr(self, name), name)
        if self.portion > self.portion_cap:
            raise ValueError(f"portion must be at most its cap, {self.portion_cap!r}; got {self.portion!r}")
        least: dict[str, float] = {
            "rounds": 1, "epochs_per_round": 1, "source_epochs": 0, "steps_per_epoch": 1, "batch_size": 2, "seed": 0,
            "portion_step": 0,
        }  # fmt: skip
        for name, bound in least.items():
            given = getattr(self, name)
            if given is not None and not bound <= given < math.inf:
                raise ValueError(f"{name} must be at least {bound} and finite; got {given!r}")
        if not 0 < self.rate_in_rounds < math.inf:
            raise ValueError(f"rate_in_rounds must be a finite number above 0; got {self.rate_in_rounds!r}")
        share = self.target_share
        if share is not None and not 0 < share < 1:
            raise ValueError(f"target_share must lie in (0, 1), the target's part of a batch; got {share!r}")
        check_name("regenerate", self.regenerate, ("round", "epoch"))
        check_name("when_empty", self.when_empty, ("stop", "go_on"))

    def portions(self) -> list[float]:
        """The portion of each round."""
        # Rounded, because 0.2 + 2 * 0.05 is no 0.3 in binary.
        return [round(min(self.portion + at * self.portion_step, self.portion_cap), 9) for at in range(self.rounds)]

    def epochs_on_source(self, samples: int) -> int:
        """Epochs of the training on a source of so many samples."""
        if self.source_epochs is not None:
            return self.source_epochs
        return max(_SOURCE_EPOCHS, math.ceil(_SOURCE_STEPS / math.ceil(samples / self.batch_size)))

    def steps_on_target(self, samples: int) -> int:
        """Batches of an epoch of a round, for a target of so many samples."""
        if self.steps_per_epoch is not None:
            return self.steps_per_epoch
        rows = self.batch_size if self.target_share is None else max(1, round(self.target_share * self.batch_size))
        return min(max(math.ceil(samples / rows), _ROUND_STEPS[0]), _ROUND_STEPS[1])

    def augmentation_of(self, width: int) -> Augmentation:
        """What happens to training images so many pixels wide: shifts by a fourteenth, two pixels of 28."""
        return Augmentation(shift=width // 14) if self.augmentation is None else self.augmentation

    def fit(
        self,
        model: nn.Module,
        source: ArrayDataset,
        target: ArrayDataset,
        *,
        test: ArrayDataset | None = None,
        folder: Path | str | None = None,
        device: torch.device | str | None = None,
        head: str | None = None,
        resume: bool = True,
        name: str = "adaptation",
        say: Callable[[str], None] | None = None,
        after_round: Callable[[dict[str, Any]], None] | None = None,
    ) -> SelfTrained:
        """Train `model` in place; `source` and `target` are sets in memory, of images or of points.

        `test`: labelled samples of the target domain that are not trained on. With `folder` the run leaves a record
        and, started again, goes on after the last complete epoch, to the same bits. `say` is told what happens, a
        sentence at a time; `after_round` gets each row of `rounds`. `head` names the last linear layer where a model
        leaves a choice.
        """
        from hardsight.domains.rounds import Rounds

        place = None if folder is None else Path(folder)
        return Rounds(self, model, source, target, test, place, device, head, resume, name, say, after_round).run()

    def settings(self) -> dict[str, Any]:
        """All settings as plain values: what the record holds."""
        held = dict(vars(self)) | {"selector": dataclasses.asdict(get_selector(self.selector))}
        held["augmentation"] = None if self.augmentation is None else dataclasses.asdict(self.augmentation)
        return held | {"loss": _described(self.loss), "optimizer": _described(self.optimizer)}


def _described(value: Any) -> str | None:
    """A function, module or partial in words that are the same in every run."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, partial):
        options = ", ".join(f"{key}={item!r}" for key, item in value.keywords.items())
        return f"{_described(value.func)}({options})"
    if isinstance(value, nn.Module):
        return repr(value)
    return str(getattr(value, "__qualname__", type(value).__qualname__))


class PseudoLabelLoss(nn.Module):
    """`loss(logits, labels)`, where rows of target samples may have soft labels, plus MRKLD on those rows.

    Ids below `first_target` are source samples; id `first_target + i` is row i of the target. `divergence_weight`
    times -mean_c log p_c, the divergence from the uniform distribution up to a constant, is added for each target
    row (Zou et al. 2019, MRKLD); it is averaged over the samples of the batch that have a label. Soft labels are one
    table on the device, written in place, so that a captured step reads new ones.
    """

    soft: Tensor | None

    def __init__(
        self,
        loss: Callable[..., Tensor] | None = None,
        *,
        first_target: int,
        soft_rows: tuple[int, int] | None = None,
        divergence_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss() if loss is None else loss
        self.first_target, self.divergence_weight = first_target, divergence_weight
        self.register_buffer("soft", None if soft_rows is None else torch.zeros(soft_rows), persistent=False)

    def set_soft(self, soft: Float[Tensor, "targets classes"]) -> None:
        """Label the target's rows by these shares from now on."""
        assert self.soft is not None
        self.soft.copy_(soft)

    def forward(
        self, logits: Float[Tensor, "batch classes"], labels: Int[Tensor, "batch"], ids: Int[Tensor, "batch"]
    ) -> Float[Tensor, ""]:
        loss, *divergence = self.terms(logits, labels, ids)
        return loss.value + divergence[0].value if divergence else loss.value

    def terms(
        self, logits: Float[Tensor, "batch classes"], labels: Int[Tensor, "batch"], ids: Int[Tensor, "batch"]
    ) -> list[Term]:
        """The loss and the divergence: the one may be normalised over all processes, the other is not."""
        overs, target = [mean_over(self.loss), value_over(self.loss)], labels
        if self.soft is not None:
            # Soft labels count one each, whatever their class.
            overs = ["samples" if over == "labels" else over for over in overs]
            hard = nn.functional.one_hot(labels, logits.shape[1]).to(self.soft.dtype)
            rows, is_target = self.soft[(ids - self.first_target).clamp(min=0)], ids >= self.first_target
            target = torch.where(is_target.unsqueeze(1), rows, hard).to(widen(logits).dtype)
        terms = [Term(value_of(self.loss, logits, target), *overs)]
        if self.divergence_weight:
            divergence = torch.where(ids >= self.first_target, -widen(logits).log_softmax(1).mean(1), 0.0)
            mean = reduce(divergence, "mean", weight=(labels != IGNORED).to(divergence.dtype))
            terms.append(Term(self.divergence_weight * mean, "samples"))
        return terms

    def label_count(self, labels: Int[Tensor, "batch"]) -> Float[Tensor, ""]:
        """By what the mean of the loss divides."""
        return label_count(self.loss, labels)
