"""The share of wrong labels, from the predictions of a network early in training; no clean label is needed.

A network learns what most samples of a class share before it memorises single labels. So where it is surest early in
training it is nearly always right, and labels that contradict it there are wrong. The idea is that of anchor points
(Liu & Tao 2016; Patrini et al. 2017): for the surest samples of a class, the given label is that class with
probability 1 - rate.
"""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor

# Of the samples predicted as a class, the share that is used: fewer are surer, but their count is noisier.
SUREST = 0.1


def lead(logits: Float[Tensor, "samples classes"]) -> Float[Tensor, "samples"]:
    """Log-odds of the most probable class: its logit less the log-sum-exp of the others. Rises with the confidence.

    Unlike the probability itself it does not round to 1, so sure samples keep their order.
    """
    wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    top = wide.argmax(1, keepdim=True)
    return (wide.gather(1, top) - wide.scatter(1, top, -math.inf).logsumexp(1, keepdim=True)).squeeze(1)


def noise_rate(
    predicted: Integer[Tensor, "samples"],
    confidence: Float[Tensor, "samples"],
    labels: Integer[Tensor, "samples"],
    *,
    surest: float = SUREST,
) -> float:
    """Estimated share of wrong labels, in [0, 1]: labels unlike the prediction among the surest samples of each class.

    `confidence` may be anything that rises with the probability of the predicted class, such as `lead`. Classes count
    by how often they are predicted; equally sure samples at the edge count in equal parts, so their order does not
    matter. Samples with a negative label are left out. Too high where the network is not yet right about its surest
    samples, too low once it memorises, and too low where people err on hard samples more often than on easy ones.
    """
    if not 0 < surest <= 1:
        raise ValueError(f"surest must lie in (0, 1], the share of samples that is used; got {surest!r}")
    lengths = [len(predicted), len(confidence), len(labels)]
    if len(set(lengths)) > 1 or not bool((labels >= 0).any()):
        raise ValueError(
            f"predicted, confidence and labels must be of one length, labels of 0 or more among them; got {lengths}"
        )
    predicted, labels = predicted.long(), labels.long()
    known = labels >= 0
    predicted, confidence, labels = predicted[known], confidence[known], labels[known]
    if bool(confidence.isnan().any()):
        raise ValueError("confidence must be a number for every sample; got NaN")
    order = predicted.argsort(stable=True)
    contradicts = (labels != predicted)[order].double()
    sizes = [size for size in predicted.bincount().tolist() if size]
    groups = zip(confidence[order].split(sizes), contradicts.split(sizes), strict=True)
    return sum(_among_surest(sure, wrong, surest) * len(sure) for sure, wrong in groups) / len(labels)


def _among_surest(confidence: Tensor, wrong: Tensor, surest: float) -> float:
    count = math.ceil(surest * len(confidence))
    edge = confidence.topk(count).values[-1]
    above, at = confidence > edge, confidence == edge
    places_left = count - int(above.sum())
    return (float(wrong[above].sum()) + places_left * float(wrong[at].mean())) / count
