"""Noise by instance: against slow loops, with the flip rates the formulas promise."""

import jaxtyping
import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from hardsight import noise
from hardsight.noise.instances import _scaled_to_mean, _truncated_normal


def test_projection_equals_a_loop_over_samples(seeded):
    """The same draws, one sample at a time, in float64."""
    labels = torch.randint(5, (300,), generator=seeded(3))
    features = torch.rand(300, 2, 3, 3, generator=seeded(4))
    noisy = noise.flip_by_projection(labels, features, 0.5, 5, generator=seeded(7)).labels
    g = seeded(7)
    shape_draw, target_draw = torch.rand(2, 300, generator=g, dtype=torch.float64)
    flip_draw = torch.rand(300, generator=g, dtype=torch.float64)
    weights = [torch.randn(18, 5, generator=g).double() for _ in range(5)]
    distribution = stats.truncnorm(-5, 5, loc=0.5, scale=0.1)
    for i in range(300):
        label = int(labels[i])
        if flip_draw[i] >= distribution.ppf(float(shape_draw[i])):
            assert noisy[i] == label
            continue
        scores = features[i].flatten().double() @ weights[label]
        scores[label] = -torch.inf
        cumulative = scores.softmax(0).cumsum(0)
        assert int(noisy[i]) == int((cumulative <= target_draw[i]).sum())


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_projection_flips_at_the_mean_of_the_cut_normal(rate, seeded):
    labels = torch.randint(4, (20_000,), generator=seeded(1))
    features = torch.rand(20_000, 6, generator=seeded(2))
    expected = stats.truncnorm(-rate / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1).mean()
    changed = noise.flip_by_projection(labels, features, rate, 4, generator=seeded()).changed
    assert stats.binomtest(int(changed.sum()), 20_000, expected).pvalue > 1e-4
    changed = noise.flip_by_projection(labels, features, rate, 4, generator=seeded(), spread=0.0).changed
    assert stats.binomtest(int(changed.sum()), 20_000, rate).pvalue > 1e-4


def test_projection_depends_on_the_sample(seeded):
    """Two kinds of sample of one class are mistaken for different classes; class noise cannot do that."""
    labels = torch.zeros(4000, dtype=torch.long)
    features = torch.zeros(4000, 8)
    features[:2000, 0] = 5.0
    features[2000:, 1] = 5.0

    def kinds_differ(noisy: torch.Tensor) -> bool:
        counts = [torch.bincount(half[half != 0], minlength=6)[1:] + 1 for half in noisy.split(2000)]
        return stats.chi2_contingency(torch.stack(counts).numpy()).pvalue < 1e-4

    assert kinds_differ(noise.flip_by_projection(labels, features, 0.5, 6, generator=seeded()).labels)
    assert not kinds_differ(noise.flip_symmetric(labels, 0.5, 6, generator=seeded()).labels)


def test_truncated_normal_follows_its_distribution(seeded):
    uniform = torch.rand(5000, generator=seeded(), dtype=torch.float64)
    for mean in (0.02, 0.4, 0.99):
        drawn = _truncated_normal(uniform, mean, 0.1)
        expected = stats.truncnorm(-mean / 0.1, (1 - mean) / 0.1, loc=mean, scale=0.1)
        torch.testing.assert_close(drawn, torch.from_numpy(expected.ppf(uniform.numpy())))


POLYNOMIALS = {
    "quadratic": lambda m: 0.5 - 0.5 * m * m,
    "cubic": lambda m: 1 - m**3,
    "mixed": lambda m: 1 - m**3 / 3 - m**2 / 3 - m / 3,
}


@pytest.mark.parametrize("kind", POLYNOMIALS)
def test_margin_equals_a_loop_over_samples(kind, seeded):
    probabilities = (3 * torch.randn(400, 6, generator=seeded(1), dtype=torch.float64)).softmax(1)
    labels = probabilities.argmax(1)
    labels[:50] = torch.randint(6, (50,), generator=seeded(2))
    noisy = noise.flip_by_margin(labels, probabilities, 0.3, generator=seeded(3), kind=kind).labels
    draws = torch.rand(400, generator=seeded(3), dtype=torch.float64)
    chances, targets = [], []
    for row, label in zip(probabilities.tolist(), labels.tolist(), strict=True):
        rival = max((p, c) for c, p in enumerate(row) if c != label)
        chances.append(POLYNOMIALS[kind](max(0.0, row[label] - rival[0])))
        targets.append(rival[1])
    scaled = _scaled_to_mean(torch.tensor(chances, dtype=torch.float64), 0.3)
    expected = torch.where(draws < scaled, torch.tensor(targets), labels)
    assert torch.equal(noisy, expected)


def test_margins_of_many_samples_are_taken_block_by_block(seeded, monkeypatch):
    """The probabilities of a million samples are gigabytes, and more in doubles."""
    probabilities = torch.randn(400, 6, generator=seeded(1)).softmax(1)
    labels, made = torch.randint(6, (400,), generator=seeded(2)), []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            made.extend(
                one.numel() for one in (found if isinstance(found, tuple) else (found,)) if torch.is_tensor(one)
            )
            return found

    whole = noise.flip_by_margin(labels, probabilities, 0.3, generator=seeded(3))
    monkeypatch.setattr("hardsight.noise.instances._BLOCK", 50 * 6)
    with Watch():
        blocks = noise.flip_by_margin(labels, probabilities, 0.3, generator=seeded(3))
    assert torch.equal(blocks.labels, whole.labels)
    assert max(made) <= len(labels)


@pytest.mark.parametrize("mean", [0.01, 0.2, 0.5, 0.9, 0.999])
def test_scaling_reaches_the_mean_and_keeps_the_order(mean, seeded):
    chances = torch.rand(1000, generator=seeded(), dtype=torch.float64) ** 3
    scaled = _scaled_to_mean(chances, mean)
    assert float(scaled.mean()) == pytest.approx(mean, rel=1e-9)
    assert float(scaled.min()) >= 0
    assert float(scaled.max()) <= 1
    ratio = scaled[scaled < 1] / chances[scaled < 1]
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
    assert bool((scaled.sort().values == scaled[chances.argsort()]).all())


def test_scaling_of_impossible_means_does_what_it_can():
    half = torch.tensor([0.0, 0.0, 0.3, 0.4], dtype=torch.float64)
    assert _scaled_to_mean(half, 0.9).tolist() == [0, 0, 1, 1]
    assert _scaled_to_mean(half, 0.5).tolist() == [0, 0, 1, 1]
    assert _scaled_to_mean(half, 0.0).tolist() == [0, 0, 0, 0]
    assert _scaled_to_mean(half.new_zeros(3), 0.5).tolist() == [0, 0, 0]


def test_scaling_is_as_exact_as_its_numbers(seeded):
    # Most of them certain: what is left for the rest is a small difference of large numbers.
    chances = torch.cat([torch.full((30_000,), 1e6, dtype=torch.float64), torch.rand(10, generator=seeded(1)).double()])
    mean = (30_000 + 0.123456) / 30_010
    scaled = _scaled_to_mean(chances, mean)
    assert float(scaled[30_000:].sum()) == pytest.approx(0.123456, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_projection_of_huge_features_still_names_classes(dtype, seeded):
    labels = torch.randint(10, (2000,), generator=seeded(1))
    features = torch.rand(2000, 12, generator=seeded(2), dtype=dtype)
    huge = features * torch.finfo(dtype).max
    noisy = noise.flip_by_projection(labels, huge, 0.4, 10, generator=seeded(3))
    # So large, the softmax is the likeliest other class: as it is long before any number runs over.
    large = noise.flip_by_projection(labels, features * 1e20, 0.4, 10, generator=seeded(3))
    assert torch.equal(noisy.labels, large.labels)


def test_margin_flips_the_unsure_samples_first(seeded):
    sure = torch.tensor([[0.98, 0.01, 0.01]]).repeat(2000, 1)
    unsure = torch.tensor([[0.40, 0.38, 0.22]]).repeat(2000, 1)
    labels = torch.zeros(4000, dtype=torch.long)
    noisy, changed = noise.flip_by_margin(labels, torch.cat([sure, unsure]), 0.2, generator=seeded())
    assert int(changed[:2000].sum()) < int(changed[2000:].sum()) / 5
    assert bool((noisy[2000:][changed[2000:]] == 1).all())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda y, g: noise.flip_by_projection(y, torch.zeros(4, 2), 0.1, 3, generator=g, spread=-1.0), "spread must"),
        (lambda y, g: noise.flip_by_projection(y, torch.full((4, 2), torch.nan), 0.1, 3, generator=g), "finite"),
        (lambda y, g: noise.flip_by_margin(y, torch.full((4, 3), 1.5), 0.1, generator=g), "probabilities must lie"),
        (lambda y, g: noise.flip_by_margin(y, torch.full((4, 3), 0.3), -0.1, generator=g), "rate must lie"),
    ],
)
def test_refusals(call, sentence, seeded):
    with pytest.raises(ValueError, match=sentence):
        call(torch.tensor([0, 1, 2, 0]), seeded())


def test_rows_that_are_not_one_a_label_are_refused(seeded, monkeypatch):
    # The annotations, which only the tests enforce, would refuse it first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    labels, three = torch.tensor([0, 1, 2, 0]), torch.full((3, 3), 0.3)
    with pytest.raises(ValueError, match="features must have one row for each label; got 3 rows for 4 labels"):
        noise.flip_by_projection(labels, three, 0.1, 3, generator=seeded())
    with pytest.raises(ValueError, match="probabilities must have one row for each label; got 3 rows for 4 labels"):
        noise.flip_by_margin(labels, three, 0.1, generator=seeded())
