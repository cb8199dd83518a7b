"""Gradient rescaling that chooses its knobs: lam is 1/2, then 0 or 1; former rules as they were; exact gradients."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hardsight.losses.automatic import (
    BEST_SETTINGS,
    COLLAPSED,
    LEAST_RATE,
    UNKNOWN_NOISE_LAM,
    AutomaticRescaling,
    between_cross_entropy_and_mae,
    halfway,
    printed_knobs,
    rescaling_knobs,
)
from hardsight.losses.emphasis import critical_beta
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


@pytest.mark.parametrize("classes", [10, 100])
def test_the_table_passes_through_the_printed_settings(classes: int) -> None:
    for rate, beta, lam in BEST_SETTINGS[classes]:
        expected = None if rate < LEAST_RATE else (beta, lam)
        assert printed_knobs(rate, classes) == (expected if expected is None else pytest.approx(expected))


def test_more_noise_never_asks_for_a_smaller_lambda() -> None:
    for classes in (2, 10, 14, 50, 100, 625):
        for knobs in (printed_knobs, rescaling_knobs):
            chosen = [knobs(rate / 100, classes) for rate in range(10, 101)]
            lams = [one.lam for one in chosen if one is not None]
            assert lams == sorted(lams)
    # Between ten and a hundred classes by the logarithm, constant beyond.
    assert printed_knobs(0.4, 2) == printed_knobs(0.4, 10)
    assert printed_knobs(0.4, 1000) == printed_knobs(0.4, 100)
    middle = printed_knobs(0.4, round(math.sqrt(1000)))
    assert middle.lam == pytest.approx((1.0 + 0.4) / 2, abs=0.01)


def pull_of_right_labels(weight: Callable[[float], float], rate: float, classes: int) -> float:
    """Weight of a right label over that of a wrong one, as a calibrated network believes them."""
    return weight(1 - rate) / weight(rate / (classes - 1))


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 10, 100, 1000])
def test_wrong_labels_never_pull_harder_beside_right_ones_than_under_cross_entropy(classes: int) -> None:
    """With two classes a focus of 1/3 lies on the labels that contradict the network, with three on a guess."""
    for percent in range(10, 100):
        rate = percent / 100
        knobs = rescaling_knobs(rate, classes)
        if knobs is None:
            continue
        ours = pull_of_right_labels(lambda p: math.exp(knobs.beta * p**knobs.lam * (1 - p)), rate, classes)  # noqa: B023
        assert ours >= pull_of_right_labels(lambda p: 2 * (1 - p), rate, classes) * (1 - 1e-12)
    assert (rescaling_knobs(0.3, classes) is None) == (classes <= 3)


def test_the_table_alone_would_turn_against_right_labels_of_two_classes() -> None:
    """Within the other bounds: the law above rejects it."""
    ours = pull_of_right_labels(lambda p: math.exp(14 * p**0.5 * (1 - p)), 0.3, 2)
    assert ours < 0.5 * pull_of_right_labels(lambda p: 2 * (1 - p), 0.3, 2)


@pytest.mark.parametrize("classes", [2, 3, 10, 40, 100, 1000])
def test_the_rule_keeps_within_its_bounds_and_to_the_table_inside_them(classes: int) -> None:
    for percent in range(101):
        rate = percent / 100
        printed, knobs = printed_knobs(rate, classes), rescaling_knobs(rate, classes)
        if knobs is None:
            # Fewer than a tenth wrong, or no room for the focus: never for another reason.
            focus = 0.0 if printed is None else min(printed.lam, 0.5) / (1 + min(printed.lam, 0.5))
            assert rate < LEAST_RATE or focus > 1 - rate or focus <= 1 / classes
            continue
        assert all(knobs.beta <= critical_beta(knobs.lam, candidates) for candidates in range(3, classes + 1))
        assert knobs.lam <= 0.5
        assert 1 / classes < knobs.lam / (1 + knobs.lam) <= 1 - rate
        if knobs.lam < 0.5 and knobs.beta < min(critical_beta(knobs.lam, one) for one in range(3, max(4, classes + 1))):
            assert knobs == printed


def test_the_printed_settings_themselves_break_the_bounds() -> None:
    """The bounds say something: without them classes would be ruled out, and the focus lie where nothing is known."""
    beta, lam = printed_knobs(0.4, 10)
    assert beta > critical_beta(lam, 10)
    assert printed_knobs(0.8, 10).lam / (1 + printed_knobs(0.8, 10).lam) > 1 - 0.8
    assert rescaling_knobs(0.4, 10) == pytest.approx((7.7168, 0.5), abs=1e-4)
    assert rescaling_knobs(0.6, 10) == rescaling_knobs(0.4, 10)
    assert rescaling_knobs(0.7, 10) is None


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
    assert loss.knobs == (None if lam == 0 else (2 + 2 * lam, lam))
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
    """The bounded rule, divided by the sum of its weights, hands the whole pull to what is left: wrong labels."""
    logits, labels = 0 * batch[0], batch[1].clamp_min(0)
    sure = logits.scatter(1, labels.unsqueeze(1), 9.0)
    mixed = torch.cat([sure[:-1], sure[-1:].roll(1, 1)])
    pulls = {}
    for name, loss in {"new": after(0.6), "half": after(), "bounded": after(bounded=True)}.items():
        norms = [gradient(loss, some, labels).abs().sum(1) for some in (logits, sure, mixed)]
        pulls[name] = [float(norms[0].sum()), float(norms[1].sum()), float(norms[2][-1])]
    assert pulls["new"][1] < 0.02 * pulls["new"][0]
    assert pulls["new"][2] < pulls["half"][2] < 0.02 * pulls["half"][0]
    assert pulls["bounded"][2] > 0.1 > 0.09 > pulls["half"][2]


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_lambda_rises_when_more_than_half_of_the_images_are_recognised(classes: int) -> None:
    for rate in (0.1, 0.3, 0.49):
        for recognised, rises in ((0.49, False), (0.51, True)):
            # A right answer agrees with the given label unless it is wrong; a wrong one only by chance.
            accuracy = recognised * (1 - rate) + (1 - recognised) * rate / (classes - 1)
            assert (accuracy > halfway(rate, classes)) == rises
            loss = AutomaticRescaling(classes)
            assert not loss.rise(1.0), "before the decision nothing is known"
            loss.decide(rate)
            assert loss.rise(accuracy) == rises
            assert loss.knobs == between_cross_entropy_and_mae(1.0 if rises else UNKNOWN_NOISE_LAM)
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


@pytest.mark.parametrize("former", ["as_printed", "bounded"])
def test_former_rules_are_cross_entropy_before_the_decision(batch: tuple[Tensor, Tensor], former: str) -> None:
    loss = AutomaticRescaling(10, **{former: True}).double()
    theirs = gradient(torch.nn.CrossEntropyLoss(), *batch)
    torch.testing.assert_close(gradient(loss, *batch), theirs)
    for rate in (0.05, *((0.8,) if former == "bounded" else ())):
        loss.decide(rate)
        assert loss.decided
        assert loss.knobs is None
        torch.testing.assert_close(gradient(loss, *batch), theirs)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["weight", "mean", None])
@pytest.mark.parametrize(("rate", "as_printed"), [(0.2, False), (0.47, False), (0.47, True), (0.8, True)])
def test_former_rules_are_gradient_rescaling_afterwards(
    batch: tuple[Tensor, Tensor], rate: float, as_printed: bool, reduction: str | None, epsilon: float
) -> None:
    former = {"as_printed": as_printed, "bounded": not as_printed}
    loss = AutomaticRescaling(10, reduction=reduction, epsilon=epsilon, **former).double()
    torch.testing.assert_close(gradient(loss, *batch), gradient(torch.nn.CrossEntropyLoss(), *batch))
    loss.decide(rate)
    knobs = loss.knobs
    assert knobs == pytest.approx((printed_knobs if as_printed else rescaling_knobs)(rate, 10), rel=1e-6)
    assert not loss.rise(1.0), "their emphasis never changes"
    options = {"reduction": reduction or "weight", "epsilon": epsilon}

    def fixed(logits: Tensor, labels: Tensor) -> Tensor:
        return gradient_rescaling(logits, labels, beta=knobs.beta, lam=knobs.lam, **options)

    torch.testing.assert_close(gradient(loss, *batch), gradient(fixed, *batch))

    def wrong(logits: Tensor, labels: Tensor) -> Tensor:
        return gradient_rescaling(logits, labels, beta=knobs.lam, lam=knobs.beta, **options)

    assert not torch.allclose(gradient(loss, *batch), gradient(wrong, *batch))


def test_divided_by_the_weights_on_request(batch: tuple[Tensor, Tensor]) -> None:
    def fixed(logits: Tensor, labels: Tensor) -> Tensor:
        return gradient_rescaling(logits, labels, beta=4.0, lam=1.0, transform="identity", epsilon=0.0)

    torch.testing.assert_close(gradient(after(0.6, reduction="weight"), *batch), gradient(fixed, *batch))


def test_extreme_logits_stay_finite() -> None:
    logits = torch.tensor([[1e4, 0.0], [-1e4, 0.0], [0.0, 0.0]])
    for rate in (None, 0.05, 0.2, 0.8):
        # As printed, two classes are rescaled too.
        for loss in (AutomaticRescaling(2, as_printed=True), AutomaticRescaling(2)):
            if rate is not None:
                loss.decide(rate)
                loss.rise(1 - rate)
                assert (loss.knobs is None) == (rate < LEAST_RATE)
            assert gradient(loss, logits, torch.zeros(3, dtype=torch.long)).isfinite().all()
    nothing = gradient(AutomaticRescaling(2), logits, torch.full((3,), -100))
    assert torch.equal(nothing, torch.zeros(3, 2))


@pytest.mark.parametrize("former", [{}, {"bounded": True}, {"as_printed": True}])
def test_a_collapse_sends_it_back_for_good(batch: tuple[Tensor, Tensor], former: dict[str, bool]) -> None:
    loss = AutomaticRescaling(10, **former).double()
    assert not loss.watch(0.0), "nothing to give up before the decision"
    loss.decide(0.4, accuracy=0.5)
    assert not loss.watch(0.5 * COLLAPSED + 0.01)
    assert loss.watch(0.5 * COLLAPSED - 0.01)
    assert loss.knobs is None
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


@pytest.mark.parametrize("former", [{}, {"bounded": True}])
def test_no_look_at_a_value(batch: tuple[Tensor, Tensor], former: dict[str, bool]) -> None:
    """Tensors without values: a branch on a knob, which a captured step would hold for ever, has nothing to go by."""
    loss = AutomaticRescaling(10, **former)
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
        ({"classes": 3, "epsilon": -1e-6}, "epsilon must be at least 0"),
        ({"classes": 3, "as_printed": True, "bounded": True}, "bounded must be False with as_printed"),
        ({"classes": 3, "reduction": "sum"}, "reduction must be one of weight, mean; got 'sum'"),
    ],
)
def test_bad_options_are_refused(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AutomaticRescaling(**options)
    for refuses in (rescaling_knobs, halfway, lambda rate, classes: AutomaticRescaling(classes).decide(rate)):
        with pytest.raises(ValueError, match=r"rate must lie in \[0, 1\]; got 1.2"):
            refuses(1.2, 10)
