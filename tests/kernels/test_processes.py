"""Two processes under DistributedDataParallel (gloo) and one process take the same step, with every loss here."""

from collections.abc import Callable

import pytest

# What one process would do is computed before the processes know of each other.
SCRIPT = """
import json, math, sys
from datetime import timedelta
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from hardsight import kernels

rank, rendezvous = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.manual_seed(0)
inputs, labels = torch.randn(12, 4).double(), torch.randint(5, (12,))
# Samples that count differently in the two processes, and not at all.
weights, marked = torch.rand(12).double() + 0.5, torch.where(torch.arange(12) == 1, -100, labels)
together = False


def over_processes(log_sum):
    # DistributedDataParallel takes the mean of the processes' gradients, so the divisor is the mean of their sums.
    if not together:
        return log_sum
    gathered = [torch.empty_like(log_sum) for _ in range(2)]
    dist.all_gather(gathered, log_sum)
    return torch.stack(gathered).logsumexp(0) - math.log(2)


def from_logits(logits, part, **options):
    return kernels.rescaled_cross_entropy(logits, marked[part], sample_weight=weights[part], **options)


def sum_of_weights(logits, part):
    rows = kernels.row_statistics(logits, marked[part].clamp_min(0))
    weight = (8.0 * (0.5 * rows.log_p + rows.log_rest).exp()).exp() * weights[part]
    return torch.where(marked[part] == -100, 0.0, weight).sum()


class Step(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name, self.body, self.head = name, nn.Linear(4, 6).double(), nn.Linear(6, 5).double()

    def forward(self, inputs, part):
        features = self.body(inputs)
        if self.name in ("normaliser", "local sum"):
            logits = self.head(features)
            if self.name == "local sum":
                return from_logits(logits, part)
            return from_logits(logits, part, normaliser=over_processes(sum_of_weights(logits, part).log()).exp())
        if self.name == "log_divisor":
            return kernels.rescaled_linear_cross_entropy(
                features, self.head.weight, self.head.bias, marked[part],
                sample_weight=weights[part], log_divisor=over_processes,
            )
        loss = kernels.angular_cross_entropy(features, self.head.weight, labels[part], 7.0)
        if self.name == "pairs of each process":
            # The same four samples in both, so that the mean over processes is that of either.
            loss = loss + kernels.pairwise_angular_contrast(features[:4], labels[part][:4], 1.0)
        return loss + 0.0 * self.head.bias.sum()


names = ["normaliser", "log_divisor", "angular", "pairs of each process", "local sum"]
steps = {name: Step(name) for name in names}
expected, report = {}, {}
inputs[6:10], labels[6:10] = inputs[:4].clone(), labels[:4].clone()
for name, step in steps.items():
    step(inputs, slice(0, 12)).backward()
    expected[name] = [parameter.grad.clone() for parameter in step.parameters()]
    step.zero_grad()

dist.init_process_group(
    "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
)
together = True
for name, step in steps.items():
    uneven = name in ("normaliser", "log_divisor", "local sum")
    cut = 7 if uneven else 6
    part = slice(0, cut) if rank == 0 else slice(cut, 12)
    wrapped = DistributedDataParallel(step)
    wrapped(inputs[part], part).backward()
    found = [parameter.grad for parameter in step.parameters()]
    report[name] = max(float((a - b).abs().max()) for a, b in zip(found, expected[name], strict=True))
dist.barrier()
dist.destroy_process_group()
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def differences(in_two_processes: Callable[[str], list[dict[str, float]]]) -> list[dict[str, float]]:
    """Largest difference to the gradients of one process, of each loss, as each of the two processes sees it."""
    return in_two_processes(SCRIPT)


@pytest.mark.parametrize("name", ["normaliser", "log_divisor", "angular", "pairs of each process"])
def test_two_processes_equal_one(name: str, differences: list[dict[str, float]]) -> None:
    assert max(seen[name] for seen in differences) < 1e-10


def test_each_process_by_its_own_sum_is_not_one_process(differences: list[dict[str, float]]) -> None:
    assert min(seen["local sum"] for seen in differences) > 1e-4
