"""Features of a trained network: how they lie, and how well clusters of them agree with the classes (Figures 1, 4, 5).

Homogeneity and completeness come both ways: of the predictions, as the authors' script computes them, and of k-means
clusters of the features, as the paper says.
"""

from typing import Any

from torch import Tensor, nn

from hardsight.explain import agreement, angle_statistics, angular_silhouette, cluster_features, on_sphere, t_sne
from hardsight.geometry import norms
from hardsight_studies.engine.trainings import Training
from hardsight_studies.outputs import outputs_of

# Samples that are drawn, and those whose pairs are all compared: a silhouette of ten thousand says no more.
_DRAWN, _COMPARED = 400, 2000


def measure(training: Training, model: nn.Module) -> dict[str, Any]:
    """Cluster quality and angles of the test set, and of each first seed the places of some samples.

    The paper shows training samples in the plane alone.
    """
    seen = outputs_of(model, training.test)
    features, labels = seen.features.cpu(), seen.labels.cpu()
    drawn = {"test": _places(features, labels)} if training.run.seed == 0 else {}
    if features.shape[1] == 2 and drawn:
        train = outputs_of(model, training.samples)
        drawn["train"] = _places(train.features.cpu(), train.labels.cpu())
    return {**feature_numbers(features, seen.logits.argmax(1).cpu(), labels), "points": drawn}


def feature_numbers(features: Tensor, predicted: Tensor, labels: Tensor) -> dict[str, float]:
    """Agreement of predictions and of clusters with the labels; angles within and between classes; silhouette.

    `norm_v_measure` clusters the lengths alone, `euclidean_v_measure` the features as they are: where the angle is
    what tells classes apart, clusters of directions agree with the labels and those of lengths do not.
    """
    classes = len(labels.unique())
    groups = {
        "": predicted,
        "cluster_": cluster_features(features, classes, seed=0, restarts=3),
        "euclidean_": cluster_features(features, classes, seed=0, metric="euclidean", restarts=3),
        "norm_": cluster_features(norms(features).unsqueeze(1), classes, seed=0, metric="euclidean", restarts=3),
    }
    found: dict[str, float] = {}
    for prefix, group in groups.items():
        found |= {f"{prefix}{name}": value for name, value in agreement(group, labels)._asdict().items()}
    angles = angle_statistics(features[:_COMPARED], labels[:_COMPARED])
    silhouette = float(angular_silhouette(features[:_COMPARED], labels[:_COMPARED]).mean())
    return {**found, "within": angles.within, "between": angles.between, "silhouette": silhouette}


def _places(features: Tensor, labels: Tensor) -> dict[str, list[Any]]:
    """Label and place of the first samples: 2-D features as they are, 3-D on the sphere, anything else by t-SNE."""
    features = features[:_DRAWN]
    view = features
    if features.shape[1] == 3:
        view = on_sphere(features)
    elif features.shape[1] != 2:
        view = t_sne(features, seed=0, perplexity=min(30.0, len(features) / 4))
    return {"label": labels[:_DRAWN].tolist(), **dict(zip("xyz", view.T.tolist(), strict=False))}
