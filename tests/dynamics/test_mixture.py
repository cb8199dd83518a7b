"""The two-component fit: against scikit-learn, a slow loop, and heaps whose members are known."""

import math

import pytest
import torch
from scipy import stats
from sklearn.mixture import GaussianMixture

from hardsight.dynamics import small_loss_mixture
from hardsight.hardness import mixture
from hardsight.hardness.mixture import KINDS


def two_heaps(kind: str, count: int = 4000, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    wrong = torch.rand(count, generator=generator) < 0.3
    if kind == "gaussian":
        losses = torch.where(wrong, 3.0, 1.0) + 0.4 * torch.randn(count, generator=generator)
    else:
        uniform = torch.rand(count, generator=generator).double().numpy()
        low, high = (torch.from_numpy(stats.beta(*shape).ppf(uniform)) for shape in ((2, 8), (9, 3)))
        losses = torch.where(wrong, high, low).float()
    return losses, wrong


@pytest.mark.parametrize("kind", KINDS)
def test_heaps_are_told_apart(kind):
    losses, wrong = two_heaps(kind)
    share = small_loss_mixture(losses, kind)
    assert ((share > 0.5) == wrong).float().mean() > 0.95
    # Calibrated: of samples called wrong with probability p, p are wrong.
    assert share.mean().item() == pytest.approx(0.3, abs=0.03)


def test_gaussians_are_those_of_scikit_learn():
    losses, _ = two_heaps("gaussian")
    scaled = ((losses - losses.min()) / (losses.max() - losses.min())).double().reshape(-1, 1).numpy()
    fitted = GaussianMixture(2, tol=1e-9, max_iter=500, random_state=0).fit(scaled)
    theirs = torch.from_numpy(fitted.predict_proba(scaled)[:, fitted.means_.argmax()])
    # Between the means, where no tail turns the posterior round.
    middle = (losses > 1.0) & (losses < 3.0)
    torch.testing.assert_close(small_loss_mixture(losses)[middle].double(), theirs[middle], atol=2e-3, rtol=0)


def test_betas_are_those_of_a_slow_loop():
    losses, _ = two_heaps("beta", 60)
    values = (losses.double() - losses.min()) / (losses.max() - losses.min())
    values = [min(max(value, 1e-4), 1 - 1e-4) for value in values.tolist()]
    middle = sorted(values)[(len(values) - 1) // 2]
    high = [float(value > middle) for value in values]
    for _ in range(200):
        logs = []
        for shares in ([1 - h for h in high], high):
            mass = sum(shares)
            mean = sum(s * v for s, v in zip(shares, values, strict=True)) / mass
            variance = sum(s * (v - mean) ** 2 for s, v in zip(shares, values, strict=True)) / mass
            strength = mean * (1 - mean) / variance - 1
            density = stats.beta(mean * strength, (1 - mean) * strength).logpdf(values)
            logs.append([math.log(mass / 60) + log for log in density])
        high = [math.exp(b) / (math.exp(a) + math.exp(b)) for a, b in zip(*logs, strict=True)]
    order = sorted(range(60), key=values.__getitem__)
    ours = small_loss_mixture(losses, "beta").double()
    inner = [i for i in order if 0.2 < values[i] < 0.75]
    torch.testing.assert_close(ours[inner], torch.tensor(high, dtype=torch.float64)[inner], atol=1e-3, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_many_losses_are_binned_and_fitted_as_if_they_were_not(kind, monkeypatch):
    losses, _ = two_heaps(kind, 3 * mixture._BINS)
    looked_at, moments = [], mixture._moments
    monkeypatch.setattr(
        mixture, "_moments", lambda values, shares: looked_at.append(len(values)) or moments(values, shares)
    )
    gathered = small_loss_mixture(losses, kind)
    # All of them once, to put the components in order; never in a round of the fit.
    assert sorted(looked_at)[-2] <= mixture._BINS + 1 < sorted(looked_at)[-1]
    monkeypatch.setattr(mixture, "_BINS", 2**62)
    torch.testing.assert_close(gathered, small_loss_mixture(losses, kind), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_it_rises_with_the_loss_and_knows_no_unit(kind):
    losses, _ = two_heaps(kind, 500)
    share = small_loss_mixture(losses, kind)
    assert bool((share[losses.argsort()].diff() >= 0).all())
    torch.testing.assert_close(small_loss_mixture(losses * 7 + 3, kind), share, atol=1e-4, rtol=0)
    assert bool(((share >= 0) & (share <= 1)).all())


@pytest.mark.parametrize("mirrored", [False, True])
def test_it_rises_where_a_wide_heap_reaches_past_a_narrow_one(mirrored):
    """Beyond the narrow heap the wide one's tail is the likelier: Gaussians alone would turn round there."""
    generator = torch.Generator().manual_seed(0)
    wide, narrow = torch.randn(400, generator=generator), 4 + 0.1 * torch.randn(400, generator=generator)
    losses = torch.cat([wide, narrow, torch.tensor([5.5, 6.0])])
    losses = -losses if mirrored else losses
    share = small_loss_mixture(losses, "gaussian")
    assert bool((share[losses.argsort()].diff() >= 0).all())
    assert bool((share[-2:] < 0.5).all() if mirrored else (share[-2:] > 0.5).all())


def test_it_rises_across_the_middle_of_the_heaps_too():
    # The wide heap is likeliest just below the middle between the means, where 1/3 lies, and less so above it.
    losses = torch.tensor([0.0] * 7 + [1 / 3] * 9 + [2 / 3] * 4 + [1.0] * 5)
    assert bool((small_loss_mixture(losses, "beta").diff() >= 0).all())


@pytest.mark.parametrize("kind", KINDS)
def test_it_rises_with_losses_of_few_values(kind):
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        losses = (3 * torch.rand(20, generator=generator)).round().sort().values
        assert bool((small_loss_mixture(losses, kind).diff() >= 0).all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fitted", [60, 90])
def test_losses_of_a_set_that_is_mostly_fitted_are_two_heaps(kind, fitted):
    # Their median is their smallest: both halves must have members all the same.
    rest = 1 + 0.1 * torch.randn(100 - fitted, generator=torch.Generator().manual_seed(0))
    share = small_loss_mixture(torch.cat([torch.zeros(fitted), rest]), kind)
    assert bool((share[:fitted] < 0.01).all())
    assert bool((share[fitted:] > 0.99).all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "losses",
    [[1.0], [2.0, 2.0, 2.0], [0.0, 1.0], [5.0, 5.0, 5.0, 0.0], [math.nan, 1.0, 2.0], [0.0] * 50 + [1e30], [math.nan]],
)
def test_degenerate_losses_stay_probabilities(kind, losses):
    values = torch.tensor(losses)
    share = small_loss_mixture(values, kind)
    assert torch.equal(share.isnan(), values.isnan())
    assert bool(((share >= 0) & (share <= 1))[~values.isnan()].all())


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"kind.*beta, gaussian; got 'gamma'"):
        small_loss_mixture(torch.ones(3), "gamma")
    with pytest.raises(ValueError, match=r"losses.*finite"):
        small_loss_mixture(torch.tensor([1.0, math.inf]))
