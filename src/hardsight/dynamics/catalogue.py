"""The scores of training dynamics, registered beside those of one look at a model."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor

from hardsight.dynamics import definitions
from hardsight.dynamics.aggregates import Aggregates
from hardsight.dynamics.detector import detector_score
from hardsight.dynamics.gradients import variance_of_gradients
from hardsight.dynamics.measures import MEASURES
from hardsight.dynamics.sensitivity import local_sensitivity
from hardsight.hardness import SCORES, Score, get_score, register


@dataclass(frozen=True)
class DynamicsScore(Score):
    """A score of a training run; `definition` takes the recorder's aggregates and reads those of its `measures`."""

    measures: tuple[str, ...] = ()


def _register(
    name: str,
    title: str,
    definition: Callable[[Aggregates], Tensor],
    measures: tuple[str, ...],
    source: str,
    *,
    harder: bool,
    low: float = 0.0,
    high: float = math.inf,
    tags: frozenset[str] = frozenset(),
) -> None:
    register(
        DynamicsScore(
            name,
            title,
            definition,
            needs=("dynamics",),
            larger_is_harder=harder,
            low=low,
            high=high,
            source=source,
            tags=tags,
            measures=measures,
        )
    )


_AVH = "Chen et al. 2020, Eq. 1, over training"
_ANGLE = "nearest other angle minus labelled angle, over training"
_DATA_MAPS = "Swayamdipta et al. 2020, Section 2"
_DATA_IQ = "Seedat et al. 2022"
_SPLITS = "Maini et al. 2022"
_WHOLE_SET = frozenset({"depends on the whole set"})
_TONEVA = "Toneva et al. 2019"

_register("avh_mean", "AVH, mean", definitions.avh_mean, ("avh",), _AVH, harder=True, high=1.0)
_register("avh_last", "AVH, last epoch", definitions.avh_last, ("avh",), _AVH, harder=True, high=1.0)
_register("avh_slope", "AVH, change an epoch", definitions.avh_slope, ("avh",), _AVH, harder=True, low=-1.0, high=1.0)
_register(
    "angular_margin_mean",
    "Angular margin (radians), mean",
    definitions.angular_margin_mean,
    ("angular_margin",),
    _ANGLE,
    harder=False,
    low=-math.pi,
    high=math.pi,
)
_register(
    "angular_margin_last",
    "Angular margin (radians), last epoch",
    definitions.angular_margin_last,
    ("angular_margin",),
    _ANGLE,
    harder=False,
    low=-math.pi,
    high=math.pi,
)
_register(
    "aum",
    "Area under the margin",
    definitions.area_under_margin,
    ("margin",),
    "Pleiss et al. 2020, Eq. 2",
    harder=False,
    low=-math.inf,
)
_register(
    "margin_last",
    "Logit margin, last epoch",
    definitions.margin_last,
    ("margin",),
    "Pleiss et al. 2020, Eq. 1",
    harder=False,
    low=-math.inf,
)
_register(
    "loss_mean",
    "Loss area: cross-entropy (nats), mean",
    definitions.loss_mean,
    ("loss",),
    "mean over training, as in Huang et al. 2019",
    harder=True,
)
_register(
    "loss_last",
    "Cross-entropy (nats), last epoch",
    definitions.loss_last,
    ("loss",),
    "-log of the model confidence",
    harder=True,
)
_register(
    "confidence_mean",
    "Confidence (data map)",
    definitions.confidence_mean,
    ("confidence",),
    _DATA_MAPS,
    harder=False,
    high=1.0,
)
_register(
    "variability",
    "Variability (data map)",
    definitions.variability,
    ("confidence",),
    _DATA_MAPS,
    harder=True,
    high=0.5,
)
_register("correctness", "Correctness (data map)", definitions.correctness, (), _DATA_MAPS, harder=False, high=1.0)
_register(
    "aleatoric",
    "Aleatoric uncertainty",
    definitions.aleatoric,
    ("confidence",),
    _DATA_IQ,
    harder=True,
    high=0.25,
)
_register(
    "epistemic",
    "Epistemic uncertainty",
    definitions.epistemic,
    ("confidence",),
    f"{_DATA_IQ}: the square of `variability`, so both rank samples alike",
    harder=True,
    high=0.25,
)
_register(
    "agreement",
    "Confidence of the prediction, mean",
    definitions.agreement,
    ("agreement",),
    "Carlini et al. 2019, confidence and agreement over training",
    harder=False,
    high=1.0,
)
_register(
    "el2n_mean",
    "EL2N, mean",
    definitions.el2n_mean,
    ("el2n",),
    "Paul et al. 2021, Definition 2, over training",
    harder=True,
    high=math.sqrt(2),
)
_register(
    "el2n_early",
    "EL2N, mean of the early epochs",
    definitions.el2n_early,
    ("el2n",),
    "Paul et al. 2021, Definition 2, early in training",
    harder=True,
    high=math.sqrt(2),
)
_register("forgetting_events", "Forgetting events", definitions.forgetting_events, (), _TONEVA, harder=True)
_register("learning_events", "Learning events", definitions.learning_events, (), _TONEVA, harder=True)
_register("first_learned", "First learned (epoch)", definitions.first_learned, (), _TONEVA, harder=True)
_register("learned_for_good", "Learned for good (epoch)", definitions.learned_for_good, (), _SPLITS, harder=True)
_register(
    "second_split_forgetting",
    "Second-split forgetting (epoch)",
    definitions.second_split_forgetting,
    (),
    _SPLITS,
    harder=False,
)
_register(
    "small_loss_gaussian",
    "Small loss, two Gaussians",
    definitions.small_loss_gaussian,
    ("loss",),
    "Li et al. 2020, Section 3.1",
    harder=True,
    high=1.0,
    tags=_WHOLE_SET,
)
_register(
    "small_loss_beta",
    "Small loss, two Betas",
    definitions.small_loss_beta,
    ("loss",),
    "Arazo et al. 2019, Section 3.1",
    harder=True,
    high=1.0,
    tags=_WHOLE_SET,
)
register(
    Score(
        "vog",
        "Variance of gradients",
        variance_of_gradients,
        needs=("model", "checkpoints", "inputs", "labels"),
        larger_is_harder=True,
        low=-math.inf,
        high=math.inf,
        source="Agarwal et al. 2022",
        tags=_WHOLE_SET,
    )
)
register(
    Score(
        "allsh",
        "Local sensitivity to augmentation (nats)",
        local_sensitivity,
        needs=("logits", "augmented"),
        larger_is_harder=True,
        low=0.0,
        high=math.inf,
        source="Zhang et al. 2022 (ALLSH)",
    )
)
register(
    Score(
        "detector",
        "Learned noise detector",
        detector_score,
        needs=("detector", "curves"),
        larger_is_harder=True,
        low=0.0,
        high=1.0,
        source="Jia et al. 2023",
    )
)


def dynamics_scores() -> list[DynamicsScore]:
    """The scores that a recorder gives."""
    return [score for score in SCORES.values() if isinstance(score, DynamicsScore)]


def choose_dynamics_scores(names: Iterable[str]) -> list[DynamicsScore]:
    """The scores of these names that a training run gives; refuses unknown ones and those of one look at a model."""
    names = [names] if isinstance(names, str) else list(names)
    if not names:
        raise ValueError("scores must name at least one score; got none")
    chosen = []
    for name in names:
        score = get_score(name)
        if not isinstance(score, DynamicsScore):
            raise ValueError(f"scores must be ones that a recorder gives; {name!r} comes from a look at a model")
        chosen.append(score)
    return chosen


def measures_of(scores: Iterable[DynamicsScore]) -> tuple[str, ...]:
    """What must be measured for these scores, in the one order everything keeps."""
    needed = {measure for score in scores for measure in score.measures}
    return tuple(measure for measure in MEASURES if measure in needed)
