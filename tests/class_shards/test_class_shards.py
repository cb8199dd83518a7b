"""A head divided by class among 2 or 3 processes, each with samples of its own, equals one process; bad parts raise."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import hardsight as hs
from hardsight import losses
from hardsight.class_shards import ShardedHead, _check_parts, own_classes

COUNTS = (2, 3)
# Classes and samples of the processes: uneven, and one process with no sample at all.
PARTS = {2: ([4, 7], [9, 4]), 3: ([2, 8, 1], [0, 5, 8])}

SCRIPT = """
import json, sys
from datetime import timedelta
import torch
import torch.distributed as dist
import hardsight as hs
from hardsight import losses
from hardsight.class_shards import ShardedHead
from hardsight.hardness import model_scores

rank, rendezvous, parts = int(sys.argv[1]), sys.argv[2], PARTS
torch.set_num_threads(1)
torch.manual_seed(0)
own_classes, own_samples = parts
samples, classes, dim = sum(own_samples), sum(own_classes), 5
weight, bias = torch.randn(classes, dim).double(), torch.randn(classes).double()
features, counted = torch.randn(samples, dim).double(), torch.rand(samples).double()
labels = torch.randint(classes, (samples,))
# Equal largest logits in two processes; a sample on its label's weight, a class without direction.
weight[-1], bias[-1] = weight[0], bias[0]
features[4], weight[1] = 3 * weight[labels[4]], 0
known, labels[3] = labels.clone(), -100
names = [one.name for one in model_scores() if not one.tags]
wide = {"labels": known, "predictions": None}
scored = {name: hs.score(features, weight, given, bias, scores=names) for name, given in wide.items()}


def trained(loss, *leaves):
    leaves = [one.clone().requires_grad_() for one in leaves]
    value = loss(*leaves)
    return value.detach(), *torch.autograd.grad(value.sum(), leaves)


RESCALED = {f"{name}, {reduction}, {epsilon}": {"transform": transform, "reduction": reduction, "epsilon": epsilon}
            for name, transform in {"exp": "exp", "identity": "identity", "own": lambda at: 1 + at}.items()
            for reduction in ("weight", "mean", "sum", "none") for epsilon in (0.0, 0.1)}
RESCALED["normaliser"] = {"normaliser": 3.0}
angular = {reduction: {"sample_weight": counted, "reduction": reduction} for reduction in ("mean", "sum", "none")}
scale = torch.tensor(7.0).double()
expected = {
    f"avh, {name}": trained(lambda x, w, s: losses.avh_loss(x, w, labels, s, **options), features, weight, scale)
    for name, options in angular.items()
}
expected |= {
    name: trained(
        lambda x, w, b: losses.linear_gradient_rescaling(x, w, b, labels, sample_weight=counted, **options),
        features, weight, bias,
    )
    for name, options in RESCALED.items()
}

dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=len(own_classes),
                        timeout=timedelta(seconds=60))
mine = slice(sum(own_classes[:rank]), sum(own_classes[: rank + 1]))
here = slice(sum(own_samples[:rank]), sum(own_samples[: rank + 1]))
report = {}


def attempt(name, check):
    try:
        check()
        report[name] = ""
    except Exception as problem:
        report[name] = f"{type(problem).__name__}: {problem}"[-400:]


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def make(averaged=False, **options):
    w, b = (torch.nn.Parameter(one[mine].clone()) for one in (weight, bias))
    return ShardedHead(w, b, gradients_are_averaged=averaged, **options)


def check_scores(name):
    given = None if wide[name] is None else wide[name][here]
    for chunk in (None, 2):
        found = hs.score(features[here], make(), given, scores=names, chunk=chunk)
        for one in names:
            close(found[one], scored[name][one][here])


def check_loss(name, averaged=False):
    head, x = make(averaged), features[here].clone().requires_grad_()
    # What each process does with its own losses counts as a part of the mean over the processes.
    factor = len(own_classes) if name.endswith("none") or ", none, " in name else 1
    value, by_features, by_weight, by_last = expected[name]
    if name.startswith("avh"):
        options = angular[name.removeprefix("avh, ")] | {"sample_weight": counted[here]}
        last = scale.clone().requires_grad_()
        found = losses.avh_loss(x, head, labels[here], last, **options)
    else:
        found = losses.linear_gradient_rescaling(
            x, head, None, labels[here], sample_weight=counted[here], **RESCALED[name])
        last = head.bias
        by_last = by_last[mine]
    close(found, value[here] if found.ndim else value)
    (factor * found.sum()).backward()
    close(head.weight.grad, by_weight[mine])
    close(last.grad, by_last)
    close(x.grad, by_features[here] * (len(own_classes) if averaged else 1))


def check_network():
    # A network in DistributedDataParallel before the head: its averaged gradient is that of one process.
    torch.manual_seed(1)
    one = torch.nn.Linear(dim, dim).double()
    whole = trained(lambda a, b: losses.avh_loss(features @ a.T + b, weight, labels, 7.0), one.weight, one.bias)
    wrapped = torch.nn.parallel.DistributedDataParallel(one)
    losses.avh_loss(wrapped(features[here]), make(averaged=True), labels[here], 7.0).backward()
    close([one.weight.grad, one.bias.grad], list(whole[1:]))


def check_second_derivative():
    x = features[here].clone().requires_grad_()
    value = losses.avh_loss(x, make(), labels[here])
    (by_x,) = torch.autograd.grad(value, x, create_graph=True)
    try:
        by_x.sum().backward()
    except RuntimeError as problem:
        assert "second derivative" in str(problem)
    else:
        raise AssertionError("a second derivative must raise")


def rejects(name, work, *words):
    def check():
        try:
            work()
        except ValueError as problem:
            assert all(word in str(problem) for word in words), problem
        else:
            raise AssertionError("no error")
    attempt(name, check)


for name in wide:
    attempt(f"scores against {name}", lambda: check_scores(name))
for name in expected:
    attempt(name, lambda: check_loss(name))
attempt("averaged", lambda: check_loss("avh, mean", averaged=True))
attempt("network", check_network)
attempt("second derivative", check_second_derivative)
last = rank == len(own_classes) - 1
rejects("dim", lambda: ShardedHead(weight[mine, : dim - last]), "same dim", "4")
rejects("bias", lambda: ShardedHead(weight[mine], bias[mine] if last else None), "bias", "none")
rejects("not finite", lambda: ShardedHead(weight[mine] / (0.0 if last else 1.0)), "finite")
rejects("gap", lambda: make(first=mine.start + last), "first", "each class")
rejects("overlap", lambda: make(first=mine.start - last), "first", "one process")
rejects("first of some", lambda: make(first=None if last else mine.start), "first")
outside = torch.where(torch.arange(samples) == samples - 1, classes, known)[here]
rejects("label of a loss", lambda: losses.avh_loss(features[here], make(), outside), "labels", str(classes))
rejects("label of a score", lambda: hs.score(features[here], make(), outside), "labels")
rejects("features", lambda: losses.avh_loss(features[here, : dim - last], make(), labels[here]), "head")
few = labels[here][: -1 if last else None]
rejects("lengths", lambda: losses.avh_loss(features[here], make(), few), "labels" if last else "head")
rejects("whole set", lambda: hs.score(features[here], make(), known[here], scores=("class_norm",)), "class_norm")
rejects("second bias", lambda: hs.score(features[here], make(), known[here], bias), "bias")
named = make(first=mine.start)
assert (named.first, named.classes) == (mine.start, classes)
dist.barrier()
dist.destroy_process_group()
print(json.dumps(report))
"""


@pytest.fixture(scope="module", params=COUNTS, ids=lambda count: f"{count} processes")
def reports(
    request: pytest.FixtureRequest, in_processes: Callable[[str, int], list[dict[str, str]]]
) -> list[dict[str, str]]:
    count = request.param
    return in_processes(SCRIPT.replace("PARTS\n", f"{PARTS[count]}\n", 1), count)


def test_several_processes_equal_one(reports: list[dict[str, str]]) -> None:
    assert len(reports[0]) > 35
    assert [{name: said for name, said in one.items() if said} for one in reports] == [{}] * len(reports)


def test_one_process_is_a_head_as_any_other() -> None:
    generator = torch.Generator().manual_seed(0)
    features, weight = (torch.randn(rows, 4, generator=generator, dtype=torch.float64) for rows in (6, 5))
    labels = torch.arange(6) % 5
    head = ShardedHead(weight)
    torch.testing.assert_close(hs.score(features, head, labels), hs.score(features, weight, labels))
    ours, theirs = losses.avh_loss(features, head, labels), losses.avh_loss(features, weight, labels)
    torch.testing.assert_close(ours, theirs)
    assert list(own_classes(5)) == [0, 1, 2, 3, 4]
    assert "classes 0 to 4 of 5" in repr(head)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x, head, y: losses.avh_loss(x, head, y, fused=True), "fused .*ShardedHead.*True"),
        (lambda x, head, y: losses.avh_loss(x, head, torch.full((6,), 9)), r"labels .*\[0, 5\).*9"),
        (lambda x, head, y: losses.linear_gradient_rescaling(x, head, torch.zeros(5), y), "bias must be None"),
        (lambda x, head, y: losses.linear_gradient_rescaling(x[:, :3], head, None, y), r"features .*4.*\[6, 3\]"),
        (lambda x, head, y: hs.score(x, head, y, chunk=0), "chunk must be at least 1"),
        (lambda x, head, y: ShardedHead(torch.zeros(1, 4)), "at least 2 classes; got 1"),
    ],
)
def test_bad_input_is_one_sentence(call: Callable[..., Any], sentence: str) -> None:
    head = ShardedHead(torch.eye(5, 4))
    with pytest.raises(ValueError, match=sentence):
        call(torch.ones(6, 4), head, torch.arange(6) % 5)


def test_soft_targets_are_rejected() -> None:
    with pytest.raises(TypeError, match=r"labels .*class indices.*float"):
        losses.avh_loss(torch.ones(2, 4), ShardedHead(torch.eye(5, 4)), torch.full((2, 5), 0.2))


@pytest.mark.parametrize(
    ("layout", "firsts"),
    [([(-1, 2, 3, 0), (-1, 4, 3, 0)], [0, 2]), ([(4, 2, 3, 1), (0, 4, 3, 1)], [4, 0])],
)
def test_classes_are_numbered_by_process_or_as_said(layout: list[tuple[int, ...]], firsts: list[int]) -> None:
    assert _check_parts(layout) == firsts


def test_the_guide_s_examples_run() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text(encoding="utf-8")
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL):
        exec(block, namespace)
    assert namespace["scores"].keys() == {"avh", "loss", "el2n"}
    assert namespace["head"].weight.grad is not None
