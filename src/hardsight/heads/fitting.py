"""`fit_head`: linear heads on centred features of length one, each sample judged by a head that never saw it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.hardness import score
from hardsight.heads.minimising import Problem, Rows, choose_penalties, minimise
from hardsight.validation import check_count, check_labels

# Strengths of the prior that are tried: half of it times the squared weights stands beside the sum of the losses of
# all samples, as 1 / C does in scikit-learn.
PENALTIES = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
# So many samples choose the strength, and so many give the heads of very many samples their start.
_CHOOSING, _STARTING = 2**14, 2**16


@dataclass(frozen=True)
class FittedHead:
    """Heads by fold, and what they say of the samples that they did not see.

    `fold`: the fold of each sample, whose head never saw it; `penalty`: the strength of each head's prior; `log_loss`:
    of all samples out of fold; `passes`: how often all of them were read in the end. `weight` and `bias` are None where
    an estimator of one's own stood in the heads' place.
    """

    fold: Int[Tensor, "samples"]
    labels: Int[Tensor, "samples"]
    log_loss: float
    weight: Float[Tensor, "folds classes dim"] | None = None
    bias: Float[Tensor, "folds classes"] | None = None
    penalty: Float[Tensor, "folds"] | None = None
    passes: int = 0
    _rows: Rows | None = None
    _held: Float[Tensor, "samples classes"] | None = None

    def probabilities(self) -> Float[Tensor, "samples classes"]:
        """Softmax of every sample out of fold: the one matrix of samples x classes, made when it is asked for."""
        if self._held is not None:
            return self._held
        found: Tensor | None = None
        for part, features, weight, bias in self._by_fold():
            said = (features @ weight.T + bias).softmax(1).cpu()
            found = said.new_empty(len(self.fold), len(bias)) if found is None else found
            found[part] = said
        assert found is not None
        return found

    def score(self, scores: Sequence[str] = ("avh", "confidence", "angular_margin")) -> dict[str, Tensor]:
        """`hs.score` of every sample by the head that never saw it: features centred and of length one."""
        found: dict[str, Tensor] = {}
        for part, features, weight, bias in self._by_fold():
            labels = self.labels[part].to(features.device)
            for name, value in score(features, weight, labels, bias, scores).items():
                found.setdefault(name, value.new_empty(len(self.fold)).cpu())[part] = value.cpu()
        return found

    def _by_fold(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Places and features of samples of one fold, weight and bias of its head."""
        if self._rows is None or self.weight is None or self.bias is None:
            raise ValueError("angles need linear heads; an estimator of one's own gives probabilities() alone")
        for fold, (weight, bias) in enumerate(zip(self.weight, self.bias, strict=True)):
            for part in (self.fold == fold).nonzero().squeeze(1).split(self._rows.length):
                yield part, self._rows.take(part), weight.to(self._rows.device), bias.to(self._rows.device)


def fit_head(
    features: Any,
    labels: Any,
    folds: int = 5,
    *,
    groups: Any = None,
    num_classes: int | None = None,
    penalties: Sequence[float] = PENALTIES,
    estimator: Any = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    tolerance: float = 1e-5,
    max_passes: int = 100,
) -> FittedHead:
    """Fit `folds` linear heads, each to the samples outside its fold; folds hold their share of every class.

    `features` [samples, dim] are a tensor or an array, which may lie on disk (`numpy.memmap`) in half precision: they
    are read in chunks. `groups` names one group (patient, video, author) for each sample, and no group is parted.
    Of `penalties` each head takes the one that does best on samples set aside within its own part. In several processes
    each reads its share of the chunks. `estimator`: anything with scikit-learn's `fit` and `predict_proba`.

    >>> import torch
    >>> features = torch.nn.functional.one_hot(torch.arange(60) % 3).float() + 0.1 * torch.rand(60, 3)
    >>> labels = torch.arange(60) % 3
    >>> labels[7] = 2
    >>> int(fit_head(features, labels).score(("confidence",))["confidence"].argmin())
    7
    """
    labels = torch.as_tensor(labels)
    rows = Rows.of(features, device)
    classes = _check(rows, labels, folds, penalties, num_classes)
    labels = labels.long()
    fold = _folds(labels, folds, groups, seed)
    if estimator is not None:
        return _fit_estimators(estimator, rows, labels, fold, folds, classes)
    # Samples that every head sets aside to choose its penalty by; whole groups, as in the folds.
    aside = _folds(labels, 5, groups, seed + 1) == 0
    few = _subset(len(labels), max(_CHOOSING, 64 * classes), seed)
    penalty, weight = choose_penalties(
        Problem(rows.part(few), labels[few], fold[few], folds, classes), aside[few], penalties, max_passes
    )
    if len(labels) > 2 * _STARTING:
        some = _subset(len(labels), _STARTING, seed)
        weight, _ = minimise(
            Problem(rows.part(some), labels[some], fold[some], folds, classes), penalty, weight, 1e-3, max_passes
        )
    problem = Problem(rows, labels, fold, folds, classes)
    weight, passes = minimise(problem, penalty, weight, tolerance, max_passes)
    heads = weight.view(folds, classes, -1).to("cpu", rows.dtype)
    fitted = FittedHead(fold, labels, math.nan, heads[..., :-1], heads[..., -1], penalty, passes, rows)
    return replace(fitted, log_loss=problem.log_loss_out_of_fold(weight))


def _check(rows: Rows, labels: Tensor, folds: int, penalties: Sequence[float], num_classes: int | None) -> int:
    """Everything about the samples that makes a fit impossible; returns the number of classes."""
    check_count("folds", folds, "the parts that are judged by the others' heads", least=2)
    if not len(penalties) or not all(one > 0 and math.isfinite(one) for one in penalties):
        raise ValueError(f"penalties must be positive numbers, at least one; got {list(penalties)}")
    if labels.ndim == 1 and len(labels) != len(rows):
        raise ValueError(f"features must have one row for each of {len(labels)} labels; got {len(rows)} rows")
    check_labels(labels, len(rows), 2**31 if num_classes is None else num_classes)
    labels = labels.long()
    classes = int(labels.max()) + 1 if num_classes is None else num_classes
    if classes > len(labels):
        raise ValueError(f"labels must number the classes from 0; got {int(labels.max())} in {len(labels)} samples")
    counts = torch.bincount(labels, minlength=classes)
    if int((counts > 0).sum()) < 2:
        raise ValueError("labels must hold at least 2 classes, or there is nothing to tell apart; got 1")
    alone = (counts == 1).nonzero().squeeze(1).tolist()
    if alone:
        raise ValueError(
            f"every class must have at least 2 samples, one to learn from when the other is judged; class {alone[0]} "
            f"has 1 ({len(alone)} such classes): leave it out or join it to another"
        )
    return classes


def _folds(labels: Tensor, folds: int, groups: Any, seed: int) -> Int[Tensor, "samples"]:
    """The fold of each sample: every class is dealt out evenly, or, by group, as evenly as whole groups allow."""
    fold = torch.empty(len(labels), dtype=torch.long)
    if groups is None:
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(labels), generator=generator)
        order = order[labels[order].argsort(stable=True)]
        # Dealing goes on from class to class, so that small classes do not all begin with the first fold.
        fold[order] = torch.arange(len(labels)) % folds
        return fold
    from sklearn.model_selection import StratifiedGroupKFold

    named = np.asarray(groups)
    if named.shape != (len(labels),):
        raise ValueError(f"groups must name one group for each of {len(labels)} samples; got shape {list(named.shape)}")
    codes = np.unique(named, return_inverse=True)[1]
    if codes.max() + 1 < folds:
        raise ValueError(f"groups must be at least as many as the {folds} folds; got {codes.max() + 1}")
    fewest = int(torch.bincount(labels)[labels.unique()].min())
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    # The splitter warns of classes with fewer samples than folds, which the check below judges by what comes out.
    counted = labels.numpy() if fewest >= folds else np.where(torch.bincount(labels)[labels] < folds, -1, labels)
    for place, (_, inside) in enumerate(splitter.split(np.empty(len(labels)), counted, codes)):
        fold[torch.from_numpy(inside)] = place
    for place in range(folds):
        lost = set(labels.unique().tolist()) - set(labels[fold != place].unique().tolist())
        if lost:
            raise ValueError(
                f"groups must leave every class in at least two folds; class {min(lost)} lies in one alone: "
                "give fewer folds, or split its group"
            )
    return fold


def _subset(samples: int, most: int, seed: int) -> Int[Tensor, "some"]:
    if samples <= most:
        return torch.arange(samples)
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(samples, generator=generator)[:most].sort().values


def _fit_estimators(estimator: Any, rows: Rows, labels: Tensor, fold: Tensor, folds: int, classes: int) -> FittedHead:
    """Clones of one's own estimator, one a fold; it gets the features as they are, all of a fold at once."""
    from sklearn.base import clone

    if not callable(getattr(estimator, "fit", None)) or not callable(getattr(estimator, "predict_proba", None)):
        raise TypeError(f"estimator must have fit and predict_proba; {type(estimator).__name__} has not")
    found = torch.zeros(len(labels), classes, dtype=rows.dtype)
    features, given = rows.read(slice(None)).cpu().numpy(), labels.numpy()
    for one in range(folds):
        inside = (fold == one).numpy()
        fitted = clone(estimator).fit(features[~inside], given[~inside])
        columns = torch.as_tensor(np.asarray(fitted.classes_), dtype=torch.long)
        said = torch.zeros(int(inside.sum()), classes, dtype=rows.dtype)
        said[:, columns] = torch.as_tensor(fitted.predict_proba(features[inside]), dtype=rows.dtype)
        found[torch.from_numpy(inside)] = said
    least = torch.finfo(torch.float32).tiny
    log_loss = -found.double().clamp_min(least).gather(1, labels[:, None]).log().mean().item()
    return FittedHead(fold, labels, log_loss, _held=found)
