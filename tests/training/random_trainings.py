"""Run by `test_random_trainings` in two processes: trainings of random settings, which one process takes first alone.

python random_trainings.py RANK RENDEZVOUS [FIRST LAST]
"""

import copy
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from hardsight import losses, training
from hardsight.datasets.augment import Augmentation
from hardsight.datasets.epochs import EpochLoader
from hardsight.datasets.loader import DeviceLoader
from hardsight.distributed import rank_and_count
from hardsight.domains.data import RowBatches
from hardsight.domains.self_training import PseudoLabelLoss
from hardsight.dynamics import Recorder
from hardsight.losses.registry import LOSSES, Sizes
from hardsight.training import Objective, Plan, schedules

CLASSES, DIM, SAMPLES = 4, 6, 37
CLASS_WEIGHTS = torch.tensor([0.2, 1.0, 3.0, 0.0])
MORE_LOSSES: dict[str, Callable[[], Any]] = {
    "torch": lambda: nn.CrossEntropyLoss(),
    "function": lambda: nn.functional.cross_entropy,
    "class weights": lambda: nn.CrossEntropyLoss(CLASS_WEIGHTS),
    "class weights, summed": lambda: nn.CrossEntropyLoss(CLASS_WEIGHTS, reduction="sum"),
    "a label to ignore": lambda: nn.CrossEntropyLoss(ignore_index=2),
    "class weights beside centres": lambda: Objective(
        nn.CrossEntropyLoss(CLASS_WEIGHTS), losses.CenterLoss(DIM, CLASSES, ignore_index=1)
    ),
    "rescaling by the mean": lambda: losses.GradientRescaling(reduction="mean"),
    "automatic": lambda: losses.AutomaticRescaling(CLASSES, warm_up=1),
    "pseudo-labels": lambda: PseudoLabelLoss(
        nn.CrossEntropyLoss(CLASS_WEIGHTS), first_target=SAMPLES // 2, divergence_weight=0.3
    ),
}
SCHEDULES = (
    schedules.constant,
    schedules.product(schedules.warm_up(3), schedules.cosine(0.1)),
    schedules.steps([2, 4], 0.3, "step"),
)
# Losses that ignore another label than -100, and refuse that.
OTHERWISE_UNLABELLED = ("a label to ignore", "class weights beside centres")
# Others have gradients so large that in fp16 the whole may overflow where no part does, or a part alone.
LOW_PRECISION = {*MORE_LOSSES, "cross_entropy", "label_smoothing", "amc", "center", "gradient_rescaling"} - {
    "class weights, summed",
    "rescaling by the mean",
}
# Of parameters and numbers after at most three epochs. Low precision rounds what is summed in another order.
SLACK = {"double": 1e-6, "bf16": 5e-2, "fp16": 1e-2}


class Settings:
    """Everything of one training that the number of the case draws."""

    def __init__(self, case: int) -> None:
        rng = np.random.default_rng(case)
        names = [*LOSSES, *MORE_LOSSES]
        self.name = names[case % len(names)]
        self.precision = str(rng.choice(["double", "bf16", "fp16"])) if self.name in LOW_PRECISION else "double"
        self.batch_size, self.epochs = int(rng.choice([5, 7, 8, 12])), int(rng.integers(1, 4))
        self.pictures, self.frozen = bool(rng.random() < 0.3), bool(rng.random() < 0.2)
        # The last batch of 37 samples by 12 is a single one: one process has none, and statistics need two values.
        self.normalised = bool(rng.random() < 0.5) and (self.pictures or self.batch_size != 12)
        # D2L looks at features in batches of each process's own, which must not change them.
        self.tracked = bool(rng.random() < 0.7) or self.name == "d2l"
        self.accumulate = 1 if self.name == "automatic" else int(rng.choice([1, 2, 3]))
        self.clip, self.decay = (None, 0.05, 1.0)[rng.integers(3)], (None, 0.8)[rng.integers(2)]
        self.schedule, self.optimizer = int(rng.integers(3)), str(rng.choice(["sgd", "momentum", "adamw"]))
        self.unlabelled = bool(rng.random() < 0.4) and self.name not in OTHERWISE_UNLABELLED
        self.recorded, self.balanced = (bool(one < 0.3) and not self.unlabelled for one in rng.random(2))
        self.balanced = self.balanced and self.batch_size % 2 == 0
        self.augmentation = Augmentation(shift=1, flip=True, noise_std=float(rng.choice([0.0, 0.1])))
        self.seed = case

    def model(self) -> nn.Module:
        torch.manual_seed(self.seed)
        kind, width = (nn.BatchNorm2d, 4) if self.pictures else (nn.BatchNorm1d, 8)
        between = kind(width, track_running_stats=self.tracked) if self.normalised else nn.Identity()
        if self.pictures:
            body = [nn.Conv2d(1, 4, 3), between, nn.Tanh(), nn.Flatten(), nn.Linear(16, DIM)]
        else:
            body = [nn.Linear(5, 8), between, nn.Tanh(), nn.Linear(8, DIM)]
        model = nn.Sequential(*body, nn.Linear(DIM, CLASSES))
        model[0].requires_grad_(not self.frozen)
        return model.to(self.dtype)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.precision == "double" else torch.float32

    def objective(self) -> Objective:
        if self.name in MORE_LOSSES:
            made = MORE_LOSSES[self.name]()
        else:
            made = LOSSES[self.name].make(Sizes(DIM, CLASSES, SAMPLES))
            if hasattr(made, "odd"):
                made.odd = "drop_last"
            if LOSSES[self.name].takes == "features":
                made = Objective(None, made, feature_weight=0.3, pairs="labels" if self.seed % 2 else "predictions")
        return (made if isinstance(made, Objective) else Objective(made)).to(self.dtype)

    def batches(self) -> tuple[EpochLoader, EpochLoader]:
        """What is trained on, shared between the processes, and the same samples as they are."""
        generator = torch.Generator().manual_seed(self.seed)
        labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
        if self.unlabelled:
            labels[torch.rand(SAMPLES, generator=generator) < 0.4] = -100
        rank, world = rank_and_count()
        shared: dict[str, Any] = {"batch_size": self.batch_size, "seed": self.seed, "rank": rank, "world_size": world}
        if self.balanced:
            shared["class_balanced"] = (2, self.batch_size // 2)
        whole: dict[str, Any] = {"batch_size": 10, "shuffle": False}
        if not self.pictures:
            rows = torch.randn(SAMPLES, 5, generator=generator).to(self.dtype)
            return RowBatches(rows, labels, **shared), RowBatches(rows, labels, **whole)
        images = torch.randint(256, (SAMPLES, 1, 4, 4), generator=generator, dtype=torch.uint8)
        moved = {"augmentation": self.augmentation, "dtype": self.dtype}
        return DeviceLoader(images, labels, **shared, **moved), DeviceLoader(images, labels, **whole, dtype=self.dtype)


def train(of: Settings) -> dict[str, Any]:
    """Parameters, state of the loss, and the numbers of every epoch."""
    model, objective, (batches, plain) = of.model(), of.objective(), of.batches()
    parameters = [*model.parameters(), *objective.parameters()]
    rate = 0.003 if "summed" in of.name else 0.03
    made: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "sgd": lambda: torch.optim.SGD(parameters, lr=rate),
        "momentum": lambda: torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=1e-2),
        # Where a gradient is all rounding, its direction is too: a large epsilon makes that nothing.
        "adamw": lambda: torch.optim.AdamW(parameters, lr=0.01, eps=1e-2),
    }
    fitted = training.fit(
        model,
        batches,
        objective,
        made[of.optimizer](),
        epochs=of.epochs,
        plan=Plan(SCHEDULES[of.schedule], feature_loss=schedules.gaussian_ramp_up(2)),
        test=plain,
        samples=plain,
        recorder=Recorder(SAMPLES) if of.recorded else None,
        device="cpu",
        progress=False,
        steps=training.Steps(
            accumulate=of.accumulate,
            clip=of.clip,
            average_decay=of.decay,
            precision="float32" if of.precision == "double" else of.precision,
        ),
    )
    # A prediction may turn by rounding alone, which in low precision is large.
    kept = ("train_loss", "test_loss") if of.precision != "double" else tuple(fitted.epochs[0])
    return {
        "model": dict(fitted.model.state_dict()),
        "evaluated": dict(fitted.evaluated.state_dict()),
        "objective": _floating(objective),
        "epochs": [{key: row[key] for key in row if key in kept and key != "seconds"} for row in fitted.epochs],
    }


def _floating(module: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in module.state_dict().items() if value.is_floating_point()}


def attempt(act: Callable[[], Any]) -> Any:
    """What an act gives, or the sentence that it ends with."""
    try:
        return act()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"[:400]


def compare(of: Settings, expected: Any) -> str:
    found, slack = attempt(lambda: train(of)), SLACK[of.precision]
    if isinstance(expected, str) or isinstance(found, str):
        said = [one if isinstance(one, str) else "trained" for one in (expected, found)]
        return "" if said[0] == said[1] else f"one process: {said[0]}; two: {said[1]}"
    torch.testing.assert_close(found, expected, rtol=slack, atol=slack, equal_nan=True)
    return ""


def main() -> None:
    rank, rendezvous, *bounds = sys.argv[1:]
    cases = range(*map(int, bounds)) if bounds else range(len(LOSSES) + len(MORE_LOSSES))
    torch.set_num_threads(1)
    drawn = [Settings(case) for case in cases]
    alone = [attempt(lambda of=of: train(copy.deepcopy(of))) for of in drawn]  # type: ignore[misc]
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=int(rank), world_size=2, timeout=timedelta(seconds=60)
    )
    report = {}
    for of, expected in zip(drawn, alone, strict=True):
        said = attempt(lambda of=of, expected=expected: compare(of, expected))  # type: ignore[misc]
        report[f"{of.seed}: {of.name}, {of.precision}"] = said and f"{said} {vars(of)}"
    dist.barrier()
    dist.destroy_process_group()
    print(
        json.dumps(
            {
                "wrong": {name: said for name, said in report.items() if said},
                "trained": sum(not isinstance(one, str) for one in alone),
            }
        )
    )


if __name__ == "__main__":
    main()
