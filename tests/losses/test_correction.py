"""Forward, Backward and S-adaptation: loops, unbiasedness, the identity matrix, and what is no transition matrix."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from hardsight.losses import (
    BackwardCorrection,
    ForwardCorrection,
    SAdaptation,
    backward_correction_loss,
    forward_correction_loss,
)
from hardsight.losses.correction import noisy_transition

MATRIX = torch.tensor([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]], dtype=torch.float64)


@pytest.fixture
def logits(generator: torch.Generator) -> Tensor:
    return 2 * torch.randn(6, 3, generator=generator, dtype=torch.float64)


@pytest.fixture
def labels() -> Tensor:
    return torch.tensor([0, 1, 2, 2, 1, 0])


def test_equal_slow_loops(logits: Tensor, labels: Tensor, generator: torch.Generator) -> None:
    p = logits.softmax(-1).tolist()
    inverse = torch.linalg.inv(MATRIX).tolist()
    forward, backward = [], []
    for row, y in zip(p, labels.tolist(), strict=True):
        forward.append(-math.log(sum(row[i] * MATRIX[i, y].item() for i in range(3))))
        backward.append(sum(inverse[y][j] * -math.log(row[j]) for j in range(3)))
    forward, backward = torch.tensor(forward).double(), torch.tensor(backward).double()
    for target in (labels, functional.one_hot(labels, 3).double()):
        result = forward_correction_loss(logits, target, MATRIX, reduction="none")
        torch.testing.assert_close(result, forward, rtol=1e-6, atol=1e-6)
        result = backward_correction_loss(logits, target, MATRIX, reduction="none")
        torch.testing.assert_close(result, backward, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("gap", [30.0, 200.0, 600.0])
def test_a_soft_target_keeps_its_gradient_where_the_softmax_underflows(gap: float) -> None:
    """exp(-200) is 0 in float32: the loss would stop at 87 and pull no more, with a class index it does not."""
    matrix = MATRIX.float()
    matrix[0] = torch.tensor([0.6, 0.4, 0.0])
    matrix[1] = torch.tensor([0.1, 0.9, 0.0])
    labels = torch.tensor([2, 2, 1])
    found = []
    for target in (labels, functional.one_hot(labels, 3).float()):
        leaf = torch.tensor([[gap, 0.0, 1.0], [0.0, gap, -1.0], [0.0, 0.0, gap]], requires_grad=True)
        value = forward_correction_loss(leaf, target, matrix, reduction="none")
        value.sum().backward()
        found.append((value.detach(), leaf.grad))
    torch.testing.assert_close(found[1], found[0])
    assert (found[1][1][:2].abs().sum(-1) > 1).all()


def test_the_identity_corrects_nothing(logits: Tensor, labels: Tensor) -> None:
    cce = functional.cross_entropy(logits, labels)
    for kind in (ForwardCorrection, BackwardCorrection):
        torch.testing.assert_close(kind(torch.eye(3, dtype=torch.float64))(logits, labels), cce)


@pytest.mark.parametrize("kind", [ForwardCorrection, BackwardCorrection])
def test_the_matrix_is_copied(kind: type, logits: Tensor, labels: Tensor) -> None:
    matrix = MATRIX.clone()
    loss = kind(matrix)
    before, state = loss(logits, labels), loss.transition.clone()
    matrix.copy_(torch.eye(3))
    assert torch.equal(loss.transition, state)
    assert torch.equal(loss(logits, labels), before)


def test_backward_is_unbiased(logits: Tensor) -> None:
    """Over the noisy labels of a clean class, the mean of the loss is the clean cross-entropy (Theorem 1)."""
    for clean in range(3):
        mean = sum(
            MATRIX[clean, noisy] * backward_correction_loss(logits, torch.full((6,), noisy), MATRIX, reduction="none")
            for noisy in range(3)
        )
        torch.testing.assert_close(mean, functional.cross_entropy(logits, torch.full((6,), clean), reduction="none"))


def test_forward_has_the_clean_minimiser(generator: torch.Generator) -> None:
    """Theorem 2: with noisy label shares y T, the best logits are those of the clean shares y."""
    clean = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    logits = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([logits], max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = forward_correction_loss(logits, (clean @ MATRIX)[None], MATRIX)
        loss.backward()
        return loss

    optimiser.step(closure)
    torch.testing.assert_close(logits.softmax(-1)[0].detach(), clean, rtol=1e-4, atol=1e-4)


def test_forward_is_finite_where_the_noisy_class_cannot_be() -> None:
    """p = 1 on a class that is never labelled so: a large loss, no infinity, and a gradient away from it."""
    logits = torch.tensor([[300.0, 0.0, 0.0]], requires_grad=True)
    loss = forward_correction_loss(logits, torch.tensor([2]), MATRIX.float())
    loss.backward()
    assert loss.item() == pytest.approx(300 - math.log(0.3 + 0.5), rel=1e-5)
    assert logits.grad[0, 0] == pytest.approx(1)
    never = torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # nobody is labelled 1, and here somebody is
    assert forward_correction_loss(torch.zeros(1, 2), torch.tensor([1]), never).isfinite()


def test_a_label_that_no_class_gets_is_as_wrong_as_a_number_can_say() -> None:
    logits = torch.zeros(2, 2, requires_grad=True)
    matrix = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    loss = forward_correction_loss(logits, torch.tensor([0, 1]), matrix, reduction="none")
    assert loss.tolist() == pytest.approx([0.0, -math.log(torch.finfo(torch.float32).tiny)], abs=1e-5)
    loss.sum().backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_s_adaptation_starts_where_it_is_told_and_learns(logits: Tensor, labels: Tensor) -> None:
    layer = SAdaptation(3, initial=MATRIX)
    torch.testing.assert_close(layer.transition.detach(), MATRIX, rtol=1e-4, atol=1e-5)
    expected = forward_correction_loss(logits, labels, MATRIX)
    torch.testing.assert_close(layer(logits, labels), expected, rtol=1e-4, atol=1e-5)
    uniform = SAdaptation(3, noise_rate=0.3).transition
    torch.testing.assert_close(uniform.diagonal(), torch.full((3,), 0.7))
    torch.testing.assert_close(uniform.sum(-1), torch.ones(3))
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    before = layer(logits, labels).item()
    for _ in range(50):
        optimiser.zero_grad()
        layer(logits, labels).backward()
        optimiser.step()
    assert layer(logits, labels).item() < before
    torch.testing.assert_close(layer.transition.sum(-1), torch.ones(3, dtype=torch.float64))
    # MATRIX[0, 2] is 0, and moves all the same.
    assert bool(layer.scores.isfinite().all())
    assert layer.scores.grad is not None
    assert bool(layer.scores.grad[0, 2] != 0)


@pytest.mark.parametrize("kind", [ForwardCorrection, BackwardCorrection])
@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (torch.ones(3, 3), "transition must have rows that sum to 1; row 0 sums to 3"),
        (torch.eye(3)[:2], r"transition must be a square matrix; got shape \[2, 3\]"),
        (torch.tensor([[1.5, -0.5], [0.0, 1.0]]), "transition must hold probabilities; got -0.5"),
        (torch.tensor([[math.nan, 1.0], [0.0, 1.0]]), "transition must hold probabilities; got nan"),
    ],
)
def test_rejects_what_is_no_transition_matrix(kind: type, matrix: Tensor, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        kind(matrix)


def test_rejects_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="transition must be invertible"):
        BackwardCorrection(torch.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="transition must have the logits' 4 classes; got 3"):
        ForwardCorrection(torch.eye(3))(torch.zeros(1, 4), torch.tensor([0]))
    with pytest.raises(ValueError, match="classes must be at least 2 and finite; got 1"):
        SAdaptation(1)
    with pytest.raises(ValueError, match="initial must be a matrix of 4 classes; got 3"):
        SAdaptation(4, initial=torch.eye(3))


@pytest.mark.parametrize("kind", [ForwardCorrection, BackwardCorrection])
def test_a_matrix_in_half_precision_is_still_one(kind: type, generator: torch.Generator) -> None:
    """In sixteen bits a row of 0.2 and 99 times 0.8 / 99 sums to 0.996; a trainer that works in them rounds it so."""
    loss = kind(noisy_transition(100, 0.8))
    logits, labels = torch.randn(6, 100, generator=generator), torch.arange(6)
    expected = loss(logits, labels)
    torch.testing.assert_close(loss.to(torch.bfloat16)(logits, labels), expected, rtol=0.01, atol=0)


def test_a_matrix_of_integers_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"transition must be floating point; got torch.int64"):
        ForwardCorrection(torch.eye(3, dtype=torch.long))
