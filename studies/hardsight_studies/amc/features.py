"""AMC-Loss, Figures 1, 4 and 5: how features lie on the circle, on the sphere, and in a t-SNE view.

Claims. Figure 1: features learnt by cross-entropy are spread by angle (2-D, MNIST). Figure 4: AMC-Loss makes classes
more compact and more apart than the Euclidean contrastive loss, and that than cross-entropy (3-D, MNIST, homogeneity
and completeness). Figure 5: the same in 128-D, seen by t-SNE (SVHN). The paper prints its numbers inside the pictures
alone. Ours: docs/studies/amc-figure1.md, amc-figure4.md, amc-figure5.md, made from the results files.

Figures 1 and 4: the paper's small network with 2 or 3 features, 150 epochs, ramps of 40 and 30. The authors'
visualisation makes pairs by true labels, and so does Figure 4 here. Homogeneity and completeness come both ways: of
the predictions, as the authors' script computes them, and of k-means clusters of the features, as the paper says.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hardsight.explain import agreement, angle_statistics, angular_silhouette, cluster_features, on_sphere, t_sne
from hardsight.geometry import norms
from hardsight.training import Cell
from hardsight_studies.amc.feature_pages import figures_of, table1, table4
from hardsight_studies.amc.looking import finished, look, over_seeds
from hardsight_studies.amc.recipes import FEW, SCHEDULES, recipe, train_at_hand
from hardsight_studies.amc.terms import LOSSES
from hardsight_studies.configured import CellTraining, Hooks, Tree
from hardsight_studies.framework import Options, Study
from hardsight_studies.keeping import Entries

# What a record says of its features; larger is better but for `within`, the mean angle of two samples of a class.
NUMBERS = (
    "test_accuracy", "homogeneity", "completeness", "v_measure", "cluster_homogeneity", "cluster_completeness",
    "cluster_v_measure", "euclidean_v_measure", "norm_v_measure", "within", "between", "silhouette",
)  # fmt: skip


@dataclass(frozen=True)
class Trainings:
    """One preset of one figure: data sets, their network, losses with their weights, seeds, and how long."""

    data: tuple[str, ...]
    model: Tree
    losses: tuple[tuple[str, float], ...]
    seeds: tuple[int, ...]
    length: float
    more: Tree
    points: int = 400
    at_once: int = 1


ALL = (("cross-entropy", 0.0), ("euclidean", 10.0), ("amc", 10.0))
PRINTED = (("euclidean", 0.1), ("amc", 0.1))
CROSS_ENTROPY = (("cross-entropy", 0.0),)
SMOKE: Tree = {"limit": 512, "batch_size": 64}


def _figure(
    dim: int, losses: tuple[tuple[str, float], ...], more: tuple[tuple[str, float], ...]
) -> dict[str, Trainings]:
    small: Tree = {"name": "cnn28", "options": {"feature_dim": dim}}
    # Scikit-learn's digits, 8 x 8, are too small for that network: another, of 64 features, stands for it.
    return {
        "smoke": Trainings(("digits",), {"name": "digits_cnn"}, losses[-2:], (0, 1), 0.02, SMOKE, 60),
        "cpu": Trainings(("mnist",), small, losses + more, (0, 1, 2), 0.1, FEW, 300),
        "paper": Trainings(("mnist",), small, losses + more, (0, 1, 2, 3, 4), 1.0, {}, at_once=10),
    }


def _wide() -> dict[str, Trainings]:
    cnn13: Tree = {"name": "cnn13"}
    return {
        "smoke": Trainings(("digits",), {"name": "digits_cnn"}, ALL[1:], (0,), 0.02, SMOKE, 60),
        "cpu": Trainings(("mnist",), {"name": "cnn28"}, ALL, (0, 1, 2), 0.03, FEW, 300),
        "paper": Trainings(("cifar10", "svhn"), cnn13, ALL, (0, 1, 2), 0.1, {}, 1000, at_once=9),
    }


PRESETS = {
    "amc-figure1": _figure(2, CROSS_ENTROPY, ()),
    "amc-figure4": _figure(3, ALL, PRINTED),
    "amc-figure5": _wide(),
}

# ---------------------------------------------------------------------------------------------------------------------
# The cells, and what is measured at the end of each.


def cells(study: str, preset: str) -> list[Cell]:
    """One cell a data set, seed, loss and weight."""
    of = PRESETS[study][preset]
    return [
        Cell({"data": data, "loss": loss, "weight": weight, "seed": seed})
        for data in of.data
        for seed in of.seeds
        for loss, weight in of.losses
    ]


def configure(study: str, preset: str, cell: Cell) -> Tree:
    """Figure 5: the script's training. Figures 1 and 4: 150 epochs with ramps of 40 and 30, pairs by labels."""
    of, settings = PRESETS[study][preset], dict(cell.settings)
    wide = study == "amc-figure5"
    tree = recipe(
        **settings,
        schedule="script" if wide else "paper",
        length=of.length if wide else of.length / 2,
        per_dimension=settings["weight"] == SCHEDULES["script"].coefficient,
        pairs="predictions" if wide else "labels",
        model=of.model,
        **of.more,
    )
    if not wide:
        ramps = {"ramp_up": max(1, round(40 * of.length)), "ramp_down": max(1, round(30 * of.length))}
        tree["schedule"] = {"kind": "constant", **ramps, "last_beta1": 0.5}
    return tree


def compute(study: str, preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together and measure their features of the test set."""
    of = PRESETS[study][preset]

    def measure(training: CellTraining, model: nn.Module) -> dict[str, Any]:
        features, predicted, labels = look(model, training.test)
        return feature_numbers(features, predicted, labels) | {
            "points": {
                "test": points_of(features, labels, of.points),
                # The paper shows both sets in Figure 1; elsewhere the test set.
                "train": points_of(*_first(model, training), of.points) if study == "amc-figure1" else [],
            }
        }

    train_at_hand(mine, options, lambda cell: configure(study, preset, cell), Hooks(measure=measure))


def _first(model: nn.Module, training: CellTraining) -> tuple[Tensor, Tensor]:
    features, _, labels = look(model, training.samples)
    return features, labels


def feature_numbers(features: Tensor, predicted: Tensor, labels: Tensor) -> dict[str, float]:
    """Agreement of predictions and of clusters with the labels; angles within and between classes; silhouette.

    `norm_v_measure` clusters the lengths alone, `euclidean_v_measure` the features as they are: where the angle is
    what tells classes apart, clusters of directions agree with the labels and those of lengths do not.
    """
    classes = len(labels.unique())
    some = slice(0, 2000)  # all pairs of these: a silhouette of ten thousand says no more
    groups = {
        "": predicted,
        "cluster_": cluster_features(features, classes, seed=0, restarts=3),
        "euclidean_": cluster_features(features, classes, seed=0, metric="euclidean", restarts=3),
        "norm_": cluster_features(norms(features).unsqueeze(1), classes, seed=0, metric="euclidean", restarts=3),
    }
    found: dict[str, float] = {}
    for prefix, group in groups.items():
        found |= {f"{prefix}{name}": value for name, value in agreement(group, labels)._asdict().items()}
    angles = angle_statistics(features[some], labels[some])
    found |= {"within": angles.within, "between": angles.between}
    found["silhouette"] = float(angular_silhouette(features[some], labels[some]).mean())
    return {name: round(value, 5) for name, value in found.items()}


def points_of(features: Tensor, labels: Tensor, count: int) -> list[list[float | int]]:
    """Label and coordinates of the first samples: 2-D as they are, 3-D on the sphere, anything else by t-SNE."""
    features, labels = features[:count], labels[:count]
    dim = features.shape[1]
    view = features
    if dim == 3:
        view = on_sphere(features).points
    elif dim != 2:
        view = t_sne(features, seed=0, perplexity=min(30.0, len(features) / 4))
    return [
        [label, *(round(value, 3) for value in row)] for label, row in zip(labels.tolist(), view.tolist(), strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Judging: records to results.


def judge(study: str, preset: str, folder: Path) -> dict[str, Any]:
    """By data set and loss: the numbers over seeds, the points of the first seed."""
    of = PRESETS[study][preset]
    found: dict[str, Any] = {}
    for data in of.data:
        for loss, weight in of.losses:
            mine = [Cell({"data": data, "loss": loss, "weight": weight, "seed": seed}) for seed in of.seeds]
            rows = finished(folder, mine)
            if rows:
                _, name = _subject(mine[0])
                found.setdefault(data, {})[name] = {**over_seeds(rows, NUMBERS), "points": rows[0]["points"]}
    return {"length": of.length, "features": found, **_not_computed(study, preset, {"features": found})}


def _subject(cell: Cell) -> tuple[str, str]:
    """The data set and the loss, with its weight where that is not the usual one."""
    data, loss, weight, _ = cell.settings.values()
    return data, loss if weight in (0.0, 10.0) else f"{loss} {weight:g}"


def _not_computed(study: str, preset: str, results: Mapping[str, Any]) -> dict[str, list[str]]:
    """The data sets of which there is nothing."""
    return {"not_computed": [data for data in PRESETS[study][preset].data if data not in results["features"]]}


# ---------------------------------------------------------------------------------------------------------------------
# The studies.

_ABOUT = {
    "amc-figure1": """Does a network that is trained with cross-entropy tell classes apart by the direction of their
features, or by their length? The AMC-Loss paper says by direction, and builds a loss on angles on it.

**How it was made.** A small network with two features (the input of the last layer) is trained on MNIST with
cross-entropy alone.

**Figure.** The features of some training and test images of the digits 0, 1, 2, 3 and 6, as in the paper; both axes
have one scale. The numbers below are of all ten digits.""",
    "amc-figure4": f"""Does AMC-Loss gather the images of a class closer together and move classes farther apart than
cross-entropy and than its Euclidean counterpart? The paper shows it with three features, which lie on a sphere.

Three losses are compared:

{LOSSES}

**How it was made.** The paper's small network with three features is trained on MNIST, with pairs made by the true
labels. The added loss has weight 10, as in the authors' script, or 0.1, as the paper prints.

**Figure.** The features of test images on the unit sphere, in the first run; what lies behind the sphere is paler.
The numbers in the picture are of clusters.""",
    "amc-figure5": f"""Does AMC-Loss separate classes better if a network has many features? The paper shows a t-SNE
view of 128 features for SVHN.

Three losses are compared:

{LOSSES}

**How it was made.** A network with 128 features is trained with each loss by the schedule of the authors' script
(weight 10). Where SVHN is not available, another data set takes its place. The numbers are computed from the features
themselves, not from the view.

**Figure.** The features of test images, in two dimensions by t-SNE, in the first run.""",
}
_TITLES = {
    "amc-figure1": "are features of cross-entropy spread by angle?",
    "amc-figure4": "does AMC-Loss make classes compact and separate on the sphere?",
    "amc-figure5": "does AMC-Loss separate classes in many dimensions?",
}


def _study(id: str) -> Study:
    return Study(
        id=id,
        title=_TITLES[id],
        about=_ABOUT[id],
        reference=f"AMC Figure {id[-1]}",
        cells=functools.partial(cells, id),
        compute=functools.partial(compute, id),
        judge=functools.partial(judge, id),
        table=table1 if id == "amc-figure1" else table4,
        figures=figures_of,
        at_once={name: of.at_once for name, of in PRESETS[id].items()},
        entries=Entries(("features",), _subject, derived=functools.partial(_not_computed, id)),
    )


AMC_FIGURE1, AMC_FIGURE4, AMC_FIGURE5 = (_study(id) for id in PRESETS)
