"""`score`: any of the registered scores for a whole data set, in chunks."""

import functools
from collections.abc import Iterable, Sequence

from torch import Tensor

from hardsight.class_shards import ShardedHead
from hardsight.distributed import together, wait_for_all
from hardsight.hardness.columns import ClassSummary
from hardsight.hardness.registry import Score, get_score, model_scores, parts_of
from hardsight.hardness.sharded import summarise_shards
from hardsight.hardness.summary import summarise
from hardsight.validation import check_features_and_weight, check_finite, check_labels

DEFAULT_SCORES = ("avh", "confidence", "norm")


def score(
    features: Tensor,
    weight: Tensor | ShardedHead,
    labels: Tensor | None = None,
    bias: Tensor | None = None,
    scores: Sequence[str] = DEFAULT_SCORES,
    *,
    chunk: int | None = None,
) -> dict[str, Tensor]:
    """Each named score of every sample, on the features' device; without labels, against the predicted class.

    Equals the score's own definition, but works through chunks of samples (`chunk` rows at a time), so the matrix of
    all samples x all classes never exists. With a `ShardedHead` as weight, each process gives its own samples.

    >>> import torch
    >>> features, weight = torch.eye(3), torch.eye(3)
    >>> score(features, weight, torch.tensor([0, 1, 0]), scores=("avh",))
    {'avh': tensor([0.0000, 0.0000, 0.5000])}
    """
    chosen = choose_scores(scores)
    if isinstance(weight, ShardedHead):
        return _score_by_shards(features, weight, labels, bias, chosen, chunk)
    check_features_and_weight(features, weight, bias)
    if labels is not None:
        check_labels(labels, len(features), len(weight))
    _check_chunk(chunk)
    summary = summarise(features, weight, labels, bias, parts=parts_of(chosen), chunk=chunk)
    return scores_of_summary(summary, chosen)


def _score_by_shards(
    features: Tensor, head: ShardedHead, labels: Tensor | None, bias: Tensor | None, chosen: list[Score],
    chunk: int | None,
) -> dict[str, Tensor]:  # fmt: skip
    """The same where every process has a part of the classes and its own samples."""
    whole = [one.name for one in chosen if one.tags]
    with together(functools.partial(wait_for_all, group=head.group)):
        if bias is not None:
            raise ValueError("bias must be None with a ShardedHead, which has its own; got a tensor")
        if whole:
            raise ValueError(f"scores must be of samples by themselves with a ShardedHead; {whole[0]!r} is of all")
        check_finite("features", features)
        if labels is not None:
            check_labels(labels, len(features), head.classes)
        _check_chunk(chunk)
    return scores_of_summary(summarise_shards(features, head, labels, parts_of(chosen), chunk), chosen)


def _check_chunk(chunk: int | None) -> None:
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, the samples worked on at a time; got {chunk!r}")


def choose_scores(names: Iterable[str]) -> list[Score]:
    """The scores of these names; unknown ones raise, and those that need more than one forward pass."""
    names = [names] if isinstance(names, str) else list(names)
    if not names:
        raise ValueError("scores must name at least one score; got none")
    given_by_models = [one.name for one in model_scores()]
    chosen = [get_score(name, given_by_models) for name in names]
    for one in chosen:
        if one.from_summary is None:
            raise ValueError(
                f"scores must be ones that a model gives sample by sample; {one.name!r} needs {_needs(one)}"
            )
    return chosen


def scores_of_summary(summary: ClassSummary, chosen: Iterable[Score]) -> dict[str, Tensor]:
    """Each score's values from a summary that holds its parts."""
    return {one.name: one.from_summary(summary) for one in chosen if one.from_summary is not None}


def _needs(one: Score) -> str:
    if one.measures is not None:
        return "a training run: a Recorder gives it"
    needs = ", ".join(one.needs)
    if not {"features", "labels", "weight", "logits"}.issuperset(one.needs):
        return needs
    return f"{needs} of all samples at once: call hardsight.hardness.{one.definition.__name__}"
