"""Gradient rescaling: direction and L1 norm of the logit gradient, the identities of Eq. 7, every extreme of p."""

import math
from collections.abc import Callable

import pytest
import torch
from scipy.integrate import quad
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hardsight.losses import (
    AccumulatedRescaling,
    AutomaticRescaling,
    GradientRescaling,
    gce_loss,
    gradient_rescaling,
    linear_gradient_rescaling,
    mae_loss,
    rescaling_weights,
)


def gradient(logits: Tensor, labels: Tensor, **options: object) -> Tensor:
    """Of Eq. 6 to the letter, unless `options` give an epsilon."""
    logits = logits.detach().clone().requires_grad_()
    gradient_rescaling(logits, labels, **{"epsilon": 0.0} | options).sum().backward()
    return logits.grad


@pytest.fixture
def logits(generator: torch.Generator) -> Tensor:
    return 3 * torch.randn(9, 6, generator=generator, dtype=torch.float64)


@pytest.fixture
def labels(generator: torch.Generator) -> Tensor:
    return torch.randint(6, (9,), generator=generator)


def loop_gradient(logits: Tensor, labels: Tensor, beta: float, lam: float, epsilon: float = 0.0) -> Tensor:
    """(p - y) / (2 (1 - p_y) + epsilon) * w / sum w, with g = exp, one number after the other."""
    rows, weights = [], []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        total = sum(math.exp(value) for value in row)
        p = [math.exp(value) / total for value in row]
        rest = sum(value for index, value in enumerate(p) if index != label)
        weights.append(math.exp(beta * p[label] ** lam * rest))
        difference = [value - (index == label) for index, value in enumerate(p)]
        difference[label] = -rest
        rows.append([value / (2 * rest + epsilon) for value in difference])
    return torch.tensor(rows, dtype=torch.float64) * torch.tensor(weights)[:, None].double() / math.fsum(weights)


@pytest.mark.parametrize(("beta", "lam"), [(8.0, 0.5), (2.0, 0.0), (12.0, 1.0), (24.0, 2.0), (0.0, 0.5)])
def test_equals_a_slow_loop(logits: Tensor, labels: Tensor, beta: float, lam: float) -> None:
    expected = loop_gradient(logits, labels, beta, lam)
    torch.testing.assert_close(gradient(logits, labels, beta=beta, lam=lam), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_epsilon_is_added_to_the_divisor(logits: Tensor, labels: Tensor, epsilon: float) -> None:
    """As in the authors' code: the weights and their sum stay as they are."""
    logits = logits.scatter_add(1, labels[:, None], torch.linspace(0, 20, len(labels), dtype=torch.float64)[:, None])
    expected = loop_gradient(logits, labels, 8.0, 0.5, epsilon)
    torch.testing.assert_close(gradient(logits, labels, beta=8.0, epsilon=epsilon), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_epsilon_lets_go_of_what_is_fitted(dtype: torch.dtype) -> None:
    """Without it a sample of probability 1 - 1e-30 pulls as hard as ever, and its logit grows for ever."""
    fitted = torch.tensor([[70.0, 0.0, 0.0]], dtype=dtype)
    label = torch.tensor([0])
    assert gradient(fitted, label, reduction="sum").abs().sum() == pytest.approx(1)
    assert gradient(fitted, label, reduction="sum", epsilon=1e-6).abs().sum() < 1e-20
    # What is far from fitted does not feel it.
    fresh = torch.zeros(1, 3, dtype=dtype)
    torch.testing.assert_close(
        gradient(fresh, label, reduction="sum", epsilon=1e-6), gradient(fresh, label, reduction="sum"),
        rtol=1e-5, atol=0,
    )  # fmt: skip


RESCALING = {
    "function": gradient_rescaling,
    "module": lambda logits, labels: GradientRescaling()(logits, labels),
    "from features": lambda logits, labels: linear_gradient_rescaling(
        logits, torch.eye(3, dtype=logits.dtype), None, labels
    ),
}


@pytest.mark.parametrize("of", RESCALING.values(), ids=RESCALING)
def test_by_default_a_fitted_sample_is_let_go(of: Callable[[Tensor, Tensor], Tensor]) -> None:
    """As in the authors' code; a batch of fitted samples alone has no other to share the divisor with."""
    logits = torch.tensor([[70.0, 0.0, 0.0]], requires_grad=True)
    of(logits, torch.tensor([0])).backward()
    assert logits.grad.abs().sum() < 1e-20


def test_hand_computed() -> None:
    """Two classes, p = 1/2: the direction is (-1/2, 1/2) and w = exp(2 * 1/2 * 1/2)."""
    result = gradient(torch.zeros(1, 2), torch.tensor([0]), beta=2.0, lam=1.0, reduction="sum")
    torch.testing.assert_close(result, torch.tensor([[-0.5, 0.5]]) * math.exp(0.5))


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_identities_of_equation_7(logits: Tensor, labels: Tensor, reduction: str) -> None:
    """The identity transform with (2, 0) is CE, with (4, 1) MAE, with (2, q) GCE."""

    def of(loss: object) -> Tensor:
        leaf = logits.clone().requires_grad_()
        loss(leaf).backward()
        return leaf.grad

    def rescaled(beta: float, lam: float) -> Tensor:
        return gradient(logits, labels, beta=beta, lam=lam, transform="identity", reduction=reduction)

    cce = of(lambda z: functional.cross_entropy(z, labels, reduction=reduction))
    torch.testing.assert_close(rescaled(2.0, 0.0), cce, rtol=0, atol=1e-12)
    mae = of(lambda z: mae_loss(z, labels, reduction=reduction))
    torch.testing.assert_close(rescaled(4.0, 1.0), mae, rtol=0, atol=1e-12)
    for q in (0.1, 0.7, 1.0):
        gce = of(lambda z, q=q: gce_loss(z, labels, q=q, reduction=reduction))
        torch.testing.assert_close(rescaled(2.0, q), gce, rtol=0, atol=1e-12)
    # The paper prints beta = 1 for GCE; its own weight 2 p^q (1-p) needs 2.
    assert not torch.allclose(rescaled(1.0, 0.7), of(lambda z: gce_loss(z, labels, q=0.7, reduction=reduction)))


def test_identity_weights_grow_with_beta_from_zero(logits: Tensor, labels: Tensor) -> None:
    options = {"lam": 0.5, "transform": "identity"}
    two = rescaling_weights(logits, labels, beta=2.0, **options)
    torch.testing.assert_close(rescaling_weights(logits, labels, beta=0.5, **options), two / 4)
    assert (rescaling_weights(logits, labels, beta=0.0, **options) == 0).all()
    assert (gradient(logits, labels, beta=0.0, **options) == 0).all()


def law_direction(gradients: Tensor, weights: Tensor, logits: Tensor, labels: Tensor) -> None:
    """Each row is the cross-entropy's gradient, rescaled to the L1 norm w."""
    leaf = logits.clone().requires_grad_()
    functional.cross_entropy(leaf, labels, reduction="sum").backward()
    torch.testing.assert_close(gradients.abs().sum(-1), weights)
    torch.testing.assert_close(functional.normalize(gradients, p=1), functional.normalize(leaf.grad, p=1))


@pytest.mark.parametrize("transform", ["exp", "identity", torch.sqrt, lambda x: x**2 + 1])
def test_direction_and_norm(logits: Tensor, labels: Tensor, transform: object) -> None:
    options = {"beta": 8.0, "lam": 0.5, "transform": transform}
    weights = rescaling_weights(logits, labels, **options)
    law_direction(gradient(logits, labels, reduction="sum", **options), weights, logits, labels)


def test_the_direction_law_rejects_wrong_gradients(logits: Tensor, labels: Tensor) -> None:
    weights = rescaling_weights(logits, labels)
    right = gradient(logits, labels, reduction="sum")
    reweighted = right * 2  # twice the loss: the direction of GR, not its norm
    l2_scaled = functional.normalize(right, p=2) * weights[:, None]
    turned = right.roll(1, -1)
    for wrong in (reweighted, l2_scaled, turned):
        with pytest.raises(AssertionError):
            law_direction(wrong, weights, logits, labels)


@pytest.mark.parametrize("transform", ["exp", "identity"])
def test_is_the_gradient_of_its_integral(logits: Tensor, labels: Tensor, transform: str) -> None:
    """dL/dp = -w / (2 p (1-p)): the difference of that integral along each logit is the gradient."""
    beta, lam, step = 8.0, 0.5, 1e-4
    g = math.exp if transform == "exp" else float

    def slope(p: float) -> float:
        return g(beta * p**lam * (1 - p)) / (2 * p * (1 - p))

    result = gradient(logits, labels, beta=beta, lam=lam, transform=transform, reduction="sum")
    for row in range(3):
        for column in range(6):
            shift = torch.zeros(6, dtype=torch.float64)
            shift[column] = step
            low, high = (float((logits[row] + sign * shift).softmax(-1)[labels[row]]) for sign in (-1, 1))
            numeric = -quad(slope, low, high, epsabs=0, epsrel=1e-12)[0] / (2 * step)
            assert result[row, column] == pytest.approx(numeric, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_direction_is_right_at_certainty(dtype: torch.dtype) -> None:
    """At p_y = 1 the other classes keep their shares: no 0/0, no epsilon."""
    logits = torch.tensor([[1e4, 2.0, 1.0, -1e4], [300.0, -300.0, -300.0, -300.0]], dtype=dtype)
    result = gradient(logits, torch.tensor([0, 0]), reduction="sum").double()
    shares = torch.tensor([2.0, 1.0, -1e4], dtype=torch.float64).softmax(-1)
    expected = torch.cat([torch.tensor([-1.0], dtype=torch.float64), shares]) / 2
    torch.testing.assert_close(result[0], expected, rtol=0, atol=2 * torch.finfo(dtype).eps)
    torch.testing.assert_close(result[1], torch.tensor([-3.0, 1, 1, 1]).double() / 6, rtol=0, atol=1e-3)


def test_value_is_the_cross_entropy(logits: Tensor, labels: Tensor) -> None:
    for reduction in ("mean", "sum", "none"):
        expected = functional.cross_entropy(logits, labels, reduction=reduction)
        torch.testing.assert_close(gradient_rescaling(logits, labels, reduction=reduction), expected)
    torch.testing.assert_close(gradient_rescaling(logits, labels), functional.cross_entropy(logits, labels))
    logged = gradient_rescaling(logits, labels, value=lambda z, y: mae_loss(z, y, reduction="none"))
    torch.testing.assert_close(logged, mae_loss(logits, labels))
    shown = gradient(logits, labels, value=lambda z, y: mae_loss(z, y, reduction="none"))
    torch.testing.assert_close(shown, gradient(logits, labels))


def test_reductions_divide_the_same_gradient(logits: Tensor, labels: Tensor) -> None:
    weight = torch.linspace(0, 2, 9, dtype=torch.float64)
    whole = gradient(logits, labels, reduction="sum", sample_weight=weight)
    total = rescaling_weights(logits, labels, sample_weight=weight).sum()
    torch.testing.assert_close(gradient(logits, labels, sample_weight=weight), whole / total)
    torch.testing.assert_close(gradient(logits, labels, reduction="mean", sample_weight=weight), whole / weight.sum())
    torch.testing.assert_close(gradient(logits, labels, reduction="none", sample_weight=weight), whole)
    torch.testing.assert_close(gradient(logits, labels, sample_weight=weight, normaliser=2 * total), whole / total / 2)


def test_upstream_gradient_is_applied(logits: Tensor, labels: Tensor) -> None:
    leaf = logits.clone().requires_grad_()
    (3 * GradientRescaling(epsilon=0.0)(leaf, labels)).backward()
    torch.testing.assert_close(leaf.grad, 3 * gradient(logits, labels))


@pytest.mark.parametrize("beta", [200.0, 5000.0])
def test_weights_too_large_for_the_type(logits: Tensor, labels: Tensor, beta: float) -> None:
    """exp(beta / 4) overflows; its share of the sum does not."""
    result = gradient(logits.float(), labels, beta=beta, lam=1.0)
    assert result.isfinite().all()
    assert result.abs().sum().item() == pytest.approx(1, rel=1e-5)
    assert gradient(logits.half(), labels, beta=beta, lam=1.0, reduction="sum").isfinite().all()


def test_masked_classes_get_nothing() -> None:
    logits = torch.tensor([[1.0, 2.0, -math.inf]])
    result = gradient(logits, torch.tensor([0]), reduction="sum")
    torch.testing.assert_close(result, torch.tensor([[-0.5, 0.5, 0.0]]) * rescaling_weights(logits, torch.tensor([0])))
    alone = torch.tensor([[1.0, -math.inf, -math.inf]])
    assert (gradient(alone, torch.tensor([0]), reduction="sum") == 0).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beta": -1.0}, "beta must be at least 0 and finite; got -1.0"),
        ({"lam": -0.5}, "lam must be at least 0 and finite; got -0.5"),
        ({"epsilon": -1e-6}, "epsilon must be at least 0 and finite; got -1e-06"),
        ({"beta": math.nan}, "beta must be at least 0 and finite; got nan"),
        ({"transform": "log"}, "transform must be 'exp', 'identity' or a callable; got 'log'"),
        ({"transform": lambda x: -x - 1}, "transform must be finite and non-negative"),
        ({"reduction": "median"}, "reduction must be one of weight, mean, sum, none; got 'median'"),
    ],
)
def test_rejects_in_one_sentence(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        GradientRescaling(**options)
    with pytest.raises(ValueError, match=sentence):
        gradient_rescaling(torch.zeros(2, 3), torch.tensor([0, 1]), **options)


def test_rejects_a_normaliser_nobody_divides_by() -> None:
    with pytest.raises(ValueError, match="normaliser needs reduction 'weight'"):
        gradient_rescaling(torch.zeros(2, 3), torch.tensor([0, 1]), reduction="mean", normaliser=2.0)


def test_weights_are_those_of_class_indices() -> None:
    with pytest.raises(TypeError, match=r"target must hold class indices for this loss; got torch.float32"):
        rescaling_weights(torch.zeros(2, 3), torch.full((2, 3), 1 / 3))


def test_rejects_a_negative_weight_which_would_spoil_the_whole_batch() -> None:
    with pytest.raises(ValueError, match="sample_weight must be 0 or more throughout; got -1"):
        gradient_rescaling(torch.zeros(2, 3), torch.tensor([0, 1]), sample_weight=torch.tensor([1.0, -1.0]))


def test_logits_near_the_largest_number_have_their_gradient() -> None:
    logits = torch.tensor([[3e38, 1e38, 2e38]], requires_grad=True)
    loss = gradient_rescaling(logits, torch.tensor([1]), epsilon=0.0)
    loss.backward()
    assert loss.item() == pytest.approx(2e38)
    # The label is ruled out, so its weight is 1: half a step down for the class that leads, half a step up for it.
    assert logits.grad is not None
    assert logits.grad.tolist() == [[0.5, -0.5, 0.0]]


def rescaled_losses() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    automatic = AutomaticRescaling(4)
    automatic.decide(0.4)
    return {
        "weight": GradientRescaling(),
        "none": lambda logits, labels: GradientRescaling(reduction="none")(logits, labels).sum(),
        "automatic": automatic,
        "accumulated": AccumulatedRescaling(GradientRescaling(), []),
    }


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", rescaled_losses())
def test_a_second_derivative_raises(name: str, generator: torch.Generator) -> None:
    """The gradient is no derivative of the value: what autograd could say of its own derivative would be wrong."""
    logits = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    labels, leaf = torch.arange(6) % 4, logits.clone().requires_grad_()
    (plain,) = torch.autograd.grad(rescaled_losses()[name](leaf.tanh(), labels), leaf)
    (recorded,) = torch.autograd.grad(rescaled_losses()[name](leaf.tanh(), labels), leaf, create_graph=True)
    assert torch.equal(recorded, plain)
    with pytest.raises(RuntimeError, match="second derivative"):
        recorded.square().sum().backward()
    if name == "accumulated":
        return

    def slope(logits: Tensor) -> Tensor:
        return torch.func.grad(lambda at: rescaled_losses()[name](at.tanh(), labels))(logits).sum()

    with pytest.raises(RuntimeError, match="second derivative"):
        torch.func.grad(slope)(logits)
    with pytest.raises(RuntimeError):
        torch.func.jvp(slope, (logits,), (logits,))


def test_checkpointing_computes_what_is_saved_once(generator: torch.Generator) -> None:
    logits, labels = torch.randn(6, 4, generator=generator, requires_grad=True), torch.arange(6) % 4
    loss = GradientRescaling()
    plain = torch.autograd.grad(loss(logits.tanh(), labels), logits)
    for recorded in (False, True):
        value = checkpoint(lambda: loss(logits.tanh(), labels), use_reentrant=False)
        assert torch.equal(torch.autograd.grad(value, logits, create_graph=recorded)[0], plain[0])
