"""Losses with a memory between epochs: pruning, new labels, a wider curriculum, a new emphasis.

Each keeps its paper's timing as a share of the training, because the papers train for other numbers of epochs.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hardsight.datasets.epochs import mixed_seed
from hardsight.distributed import rank_and_count
from hardsight.dynamics.detector import lead, noise_rate
from hardsight.heads import evaluating
from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.curriculum import D2L, SelfPaced, local_intrinsic_dimensionality
from hardsight.losses.joint import JointOptimisation
from hardsight.losses.robust import TruncatedGCELoss
from hardsight.training.evaluation import gather, share
from hardsight.training.network import Network
from hardsight.training.progress import NonFiniteLossError
from hardsight.training.record import Row

# Truncated GCE prunes from epoch 40 of 120 on, every 10 (Zhang & Sabuncu 2018, Section 4.1).
_PRUNING_STARTS, _PRUNING_EVERY = 40 / 120, 10 / 120
# Joint optimisation replaces labels from epoch 70 of 200 on (Tanaka et al. 2018, Section 4.2).
_RELABELLING_STARTS = 70 / 200
# D2L estimates the dimensionality of an epoch from ten random batches of 128 (Ma et al. 2018, Section 4).
_DIMENSION_SAMPLES, _DIMENSION_BATCH = 1280, 128


class _Looked(NamedTuple):
    logits: Tensor
    features: Tensor | None
    labels: Tensor
    ids: Tensor


def end_epoch(network: Network, samples: Iterable[Any] | None, device: torch.device, row: Row, epochs: int) -> Row:
    """Let the loss do what it does after the epoch of `row`; returns what it adds to the row."""
    loss, epoch = network.objective.loss, int(row["epoch"])
    progress = epoch / epochs
    if isinstance(loss, SelfPaced):
        loss.advance()
    if samples is None:
        return {}
    if isinstance(loss, AutomaticRescaling):
        return _emphasis(loss, network, samples, device, row, epochs)
    if epoch == epochs:
        return {}
    if isinstance(loss, TruncatedGCELoss) and loss.has_table:
        every = max(1, round(_PRUNING_EVERY * epochs))
        if progress >= _PRUNING_STARTS and epoch % every == 0:
            for seen in _look(network, samples, device):
                loss.prune(seen.ids, seen.logits, seen.labels)
            loss.end_pruning()
    elif isinstance(loss, JointOptimisation):
        for seen in _look(network, samples, device):
            loss.record(seen.ids, seen.logits)
        loss.end_epoch(update=progress >= _RELABELLING_STARTS)
    elif isinstance(loss, D2L):
        # The authors go back to the weights of the epoch before the turning point; here the training goes on.
        loss.end_epoch(_dimensionality(network, samples, device, epoch), progress)
    return {}


def _emphasis(
    loss: AutomaticRescaling, network: Network, samples: Iterable[Any], device: torch.device, row: Row, epochs: int
) -> Row:
    """Choose the emphasis by the noise, raise it, and watch for a collapse; returns the emphasis in force."""
    if loss.decided:
        loss.watch(row["train_accuracy"])
    elif row["epoch"] == max(1, min(loss.warm_up, epochs // 3)):
        looked = [(seen.logits.argmax(1), lead(seen.logits), seen.labels) for seen in _look(network, samples, device)]
        columns = [torch.cat(parts).cpu() for parts in zip(*looked, strict=True)]
        columns = gather(columns)
        _check_finite("outputs", ~columns[1].isnan(), int(row["epoch"]))
        loss.decide(noise_rate(*columns), row["train_accuracy"])
    if row["epoch"] >= loss.warm_up:
        loss.rise(row["train_accuracy"])
    said: Row = {"estimated_noise_rate": float(loss.rate)} if loss.decided else {}
    return said | ({} if loss.emphasis is None else loss.emphasis._asdict())


def _look(network: Network, samples: Iterable[Any], device: torch.device) -> Iterator[_Looked]:
    with evaluating(network):
        for images, labels, ids in share(samples, device):
            if ids is None:
                raise ValueError("samples must carry ids, (images, labels, ids), for a loss that remembers them")
            logits, features = network.look(images)
            yield _Looked(logits, features, labels, ids)


def _check_finite(what: str, finite: Tensor, epoch: int) -> None:
    """Stop where evaluation gives no finite numbers although the loss was finite.

    The statistics of a batch may keep the loss finite where the running statistics do not.
    """
    lost = int((~finite).sum())
    if lost:
        raise NonFiniteLossError(
            f"the {what} are no finite numbers for {lost} of {len(finite)} samples after epoch {epoch}: the training "
            "has diverged, and a lower learning rate may help"
        )


def _dimensionality(network: Network, samples: Iterable[Any], device: torch.device, epoch: int) -> float:
    """Mean local intrinsic dimensionality of the features of samples drawn each epoch; any processes agree."""
    images, turns = _drawn(samples, device, epoch)
    own: list[Tensor] = []
    if len(turns):
        with evaluating(network):
            features = torch.cat([_features(network, some) for some in images.split(_DIMENSION_BATCH)])
        own = [turns, features.float().cpu()]
    turns, features = gather(own)
    _check_finite("features", features.isfinite().all(1), epoch)
    batches = features[turns.argsort()[:_DIMENSION_SAMPLES]].split(_DIMENSION_BATCH)
    # A last batch of too few has no neighbours to measure by.
    measured = [
        local_intrinsic_dimensionality(one, neighbours=min(20, len(one) - 1)).mean() for one in batches if len(one) > 2
    ]
    return float(torch.stack(measured).mean()) if measured else 0.0


def _features(network: Network, images: Tensor) -> Tensor:
    features = network.look(images)[1]
    assert features is not None
    return features


def _drawn(samples: Iterable[Any], device: torch.device, epoch: int) -> tuple[Tensor, Tensor]:
    """Images of this process's part of `_DIMENSION_SAMPLES` samples drawn from all, and each one's turn in the draw.

    Every sample's turn is a random number of (seed, epoch, its batch), and the smallest are drawn: the same whether or
    not a run was interrupted, for any number of processes, and without knowing how many samples come.
    """
    rank, world = rank_and_count()
    seed, latest = int(getattr(samples, "seed", 0)), 1.0
    turns, kept = torch.empty(0, dtype=torch.float64), []
    for at, (images, _, _) in enumerate(share(samples, device)):
        generator = torch.Generator().manual_seed(mixed_seed(seed, epoch, 1 + at * world + rank))
        fresh = torch.rand(len(images), generator=generator, dtype=torch.float64)
        early = (fresh < latest).nonzero().squeeze(1)
        turns = torch.cat([turns, fresh[early]])
        kept.append(images[early.to(images.device)])
        if len(turns) > _DIMENSION_SAMPLES:
            latest = float(turns.kthvalue(_DIMENSION_SAMPLES).values)
    if not kept:
        return torch.empty(0), turns
    first = turns.argsort()[:_DIMENSION_SAMPLES]
    return torch.cat(kept)[first.to(kept[0].device)], turns[first]
