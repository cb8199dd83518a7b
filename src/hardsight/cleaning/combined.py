"""Scores that combine what one training run leaves behind: snapshots of its predictions, and its features.

A wrong label is one that the sample's neighbours do not carry and that the network, while it learns, does not believe.
All functions are pure, use no clean label, and give larger values to labels that fit less.
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from hardsight.cleaning.columns import rank_average
from hardsight.cleaning.confident import confident_joint, in_pieces
from hardsight.cleaning.neighbours import nearest_in_angle, neighbour_disagreement
from hardsight.hardness import el2n, prototype_angle


def snapshot_el2n(
    logits: Float[Tensor, "snapshots samples classes"], labels: Int[Tensor, "samples"]
) -> Float[Tensor, "samples"]:
    """Mean EL2N over snapshots of the network that saw each sample without augmentation; in [0, sqrt 2]."""
    return torch.stack([el2n(one.float(), labels) for one in logits]).mean(0)


def mean_beliefs(logits: Float[Tensor, "snapshots samples classes"]) -> Float[Tensor, "samples classes"]:
    """The softmax averaged over snapshots: an ensemble of one run, which has memorised less than its last epoch."""
    total = torch.zeros_like(logits[0], dtype=torch.float32)
    for one in logits:
        total += one.float().softmax(1)
    return total.div_(len(logits))


def smooth(
    probabilities: Float[Tensor, "samples classes"], neighbours: Int[Tensor, "samples k"]
) -> Float[Tensor, "samples classes"]:
    """Each sample's probabilities averaged with those of its neighbours, itself counted as one of them."""
    total = probabilities + F.embedding_bag(neighbours, probabilities, mode="sum")
    return total / (neighbours.shape[1] + 1)


def label_doubt(
    probabilities: Float[Tensor, "samples classes"], labels: Int[Tensor, "samples"]
) -> Float[Tensor, "samples"]:
    """One minus the probability of the given label: one minus cleanlab's self-confidence; in [0, 1]."""
    return 1 - probabilities.gather(1, labels.long().unsqueeze(1)).squeeze(1)


def posterior_doubt(
    probabilities: Float[Tensor, "samples classes"],
    labels: Int[Tensor, "samples"],
    transition: Float[Tensor, "classes classes"] | None = None,
) -> Float[Tensor, "samples"]:
    """Probability that the given label is wrong, by Bayes: 1 - p_y T[y, y] / sum_k p_k T[k, y]; in [0, 1].

    `transition[k, y]` is the share of class k's samples that people label y. Left out, it is estimated from the same
    probabilities by the confident joint. An often mistaken pair of classes weighs more than a rare one.
    """
    if transition is None:
        joint = confident_joint(probabilities.cpu(), labels.cpu())
        transition = (joint / joint.sum(0).clamp_min(1e-12)).T.contiguous()
    # A row for each label: that of the classes it may stand for.
    standing_for = transition.to(probabilities).T.contiguous()

    def doubt(rows: Tensor, own: Tensor) -> tuple[Tensor]:
        joint_with_label = rows * standing_for[own.squeeze(1)]
        kept = joint_with_label.gather(1, own).squeeze(1)
        total = joint_with_label.sum(1)
        # No class explains the label: nothing speaks for it.
        return (torch.where(total > 0, 1 - kept / total.clamp_min(torch.finfo(total.dtype).tiny), 1.0),)

    return in_pieces(doubt, probabilities, labels)[0]


def combined_scores(
    hardness: Mapping[str, np.ndarray],
    features: Float[Tensor, "samples dim"],
    snapshots: Float[Tensor, "snapshots samples classes"],
    labels: Int[Tensor, "samples"],
    *,
    neighbours: int = 100,
) -> dict[str, np.ndarray]:
    """Every candidate by name, float64; `hardness` holds the scores of the run, turned so that larger is harder.

    `snapshots` end with the trained network. Ranks are combined by their mean, so no score's scale counts; a candidate
    whose scores are not there is left out.
    """
    labels = labels.to(features.device)
    near = nearest_in_angle(features, min(neighbours, len(features) - 1))
    beliefs = mean_beliefs(snapshots)
    smoothed = smooth(beliefs, near)
    smoothed_last = smooth(snapshots[-1].float().softmax(1), near)
    found = {
        "prototype_angle": prototype_angle(features, labels),
        "neighbour_disagreement": neighbour_disagreement(labels, near),
        "snapshot_el2n": snapshot_el2n(snapshots, labels),
        "snapshot_doubt": label_doubt(beliefs, labels),
        "smoothed_doubt": label_doubt(smoothed, labels),
        "snapshot_posterior": posterior_doubt(beliefs, labels),
        "smoothed_posterior": posterior_doubt(smoothed, labels),
        "smoothed_last_posterior": posterior_doubt(smoothed_last, labels),
    }
    columns = {name: values.double().cpu().numpy() for name, values in found.items()}
    known = {**hardness, **columns}
    whole = {name: parts for name, parts in RANK_COMBINATIONS.items() if set(parts) <= set(known)}
    return columns | {name: rank_average([known[part] for part in parts]) for name, parts in whole.items()}


RANK_COMBINATIONS = {
    # Fixed before any of them was judged.
    "ranks_of_training": ("el2n_mean", "aum", "angular_margin_mean"),
    "ranks_with_neighbours": ("el2n_mean", "neighbour_disagreement", "snapshot_el2n", "smoothed_doubt"),
    "ranks_with_posterior": ("el2n_mean", "snapshot_posterior", "smoothed_posterior"),
    # Chosen by a greedy search on CIFAR-10N's random1 (one seed) that began with mean EL2N, where a third score added
    # little: what training said of the sample, and what its neighbours say of it at the end.
    "training_and_neighbours": ("el2n_mean", "smoothed_last_posterior"),
    # Chosen on random1 (one seed) and on digits with asymmetric noise, to be strong on both: what training said on
    # average, the last angular margin, and the neighbours. The pair is what a table of scores alone allows.
    "training_and_margin": ("el2n_mean", "angular_margin"),
    "training_margin_and_neighbours": ("el2n_mean", "angular_margin", "smoothed_last_posterior"),
}
