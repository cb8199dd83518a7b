"""Every op where it is used: compiled, under autocast, checkpointed, in a CUDA graph, on a machine without Triton.

And what a call costs the host: the operations it starts are counted.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from hardsight import kernels, losses
from hardsight.kernels import dispatch
from hardsight.losses import inputs


def ops(labels: Tensor) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    return {
        "angular_scores": lambda x, w: kernels.angular_scores(x, w, labels).angle_sum.sum() + 0 * x.sum() + 0 * w.sum(),
        "angular_cross_entropy": lambda x, w: losses.avh_loss(x, w, labels, 5.0),
        "recomputed": lambda x, w: losses.avh_loss(x, w, labels, 5.0, recompute=True),
        "rescaled_cross_entropy": lambda x, w: losses.gradient_rescaling(x @ w.T, labels),
        "rescaled_linear": lambda x, w: losses.linear_gradient_rescaling(x, w, None, labels),
        "pairwise": lambda x, w: losses.amc_loss(x @ w.T, labels, pairs="all"),
    }


NAMES = list(ops(torch.zeros(1)))
LOSSES = [name for name in NAMES if name != "angular_scores"]


def draw(device: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features, weight = torch.randn(6, 8, generator=generator), torch.randn(5, 8, generator=generator)
    labels = torch.randint(0, 5, (6,), generator=generator)
    return features.to(device).requires_grad_(), weight.to(device).requires_grad_(), labels.to(device)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # what tracing itself does
def test_a_setting_of_the_process_is_a_constant_to_tracing() -> None:
    torch.compiler.reset()
    doubled = torch.compile(lambda x: x if dispatch.tf32_is_allowed() else 2 * x, backend="aot_eager", fullgraph=True)
    assert doubled(torch.ones(3)).tolist() == [2, 2, 2]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # what tracing itself does
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")  # advice that this project does not take
@pytest.mark.parametrize("name", NAMES)
def test_compiled_as_one_graph_equals_eager(device: str, name: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--jaxtyping-packages", None):
        pytest.skip("torch.compile does not trace the shape checks of the test run")
    features, weight, labels = draw(device)
    op = ops(labels)[name]
    want = op(features, weight)
    torch.compiler.reset()
    got = torch.compile(op, backend="aot_eager", fullgraph=True)(features, weight)
    torch.testing.assert_close(got, want)
    for one, other in zip(
        torch.autograd.grad(got, (features, weight), allow_unused=True),
        torch.autograd.grad(want, (features, weight), allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_checkpointing_changes_nothing(device: str, name: str) -> None:
    features, weight, labels = draw(device)
    op = ops(labels)[name]
    want = torch.autograd.grad(op(features, weight), (features, weight))
    got = torch.autograd.grad(checkpoint(op, features, weight, use_reentrant=False), (features, weight))
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_multiplies_in_half_precision_and_returns_full_gradients(device: str, name: str) -> None:
    features, weight, labels = draw(device)
    op = ops(labels)[name]
    full = op(features, weight)
    with torch.autocast(device, dtype=torch.bfloat16):
        got = op(features, weight)
    gradients = torch.autograd.grad(got, (features, weight))
    assert all(one.dtype == torch.float32 and torch.isfinite(one).all() for one in gradients)
    torch.testing.assert_close(got.float(), full, atol=5e-2, rtol=2e-2)


@pytest.mark.parametrize("name", LOSSES)
def test_without_triton_the_plain_version_gives_the_same(
    device: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, weight, labels = draw(device)
    op = ops(labels)[name]
    fused = op(features, weight)
    monkeypatch.setattr(dispatch, "_TRITON_IS_INSTALLED", False)
    plain = op(features, weight)
    torch.testing.assert_close(plain, fused, atol=1e-5, rtol=1e-5)
    for one, other in zip(
        torch.autograd.grad(plain, (features, weight)), torch.autograd.grad(fused, (features, weight)), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_on_a_cpu_the_plain_version_runs_in_float64_too(name: str) -> None:
    features, weight, labels = draw("cpu")
    op = ops(labels)[name]
    wide = op(features.double(), weight.double())
    torch.testing.assert_close(op(features, weight).double(), wide.double(), atol=1e-4, rtol=1e-4)


def test_the_door_knows_who_may_enter() -> None:
    assert dispatch.obstacle(torch.zeros(2, dtype=torch.float64)) is not None
    mixed = dispatch.same_precision((torch.zeros(1, dtype=torch.bfloat16), nn.Parameter(torch.zeros(1))))
    assert [one.dtype for one in mixed] == [torch.float32, torch.float32]


def test_sizes_of_a_launch_are_whole_numbers() -> None:
    for count in range(1, 70):
        assert all(
            (dispatch.blocks_of(count, size) - 1) * size < count <= dispatch.blocks_of(count, size) * size
            for size in (1, 7, 16)
        )
        assert dispatch.power_of_two(count) >= count > dispatch.power_of_two(count) // 2
        assert dispatch.power_of_two(count).bit_count() == 1


# Of the fused losses, forward and backward: Triton's kernels, then torch's products.
STARTED = {
    "rescaled_cross_entropy": (3, 0),
    "rescaled_linear": (3, 3),
    "angular_cross_entropy": (4, 3),
    "recomputed": (7, 4),
    "pairwise": (4, 2),
}
# What allocates, looks at a tensor in another way, or asks about types starts nothing on a device.
FREE = ("aten.empty", "aten.new_empty", "aten.slice", "aten.permute", "aten.alias", "aten.detach", "aten.promote_types")


class Started(TorchDispatchMode):
    """Counts torch's operations, less those that the interpreter itself makes while it runs a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.kernels = 0
        self.inside = False

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), names: Any = None) -> Any:
        if not self.inside and not str(function).startswith(FREE):
            self.counts[str(function)] += 1
        return function(*arguments, **(names or {}))

    def watch(self, launch: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **names: Any) -> Any:
            self.kernels, self.inside = self.kernels + 1, True
            try:
                return launch(*arguments, **names)
            finally:
                self.inside = False

        return counted


@pytest.mark.parametrize("name", STARTED)
def test_a_call_starts_a_handful_of_operations(device: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cuda":
        pytest.skip("counted where the interpreter starts the kernels")
    from triton.runtime.interpreter import GridExecutor

    monkeypatch.setattr(inputs, "_may_look", lambda tensor: False)  # as on a GPU
    generator = torch.Generator().manual_seed(0)
    features, weight = torch.randn(6, 8, generator=generator), torch.randn(16, 8, generator=generator)
    labels = torch.randint(0, 8, (6,), generator=generator)
    leaves = (features.requires_grad_(), weight.requires_grad_())
    without_weight = {
        "rescaled_cross_entropy": lambda: losses.gradient_rescaling(features, labels),
        "pairwise": lambda: losses.amc_loss(features, labels, pairs="all"),
    }
    work = without_weight.get(name, lambda: ops(labels)[name](features, weight))
    started = Started()
    monkeypatch.setattr(GridExecutor, "__call__", started.watch(GridExecutor.__call__))
    with started:
        torch.autograd.grad(work(), leaves[:1] if name in without_weight else leaves)
    del started.counts["aten.ones_like.default"]  # where autograd begins
    assert (started.kernels, started.counts["aten.mm.out"]) == STARTED[name]
    assert set(started.counts) <= {"aten.mm.out"}, started.counts


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_may_be_changed_in_place(device: str, name: str) -> None:
    features, weight, labels = draw(device)
    op = ops(labels)[name]
    want = torch.autograd.grad(2 * op(features, weight), (features, weight))
    loss = op(features, weight)
    loss *= 2
    for one, other in zip(torch.autograd.grad(loss, (features, weight)), want, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", LOSSES)
def test_the_same_call_gives_the_same_bits(device: str, name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    samples = 5000 if device == "cuda" else 40
    features = torch.randn(samples, 16, generator=generator).to(device).requires_grad_()
    weight = torch.randn(24, 16, generator=generator).to(device).requires_grad_()
    labels = torch.randint(0, 24, (samples,), generator=generator).to(device)
    op = ops(labels)[name]
    runs = []
    for _ in range(2):
        loss = op(features, weight)
        runs.append((loss, *torch.autograd.grad(loss, (features, weight))))
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@pytest.mark.parametrize("name", LOSSES)
def test_without_gradient_the_value_is_the_same(device: str, name: str) -> None:
    features, weight, labels = draw(device)
    op = ops(labels)[name]
    want = op(features, weight)
    with torch.no_grad():
        got = op(features, weight)
    assert torch.equal(got, want)
    assert not got.requires_grad


@pytest.mark.gpu
# The captured step keeps its graph, which was made on another stream than the step it is compared with.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning")
@pytest.mark.parametrize("name", LOSSES)
def test_a_cuda_graph_replays_forward_and_backward(name: str) -> None:
    features, weight, labels = draw("cuda")
    op = ops(labels)[name]

    def step() -> tuple[Tensor, ...]:
        loss = op(features, weight)
        return loss, *torch.autograd.grad(loss, (features, weight))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        features.copy_(torch.randn(features.shape, generator=torch.Generator().manual_seed(1)))
    graph.replay()
    for one, other in zip(captured, step(), strict=True):
        torch.testing.assert_close(one, other)


def registered(device: str) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Every custom op of the losses, with arguments it takes."""
    features, weight, labels = (one.detach() for one in draw(device))
    logits, rows, scalar = features @ weight.T, torch.ones(6, device=device), torch.ones((), device=device)
    weighing = (logits, labels, rows, None, -100, 8.0, 0.5, 1e-6, True, "weight", None)
    walking = (features, weight, labels, scalar, 1.0, rows, -100, "mean", None, [True] * 3)
    head = (features, weight, weight[:, 0].clone(), labels)
    linear = (*head, rows, scalar, -100, 8.0, 0.5, 1e-6, True, "weight", None, 1.0)
    slopes = torch.ones(6, 64, device=device)
    hardsight = torch.ops.hardsight
    return {
        "rescaled_rows": (hardsight.rescaled_rows, weighing),
        "rescaled_gradient": (hardsight.rescaled_gradient, (logits, labels, torch.zeros(13, device=device), scalar)),
        "angular_walk": (hardsight.angular_walk, walking),
        "gradients_from_slopes": (
            hardsight.gradients_from_slopes,
            (slopes, rows, weight.clone(), features, weight, torch.ones(6 + len(weight), device=device), rows, scalar),
        ),
        "project_gradients": (hardsight.project_gradients, ([features], [features], rows, 0, rows, scalar)),
        "angular_contrast": (hardsight.angular_contrast, (features, labels, rows, 0.5, -100, "mean", True)),
        "rescaled_linear": (hardsight.rescaled_linear, (*linear, True)),
        "scaled_gradients": (
            hardsight.scaled_gradients,
            ([features, rows], torch.bfloat16, torch.float32, scalar, rows[:1].clone(), 1.0),
        ),
    }


@pytest.mark.parametrize("name", list(registered("cpu")))
def test_the_registrations_keep_their_promises(device: str, name: str) -> None:
    op, arguments = registered(device)[name]
    torch.library.opcheck(op.default, arguments)


def on_device(make: Callable[..., nn.Module], like: Tensor, **options: Any) -> nn.Module:
    with like.device:
        return make(8, 5, **options)


CALLS: dict[str, Callable[..., Tensor]] = {
    "gradient rescaling": lambda x, w, y, **options: losses.gradient_rescaling(x @ w.T, y, **options),
    "gradient rescaling module": lambda x, w, y, **options: losses.GradientRescaling(**options)(x @ w.T, y),
    "linear": lambda x, w, y, **options: losses.linear_gradient_rescaling(x, w, None, y, **options),
    "avh": lambda x, w, y, **options: losses.avh_loss(x, w, y, **options),
    "avh module": lambda x, w, y, **options: on_device(losses.AVHLoss, x, **options)(x, y),
    "amc": lambda x, w, y, **options: losses.amc_loss(x, y, pairs="all", **options),
    "amc module": lambda x, w, y, **options: losses.AMCLoss(pairs="all", **options)(x, y),
}


class Fused(TorchDispatchMode):
    """Names the library's own ops that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), names: Any = None) -> Any:
        if str(function).startswith("hardsight."):
            self.names.add(str(function))
        return function(*arguments, **(names or {}))


def fused_ops(name: str, device: str, dtype: torch.dtype = torch.bfloat16, **options: Any) -> set[str]:
    """The fused ops that a forward pass starts on tensors without numbers, which may be on a GPU that is not there."""
    # Without gradient: autograd asks the device itself.
    with FakeTensorMode(allow_non_fake_inputs=True), Fused() as seen, torch.no_grad():
        features, weight = (torch.empty(rows, 8, device=device, dtype=dtype) for rows in (6, 5))
        labels = torch.zeros(6, device=device, dtype=torch.int64)
        # A GPU that is not there cannot index, as a plain formula does; which it is, is known by then.
        with contextlib.suppress(RuntimeError):
            CALLS[name](features, weight, labels, **options)
    return seen.names


@pytest.mark.parametrize("name", CALLS)
def test_a_gpu_runs_fused_by_itself_and_nothing_else_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_TRITON_IS_INSTALLED", True)
    monkeypatch.setattr(dispatch, "_INTERPRETED", False)
    monkeypatch.setattr(dispatch, "_is_capable", lambda device: True)
    assert fused_ops(name, "cuda")
    assert fused_ops(name, "cuda") == fused_ops(name, "cuda", fused=True)
    assert not fused_ops(name, "cuda", fused=False)
    assert not fused_ops(name, "cuda", torch.float64)
    assert not fused_ops(name, "cpu")
    monkeypatch.setattr(dispatch, "_is_capable", lambda device: False)
    assert not fused_ops(name, "cuda")
    with pytest.raises(ValueError, match=r"fused .*8\.0.*got True"):
        fused_ops(name, "cuda", fused=True)


@pytest.mark.parametrize("name", CALLS)
def test_fused_where_nothing_can_run_fused_says_why(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_INTERPRETED", False)
    monkeypatch.setattr(dispatch, "_TRITON_IS_INSTALLED", True)
    features, weight, labels = draw("cpu")
    with pytest.raises(ValueError, match=r"fused .*CUDA.*cpu.*got True"):
        CALLS[name](features, weight, labels, fused=True)
    with pytest.raises(ValueError, match=r"fused .*'auto'.*got 'yes'"):
        CALLS[name](features, weight, labels, fused="yes")
    monkeypatch.setattr(dispatch, "_TRITON_IS_INSTALLED", False)
    with pytest.raises(ValueError, match=r"fused .*triton.*got True"):
        CALLS[name](features, weight, labels, fused=True)


def test_what_no_kernel_computes_says_so(device: str) -> None:
    features, weight, labels = draw(device)
    soft = torch.full((6, 5), 0.2, device=device)
    for call, what in (
        (lambda: losses.avh_loss(features, weight, soft, fused=True), "class indices"),
        (lambda: losses.amc_loss(features, labels, fused=True), "pairs"),
        (lambda: losses.gradient_rescaling(features.double(), labels, fused=True), "float64"),
        (lambda: losses.linear_gradient_rescaling(features, weight, None, labels, reduction="none", fused=True), "sum"),
        (lambda: losses.gradient_rescaling(features, labels, transform=torch.exp, fused=True), "transform"),
        (lambda: losses.gradient_rescaling(features, labels, value=losses.mae_loss, fused=True), "value"),
    ):
        with pytest.raises(ValueError, match=f"fused .*{what}"):
            call()


def test_each_samples_gradient_by_vmap_is_the_plain_one(device: str) -> None:
    features, weight, labels = (one.detach() for one in draw(device))

    def loss(row: Tensor, label: Tensor) -> Tensor:
        return losses.gradient_rescaling(row @ weight.T, label, reduction="sum")

    each = torch.func.vmap(torch.func.grad(loss))(features, labels)
    together = features.clone().requires_grad_()
    losses.gradient_rescaling(together @ weight.T, labels, reduction="sum").backward()
    torch.testing.assert_close(each, together.grad, rtol=1e-4, atol=1e-6)
