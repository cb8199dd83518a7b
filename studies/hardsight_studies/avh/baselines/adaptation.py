"""`adapt_baseline`: train a classifier on a labelled source and an unlabelled target by one of Table 3's methods."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hardsight.distributed import join_processes, rank_and_count, usable_device
from hardsight.heads import evaluating
from hardsight.training import NonFiniteLossError, Objective, Plan, Position
from hardsight.training.feed import take_apart
from hardsight.training.network import Network
from hardsight.training.record import Row, RunRecord, device_name, failure_recorded
from hardsight_studies.avh.baselines.methods import Baseline, MakeOptimizer, make_baseline

DEFAULT_OPTIMIZER: MakeOptimizer = partial(torch.optim.SGD, lr=0.01, momentum=0.9, weight_decay=5e-4)


@dataclass(frozen=True)
class ClassAccuracy:
    """Right predictions and samples of each class, int64 [C]."""

    right: Tensor
    count: Tensor

    @property
    def overall(self) -> float:
        """Share of all samples that are right, in [0, 1]."""
        return int(self.right.sum()) / int(self.count.sum())

    @property
    def by_class(self) -> list[float | None]:
        """Share of each class that is right; None for a class without samples."""
        pairs = zip(self.right.tolist(), self.count.tolist(), strict=True)
        return [right / count if count else None for right, count in pairs]

    @property
    def class_mean(self) -> float:
        """Mean over the classes that have samples: the `Mean` of AVH's Table 3."""
        present = self.count > 0
        return float((self.right[present].double() / self.count[present]).mean())


@dataclass(frozen=True)
class Adapted:
    """What an adaptation gives back: the model that was given, trained; a row an epoch; the accuracy at the end."""

    model: nn.Module
    epochs: list[Row]
    accuracy: ClassAccuracy | None
    folder: Path | None


def adapt_baseline(
    method: str | Baseline,
    model: nn.Module,
    source: Iterable[Any],
    target: Iterable[Any],
    *,
    epochs: int,
    test: Iterable[Any] | None = None,
    optimizer: MakeOptimizer = DEFAULT_OPTIMIZER,
    plan: Plan | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    precision: str = "auto",
    class_names: Sequence[str] = (),
    folder: Path | str | None = None,
    after_epoch: Callable[[int, Row], None] | None = None,
) -> Adapted:
    """Train `model` in place for `epochs` passes over `source`; `target` goes round as often as that needs.

    `method`: a name of `BASELINES`, or a `make_baseline` with options. `source` and `target` are batches of (images,
    labels) or (images, labels, ids), a `DeviceLoader` each, say; the target's labels are never looked at. `test`:
    labelled batches, evaluated after every epoch for the record alone. `optimizer` makes an optimiser of parameters;
    a method with two players has two. `plan`: how the learning rate changes. `seed`: weights and dropout that the
    method draws. `precision`: "float32", "bf16", or "auto" (bf16 on CUDA). `folder`: where the record goes. One process
    trains: several that were joined are rejected.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1; got {epochs!r}")
    _check_one_process()
    playing = make_baseline(method) if isinstance(method, str) else method
    device = usable_device(device)
    if not hasattr(source, "__len__"):
        raise TypeError(
            f"source must be batches that can be counted and gone through again; got {type(source).__name__}"
        )
    check_classes(source, test)
    record = RunRecord(None if folder is None else Path(folder))
    name = type(playing).__name__
    settings = {key: value for key, value in vars(playing).items() if isinstance(value, int | float | str)}
    model.to(device)
    with _seeded(seed, device), _watched(model) as network, failure_recorded(record, record.folder):
        training = _Adaptation(playing, network, source, target, epochs, device, _autocast(precision, device))
        training.begin(optimizer, plan or Plan())
        record.begin(
            name=name, seed=seed, config={"method": name, "epochs": epochs, **settings}, device=device_name(device),
            class_names=list(class_names),
        )  # fmt: skip
        record.clear_tables()
        rows, accuracy = [], None
        for epoch in range(1, epochs + 1):
            row: Row = {"epoch": epoch, **training.epoch(epoch - 1)}
            if test is not None:
                accuracy = accuracy_by_class(model, test, training.classes, device)
                row |= {"test_accuracy": accuracy.overall, "test_class_mean": accuracy.class_mean}
            rows.append(row)
            record.write_epochs(rows)
            if after_epoch is not None:
                after_epoch(epoch, row)
        record.finish(_results(rows[-1], accuracy))
    return Adapted(model, rows, accuracy, record.folder)


def accuracy_by_class(
    model: nn.Module, batches: Iterable[Any], classes: int, device: torch.device | str
) -> ClassAccuracy:
    """How many of each class are right, in one pass without gradients; samples without a label (-1) do not count."""
    device = torch.device(device)
    right, count = torch.zeros(2, classes, dtype=torch.int64, device=device)
    with evaluating(model):
        for batch in batches:
            images, labels, _ = take_apart(batch, device)
            predicted, known = model(images).argmax(1), labels >= 0
            found = torch.bincount(labels[known], minlength=classes)
            if len(found) > classes:
                raise ValueError(f"labels must lie below {classes}, the number of logits; got {len(found) - 1}")
            count += found
            right += torch.bincount(labels[known & (predicted == labels)], minlength=classes)
    if int(count.sum()) == 0:
        raise ValueError("the evaluation batches must hold at least one labelled sample; they hold none")
    return ClassAccuracy(right.cpu(), count.cpu())


def check_classes(source: Iterable[Any], test: Iterable[Any] | None) -> None:
    """Refuse a source of one class, and a target with classes that the source has not: they could never be found."""
    known = _labels_of(source, "source")
    # Class-balanced batches leave out what has no label.
    if known is not None and -1 in known and not getattr(source, "class_balanced", None):
        raise ValueError("source must be labelled throughout; it has samples without a label")
    if known is not None and len(known - {-1}) < 2:
        raise ValueError(f"source must hold at least two classes; got {len(known - {-1})}")
    wanted = None if test is None else _labels_of(test, "test")
    if known is None or wanted is None:
        return
    unknown = sorted(wanted - known - {-1})
    if unknown:
        raise ValueError(
            f"target must hold classes of the source only, which no method can find otherwise; the source has no "
            f"sample of {', '.join(map(str, unknown))}"
        )


def _labels_of(batches: Iterable[Any], name: str) -> set[int] | None:
    """The labels that occur, -1 for all that are none, where the batches know them."""
    labels = getattr(batches, "labels", None)
    if isinstance(batches, list | tuple):
        columns = [batch[1] for batch in batches]
        if not columns or any(column is None for column in columns):
            raise ValueError(
                f"{name} must hold batches of (images, labels); got {'none' if not columns else 'no labels'}"
            )
        labels = torch.cat([torch.as_tensor(column) for column in columns])
    return {max(label, -1) for label in labels.unique().tolist()} if isinstance(labels, Tensor) else None


class _Adaptation:
    """One adaptation under way: batches of both domains, schedule, sums of the epoch."""

    def __init__(
        self,
        method: Baseline,
        network: Network,
        source: Iterable[Any],
        target: Iterable[Any],
        epochs: int,
        device: torch.device,
        autocast: Callable[[], Any],
    ) -> None:
        self.method, self.network, self.source, self.epochs = method, network, source, epochs
        self.device, self.autocast = device, autocast
        self.target = _round_and_round(target, device)
        self.steps = len(source)  # type: ignore[arg-type]
        self.classes = 0

    def begin(self, optimizer: MakeOptimizer, plan: Plan) -> None:
        """Let the method see the shapes before it makes what it trains."""
        self.plan = plan
        images, _, _ = take_apart(next(iter(self.source)), self.device)
        with evaluating(self.network):
            logits, features = self.network.look(images[:2])
        assert features is not None
        self.classes = logits.shape[1]
        largest = max(_labels_of(self.source, "source") or {0})
        if largest >= self.classes:
            raise ValueError(f"labels must lie below {self.classes}, the number of logits; got {largest}")
        self.method.begin(self.network, features.float(), optimizer)
        self.rates = [[group["lr"] for group in one.param_groups] for one in self.method.optimizers]

    def epoch(self, number: int) -> dict[str, float]:
        """One pass over the source; the means of the method's losses."""
        self.network.train()
        if hasattr(self.source, "set_epoch"):
            self.source.set_epoch(number)
        sums: dict[str, Tensor] = {}
        for index, batch in enumerate(self.source):
            images, labels, _ = take_apart(batch, self.device)
            self._set_rates(number * self.steps + index)
            progress = (number + index / self.steps) / self.epochs
            with self.autocast():
                losses = self.method.step(images, labels, next(self.target), progress)
            for name, loss in losses.items():
                sums[name] = sums.get(name, torch.zeros((), device=self.device)) + loss.detach().float()
        means = {name: float(total) / self.steps for name, total in sums.items()}
        bad = [name for name, mean in means.items() if mean != mean or abs(mean) == float("inf")]
        if bad:
            raise NonFiniteLossError(f"{bad[0]} is not a finite number in epoch {number + 1} of {self.epochs}")
        return means

    def _set_rates(self, step: int) -> None:
        factor = self.plan.learning_rate(Position(step, self.steps, self.epochs))
        for one, rates in zip(self.method.optimizers, self.rates, strict=True):
            for group, rate in zip(one.param_groups, rates, strict=True):
                group["lr"] = factor * rate


def _round_and_round(target: Iterable[Any], device: torch.device) -> Iterator[Tensor]:
    """The target's images, epoch after epoch without end."""
    epoch = 0
    while True:
        if hasattr(target, "set_epoch"):
            target.set_epoch(epoch)
        seen = False
        for batch in target:
            seen = True
            images = batch[0] if isinstance(batch, tuple | list) else batch
            yield images.to(device, non_blocking=True)
        if not seen:
            raise ValueError("target must hold at least one batch; got none")
        epoch += 1


@contextlib.contextmanager
def _watched(model: nn.Module) -> Iterator[Network]:
    network = Network(model, Objective(), features=True)
    try:
        yield network
    finally:
        network.close()


@contextlib.contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random states of its own inside, the caller's again afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def _check_one_process() -> None:
    """Refuse several: pairs and batch statistics of two domains would be those of each process alone."""
    join_processes()
    _, joined = rank_and_count()
    if joined > 1:
        raise ValueError(f"a baseline must be trained by one process; got {joined} that were joined, as torchrun does")


def _autocast(precision: str, device: torch.device) -> Callable[[], Any]:
    if precision not in ("auto", "float32", "bf16"):
        raise ValueError(f"precision must be auto, float32 or bf16; got {precision!r}")
    low = precision == "bf16" or (precision == "auto" and device.type == "cuda")
    return partial(torch.autocast, device.type, torch.bfloat16, enabled=low)


def _results(last: Mapping[str, float | int], accuracy: ClassAccuracy | None) -> dict[str, Any]:
    found: dict[str, Any] = {key: value for key, value in last.items() if key != "epoch"}
    return found if accuracy is None else found | {"test_accuracy_by_class": accuracy.by_class}
