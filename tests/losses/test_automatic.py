"""Gradient rescaling that chooses its emphasis: lam is 1/2, then 0 or 1; exact gradients."""

import math

import pytest
import torch
from torch import Tensor

from hardsight.losses.automatic import (
    COLLAPSED,
    LEAST_RATE,
    UNKNOWN_NOISE_LAM,
    AutomaticRescaling,
    between_cross_entropy_and_mae,
    halfway,
)
from hardsight.losses.rescaling import gradient_rescaling


@pytest.fixture
def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    logits = 3 * torch.randn(9, 10, generator=generator, dtype=torch.float64)
    labels = torch.randint(10, (9,), generator=generator)
    labels[4] = -100
    return logits, labels


def gradient(loss: object, logits: Tensor, labels: Tensor) -> Tensor:
    logits = logits.clone().requires_grad_()
    loss(logits, labels).backward()
    return logits.grad


def slow_gradient(logits: Tensor, labels: Tensor, beta: float, lam: float) -> Tensor:
    """beta p^lam (1 - p) times (p - y) / (2 (1 - p_y)), over the labels that count; a loop in float64."""
    found, counted = torch.zeros_like(logits), 0
    for row, (scores, label) in enumerate(zip(logits.tolist(), labels.tolist(), strict=True)):
        if label < 0:
            continue
        counted += 1
        total = sum(math.exp(score) for score in scores)
        p = math.exp(scores[label]) / total
        weight = beta * p**lam * (1 - p)
        for place, score in enumerate(scores):
            found[row, place] = weight * (math.exp(score) / total - (place == label)) / (2 * (1 - p))
    return found / counted


def after(*accuracies: float, rate: float | None = 0.4, **options: object) -> AutomaticRescaling:
    """The loss for ten classes after this rate was estimated and these accuracies were seen."""
    loss = AutomaticRescaling(10, **options).double()
    if rate is not None:
        loss.decide(rate)
    for accuracy in accuracies:
        loss.rise(accuracy)
    return loss


@pytest.mark.parametrize(
    ("rate", "accuracies", "lam"),
    [
        (None, (), 0.5),
        (0.05, (), 0.0),
        (0.05, (0.95,), 0.0),
        (0.4, (), 0.5),
        (0.4, (0.3,), 0.5),
        (0.4, (0.3, 0.5), 1.0),
    ],
)
def test_lambda_is_a_half_until_the_noise_and_the_classes_are_known(
    batch: tuple[Tensor, Tensor], rate: float | None, accuracies: tuple[float, ...], lam: float
) -> None:
    loss = after(*accuracies, rate=rate)
    assert loss.decided == (rate is not None)
    assert loss.emphasis == (None if lam == 0 else (2 + 2 * lam, lam))
    ours = gradient(loss, *batch)
    torch.testing.assert_close(ours, slow_gradient(*batch, 2 + 2 * lam, lam))
    assert not torch.allclose(ours, slow_gradient(*batch, 2 + 2 * lam, lam + 0.01))
    torch.testing.assert_close(loss(*batch), torch.nn.functional.cross_entropy(*batch))


def test_without_noise_it_is_cross_entropy_and_at_last_mae(batch: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(gradient(after(rate=0.05), *batch), gradient(torch.nn.functional.cross_entropy, *batch))

    def mae(logits: Tensor, labels: Tensor) -> Tensor:
        known = labels >= 0
        right = torch.nn.functional.one_hot(labels[known], 10)
        return (logits[known].softmax(1) - right).abs().sum(1).mean()

    torch.testing.assert_close(gradient(after(0.6), *batch), gradient(mae, *batch))


def test_the_pull_fades_as_samples_are_fitted_and_where_they_contradict(batch: tuple[Tensor, Tensor]) -> None:
    """Under exp, divided by the sum of the weights, the whole pull goes to what is left: wrong labels."""
    logits, labels = 0 * batch[0], batch[1].clamp_min(0)
    sure = logits.scatter(1, labels.unsqueeze(1), 9.0)
    mixed = torch.cat([sure[:-1], sure[-1:].roll(1, 1)])
    pulls = {}
    for name, loss in {"new": after(0.6), "half": after(), "exp": gradient_rescaling}.items():
        norms = [gradient(loss, some, labels).abs().sum(1) for some in (logits, sure, mixed)]
        pulls[name] = [float(norms[0].sum()), float(norms[1].sum()), float(norms[2][-1])]
    assert pulls["new"][1] < 0.02 * pulls["new"][0]
    assert pulls["new"][2] < pulls["half"][2] < 0.02 * pulls["half"][0]
    assert pulls["exp"][2] > 0.1 > 0.09 > pulls["half"][2]


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_lambda_rises_when_more_than_half_of_the_images_are_recognised(classes: int) -> None:
    for rate in (0.1, 0.3, 0.49):
        for recognised, rises in ((0.49, False), (0.51, True)):
            # A right answer agrees with the given label unless it is wrong; a wrong one only by chance.
            accuracy = recognised * (1 - rate) + (1 - recognised) * rate / (classes - 1)
            assert (accuracy > halfway(rate, classes)) == rises
            loss = AutomaticRescaling(classes)
            assert not loss.rise(1.0), "before the decision"
            loss.decide(rate)
            assert loss.rise(accuracy) == rises
            assert loss.emphasis == between_cross_entropy_and_mae(1.0 if rises else UNKNOWN_NOISE_LAM)
            assert not (rises and loss.rise(accuracy)), "once is enough"
    tells_nothing = AutomaticRescaling(classes)
    tells_nothing.decide(min(1.0, (classes - 1) / classes + 0.01))
    assert not tells_nothing.rise(1.0)


def test_lambda_is_never_more_than_the_largest_that_rules_no_class_out() -> None:
    """Of K equally probable classes a lead dies out while a'/a < K, a = w / (1 - p): with lam 1 it just stays."""
    for lam, excess in ((0.5, -1), (1.0, 0), (1.1, 1)):
        for candidates in (3, 10, 100):
            p = torch.tensor(1 / candidates, dtype=torch.float64, requires_grad=True)
            log_a = (2 + 2 * lam) * p**lam * (1 - p) / (1 - p)
            (steepness,) = torch.autograd.grad(log_a.log(), p)
            apart = float(steepness) - candidates
            assert (abs(apart) < 1e-9) if excess == 0 else (apart * excess > 0)
    with pytest.raises(ValueError, match=r"lam must lie in \[0, 1\]; got 1.1"):
        between_cross_entropy_and_mae(1.1)


def test_divided_by_the_weights_on_request(batch: tuple[Tensor, Tensor]) -> None:
    def fixed(logits: Tensor, labels: Tensor) -> Tensor:
        return gradient_rescaling(logits, labels, beta=4.0, lam=1.0, transform="identity", epsilon=0.0)

    torch.testing.assert_close(gradient(after(0.6, reduction="weight"), *batch), gradient(fixed, *batch))


def test_extreme_logits_stay_finite() -> None:
    logits = torch.tensor([[1e4, 0.0], [-1e4, 0.0], [0.0, 0.0]])
    for rate in (None, 0.05, 0.2, 0.8):
        loss = AutomaticRescaling(2)
        if rate is not None:
            loss.decide(rate)
            loss.rise(1 - rate)
            assert (loss.emphasis is None) == (rate < LEAST_RATE)
        assert gradient(loss, logits, torch.zeros(3, dtype=torch.long)).isfinite().all()
    nothing = gradient(AutomaticRescaling(2), logits, torch.full((3,), -100))
    assert torch.equal(nothing, torch.zeros(3, 2))


def test_a_collapse_sends_it_back_for_good(batch: tuple[Tensor, Tensor]) -> None:
    loss = AutomaticRescaling(10).double()
    assert not loss.watch(0.0), "before the decision"
    loss.decide(0.4, accuracy=0.5)
    assert not loss.watch(0.5 * COLLAPSED + 0.01)
    assert loss.watch(0.5 * COLLAPSED - 0.01)
    assert loss.emphasis is None
    assert not loss.watch(0.9)
    assert not loss.rise(0.9)
    torch.testing.assert_close(gradient(loss, *batch), gradient(torch.nn.CrossEntropyLoss(), *batch))


def test_the_state_is_all_there_is(batch: tuple[Tensor, Tensor]) -> None:
    first, second = AutomaticRescaling(10).double(), AutomaticRescaling(10).double()
    first.decide(0.4, accuracy=0.5)
    second.load_state_dict(first.state_dict())
    assert torch.equal(gradient(first, *batch), gradient(second, *batch))
    assert second.rise(0.5) == first.rise(0.5) is True
    assert torch.equal(gradient(first, *batch), gradient(second, *batch))
    assert second.watch(0.1) == first.watch(0.1) is True


def test_no_look_at_a_value(batch: tuple[Tensor, Tensor]) -> None:
    """Tensors without values: a branch on lam, which a captured step would hold for ever, has nothing to go by."""
    loss = AutomaticRescaling(10)
    loss.decide(0.4)
    logits = torch.empty(9, 10, device="meta", requires_grad=True)
    loss.to("meta")(logits, batch[1].to("meta")).backward()
    assert logits.grad.shape == (9, 10)
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(loss.lam == 0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"classes": 1}, "classes must be at least 2"),
        ({"classes": 3, "warm_up": 0}, "warm_up must be at least 1"),
        ({"classes": 3, "reduction": "sum"}, "reduction must be one of weight, mean; got 'sum'"),
    ],
)
def test_bad_options_are_rejected(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AutomaticRescaling(**options)
    for rejects in (halfway, lambda rate, classes: AutomaticRescaling(classes).decide(rate)):
        with pytest.raises(ValueError, match=r"rate must lie in \[0, 1\]; got 1.2"):
            rejects(1.2, 10)
