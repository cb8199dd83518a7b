"""Trainings for an unseen domain: two processes of unequal batches take the steps of one, and report its numbers.

What has no such steps, the baselines of adaptation, is rejected.
"""

import json
from collections.abc import Callable
from typing import Any

# What one process would do is computed before the processes know of each other.
SCRIPT = """
import json, sys
from datetime import timedelta
import torch
import torch.distributed as dist
from torch import nn
from hardsight import losses
from hardsight.datasets import ArrayDataset
from hardsight_studies.avh.unseen import Recipe, leave_one_domain_out, make_loop
from hardsight_studies.avh.unseen.batches import DomainBatches
from hardsight_studies.avh.unseen.meta_learning import train_by_mldg
from hardsight.domains.data import RowBatches
from hardsight.distributed import rank_and_count
from hardsight import training

rank, rendezvous = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.manual_seed(0)
rows, labels = torch.randn(3, 25, 4).double(), torch.randint(3, (3, 25))
weights = torch.tensor([0.3, 1.0, 2.0]).double()
LOSSES = {
    "plain": lambda: None,
    "class weights": lambda: nn.CrossEntropyLoss(weights),
    "unlabelled": lambda: losses.CrossEntropy(),
    "summed": lambda: nn.CrossEntropyLoss(reduction="sum"),
    "rescaling": lambda: losses.GradientRescaling(beta=4.0),
}


def meta(name, second_order=False, clip=None, normalised=True):
    # Five of each domain a batch: two in the first process, three in the second.
    place, world = rank_and_count()
    given = labels.clone()
    if name == "unlabelled":
        given[:, ::3] = -100
    batches = DomainBatches([
        RowBatches(some, own, batch_size=5, seed=at, drop_last=True, rank=place, world_size=world)
        for at, (some, own) in enumerate(zip(rows, given))
    ])
    torch.manual_seed(1)
    between = [nn.BatchNorm1d(6)] if normalised else []
    model = nn.Sequential(nn.Linear(4, 6), *between, nn.Tanh(), nn.Linear(6, 3)).double()
    loop = training.Loop(
        model, batches, LOSSES[name](), torch.optim.SGD(model.parameters(), lr=0.1 if name != "summed" else 0.01),
        epochs=2, progress=False, device="cpu",
        steps=training.Steps(capture=False, clip=clip, precision="float32"),
    )
    return finished(train_by_mldg(loop, 3, inner_rate=0.3, second_order=second_order))


def made(method, model, **options):
    generator = torch.Generator().manual_seed(2)
    count, size = 90, 8
    kind = torch.arange(count) % 3
    if model == "probe":
        images = torch.randn(count, 6, generator=generator)
    else:
        images = torch.randint(256, (count, 1, size, size), generator=generator, dtype=torch.uint8)
    data = ArrayDataset(
        images=images, labels=kind, class_names=("a", "b", "c"), domains=torch.arange(count) // 3 % 3,
        domain_names=("x", "y", "z"), name="drawn", split="all",
    )
    split = leave_one_domain_out(data, "y", generator=torch.Generator().manual_seed(0))
    recipe = Recipe(model, epochs=2, batch_size=14, lr=0.02, shift=1, **options)
    return finished(make_loop(method, split, recipe, device="cpu", scale=8.0 if method == "avh" else None))


def finished(loop):
    done = loop.run()
    numbers = [{key: value for key, value in row.items() if key != "seconds"} for row in done.epochs]
    seen = len(torch.cat([torch.as_tensor(ids) for _, _, ids in loop.feed.batches]))
    return {"state": done.model.state_dict(), "rows": numbers, "results": done.results}, seen


CASES = {
    f"mldg, {name}{', second order' if second_order else ''}": (
        lambda name=name, second_order=second_order: meta(name, second_order)
    )
    for name in LOSSES
    for second_order in (False, True)
    if (name, second_order) != ("rescaling", True)
} | {
    "mldg, clipped": lambda: meta("plain", clip=0.05),
    "mldg, not normalised": lambda: meta("plain", second_order=True, normalised=False),
    "cross-entropy, pictures": lambda: made("cross_entropy", "digits_cnn"),
    "avh, features": lambda: made("avh", "probe"),
    "mldg, features": lambda: made("mldg", "probe"),
    "mldg, pictures": lambda: made("mldg", "digits_cnn", second_order=True),
}


def attempt(act):
    try:
        return act()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"[-400:]


alone = {name: attempt(case) for name, case in CASES.items()}
dist.init_process_group(
    "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
)


def compare(name):
    (expected, all_samples), (found, own) = alone[name], CASES[name]()
    assert own < all_samples, "the samples were not shared out"
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5, equal_nan=True)
    return ""


report = {name: attempt(lambda: compare(name)) for name in CASES}
dist.barrier()
dist.destroy_process_group()
print(json.dumps(report))
"""


def test_two_processes_of_unequal_batches_equal_one(in_two_processes: Callable[[str], list[dict[str, Any]]]) -> None:
    first, second = in_two_processes(SCRIPT)
    assert first == second
    assert len(first) == 15
    wrong = {name: said for name, said in first.items() if said}
    assert not wrong, json.dumps(wrong, indent=1)
