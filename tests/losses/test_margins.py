"""The margin family: loops, the shape of each margin, and the peers where they are at hand."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hardsight.losses import (
    AngularLinear,
    ArcFace,
    AVHLoss,
    CosFace,
    CosineLinear,
    NormFace,
    SphereFace,
    margin_logits,
    margin_loss,
)


def psi(angle: float, margin: int) -> float:
    step = min(int(angle * margin / math.pi), margin - 1)
    return (-1) ** step * math.cos(margin * angle) - 2 * step


TARGETS = {
    "normface": lambda angle, margin: math.cos(angle),
    "cosface": lambda angle, margin: math.cos(angle) - margin,
    "arcface": lambda angle, margin: (
        math.cos(angle + margin) if angle + margin <= math.pi else math.cos(angle) - margin * math.sin(margin)
    ),
    "sphereface": lambda angle, margin: psi(angle, int(margin)),
}
SETTINGS = [("normface", 0.0, 30.0), ("cosface", 0.35, 64.0), ("arcface", 0.5, 64.0), ("sphereface", 4.0, None)]


@pytest.fixture
def batch(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    features = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    return features, weight, torch.arange(9) % 5


@pytest.mark.parametrize(("kind", "margin", "scale"), SETTINGS)
def test_equals_a_slow_loop(kind: str, margin: float, scale: float | None, batch: tuple[Tensor, ...]) -> None:
    features, weight, labels = batch
    expected = torch.empty(9, 5, dtype=torch.float64)
    losses = []
    for row, (x, label) in enumerate(zip(features, labels.tolist(), strict=True)):
        for column, w in enumerate(weight):
            angle = math.acos(float(x @ w) / float(x.norm()) / float(w.norm()))
            value = TARGETS[kind](angle, margin) if column == label else math.cos(angle)
            expected[row, column] = value * (float(x.norm()) if scale is None else scale)
        losses.append(float(torch.logsumexp(expected[row], 0) - expected[row, label]))
    options = {"kind": kind, "scale": scale, "margin": margin}
    torch.testing.assert_close(margin_logits(features, weight, labels, **options), expected)
    result = margin_loss(features, weight, labels, reduction="none", **options)
    torch.testing.assert_close(result, torch.tensor(losses, dtype=torch.float64))


@pytest.mark.parametrize(("kind", "margin", "scale"), SETTINGS)
def test_the_labelled_logit_falls_with_the_angle(kind: str, margin: float, scale: float | None) -> None:
    """Over all of [0, pi], arcface's continuation and sphereface's steps included, and below the cosine."""
    angle = torch.linspace(0, math.pi, 721, dtype=torch.float64)
    features = torch.stack([angle.cos(), angle.sin()], dim=-1)
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    labels = torch.zeros(721, dtype=torch.long)
    logits = margin_logits(features, weight, labels, kind=kind, scale=scale or 1.0, margin=margin)[:, 0]
    assert (logits.diff() < 1e-9).all()
    assert (logits <= (scale or 1.0) * angle.cos() + 1e-9).all()


def test_annealing_mixes_margin_and_cosine(batch: tuple[Tensor, ...]) -> None:
    features, weight, labels = batch
    plain = margin_logits(features, weight, labels, kind="normface", scale=1.0)
    full = margin_logits(features, weight, labels, kind="sphereface", scale=1.0, margin=4.0)
    mixed = margin_logits(features, weight, labels, kind="sphereface", scale=1.0, margin=4.0, annealing=5.0)
    torch.testing.assert_close(mixed, (5 * plain + full) / 6)


@pytest.mark.parametrize("kind", [NormFace, CosFace, ArcFace, SphereFace])
@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
def test_finite_on_aligned_opposite_and_zero_features(kind: type, sign: float) -> None:
    loss = kind(8, 4)
    labels = torch.arange(4)
    features = (sign * loss.weight.detach()[labels]).requires_grad_()
    value = loss(features, labels)
    value.backward()
    assert value.isfinite()
    assert features.grad.isfinite().all()
    assert loss.weight.grad.isfinite().all()


def test_against_pytorch_metric_learning(generator: torch.Generator) -> None:
    """The peer agrees on ordinary inputs, and gives NaN gradients on aligned ones where these do not."""
    peers = pytest.importorskip("pytorch_metric_learning.losses")
    labels = torch.arange(12) % 4
    features = torch.randn(12, 8, generator=generator)
    ours = {"arc": ArcFace(8, 4, margin_radians=math.radians(28.6)), "cos": CosFace(8, 4)}
    theirs = {
        "arc": peers.ArcFaceLoss(4, 8, margin=28.6, scale=64),
        "cos": peers.CosFaceLoss(4, 8, margin=0.35, scale=64),
    }
    for name, loss in ours.items():
        theirs[name].W.data = loss.weight.detach().T.clone()
        torch.testing.assert_close(loss(features, labels), theirs[name](features, labels), rtol=1e-4, atol=1e-4)
    aligned = ours["arc"].weight.detach()[labels].requires_grad_()
    ours["arc"](aligned, labels).backward()
    assert aligned.grad.isfinite().all()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: CosFace(4, 3, margin=-0.1), "margin must be at least 0 and finite; got -0.1"),
        (lambda: ArcFace(4, 3, margin_radians=28.6), r"margin_radians must lie in \[0, 3.14159\]; got 28.6"),
        (lambda: SphereFace(4, 3, margin=0), "margin must be an integer from 1 to 8"),
        (lambda: NormFace(4, 3, scale=-1.0), "scale must be greater than 0"),
        (
            lambda: margin_logits(torch.zeros(1, 2), torch.zeros(2, 2), torch.tensor([0]), kind="face", scale=1.0),
            "kind must be one of normface, cosface, arcface, sphereface; got 'face'",
        ),
    ],
)
def test_rejects_in_one_sentence(make: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("kind", "margin", "sentence"),
    [
        ("normface", 0.3, "margin must be 0 for normface"),
        ("cosface", -0.1, "margin must be at least 0"),
        ("arcface", 28.6, r"margin must lie in \[0, 3.14159\]; got 28.6"),
        ("sphereface", 2.5, "margin must be an integer from 1 to 8, it multiplies the angle; got 2.5"),
    ],
)
def test_the_functions_reject_what_the_modules_do(kind: str, margin: float, sentence: str) -> None:
    for function in (margin_logits, margin_loss):
        with pytest.raises(ValueError, match=sentence):
            function(torch.zeros(1, 2), torch.zeros(2, 2), torch.tensor([0]), kind=kind, scale=1.0, margin=margin)


def test_a_head_takes_features_of_any_batch_shape(generator: torch.Generator) -> None:
    head = CosineLinear(4, 3, generator=generator)
    features = torch.randn(2, 5, 4, generator=generator)
    torch.testing.assert_close(head(features), head(features.flatten(0, 1)).unflatten(0, (2, 5)))
    torch.testing.assert_close(head(features[0, 0]), head(features)[0, 0])


@pytest.mark.parametrize("make", [AngularLinear, CosineLinear, NormFace, AVHLoss])
def test_class_weights_begin_at_about_length_one(make: Callable[..., nn.Module], generator: torch.Generator) -> None:
    """Directions are all that counts for the logits, but a weight twice as long turns half as fast."""
    (weight,) = make(400, 30, generator=generator).parameters()
    lengths = weight.detach().norm(dim=1)
    assert bool(((lengths > 0.8) & (lengths < 1.2)).all())
