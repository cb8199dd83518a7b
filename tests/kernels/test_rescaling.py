"""What the rescaled losses share: weights from the formula in float64, exact where p or 1 - p rounds to 0."""

import math

import pytest
import torch

from hardsight.losses.emphasis import let_go, log_weight, rescaled_gradient

# How far the label's logit stands above the others' log-sum-exp: from p = 3e-35 to 1 - p = 3e-35.
LEADS = (-80.0, -20.0, -1.0, 0.0, 1.0, 20.0, 80.0)
LOG_P, LOG_REST = (torch.nn.functional.logsigmoid(sign * torch.tensor(LEADS)) for sign in (1, -1))


def weights(beta: float, lam: float, transform: str) -> torch.Tensor:
    return log_weight(LOG_P, LOG_REST, beta, lam, transform)


def held(epsilon: float) -> torch.Tensor:
    return let_go(torch.ones(len(LEADS), 1), LOG_REST, epsilon).squeeze(1)


def share(lead: float) -> float:
    """1 / (1 + exp(-lead)): p of the label, and 1 - p of the lead turned round."""
    return 1 / (1 + math.exp(-lead))


@pytest.mark.parametrize(("beta", "lam"), [(8.0, 0.5), (2.0, 0.0), (400.0, 2.0)])
def test_weights_follow_the_formula(beta: float, lam: float) -> None:
    arguments = torch.tensor([beta * share(one) ** lam * share(-one) for one in LEADS], dtype=torch.float64)
    for transform, want in (("exp", arguments), ("identity", arguments.log())):
        got = weights(beta, lam, transform).double()
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    without_logs = (beta * LOG_P.exp() ** lam * (1 - LOG_P.exp())).log()
    assert not torch.allclose(without_logs, weights(beta, lam, "identity")), "a lead of 20 must tell"


def test_nothing_is_emphasised_with_beta_of_nothing() -> None:
    assert torch.equal(weights(0.0, 0.5, "exp"), torch.zeros(len(LEADS)))
    assert torch.equal(weights(0.0, 0.5, "identity"), torch.full((len(LEADS),), -math.inf))


def test_a_fitted_sample_is_let_go_by_epsilon() -> None:
    want = torch.tensor([2 * share(-one) / (2 * share(-one) + 1e-6) for one in LEADS], dtype=torch.float64)
    torch.testing.assert_close(held(1e-6).double(), want, atol=0.0, rtol=1e-5)
    assert torch.equal(held(0.0), torch.ones(len(LEADS)))


def test_coefficients_are_finite_whatever_the_divisor() -> None:
    logs = torch.tensor([-math.inf, 0.0, 200.0])
    got = rescaled_gradient(logs, torch.ones(3, 1), torch.tensor(0.0)).squeeze(1)
    assert got.tolist() == [0.0, 1.0, torch.finfo(torch.float32).max]
    # All ignored: the divisor is 0 too.
    assert rescaled_gradient(logs[:1], torch.ones(1, 1), torch.tensor(-math.inf)).squeeze(1).tolist() == [0.0]


def test_many_shares_have_one_sum(device: str) -> None:
    from hardsight.kernels.fused.rescaled_cross_entropy import totals

    shares = 5000
    drawn = torch.rand(4, shares, generator=torch.Generator().manual_seed(0)).to(device)
    drawn[2] = 40 * drawn[2] - 80
    kept = torch.zeros(3, device=device)
    value = totals(drawn.flatten(), shares, kept, 1, "weight", None, None, masses=True)
    losses, weights, logs, masses = drawn.double()
    torch.testing.assert_close(value.double(), losses.sum() / weights.sum())
    torch.testing.assert_close(kept[1].double(), (logs + masses.log()).logsumexp(0), atol=1e-5, rtol=1e-6)
    assert not kept[[0, 2]].any()
