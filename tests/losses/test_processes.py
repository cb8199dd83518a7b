"""Two processes under DistributedDataParallel (gloo) and one process take the same step, with every loss."""

from collections.abc import Callable

import pytest
import torch

from hardsight import distributed
from hardsight.losses.registry import LOSSES

# What one process would do is computed before the processes know of each other.
SCRIPT = """
import copy, json, sys
from datetime import timedelta
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from hardsight.losses import (
    AccumulatedRescaling, AutomaticRescaling, GradientRescaling, JointOptimisation, TruncatedGCELoss,
)
from hardsight.losses.registry import LOSSES, Sizes

rank, rendezvous = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.manual_seed(0)
sizes = Sizes(dim=6, classes=5, samples=12)
inputs, labels, ids = torch.randn(12, 4).double(), torch.randint(5, (12,)), torch.arange(12)
weights = torch.rand(12).double() + 0.5
# Samples that count differently in the two processes: for the losses that promise to sum over both.
marked = torch.where(ids == 1, -100, labels)
UNEVEN = {"gradient_rescaling", "amc", "amc_all_pairs", "contrastive", "contrastive_all_pairs", "joint_optimisation"}
report = {}


class Step(nn.Module):
    def __init__(self, loss, width):
        super().__init__()
        self.model, self.loss = nn.Linear(4, width).double(), loss

    def forward(self, inputs, labels, *rest, **names):
        return self.loss(self.model(inputs), labels, *rest, **names)


def share(name):
    cut = 7 if name in UNEVEN else 6
    return slice(0, cut) if rank == 0 else slice(cut, 12)


def arguments(name, part):
    entry = LOSSES[name]
    names = {"ids": ids[part]} if entry.needs_ids else {}
    if name in UNEVEN:
        return (inputs[part], marked[part], weights[part]), names
    return (inputs[part], labels[part]), names


def gradients(step):
    return [parameter.grad for parameter in step.parameters()]


def attempt(name, check):
    try:
        check()
        report[name] = ""
    except Exception as problem:
        report[name] = f"{type(problem).__name__}: {problem}"[-400:]


steps, expected = {}, {}
for name, entry in LOSSES.items():
    step = Step(entry.make(sizes).double(), 5 if entry.takes == "logits" else 6)
    if name == "mentornet_pd":
        step.loss.set_progress(0.5)
    steps[name], alone = step, copy.deepcopy(step)
    positional, names = arguments(name, slice(0, 12))
    alone(*positional, **names).backward()
    expected[name] = (gradients(alone), dict(alone.loss.state_dict()))

# In no registry, since gradient rescaling becomes it: before and after it has chosen an emphasis.
automatic = {
    "automatic": (None, {}),
    "automatic, emphasised": (0.4, {}),
    "automatic, by weights": (0.4, {"reduction": "weight"}),
}
for name, (rate, options) in automatic.items():
    step = Step(AutomaticRescaling(5, **options).double(), 5)
    if rate is not None:
        step.loss.decide(rate)
        step.loss.rise(1 - rate)
    steps[name], alone = step, copy.deepcopy(step)
    alone(inputs, marked, weights).backward()
    expected[name] = (gradients(alone), dict(alone.loss.state_dict()))
positional, names = arguments("joint_optimisation", slice(0, 12))
summed = Step(JointOptimisation(12, 5, reduction="sum").double(), 5)
alone = copy.deepcopy(summed)
alone(*positional, **names).backward()
expected["joint, summed"] = gradients(alone)

dist.init_process_group(
    "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
)


def check_step(name):
    step = steps[name]
    positional, names = arguments(name, share(name))
    wrapped = DistributedDataParallel(step)
    wrapped(*positional, **names).backward()
    torch.testing.assert_close(gradients(step), expected[name][0], rtol=0, atol=1e-10)
    torch.testing.assert_close(dict(step.loss.state_dict()), expected[name][1])


for name in LOSSES:
    attempt(name, lambda: check_step(name))


def check_automatic(name):
    part, wrapped = share("gradient_rescaling"), DistributedDataParallel(steps[name])
    wrapped(inputs[part], marked[part], weights[part]).backward()
    torch.testing.assert_close(gradients(steps[name]), expected[name][0], rtol=0, atol=1e-10)


for name in automatic:
    attempt(name, lambda: check_automatic(name))


def check_joint_sum():
    # The processes' gradients are averaged: a sum is half of one process's, however many samples each of them has.
    positional, names = arguments("joint_optimisation", share("joint_optimisation"))
    wrapped = DistributedDataParallel(summed)
    wrapped(*positional, **names).backward()
    torch.testing.assert_close([2 * one for one in gradients(summed)], expected["joint, summed"], rtol=0, atol=1e-10)


def check_local_sum():
    # Each process by its own sum of weights: the law above must tell it from the sum over both.
    step = Step(GradientRescaling(across_processes=False), 5)
    step.load_state_dict(steps["gradient_rescaling"].state_dict())
    positional, names = arguments("gradient_rescaling", share("gradient_rescaling"))
    wrapped = DistributedDataParallel(step)
    wrapped(*positional, **names).backward()
    difference = max((a - b).abs().max() for a, b in zip(gradients(step), expected["gradient_rescaling"][0]))
    assert difference > 1e-4, difference


def check_accumulated():
    model = copy.deepcopy(steps["gradient_rescaling"].model)
    model.zero_grad()
    wrapped = DistributedDataParallel(model)
    criterion = AccumulatedRescaling(GradientRescaling(), model.parameters())
    mine = torch.arange(12)[share("gradient_rescaling")]
    first, last = mine.split([3, len(mine) - 3])
    with wrapped.no_sync():
        criterion(wrapped(inputs[first]), marked[first], weights[first]).backward()
    criterion(wrapped(inputs[last]), marked[last], weights[last]).backward()
    torch.testing.assert_close(gradients(model), expected["gradient_rescaling"][0], rtol=0, atol=1e-10)


def check_tables():
    mine = ids[share("")]
    logits = torch.randn(12, 5, generator=torch.Generator().manual_seed(4))
    joint = JointOptimisation(12, 5, window=2)
    pruned = TruncatedGCELoss(num_samples=12)
    for scale in (1.0, 3.0, 9.0):
        joint.record(mine, scale * logits[mine])
        joint.end_epoch()
    torch.testing.assert_close(joint.labels, ((3 * logits).softmax(-1) + (9 * logits).softmax(-1)) / 2)
    pruned.prune(mine, logits[mine], labels[mine])
    kept = pruned.end_pruning()
    believed = logits.softmax(-1).gather(-1, labels[:, None])[:, 0] >= 0.5
    assert torch.equal(pruned.kept, believed) and kept == believed.float().mean()


def check_one_process_may_validate():
    # Without a gradient nobody waits: only the first process looks.
    if rank == 0:
        with torch.no_grad():
            for name in LOSSES:
                positional, names = arguments(name, share(name) if name not in UNEVEN else slice(0, 6))
                steps[name].eval()(*positional, **names)


attempt("joint, summed", check_joint_sum)
attempt("local sum", check_local_sum)
attempt("accumulated", check_accumulated)
attempt("tables", check_tables)
attempt("validation", check_one_process_may_validate)
dist.barrier()
dist.destroy_process_group()
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def reports(in_two_processes: Callable[[str], list[dict[str, str]]]) -> list[dict[str, str]]:
    return in_two_processes(SCRIPT)


AUTOMATIC = [f"automatic{form}" for form in ("", ", emphasised", ", by weights")]


@pytest.mark.parametrize(
    "name", [*LOSSES, *AUTOMATIC, "joint, summed", "local sum", "accumulated", "tables", "validation"]
)
def test_two_processes_equal_one(name: str, reports: list[dict[str, str]]) -> None:
    assert [report[name] for report in reports] == ["", ""]


def test_sums_over_processes_carry_no_gradient_on_one_process_either() -> None:
    x = torch.ones(3, requires_grad=True)
    for total in (distributed.sum_over_processes(x), distributed.log_sum_over_processes(x)):
        assert torch.equal(total, x)
        assert not total.requires_grad
