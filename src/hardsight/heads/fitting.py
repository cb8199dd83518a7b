"""Heads on centred features of length one: fitted out of fold, or recorded while a small network learns."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hardsight.hardness import score
from hardsight.heads.minimising import Problem, Rows, choose_penalties, minimise
from hardsight.validation import check_count, check_labels

# Strengths of the prior that are tried: half of it times the squared weights stands beside the sum of the losses of
# all samples, as 1 / C does in scikit-learn.
PENALTIES = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
# So many samples choose the strength, and so many give the heads of very many samples their start.
_CHOOSING, _STARTING = 2**14, 2**16
# Of the recorded network, chosen on development sets: so strong a pull to small weights that a wrong label is not
# memorised while it is recorded. Of 1,500 samples 1e-2 to 4e-2 were best, of 4,000 1e-2, of 10,000 5e-3 and of 60,000
# 1e-3; errors between lookalikes on pixels asked for less.
_WIDTH, _LEARNING_RATE, _BATCH, _LENGTH = 512, 0.1, 128, 8.0
_WEIGHT_DECAY, _STRONGEST = 3.75, 1e-2
# Beyond so many samples batches grow, so that the number of steps does not; of few samples they are smaller.
_STEPPED, _FEWEST = 2**17, 16


@dataclass(frozen=True)
class FittedHead:
    """Heads by fold, and what they say of the samples that they did not see.

    `fold`: the fold of each sample, whose head never saw it; `penalty`: the strength of each head's prior; `log_loss`:
    of all samples out of fold. `weight` and `bias` are None where an estimator of one's own stood in the heads' place.
    """

    fold: Int[Tensor, "samples"]
    labels: Int[Tensor, "samples"]
    log_loss: float
    weight: Float[Tensor, "folds classes dim"] | None = None
    bias: Float[Tensor, "folds classes"] | None = None
    penalty: Float[Tensor, "folds"] | None = None
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
        return _fit_estimators(estimator, rows, labels, fold, classes)
    # Samples that every head sets aside to choose its penalty by; whole groups, as in the folds.
    aside = _folds(labels, 5, groups, seed + 1) == 0
    few = _subset(len(labels), max(_CHOOSING, 64 * classes), seed)
    penalty, weight = choose_penalties(
        Problem(rows.part(few), labels[few], fold[few], folds, classes), aside[few], penalties
    )
    if len(labels) > 2 * _STARTING:
        some = _subset(len(labels), _STARTING, seed)
        weight = minimise(Problem(rows.part(some), labels[some], fold[some], folds, classes), penalty, weight, 1e-3)
    problem = Problem(rows, labels, fold, folds, classes)
    weight = minimise(problem, penalty, weight, tolerance)
    heads = weight.view(folds, classes, -1).to("cpu", rows.dtype)
    fitted = FittedHead(fold, labels, math.nan, heads[..., :-1], heads[..., -1], penalty, rows)
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
    if len(labels.unique()) < 2:
        raise ValueError("labels must hold at least 2 classes, or there is nothing to tell apart; got 1")
    check_no_class_alone(labels, range(classes))
    return classes


def check_no_class_alone(labels: Int[Tensor, "samples"], names: Sequence[Any]) -> None:
    """Raise where a class has a single sample, and so none to learn from when that one is judged."""
    alone = [names[code] for code in (torch.bincount(labels) == 1).nonzero().squeeze(1).tolist()]
    if alone:
        raise ValueError(
            "every class must have at least 2 samples, one to learn from when the other is judged; class "
            f"{alone[0]!r} has 1 (classes with one sample: {len(alone)}): leave it out or join it to another"
        )


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
    several, codes = np.unique(named, return_inverse=True)
    if len(several) < folds:
        raise ValueError(f"groups must be at least as many as the {folds} folds; got {len(several)}")
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    # The splitter warns of classes with fewer samples than folds, which the check below judges by what comes out.
    counted = np.where(torch.bincount(labels)[labels] < folds, -1, labels)
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


def _fit_estimators(estimator: Any, rows: Rows, labels: Tensor, fold: Tensor, classes: int) -> FittedHead:
    """Clones of one's own estimator, one a fold; it gets the features as they are, all of a fold at once."""
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    if not callable(getattr(estimator, "fit", None)) or not callable(getattr(estimator, "predict_proba", None)):
        raise TypeError(f"estimator must have fit and predict_proba; {type(estimator).__name__} has not")
    features, folds = rows.read(slice(None)).cpu().numpy(), PredefinedSplit(fold.numpy())
    said = cross_val_predict(estimator, features, labels.numpy(), cv=folds, method="predict_proba")
    found = torch.zeros(len(labels), classes, dtype=rows.dtype)
    found[:, labels.unique()] = torch.as_tensor(said, dtype=rows.dtype)
    least = torch.finfo(torch.float32).tiny
    log_loss = -found.double().clamp_min(least).gather(1, labels[:, None]).log().mean().item()
    return FittedHead(fold, labels, log_loss, _held=found)


def record_head(
    features: Any,
    labels: Any,
    *,
    num_classes: int | None = None,
    epochs: int = 20,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "samples classes"]:
    """What a network with one hidden layer believed of every sample while it learned, averaged over its epochs.

    Each belief is of the moment before the sample was learned from. Features are centred and of one length; they may
    lie on disk (`numpy.memmap`). Nothing is held out: wrong labels show because they are learned late.

    >>> features = torch.nn.functional.one_hot(torch.arange(60) % 3).float() + 0.1 * torch.rand(60, 3)
    >>> labels = torch.arange(60) % 3
    >>> labels[7] = 2
    >>> int(record_head(features, labels)[torch.arange(60), labels].argmin())
    7
    """
    check_count("epochs", epochs, "how often each sample is learned from", least=1)
    rows, labels = Rows.of(features, device), torch.as_tensor(labels).long()
    if labels.shape != (len(rows),):
        raise ValueError(f"labels must be one class for each of {len(rows)} samples; got shape {list(labels.shape)}")
    classes = int(labels.max()) + 1 if num_classes is None else num_classes
    generator = torch.Generator().manual_seed(seed)
    # The last layer begins small: all classes as probable.
    weights, biases = [], []
    for inner, outer, gain in ((rows.dim, _WIDTH, math.sqrt(2)), (_WIDTH, classes, 0.1)):
        weight = torch.randn(inner, outer, generator=generator, dtype=rows.dtype) * gain / math.sqrt(inner)
        weights.append(weight.to(rows.device).requires_grad_())
        biases.append(torch.zeros(outer, dtype=rows.dtype, device=rows.device, requires_grad=True))
    decay = min(_STRONGEST, _WEIGHT_DECAY / len(rows) ** 0.75)
    groups: list[dict[str, Any]] = [{"params": weights, "weight_decay": decay}, {"params": biases}]
    optimizer = torch.optim.SGD(groups, _LEARNING_RATE, momentum=0.9)
    batch = min(_BATCH, max(_FEWEST, len(rows) // 32)) * max(1, math.ceil(len(rows) / _STEPPED))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * math.ceil(len(rows) / batch))
    beliefs = torch.zeros(len(rows), classes, dtype=rows.dtype)
    for _ in range(epochs):
        for places in torch.randperm(len(rows), generator=generator).split(batch):
            hidden = torch.relu(_LENGTH * rows.take(places) @ weights[0] + biases[0])
            logits = hidden @ weights[1] + biases[1]
            beliefs[places] += logits.detach().softmax(1).cpu()
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits, labels[places].to(rows.device)).backward()
            optimizer.step()
            schedule.step()
    return beliefs / epochs
