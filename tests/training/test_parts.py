"""Two processes with unequal batches take the step of one and report its loss, with every loss and sums of losses."""

import json
from collections.abc import Callable

from hardsight.losses.registry import LOSSES

# What one process would do is computed before the processes know of each other.
SCRIPT = """
import copy, json, sys
from datetime import timedelta
import torch
import torch.distributed as dist
from torch import nn
from hardsight import losses
from hardsight.domains.self_training import PseudoLabelLoss
from hardsight.losses.registry import LOSSES, Sizes
from hardsight.distributed import several, sum_over_processes
from hardsight.training import Steps
from hardsight.training.network import Network, Objective, connected
from hardsight.training.step import make_step

rank, rendezvous = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.manual_seed(0)
sizes = Sizes(dim=6, classes=5, samples=19)
inputs, labels, ids = torch.randn(19, 4).double(), torch.randint(5, (19,)), torch.arange(19)
labels[1] = -100
# The batches of a step as one process sees them, and the slices of them that the first process has.
WHOLE, FIRST = (slice(0, 12), slice(12, 19)), (slice(0, 8), slice(12, 15))
SECOND = (slice(8, 12), slice(15, 19))
class_weights = torch.tensor([0.2, 1.0, 3.0, 0.5, 2.0])


def pseudo(loss, soft=False, divergence_weight=0.3):
    made = PseudoLabelLoss(
        loss, first_target=9, soft_rows=(10, 5) if soft else None, divergence_weight=divergence_weight
    )
    if soft:
        made.set_soft(torch.randn(10, 5, generator=torch.Generator().manual_seed(1)).softmax(1))
    return made


def emphasised():
    made = losses.AutomaticRescaling(5)
    made.decide(0.4, accuracy=0.5)
    made.rise(0.5)
    assert made.emphasis == (4.0, 1.0)
    return made


def of_registry(name):
    entry = LOSSES[name]
    made = entry.make(sizes)
    if name == "mentornet_pd":
        made.set_progress(0.5)
    if hasattr(made, "odd"):
        made.odd = "drop_last"
    return made if entry.takes == "logits" else Objective(None, made, pairs="labels")


CASES = {name: (lambda name=name: of_registry(name)) for name in LOSSES} | {
    "pseudo-labels": lambda: pseudo(None),
    "pseudo-labels, soft": lambda: pseudo(None, soft=True),
    "pseudo-labels, rescaling": lambda: pseudo(losses.GradientRescaling(beta=4.0)),
    "pseudo-labels, rescaling alone": lambda: pseudo(losses.GradientRescaling(beta=4.0), divergence_weight=0.0),
    "pseudo-labels, rescaling by the mean": lambda: pseudo(losses.GradientRescaling(beta=4.0, reduction="mean")),
    "pseudo-labels, automatic": lambda: pseudo(emphasised()),
    "pseudo-labels, class weights": lambda: pseudo(nn.CrossEntropyLoss(class_weights)),
    "pseudo-labels, class weights, soft": lambda: pseudo(nn.CrossEntropyLoss(class_weights), soft=True),
    "automatic": emphasised,
    "rescaling and AMC": lambda: Objective(losses.GradientRescaling(), losses.AMCLoss(odd="drop_last")),
    "rescaling and centres": lambda: Objective(losses.GradientRescaling(), losses.CenterLoss(6, 5)),
    "rescaling, summed": lambda: losses.GradientRescaling(reduction="sum"),
    "rescaling by the mean": lambda: losses.GradientRescaling(reduction="mean"),
    "cross-entropy, summed": lambda: nn.CrossEntropyLoss(reduction="sum"),
    "class weights": lambda: nn.CrossEntropyLoss(class_weights),
    "class weights and centres": lambda: Objective(nn.CrossEntropyLoss(class_weights), losses.CenterLoss(6, 5)),
    "another label to ignore": lambda: losses.CrossEntropy(ignore_index=2),
    "another label to ignore, rescaling": lambda: losses.GradientRescaling(ignore_index=2),
    "centres that ignore a label": lambda: Objective(None, losses.CenterLoss(6, 5, ignore_index=2)),
    "centres, summed": lambda: Objective(None, losses.CenterLoss(6, 5, reduction="sum")),
    "AMC, summed": lambda: Objective(None, losses.AMCLoss(odd="drop_last", reduction="sum")),
    "class weights, smoothed": lambda: nn.CrossEntropyLoss(class_weights, label_smoothing=0.2),
    "class weights, some 0": lambda: nn.CrossEntropyLoss(torch.tensor([1.0, 0.0, 3.0, 0.0, 2.0])),
    "joint optimisation, summed": lambda: losses.JointOptimisation(19, 5, reduction="sum"),
    "pseudo-labels, summed": lambda: pseudo(nn.CrossEntropyLoss(reduction="sum")),
}


def given(name, slices):
    own = torch.where(labels < 0, 0, labels) if "ignore" in name or "soft" in name else labels
    if "some 0" in name:
        own = own.clone()
        # The first process has nothing that counts in the second batch.
        own[12:15] = 1
    return [(inputs[part], own[part], ids[part]) for part in slices]


def step_of(network, accumulate):
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    step = make_step(network, optimizer, Steps(accumulate, precision="float32"), batch_size=19)
    if several():
        step.call = connected(step.network)
    return step


def network_of(name):
    made = CASES[name]()
    objective = made if isinstance(made, Objective) else Objective(made)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5))
    return Network(model, objective, features=True).double()


def stepped(network, name, slices, accumulated):
    step = step_of(network, 2 if accumulated else 1)
    step.call.train()
    groups = [given(name, slices)] if accumulated else [[one] for one in given(name, slices)]
    for group in groups:
        step(group)
    # As the loop puts an epoch's numbers together.
    loss, correct, count = sum_over_processes(torch.stack([step.meter.loss, step.meter.correct, step.meter.count]))
    state = {key: value for key, value in network.state_dict().items() if value.is_floating_point()}
    return state | {"train_loss": loss / count, "train_accuracy": correct / count}


def attempt(act):
    try:
        return act()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"[-400:]


networks, expected = {}, {}
for name in CASES:
    for accumulated in (False, True):
        network = network_of(name)
        networks[name, accumulated] = copy.deepcopy(network)
        expected[name, accumulated] = attempt(lambda: stepped(network, name, WHOLE, accumulated))

dist.init_process_group(
    "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
)


def compare(name, accumulated):
    alone = expected[name, accumulated]
    both = attempt(lambda: stepped(networks[name, accumulated], name, SECOND if rank else FIRST, accumulated))
    if isinstance(alone, str) or isinstance(both, str):
        return alone if alone == both else f"{alone} / {both}"
    torch.testing.assert_close(both, alone, rtol=0, atol=1e-6)
    return ""


report = {}
for name, accumulated in networks:
    report[f"{name}, accumulated" if accumulated else name] = attempt(lambda: compare(name, accumulated))
dist.barrier()
dist.destroy_process_group()
print(json.dumps(report))
"""


# Whose gradient cannot be put together from those of its parts.
REFUSED = {
    "pseudo-labels, rescaling": "a part of the loss",
    "pseudo-labels, rescaling alone": "a part of the loss",
    "rescaling and AMC": "a part of the loss",
    "rescaling and centres": "a part of the loss",
    "pseudo-labels, automatic": '"auto"',
    "automatic": '"auto"',
}


def test_two_processes_of_unequal_batches_equal_one(in_two_processes: Callable[[str], list[dict[str, str]]]) -> None:
    first, second = in_two_processes(SCRIPT)
    assert set(LOSSES) < set(first)
    assert first == second
    for name, reason in REFUSED.items():
        said = first.pop(f"{name}, accumulated")
        assert said.startswith("ValueError: accumulate must be 1")
        assert reason in said
    wrong = {name: said for name, said in first.items() if said}
    assert not wrong, json.dumps(wrong, indent=1)
