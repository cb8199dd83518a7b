"""A small training run by hand: logits of every sample in every epoch, and its measures by slow loops in float64."""

import math
import multiprocessing
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from hardsight.dynamics import Recorder


def _angle(logit: float, bias: float, features_norm: float, weight_norm: float) -> float:
    if features_norm == 0 or weight_norm == 0:
        return math.pi / 2
    return math.acos(max(-1.0, min(1.0, (logit - bias) / (features_norm * weight_norm))))


def measure_slowly(logits: Tensor, label: int, features_norm: Tensor, weight_norm: Tensor, bias: Tensor) -> dict:
    """Every measure of one row, as its source writes it."""
    row = logits.double()
    probabilities = row.softmax(0)
    others = [row[k].item() for k in range(len(row)) if k != label]
    angles = [
        _angle(row[k].item(), bias[k].item(), features_norm.item(), weight_norm[k].item()) for k in range(len(row))
    ]
    error = probabilities.clone()
    error[label] -= 1
    return {
        "margin": row[label].item() - max(others),
        "loss": -math.log(probabilities[label].item()),
        "confidence": probabilities[label].item(),
        "agreement": probabilities.max().item(),
        "el2n": math.sqrt(sum(e.item() ** 2 for e in error)),
        "avh": angles[label] / sum(angles),
        "angular_margin": min(a for k, a in enumerate(angles) if k != label) - angles[label],
        "correct": float(row[label].item() > max(others)),
    }


@dataclass
class Run:
    """Logits [epochs, samples, classes] and what goes with them; `absent` holds (epoch, sample) pairs not shown."""

    logits: Tensor
    labels: Tensor
    features_norm: Tensor
    weight_norm: Tensor
    bias: Tensor
    absent: set[tuple[int, int]] = field(default_factory=set)

    def shown(self, epoch: int) -> Tensor:
        """Ids shown in an epoch."""
        samples = range(self.logits.shape[1])
        return torch.tensor([i for i in samples if (epoch, i) not in self.absent], dtype=torch.int64)

    def feed(self, recorder: Recorder, epoch: int, ids: Tensor, angles: bool = True) -> None:
        """One update."""
        extra = (self.features_norm[epoch, ids], self.weight_norm, self.bias) if angles else ()
        recorder.update(ids, self.logits[epoch, ids], self.labels[ids], *extra)

    def record(self, recorder: Recorder, *, batch: int = 4, seed: int = 0, angles: bool = True) -> Recorder:
        """All epochs, each in a shuffled order."""
        generator = torch.Generator().manual_seed(seed)
        for epoch in range(len(self.logits)):
            ids = self.shown(epoch)
            for part in ids[torch.randperm(len(ids), generator=generator)].split(batch):
                self.feed(recorder, epoch, part, angles)
            recorder.end_epoch()
        return recorder

    def curves(self, sample: int) -> dict[str, list[float]]:
        """Each measure of a sample over the epochs it was shown in, by loops; `epoch` says which those are."""
        curves: dict[str, list[float]] = {}
        for epoch in range(len(self.logits)):
            if (epoch, sample) in self.absent:
                continue
            row = measure_slowly(
                self.logits[epoch, sample],
                int(self.labels[sample]),
                self.features_norm[epoch, sample],
                self.weight_norm,
                self.bias,
            )
            for name, value in (row | {"epoch": float(epoch)}).items():
                curves.setdefault(name, []).append(value)
        return curves


def make_run(epochs: int = 12, samples: int = 23, classes: int = 5, seed: int = 0) -> Run:
    """A run in which samples are learned, forgotten, never learned and absent."""
    generator = torch.Generator().manual_seed(seed)
    dim = 7
    labels = torch.randint(classes, (samples,), generator=generator)
    weight = torch.randn(classes, dim, generator=generator)
    bias = torch.randn(classes, generator=generator) * 0.1
    pull = torch.linspace(-1, 3, samples)[None, :, None] * torch.linspace(0, 1, epochs)[:, None, None]
    features = torch.randn(epochs, samples, dim, generator=generator) + pull * weight[labels]
    features[3, 5] = 0
    run = Run(features @ weight.T + bias, labels, features.norm(dim=-1), weight.norm(dim=-1), bias)
    run.absent = {(0, 2), (4, 2), (11, 2), (5, 7)} | {(epoch, 9) for epoch in range(epochs)}
    return run


@pytest.fixture
def run() -> Run:
    return make_run()


@pytest.fixture
def slow_measures():
    return measure_slowly


def _worker(rank: int, store: Path, work: Callable[[int], None], answers) -> None:
    # A forked child has none of its parent's threads, so it must not wait for them.
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
        # One that is done at once would hang up on the other, which is still connecting.
        dist.barrier()
        work(rank)
        dist.destroy_process_group()
        answers.put("done")
    except BaseException:
        answers.put(traceback.format_exc())


@pytest.fixture
def in_two_processes(tmp_path):
    """Runs `work(rank)` in two processes that form a group, and fails with what failed in them."""

    def run_both(work: Callable[[int], None]) -> None:
        context = multiprocessing.get_context("fork")
        answers = context.SimpleQueue()
        workers = [context.Process(target=_worker, args=(rank, tmp_path / "store", work, answers)) for rank in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
            worker.kill()
        found = [answers.get() for _ in workers if not answers.empty()]
        assert found == ["done", "done"], "\n".join(found)

    return run_both
