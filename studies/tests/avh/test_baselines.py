"""The adaptation baselines: their measures against slow references, and what each step of a method moves."""

import copy
import functools
import math

import pytest
import torch
from hardsight_studies.avh.baselines import ADR, BASELINES, DANN, MCD, adapt_baseline
from hardsight_studies.avh.discrepancies import (
    classifier_discrepancy,
    maximum_mean_discrepancy,
    mean_entropy,
    reversal_strength,
    reverse_gradient,
)
from torch import Tensor, nn

from hardsight.losses.angular import AngularLinear
from hardsight.training import NonFiniteLossError, Objective
from hardsight.training.evaluation import evaluate
from hardsight.training.network import Network

SGD = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)
Batches = list[tuple[Tensor, Tensor]]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---------------------------------------------------------------------------------------------------------------------
# Measures


def slow_mmd(source: Tensor, target: Tensor) -> float:
    """Loops over pairs, one kernel after the other."""
    every = [*source.tolist(), *target.tolist()]

    def distance(x: list[float], y: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(x, y, strict=True))

    pairs = [(i, j) for i in range(len(every)) for j in range(len(every)) if i != j]
    width = sum(distance(every[i], every[j]) for i, j in pairs) / len(pairs)

    def kernel(x: list[float], y: list[float]) -> float:
        return sum(math.exp(-distance(x, y) / (factor * width)) for factor in (0.25, 0.5, 1.0, 2.0, 4.0)) / 5

    def within(samples: list[list[float]]) -> float:
        chosen = [(i, j) for i in range(len(samples)) for j in range(len(samples))]
        return sum(kernel(samples[i], samples[j]) for i, j in chosen) / len(chosen)

    one, other = source.tolist(), target.tolist()
    between = sum(kernel(x, y) for x in one for y in other) / (len(one) * len(other))
    return within(one) + within(other) - 2 * between


def test_mmd_equals_a_loop_over_pairs() -> None:
    source, target = normal(7, 3), normal(5, 3, seed=1) + 1.0
    found = maximum_mean_discrepancy(source, target)
    torch.testing.assert_close(float(found), slow_mmd(source, target), rtol=1e-12, atol=1e-12)


def test_mmd_of_identical_samples_is_zero_and_grows_with_the_distance() -> None:
    source = normal(20, 4)
    assert abs(float(maximum_mean_discrepancy(source, source.clone()))) < 1e-14
    near, far = (float(maximum_mean_discrepancy(source, source + shift)) for shift in (0.5, 2.0))
    assert 0 < near < far


def test_mmd_forgets_rotation_translation_scale_and_the_order_of_the_domains() -> None:
    source, target = normal(9, 4), normal(6, 4, seed=1) * 2
    rotation = torch.linalg.qr(normal(4, 4, seed=2)).Q
    expected = maximum_mean_discrepancy(source, target)
    moved = maximum_mean_discrepancy(3 * source @ rotation + 5, 3 * target @ rotation + 5)
    torch.testing.assert_close(moved, expected)
    torch.testing.assert_close(maximum_mean_discrepancy(target, source), expected)


def test_a_linear_kernel_in_place_of_mmd_would_be_noticed() -> None:
    """Distance of means alone is blind to spread, which the law of identical distributions only is not."""
    source = normal(200, 2)
    wider = (source - source.mean(0)) * 3 + source.mean(0)
    assert float((source.mean(0) - wider.mean(0)).square().sum()) < 1e-12
    assert float(maximum_mean_discrepancy(source, wider)) > 0.05


def test_mmd_has_the_gradient_of_its_definition() -> None:
    source, target = normal(4, 3).requires_grad_(), normal(5, 3, seed=1).requires_grad_()
    # The width is a constant for the gradient: the same function with the width of these very samples.
    both = torch.cat([source, target]).detach()
    width = torch.cdist(both, both).square().sum() / (9 * 8)

    def definition(one: Tensor, other: Tensor) -> Tensor:
        def kernel(x: Tensor, y: Tensor) -> Tensor:
            apart = (x[:, None] - y[None]).square().sum(-1)
            return torch.stack([torch.exp(-apart / (width * f)) for f in (0.25, 0.5, 1, 2, 4)]).mean()

        return kernel(one, one) + kernel(other, other) - 2 * kernel(one, other)

    found = torch.autograd.grad(maximum_mean_discrepancy(source, target), (source, target))
    expected = torch.autograd.grad(definition(source, target), (source, target))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mmd_of_half_precision_is_finite_and_float32(dtype: torch.dtype) -> None:
    source = (100 * normal(8, 4)).to(dtype).requires_grad_()
    value = maximum_mean_discrepancy(source, torch.zeros(8, 4, dtype=dtype))
    value.backward()
    assert value.dtype == torch.float32
    assert source.grad is not None
    assert bool(source.grad.isfinite().all())


def test_mmd_of_samples_that_are_all_equal_is_zero() -> None:
    source = torch.ones(3, 2, requires_grad=True)
    value = maximum_mean_discrepancy(source, torch.ones(4, 2))
    value.backward()
    assert float(value.detach()) == pytest.approx(0, abs=1e-6)
    assert source.grad is not None
    assert bool((source.grad == 0).all())


def test_the_reversed_gradient_is_minus_strength_times_the_gradient() -> None:
    values = normal(3, 2).requires_grad_()
    coefficients = normal(3, 2, seed=1)
    (plain,) = torch.autograd.grad((values * coefficients).sum(), values)
    reversed_ = reverse_gradient(values, 0.3)
    torch.testing.assert_close(reversed_, values)
    (found,) = torch.autograd.grad((reversed_ * coefficients).sum(), values)
    torch.testing.assert_close(found, -0.3 * plain)


def test_the_reversal_grows_from_nothing_to_almost_one() -> None:
    assert reversal_strength(0.0) == 0
    assert reversal_strength(0.5) == pytest.approx(2 / (1 + math.exp(-5)) - 1)
    assert 0.999 < reversal_strength(1.0) < 1


def test_entropy_equals_the_sum_of_p_log_p_and_is_finite_at_certainty() -> None:
    logits = normal(6, 4)
    total = 0.0
    for row in logits.softmax(1).tolist():
        total -= sum(p * math.log(p) for p in row)
    assert float(mean_entropy(logits)) == pytest.approx(total / 6, rel=1e-12)
    assert float(mean_entropy(torch.zeros(2, 5))) == pytest.approx(math.log(5))
    assert float(mean_entropy(torch.tensor([[1e4, 0.0, -1e4]]))) == 0


def test_the_discrepancy_equals_its_definition() -> None:
    one, other = normal(5, 3), normal(5, 3, seed=1)
    pairs = zip(one.softmax(1).tolist(), other.softmax(1).tolist(), strict=True)
    total = sum(abs(a - b) for p, q in pairs for a, b in zip(p, q, strict=True))
    assert float(classifier_discrepancy(one, other)) == pytest.approx(total / 15, rel=1e-10)
    assert float(classifier_discrepancy(other, one)) == pytest.approx(float(classifier_discrepancy(one, other)))
    assert float(classifier_discrepancy(one, one.clone())) == pytest.approx(0, abs=1e-15)
    # A constant added to the logits changes no probability.
    shifted = float(classifier_discrepancy(one + 3, other))
    assert shifted == pytest.approx(float(classifier_discrepancy(one, other)))


# ---------------------------------------------------------------------------------------------------------------------
# Methods


def blobs(samples: int, shift: tuple[float, float], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    labels = torch.randint(3, (samples,), generator=generator)
    centres = torch.tensor([[0.0, 2.0], [1.8, -1.0], [-1.8, -1.0]])
    points = centres[labels] + 0.45 * torch.randn(samples, 2, generator=generator)
    return points + torch.tensor(shift), labels


def cut(points: Tensor, labels: Tensor, size: int = 64) -> Batches:
    return list(zip(points.split(size), labels.split(size), strict=True))


@pytest.fixture(scope="module")
def domains() -> tuple[Batches, Batches, Batches]:
    generator = torch.Generator().manual_seed(1)
    source, target = blobs(384, (0.0, 0.0), generator), blobs(384, (1.4, 0.5), generator)
    return cut(*source), cut(*target), cut(*target, 384)


def network(head: nn.Module | None = None, *, normalized: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for incoming, outgoing in ((2, 32), (32, 16)):
        layers += [nn.Linear(incoming, outgoing), nn.BatchNorm1d(outgoing) if normalized else nn.Identity(), nn.ReLU()]
    return nn.Sequential(*layers, head or nn.Linear(16, 3))


def adapted_accuracy(name: str, domains: tuple[Batches, Batches, Batches], normalized: bool) -> float:
    source, target, test = domains
    model = network(normalized=normalized)
    adapt_baseline(name, model, source, target, epochs=12, optimizer=SGD)
    return evaluate(model, test, torch.device("cpu"))["accuracy"]


@pytest.fixture(scope="module")
def source_accuracy(domains: tuple[Batches, Batches, Batches]) -> dict[bool, float]:
    return {normalized: adapted_accuracy("source", domains, normalized) for normalized in (True, False)}


# Each with a kind of network on which it is robust over seeds: games between two players can be lost on a toy.
@pytest.mark.parametrize(("name", "normalized"), [("mmd", False), ("entropy", True), ("mcd", False), ("adr", True)])
def test_methods_beat_source_only_where_the_target_is_shifted(
    name: str, normalized: bool, domains: tuple[Batches, Batches, Batches], source_accuracy: dict[bool, float]
) -> None:
    assert adapted_accuracy(name, domains, normalized) > source_accuracy[normalized] + 0.01


def test_dann_brings_the_domains_together(
    domains: tuple[Batches, Batches, Batches], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accuracy of an adversarial method on a toy is a matter of luck; that features come closer is what it is for."""
    source, target, _ = domains
    points, shifted = (torch.cat([part for part, _ in side]) for side in (source, target))
    apart = {}
    monkeypatch.setattr(DANN, "weight", 1.0)
    for name in ("source", "dann"):
        model = network()
        adapt_baseline(name, model, source, target, epochs=12, optimizer=SGD)
        with torch.no_grad():
            body = model[:-1].eval()
            apart[name] = float(maximum_mean_discrepancy(body(points), body(shifted)))
    assert apart["dann"] < 0.8 * apart["source"]


@pytest.mark.parametrize("name", list(BASELINES))
def test_target_labels_are_never_looked_at_and_seeds_repeat(
    name: str, domains: tuple[Batches, Batches, Batches]
) -> None:
    source, target, _ = domains
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    found = []
    for labels in (lambda own: own, lambda own: torch.full_like(own, -1)):
        model = network()
        torch.random.set_rng_state(before)
        adapt_baseline(name, model, source, [(points, labels(own)) for points, own in target], epochs=1, optimizer=SGD)
        # The caller's random numbers go on as if nothing had been drawn.
        assert torch.equal(torch.random.get_rng_state(), before)
        found.append(model.state_dict())
    for key, value in found[0].items():
        assert torch.equal(value, found[1][key]), key


@pytest.mark.parametrize("name", list(BASELINES))
def test_methods_work_with_an_angular_head(name: str, domains: tuple[Batches, Batches, Batches]) -> None:
    source, target, test = domains
    model = network(AngularLinear(16, 3))
    adapt_baseline(name, model, source, target, epochs=3, optimizer=SGD)
    assert evaluate(model, test, torch.device("cpu"))["accuracy"] > 0.5


@pytest.mark.parametrize("kind", [MCD, ADR])
def test_players_move_their_own_part_only(kind: type, domains: tuple[Batches, Batches, Batches]) -> None:
    """With one player's learning rate at zero, its part stays where it was while the other's moves."""
    (points, labels), (others, _) = domains[0][0], domains[1][0]
    for idle in (0, 1):
        torch.manual_seed(0)
        model = network()
        watched = Network(model, Objective(), features=True)
        method = kind()
        _, features = watched.look(points)
        assert features is not None
        method.begin(watched, features.detach(), functools.partial(torch.optim.SGD, lr=0.1))
        for group in method.optimizers[idle].param_groups:
            group["lr"] = 0.0
        before = copy.deepcopy(model.state_dict())
        method.step(points, labels, others, 0.0)
        watched.close()
        changed = {key.split(".")[0] for key, value in model.named_parameters() if not torch.equal(value, before[key])}
        assert changed == ({"6"} if idle == 0 else {"0", "1", "3", "4"})


@pytest.mark.parametrize("kind", [MCD, ADR])
def test_classifiers_seek_disagreement_and_features_avoid_it(
    kind: type, domains: tuple[Batches, Batches, Batches]
) -> None:
    (points, labels), (others, _) = domains[0][0], domains[1][0]
    after = {}
    for idle in (0, 1):
        torch.manual_seed(0)
        watched = Network(network(), Objective(), features=True)
        method = kind()
        method.repeats = 1
        _, features = watched.look(points)
        assert features is not None
        method.begin(watched, features.detach(), functools.partial(torch.optim.SGD, lr=0.1))
        for group in method.optimizers[idle].param_groups:
            group["lr"] = 0.0
        for _ in range(40):
            method.step(points, labels, others, 0.0)
        with torch.no_grad():
            both = method._features(torch.cat([points, others]))
            draws = [float(method.disagreement(both, len(points))) for _ in range(20)]
        after[idle] = sum(draws) / 20
        watched.close()
    # Body idle: the classifiers have had their way. Classifiers idle: the features have.
    assert after[0] > 1.5 * after[1]


def test_bad_input_is_answered_in_one_sentence(domains: tuple[Batches, Batches, Batches]) -> None:
    source, target, _ = domains
    with pytest.raises(ValueError, match="did you mean 'dann'"):
        adapt_baseline("dan", network(), source, target, epochs=1, optimizer=SGD)
    with pytest.raises(ValueError, match="target must hold at least one batch"):
        adapt_baseline("mmd", network(), source, [], epochs=1, optimizer=SGD)
    for batches, epochs in ((source, 0), ([], 1), ((batch for batch in source), 1)):
        with pytest.raises(ValueError, match="epochs and the batches of source must be at least 1"):
            adapt_baseline("mmd", network(), batches, target, epochs=epochs, optimizer=SGD)


def test_a_loss_that_is_no_number_stops_the_adaptation(domains: tuple[Batches, Batches, Batches]) -> None:
    source, target, _ = domains
    broken = [(points * float("inf"), labels) for points, labels in source]
    with pytest.raises(NonFiniteLossError, match="source_loss is not a finite number in epoch 1"):
        adapt_baseline("source", network(), broken, target, epochs=2, optimizer=SGD)
