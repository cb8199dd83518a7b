"""Laws that every loss of the registry obeys, and for each law a wrong loss that it rejects."""

import copy
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

import hardsight.losses
from hardsight.losses.registry import LOSSES, LossEntry, Sizes

# Heads, which make logits; cross-entropy followed by gradient rescaling, both of which have an entry; and a mean over
# triplets that it mines itself, which has no loss of a sample.
NOT_A_LOSS = {"AngularLinear", "CosineLinear", "AutomaticRescaling", "TripletLoss"}
LOW_PRECISION = (torch.float32, torch.bfloat16, torch.float16)


@dataclass
class Bench:
    """The fixtures that a law needs, in one hand."""

    sizes: Sizes
    batch: Callable
    build: Callable
    call: Callable

    def gradient(self, entry: LossEntry, module: nn.Module, first: Tensor, *rest: Tensor | None) -> Tensor:
        first = first.detach().clone().requires_grad_()
        self.call(entry, module, first, *rest).sum().backward()
        return first.grad


@pytest.fixture
def bench(sizes: Sizes, batch: Callable, build: Callable, call: Callable) -> Bench:
    return Bench(sizes, batch, build, call)


def law_classified(names: list[str], namespace: object) -> None:
    """Every module this package exports is made by an entry of the registry."""
    sizes = Sizes(4, 3, 8)
    made = {type(entry.make(sizes)).__name__ for entry in LOSSES.values()}
    exported = {name for name in names if inspect.isclass(getattr(namespace, name))}
    modules = {name for name in exported if issubclass(getattr(namespace, name), nn.Module)} - NOT_A_LOSS
    assert modules - made == set(), f"not in the registry: {sorted(modules - made)}"
    assert made - modules == set(), f"not exported: {sorted(made - modules)}"


def law_range(entry: LossEntry, bench: Bench) -> None:
    """No sample's loss leaves the range that the registry states."""
    losses = bench.call(entry, bench.build(entry, reduction="none"), *bench.batch(entry))
    assert losses.min() >= entry.low - 1e-12
    assert losses.max() <= entry.high + 1e-12


def law_best_at_label(entry: LossEntry, bench: Bench) -> None:
    """The more the labelled class leads, the smaller the loss: it falls along the way to the label."""
    classes = bench.sizes.classes
    module = bench.build(entry, reduction="none").eval()
    labels = torch.arange(classes)
    if entry.takes == "features":
        # Orthogonal classes: on the way from one to the next the angles to the others stay as they are.
        weight = torch.eye(classes, bench.sizes.dim, dtype=torch.float64)
        module.get_parameter(entry.class_rows[0]).data.copy_(weight)
        steps = [weight.roll(1, 0) * (1 - share) + weight * share for share in (0.1, 0.4, 0.7, 1.0)]
    else:
        base = torch.linspace(0.1, 0.4, classes, dtype=torch.float64).repeat(classes, 1)
        steps = [base + lead * torch.eye(classes, dtype=torch.float64) for lead in (0.5, 1.5, 3.0, 6.0)]
    curve = torch.stack([bench.call(entry, module, step, labels, labels) for step in steps])
    assert (curve.diff(dim=0) < 1e-12).all()
    assert (curve[-1] < curve[0]).all()


def law_sample_order(entry: LossEntry, bench: Bench) -> None:
    """Reordering the samples reorders their losses and leaves the mean alone; for halves, pairs are reordered."""
    first, labels, ids = bench.batch(entry)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    if entry.pairs:
        half = torch.randperm(len(labels) // 2, generator=torch.Generator().manual_seed(1))
        order = torch.cat([half, half + len(half)])
    for reduction in ("none", "mean"):
        straight = bench.call(entry, bench.build(entry, reduction=reduction), first, labels, ids)
        mixed = bench.call(entry, bench.build(entry, reduction=reduction), first[order], labels[order], ids[order])
        if reduction == "none":
            straight, mixed = (straight.sort()[0], mixed.sort()[0]) if entry.pairs else (straight[order], mixed)
        torch.testing.assert_close(mixed, straight, rtol=1e-10, atol=1e-12)


def law_class_order(entry: LossEntry, bench: Bench) -> None:
    """Renaming the classes, in the logits or the state and in the labels, changes nothing."""
    first, labels, ids = bench.batch(entry)
    order = torch.randperm(bench.sizes.classes, generator=torch.Generator().manual_seed(2))
    module = bench.build(entry, reduction="none")
    renamed = copy.deepcopy(module)
    state = renamed.state_dict()
    for name in entry.class_rows:
        state[name] = state[name][order]
    for name in entry.class_squares:
        state[name] = state[name][order][:, order]
    renamed.load_state_dict(state)
    renamed_first = first[:, order] if entry.takes == "logits" else first
    losses = bench.call(entry, renamed, renamed_first, order.argsort()[labels], ids)
    torch.testing.assert_close(losses, bench.call(entry, module, first, labels, ids), rtol=1e-10, atol=1e-12)


def law_reductions(entry: LossEntry, bench: Bench) -> None:
    """The sum is the sum of the losses, the mean their weighted mean, with the gradients to match."""
    first, labels, ids = bench.batch(entry)
    weight = torch.linspace(0.0, 3.0, len(labels), dtype=torch.float64)
    pair_weight = weight
    if entry.pairs and len(labels):
        chosen = torch.triu_indices(12, 12, offset=1) if "all" in entry.name else torch.arange(12).reshape(2, 6)
        pair_weight = weight[chosen[0]] * weight[chosen[1]]
    values, gradients = {}, {}
    for reduction in ("none", "sum", "mean"):
        module = bench.build(entry, reduction=reduction)
        values[reduction] = bench.call(entry, module, first, labels, ids, weight)
        gradients[reduction] = bench.gradient(
            entry, bench.build(entry, reduction=reduction), first, labels, ids, weight
        )
    torch.testing.assert_close(values["none"].sum(), values["sum"])
    torch.testing.assert_close(values["sum"] / pair_weight.sum(), values["mean"])
    torch.testing.assert_close(gradients["none"], gradients["sum"])
    torch.testing.assert_close(gradients["sum"] / pair_weight.sum(), gradients["mean"])


def law_ignored(entry: LossEntry, bench: Bench) -> None:
    """A sample with the ignored label is as good as not there; a batch of them gives 0, not NaN."""
    first, labels, ids = bench.batch(entry)
    left_out = torch.tensor([2, 8])  # a pair, for the losses that pair halves
    marked = labels.clone()
    marked[left_out] = -100
    rest = torch.tensor([index for index in range(len(labels)) if index not in left_out])
    with_mark = bench.gradient(entry, bench.build(entry), first, marked, ids)
    without = bench.gradient(entry, bench.build(entry), first[rest], labels[rest], ids[rest])
    torch.testing.assert_close(with_mark[rest], without)
    assert (with_mark[left_out] == 0).all()
    nothing = bench.call(entry, bench.build(entry), first, torch.full_like(labels, -100), ids)
    assert nothing == 0


def law_no_weight(entry: LossEntry, bench: Bench) -> None:
    """A sample of weight 0 is as good as ignored, also in what the loss remembers."""
    first, labels, ids = bench.batch(entry)
    left_out = torch.tensor([2, 8])
    weight = torch.ones(len(labels), dtype=torch.float64)
    weight[left_out] = 0
    weighted, ignoring = bench.build(entry).train(), bench.build(entry).train()
    found = bench.gradient(entry, weighted, first, labels, ids, weight)
    labels = labels.clone()
    labels[left_out] = -100
    torch.testing.assert_close(found, bench.gradient(entry, ignoring, first, labels, ids))
    torch.testing.assert_close(weighted.state_dict(), ignoring.state_dict())


def law_weight_is_repetition(entry: LossEntry, bench: Bench) -> None:
    """A sample of weight 2 counts as two samples, in the mean and in its gradient."""
    first, labels, ids = bench.batch(entry)
    weight = torch.ones(len(labels), dtype=torch.float64)
    weight[3] = 2
    twice = torch.tensor([*range(len(labels)), 3])
    weighted = bench.gradient(entry, bench.build(entry).eval(), first, labels, ids, weight)
    repeated = bench.gradient(entry, bench.build(entry).eval(), first[twice], labels[twice], ids[twice])
    expected = repeated[: len(labels)].clone()
    expected[3] += repeated[-1]
    torch.testing.assert_close(weighted, expected)


def law_one_hot(entry: LossEntry, bench: Bench) -> None:
    """A one-hot target is the class index; losses without soft targets say so."""
    first, labels, ids = bench.batch(entry)
    soft = nn.functional.one_hot(labels, bench.sizes.classes).double()
    module = bench.build(entry, reduction="none").eval()
    torch.testing.assert_close(
        bench.call(entry, module, first, soft, ids), bench.call(entry, module, first, labels, ids)
    )


def law_gradient(entry: LossEntry, bench: Bench) -> None:
    """The gradient is that of the value, by the first argument and by every parameter."""
    first, labels, ids = bench.batch(entry, 4)
    module = bench.build(entry).eval()
    parameters = dict(module.named_parameters())

    def value(first: Tensor, *values: Tensor) -> Tensor:
        state = dict(zip(parameters, values, strict=True))
        names = {"ids": ids} if entry.needs_ids else {}
        return torch.func.functional_call(module, state, (first, labels), names)

    inputs = [first.requires_grad_(), *(p.detach().clone().requires_grad_() for p in parameters.values())]
    assert torch.autograd.gradcheck(value, tuple(inputs), check_undefined_grad=False)


def law_second_derivative(entry: LossEntry, bench: Bench) -> None:
    """The gradient's own derivative is what differences of the gradient show, or taking it raises."""
    first, labels, ids = bench.batch(entry, 4)
    module = bench.build(entry).eval()
    direction = torch.randn(first.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def slope(at: Tensor) -> Tensor:
        # A layer before the loss, whose own graph must not hide what the loss leaves out.
        leaf = at.requires_grad_()
        value = bench.call(entry, module, 1.5 * leaf.tanh(), labels, ids)
        return torch.autograd.grad(value, leaf, create_graph=True)[0].mul(direction).sum()

    steps = 1e-5 * torch.eye(first.numel(), dtype=torch.float64).reshape(-1, *first.shape)
    shown = torch.stack([slope(first + step).detach() - slope(first - step).detach() for step in steps]) / 2e-5
    value = slope(at := first.clone())
    try:
        (found,) = torch.autograd.grad(value, at)
    except RuntimeError:
        return
    torch.testing.assert_close(found, shown.reshape(first.shape), rtol=1e-6, atol=1e-7)


def extreme_inputs(entry: LossEntry, bench: Bench, module: nn.Module, dtype: torch.dtype) -> list[Tensor]:
    """p = 0 and p = 1 and large logits; aligned, opposite, zero, tiny and large features; the ends of the type."""
    classes, dim = bench.sizes.classes, bench.sizes.dim
    wide, info = classes if entry.takes == "logits" else dim, torch.finfo(dtype)
    one_hot, spread = torch.eye(classes, wide), torch.linspace(-1, 1, classes * wide).reshape(classes, wide)
    ends = [number * row for number in (info.max, info.tiny) for row in (one_hot, -one_hot, 2 * one_hot - 1, spread)]
    ends += [info.max**0.5 * spread, info.max**0.75 * spread, info.tiny**0.5 * spread, info.tiny * info.eps * spread]
    ends = [row.clamp(info.min, info.max).to(dtype) for row in ends]
    if entry.takes == "logits":
        rows = [torch.zeros(classes, classes), 1e4 * one_hot, -1e4 * one_hot, 2e4 * one_hot - 1e4, 30 * one_hot]
        return [row.to(dtype) for row in rows] + ends
    weight = next((p.detach().float() for p in module.parameters() if p.ndim == 2), torch.eye(classes, dim))
    same = torch.ones(classes, dim)
    rows = [weight, -weight, torch.zeros(classes, dim), same, 1e-6 * weight, 100 * weight, 1e4 * same]
    return [row.to(dtype) for row in rows] + ends


def law_finite(entry: LossEntry, bench: Bench) -> None:
    """Values and gradients are finite at every corner, in every precision."""
    for dtype in LOW_PRECISION:
        for reduction in ("mean", "sum", "none"):
            module = bench.build(entry, torch.float32, reduction=reduction)
            for corner in extreme_inputs(entry, bench, module, dtype):
                for shift in (0, 1):
                    labels = torch.arange(bench.sizes.classes).roll(shift)
                    # Twice, the second copy turned by one: pairs of halves see equal and opposite samples.
                    first = torch.cat([corner, corner.roll(1, 0)]).requires_grad_()
                    labels = labels.repeat(2)
                    value = bench.call(entry, module, first, labels, torch.arange(len(labels)))
                    value.sum().backward()
                    assert value.dtype == torch.float32
                    assert value.isfinite().all(), (dtype, value, first)
                    assert first.grad.isfinite().all(), (dtype, first, first.grad)
                    for parameter in module.parameters():
                        assert parameter.grad.isfinite().all()


def law_autocast(entry: LossEntry, bench: Bench) -> None:
    """Under bfloat16 autocast the loss of the same numbers is the same: nothing in it is rounded to sixteen bits."""
    first, labels, ids = bench.batch(entry, dtype=torch.float32)
    module = bench.build(entry, torch.float32).eval()
    expected = bench.call(entry, module, first, labels, ids)
    with torch.autocast("cpu", torch.bfloat16):
        value = bench.call(entry, module, first, labels, ids)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-6)


def law_spatial(entry: LossEntry, bench: Bench) -> None:
    """Logits [batch, classes, height, width] are as many samples, and the losses keep that shape."""
    first, labels, ids = bench.batch(entry)
    spatial = first.reshape(2, 2, 3, -1).movedim(-1, 1)
    module = bench.build(entry, reduction="none")
    losses = bench.call(entry, module, spatial, labels.reshape(2, 2, 3), ids)
    torch.testing.assert_close(losses.flatten(), bench.call(entry, module, first, labels, ids))
    assert losses.shape == (2, 2, 3)


def law_per_sample(entry: LossEntry, bench: Bench) -> None:
    """`torch.func` gives each sample's gradient, as a loop over the samples does."""
    batch = bench.batch(entry)
    module = bench.build(entry, reduction="sum").eval()

    def of_one(*sample: Tensor) -> Tensor:
        return bench.call(entry, module, *(part.unsqueeze(0) for part in sample))

    found = torch.func.vmap(torch.func.grad(of_one))(*batch)
    rows = [bench.gradient(entry, module, *(part[at : at + 1] for part in batch)) for at in range(len(found))]
    torch.testing.assert_close(found, torch.cat(rows))


def law_state(entry: LossEntry, bench: Bench) -> None:
    """A loss that has taken a step and one made again with its state go on alike."""
    first, labels, ids = bench.batch(entry)
    module = bench.build(entry)
    bench.call(entry, module, first.requires_grad_(), labels, ids).backward()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.sub_(0.1 * parameter.grad)
    torch.manual_seed(99)
    restored = entry.make(bench.sizes).double()
    restored.load_state_dict(module.state_dict())
    expected = bench.call(entry, module, first, labels, ids)
    torch.testing.assert_close(bench.call(entry, restored, first, labels, ids), expected)


def test_every_loss_is_classified() -> None:
    law_classified(hardsight.losses.__all__, hardsight.losses)


def test_an_unclassified_loss_is_noticed() -> None:
    class Newcomer(nn.Module):
        pass

    class Namespace:
        pass

    Namespace.Newcomer = Newcomer
    with pytest.raises(AssertionError, match="Newcomer"):
        law_classified(["Newcomer"], Namespace)


LAWS: dict[Callable[[LossEntry, Bench], None], Callable[[LossEntry], bool]] = {
    law_range: lambda entry: True,
    law_best_at_label: lambda entry: entry.best_at_label and not entry.pairs,
    law_sample_order: lambda entry: True,
    law_class_order: lambda entry: True,
    law_reductions: lambda entry: entry.name != "gradient_rescaling",  # its own law: the value is not what is reduced
    law_ignored: lambda entry: True,
    law_no_weight: lambda entry: True,
    law_weight_is_repetition: lambda entry: not entry.pairs,
    law_one_hot: lambda entry: entry.soft_targets,
    law_gradient: lambda entry: entry.value_has_gradient,
    law_second_derivative: lambda entry: True,
    law_finite: lambda entry: True,
    law_autocast: lambda entry: True,
    law_spatial: lambda entry: entry.takes == "logits" and not entry.needs_ids,
    law_state: lambda entry: True,
    # A pair takes two samples; the angles to all classes have no rule for vmap.
    law_per_sample: lambda entry: not entry.pairs,
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law: Callable[[LossEntry, Bench], None], name: str, bench: Bench) -> None:
    entry = LOSSES[name]
    if LAWS[law](entry):
        law(entry, bench)
    elif law is law_one_hot and entry.takes == "logits":
        first, labels, ids = bench.batch(entry)
        soft = nn.functional.one_hot(labels, bench.sizes.classes).double()
        with pytest.raises(TypeError, match="target must hold class indices"):
            bench.call(entry, bench.build(entry), first, soft, ids)


class Wrong(nn.Module):
    """A loss that breaks one law, and keeps reduction and weights as they should be."""

    def __init__(self, losses: Callable[[Tensor, Tensor], Tensor], **options: bool) -> None:
        super().__init__()
        self.losses, self.options, self.reduction = losses, options, "mean"

    def forward(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        kept = torch.ones_like(target, dtype=logits.dtype) if target.ndim == 1 else torch.ones_like(logits[:, 0])
        if target.ndim == 1 and not self.options.get("forgets_ignored"):
            kept = (target != -100).to(logits.dtype)
            target = target.clamp_min(0)
        elif target.ndim == 1:
            target = target.clamp_min(0)
        if sample_weight is not None and not self.options.get("forgets_weight"):
            kept = kept * sample_weight
        losses = self.losses(logits, target) * kept
        if self.reduction == "none":
            return losses
        total = kept.sum() if not self.options.get("divides_by_batch") else torch.tensor(float(len(losses)))
        return losses.sum() if self.reduction == "sum" else losses.sum() / total.clamp_min(1e-9)


def plain(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits, labels, reduction="none")


class _ValueOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return 2 * grad


class _Forgetful(nn.Module):
    """Counts its steps outside of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        self.steps += 1
        return self.steps * plain(logits, target).mean()


class _Follower(Wrong):
    """Remembers the mean logit of every sample whose label counts, of weight 0 or not."""

    def __init__(self) -> None:
        super().__init__(plain)
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        self.seen.copy_(logits.detach()[target >= 0].mean(0))
        return super().forward(logits, target, sample_weight)


WRONG = {
    law_range: Wrong(lambda logits, labels: -plain(logits, labels)),
    # Eq. 5 of the AVH paper as printed: the softmax itself, smallest at the wrong class.
    law_best_at_label: Wrong(lambda logits, labels: (-plain(logits, labels)).exp()),
    law_sample_order: Wrong(lambda logits, labels: plain(logits, labels) * torch.arange(len(logits))),
    law_class_order: Wrong(lambda logits, labels: plain(logits, labels) * (1 + labels)),
    law_reductions: Wrong(plain, divides_by_batch=True),
    law_ignored: Wrong(plain, forgets_ignored=True),
    law_no_weight: _Follower(),
    law_weight_is_repetition: Wrong(plain, forgets_weight=True),
    law_one_hot: Wrong(
        lambda logits, target: (
            plain(logits, target) if target.ndim == 1 else (target - logits.softmax(-1)).abs().sum(-1)
        )
    ),
    law_gradient: Wrong(lambda logits, labels: plain(_ValueOnly.apply(logits), labels)),
    law_second_derivative: Wrong(lambda logits, labels: plain(_ValueOnly.apply(logits), labels)),
    law_finite: Wrong(lambda logits, labels: -logits.softmax(-1).gather(-1, labels[:, None])[:, 0].log()),
    law_autocast: Wrong(lambda logits, labels: plain((logits @ torch.eye(5)).float(), labels)),
    law_state: _Forgetful(),
    law_per_sample: Wrong(lambda logits, labels: plain(logits, labels) if labels.max() < 5 else logits.sum(-1)),
    law_spatial: Wrong(lambda logits, labels: plain(logits, labels).reshape(len(logits), -1).mean(-1)),
}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law_rejects_a_wrong_loss(law: Callable[[LossEntry, Bench], None], bench: Bench) -> None:
    entry = replace(LOSSES["cross_entropy"], make=lambda sizes: copy.deepcopy(WRONG[law]))
    with pytest.raises((AssertionError, RuntimeError)):
        law(entry, bench)


def test_registry_states_every_range() -> None:
    for name, entry in LOSSES.items():
        assert name == entry.name
        assert entry.low < entry.high
        assert entry.formula
        assert entry.low == 0 or math.isinf(entry.low)
