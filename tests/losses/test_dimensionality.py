"""D2L: the LID estimate on data of known dimension, the turning point, alpha."""

import math

import pytest
import torch
from torch.nn import functional

from hardsight.losses import D2L, d2l_loss, local_intrinsic_dimensionality


def loop(features: torch.Tensor, neighbours: int) -> list[float]:
    rows = features.tolist()
    result = []
    for i, x in enumerate(rows):
        apart = sorted(math.dist(x, y) for j, y in enumerate(rows) if j != i)[:neighbours]
        result.append(-1 / (sum(math.log(r / apart[-1]) for r in apart) / neighbours))
    return result


def test_lid_equals_a_slow_loop(generator: torch.Generator) -> None:
    features = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    result = local_intrinsic_dimensionality(features, neighbours=7)
    torch.testing.assert_close(result, torch.tensor(loop(features, 7), dtype=torch.float64))


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_lid_finds_the_dimension(dimension: int, generator: torch.Generator) -> None:
    """Uniform points of a d-dimensional subspace in 20 dimensions, whatever the scale."""
    flat = torch.rand(1500, dimension, generator=generator, dtype=torch.float64)
    embedding = torch.randn(dimension, 20, generator=generator, dtype=torch.float64)
    lid = local_intrinsic_dimensionality(1e-3 * flat @ embedding, neighbours=40)
    assert lid.median().item() == pytest.approx(dimension, rel=0.2)


def test_lid_of_copies_and_of_a_simplex() -> None:
    assert (local_intrinsic_dimensionality(torch.ones(5, 3), neighbours=3) == 0).all()
    equidistant = local_intrinsic_dimensionality(torch.eye(6), neighbours=4)
    assert equidistant.isfinite().all()
    assert (equidistant > 1e6).all()
    assert local_intrinsic_dimensionality(torch.randn(9, 2).half(), neighbours=3).isfinite().all()


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e30, 3e37])
def test_lid_is_that_of_the_features_at_any_scale(scale: float, generator: torch.Generator) -> None:
    """Squares of such distances leave the range of float32."""
    features = torch.randn(30, 4, generator=generator)
    scaled = scale * features.double()
    for seen in (scaled.float(), scaled, scaled * 1e270 if scale > 1 else scaled * 1e-250):
        lid = local_intrinsic_dimensionality(seen, neighbours=7)
        assert lid.dtype == seen.dtype
        # Numbers near the smallest have few digits.
        torch.testing.assert_close(
            lid, local_intrinsic_dimensionality(features, neighbours=7).to(seen.dtype), rtol=1e-3, atol=0
        )


def test_lid_beside_a_sample_far_away(generator: torch.Generator) -> None:
    features = torch.randn(30, 4, generator=generator)
    far = torch.cat([features, torch.full((1, 4), 3e38)])
    torch.testing.assert_close(
        local_intrinsic_dimensionality(far, neighbours=7)[:-1], local_intrinsic_dimensionality(features, neighbours=7)
    )
    assert local_intrinsic_dimensionality(far, neighbours=7).isfinite().all()


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_lid_of_features_that_are_no_numbers_is_rejected(value: float) -> None:
    features = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    features[4, 1] = value
    with pytest.raises(ValueError, match=r"^features must be finite numbers; those of 1 of 9 samples are not$"):
        local_intrinsic_dimensionality(features, neighbours=3)


def test_loss_mixes_label_and_prediction(generator: torch.Generator) -> None:
    logits = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    mixed = 0.3 * functional.one_hot(labels, 4) + 0.7 * functional.one_hot(logits.argmax(-1), 4)
    torch.testing.assert_close(d2l_loss(logits, labels, alpha=0.3), functional.cross_entropy(logits, mixed.double()))


def test_turning_point_and_alpha() -> None:
    """LIDs fall, then jump: alpha is 1 until the jump, then exp(-progress LID / smallest LID)."""
    loss = D2L(first_epochs=2, window=3)
    lids = [9.0, 8.0, 7.0, 6.5, 6.2, 6.0, 9.0, 12.0]
    turned = []
    for epoch, lid in enumerate(lids):
        turned.append(loss.end_epoch(lid, epoch / 10))
        if epoch < 6:
            assert loss.alpha == 1
    assert turned == [False] * 6 + [True, False]
    assert loss.alpha.item() == pytest.approx(math.exp(-0.7 * 12 / 6))
    other = D2L(first_epochs=2, window=3)
    other.load_state_dict(loss.state_dict())
    assert other.end_epoch(13.0, 0.8) == loss.end_epoch(13.0, 0.8)
    assert other.alpha == loss.alpha
    logits, labels = torch.tensor([[0.0, 2.0]]), torch.tensor([0])
    torch.testing.assert_close(other(logits, labels), d2l_loss(logits, labels, alpha=math.exp(-0.8 * 13 / 6)))


def test_a_jump_in_the_first_epochs_does_not_count() -> None:
    loss = D2L(first_epochs=5, window=5)
    assert not any(loss.end_epoch(lid, 0.0) for lid in [5.0, 4.0, 9.0, 20.0, 40.0, 80.0, 160.0])
    assert loss.alpha == 1
    # Unless told otherwise it waits for five epochs and then for a window of five, as the authors do.
    for falling in (9, 10):
        loss = D2L()
        assert not any(loss.end_epoch(9 - 0.1 * epoch, 0.0) for epoch in range(falling))
        assert loss.end_epoch(99.0, 0.0) == (falling == 10)


@pytest.mark.parametrize(("lid", "turns"), [(6.9, False), (7.1, True)])
def test_a_rise_counts_from_two_standard_deviations_on(lid: float, turns: bool) -> None:
    """4 and 6 have the mean 5 and the standard deviation 1."""
    loss = D2L(first_epochs=0, window=2)
    assert not loss.end_epoch(4.0, 0.1)
    assert not loss.end_epoch(6.0, 0.2)
    assert loss.end_epoch(lid, 0.3) == turns


@pytest.mark.parametrize("lid", [10.7, 3.3, 1 / 3, 7.9])
def test_a_dimensionality_that_stays_the_same_is_no_turning_point(lid: float) -> None:
    """A double compared with the mean of its own float32 roundings would seem to rise."""
    loss = D2L()
    assert not any(loss.end_epoch(lid, epoch / 30) for epoch in range(30))
    assert loss.alpha == 1


def test_an_epoch_whose_features_are_all_alike_counts_as_the_one_before() -> None:
    """As the authors have it: a dimensionality of 0 would stay the smallest, and no label would ever give way."""
    lids = [9.0, 8.0, 7.0, 7.0, 6.0, 6.0, 12.0, 12.0]
    loss, without = D2L(first_epochs=2, window=3), D2L(first_epochs=2, window=3)
    for at, lid in enumerate(lids):
        assert loss.end_epoch(0.0 if at == 3 else lid, at / 10) == without.end_epoch(lid, at / 10)
    assert loss.alpha == without.alpha < 1
    assert (loss.epochs_seen, loss.recent.tolist()) == (without.epochs_seen, without.recent.tolist())
    nothing = D2L()
    assert not nothing.end_epoch(0.0, 0.1)
    assert nothing.alpha == 1


def test_rejects_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"neighbours must lie in \[1, 4\], the other samples; got 20"):
        local_intrinsic_dimensionality(torch.zeros(5, 2))
    with pytest.raises(ValueError, match="lid must be at least 0 and finite; got nan"):
        D2L().end_epoch(math.nan, 0.5)
    with pytest.raises(ValueError, match="window must be at least 2"):
        D2L(window=1)
