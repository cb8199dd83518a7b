"""What losses reject, and in which words; what differs from PyTorch, and what does not."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional

import hardsight as hs
import hardsight.losses
from hardsight import losses
from hardsight.losses import LOSSES, CrossEntropy, GCELoss, LabelSmoothing, cross_entropy, gce_loss
from hardsight.losses.registry import Sizes

LOGIT_LOSSES = [name for name, entry in LOSSES.items() if entry.takes == "logits"]
FEATURE_LOSSES = [name for name, entry in LOSSES.items() if entry.takes == "features"]


def make(name: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    entry = LOSSES[name]
    return entry.make(Sizes(6, 5, 8)), ({"ids": torch.arange(4)} if entry.needs_ids else {})


@pytest.mark.parametrize("name", LOGIT_LOSSES)
def test_logit_losses_reject(name: str) -> None:
    loss, ids = make(name)
    labels = torch.tensor([0, 1, 2, 3])
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 5\) or be ignore_index -100; got 5"):
        loss(torch.zeros(4, 5), torch.tensor([0, 1, 2, 5]), **ids)
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 5\) or be ignore_index -100; got -1"):
        loss(torch.zeros(4, 5), torch.tensor([0, 1, 2, -1]), **ids)
    with pytest.raises(TypeError, match=r"logits must be floating point; got torch.int64"):
        loss(torch.zeros(4, 5, dtype=torch.long), labels, **ids)
    with pytest.raises(ValueError, match=r"labels must have shape \[4\]; got \[3\]"):
        loss(torch.zeros(4, 5), labels[:3], **ids)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \[4\]; got \[3\]"):
        loss(torch.zeros(4, 5), labels, torch.ones(3), **ids)
    with pytest.raises(ValueError, match=r"two classes or more; got \[4, 1\]"):
        loss(torch.zeros(4, 1), torch.zeros(4, dtype=torch.long), **ids)


@pytest.mark.parametrize("name", [name for name in LOGIT_LOSSES if LOSSES[name].needs_ids])
def test_ids_are_one_of_the_table_for_each_sample(name: str) -> None:
    """One id for two samples would be spread over both, and -1 would be the last sample."""
    loss, _ = make(name)
    logits, labels = torch.zeros(4, 5), torch.tensor([0, 1, 2, 3])
    note = loss.record if name == "joint_optimisation" else lambda ids, logits: loss.prune(ids, logits, labels)
    for ids, sentence in (
        (torch.tensor([3]), r"ids must have shape \[4\], one a sample; got \[1\]"),
        (torch.tensor([0, 1, 2, 8]), r"ids must lie in \[0, 8\), the samples of the table; got 8"),
        (torch.tensor([0, 1, -1, 2]), r"ids must lie in \[0, 8\), the samples of the table; got -1"),
    ):
        with pytest.raises(ValueError, match=sentence):
            loss(logits, labels, ids=ids)
        with pytest.raises(ValueError, match=sentence):
            note(ids, logits)


@pytest.mark.parametrize("name", FEATURE_LOSSES)
def test_feature_losses_reject(name: str) -> None:
    loss, _ = make(name)
    labels = torch.tensor([0, 1, 2, 3])
    with pytest.raises((TypeError, ValueError), match=r"floating point; got torch.int64|Float"):
        loss(torch.zeros(4, 6, dtype=torch.long), labels)
    with pytest.raises(ValueError, match=r"got \[3\]|of shape \[3\]"):
        loss(torch.zeros(4, 6), labels[:3])
    with pytest.raises(ValueError, match=r"sample_weight must have shape \[4\]; got \[4, 1\]"):
        loss(torch.zeros(4, 6), labels, torch.ones(4, 1))
    if not LOSSES[name].pairs:
        with pytest.raises(ValueError, match=r"dim.*got \[4, 7\]|dim 7; got \[5, 6\]"):
            loss(torch.zeros(4, 7), labels)
        with pytest.raises(ValueError, match=r"labels must lie in \[0, 5\) or be ignore_index -100; got 7"):
            loss(torch.zeros(4, 6), torch.tensor([0, 1, 2, 7]))


@pytest.mark.parametrize("name", LOSSES)
def test_reduction_is_checked(name: str) -> None:
    entry = LOSSES[name]
    kind = type(entry.make(Sizes(6, 5, 8)))
    needed = {
        "ForwardCorrection": (torch.eye(5),),
        "BackwardCorrection": (torch.eye(5),),
        "SAdaptation": (5,),
        "JointOptimisation": (8, 5),
    }.get(kind.__name__, (6, 5) if entry.takes == "features" and not entry.pairs else ())
    with pytest.raises(ValueError, match=r"reduction must be one of .*mean, sum, none; got 'median'"):
        kind(*needed, reduction="median")


@pytest.mark.parametrize("q", [0.0, -0.5, 1.5, float("nan")])
def test_q_is_checked(q: float) -> None:
    with pytest.raises(ValueError, match=r"q must lie in \(0, 1\]; got"):
        GCELoss(q)
    with pytest.raises(ValueError, match=r"q must lie in \(0, 1\]; got"):
        gce_loss(torch.zeros(1, 2), torch.tensor([0]), q=q)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_is_pytorch_s(reduction: str, generator: torch.Generator) -> None:
    logits = torch.randn(6, 5, 3, generator=generator)
    labels = torch.randint(5, (6, 3), generator=generator)
    labels[2, 1] = -1
    soft = torch.randn(6, 5, 3, generator=generator).softmax(1)
    ours = cross_entropy(logits, labels, ignore_index=-1, reduction=reduction)
    torch.testing.assert_close(ours, functional.cross_entropy(logits, labels, ignore_index=-1, reduction=reduction))
    ours = cross_entropy(logits, soft, label_smoothing=0.2, reduction="sum")
    torch.testing.assert_close(ours, functional.cross_entropy(logits, soft, label_smoothing=0.2, reduction="sum"))
    ours = LabelSmoothing(0.3)(logits, labels.clamp_min(0))
    torch.testing.assert_close(ours, functional.cross_entropy(logits, labels.clamp_min(0), label_smoothing=0.3))
    one = cross_entropy(logits[0, :, 0], labels[0, 0])
    torch.testing.assert_close(one, functional.cross_entropy(logits[0, :, 0], labels[0, 0]))


def test_mean_of_nothing_is_zero() -> None:
    logits = torch.zeros(0, 3, requires_grad=True)
    value = CrossEntropy()(logits, torch.zeros(0, dtype=torch.long))
    value.backward()
    assert value == 0


def test_sum_of_half_precision_does_not_overflow() -> None:
    logits = torch.full((100, 3), -1e4, dtype=torch.float16)
    logits[:, 0] = 1e4
    value = cross_entropy(logits, torch.ones(100, dtype=torch.long), reduction="sum")
    assert value.dtype == torch.float32
    assert value == 2e6


def test_small_integer_labels_are_labels() -> None:
    logits = torch.eye(3)
    expected = cross_entropy(logits, torch.arange(3))
    for dtype in (torch.uint8, torch.int32):
        torch.testing.assert_close(cross_entropy(logits, torch.arange(3, dtype=dtype)), expected)
    with pytest.raises(TypeError, match=r"labels must be integers; got torch.bool"):
        cross_entropy(logits, torch.tensor([True, False, True]))


def test_repr_shows_the_settings() -> None:
    assert repr(GCELoss(0.5)) == "GCELoss(q=0.5, reduction='mean')"


def test_pytorch_s_label_is_the_ignored_one_unless_another_is_named() -> None:
    exported = {name: getattr(hardsight.losses, name) for name in hardsight.losses.__all__}
    signatures = {name: inspect.signature(made) for name, made in exported.items() if callable(made)}
    ignored = {
        name: of.parameters["ignore_index"].default
        for name, of in signatures.items()
        if "ignore_index" in of.parameters
    }
    assert {"CrossEntropy", "cross_entropy", "AVHLoss", "amc_loss", "rescaling_weights"} <= ignored.keys()
    assert set(ignored.values()) == {-100}


WITHOUT_DIM = {
    "amc": lambda features, labels: losses.amc_loss(features, labels),
    "amc, all pairs": lambda features, labels: losses.amc_loss(features, labels, pairs="all"),
    "contrastive": lambda features, labels: losses.contrastive_loss(features, labels),
    "center": lambda features, labels: losses.CenterLoss(0, 2)(features, labels),
    "avh": lambda features, labels: losses.avh_loss(features, features[:2], labels),
    "arcface": lambda features, labels: losses.ArcFace(0, 2)(features, labels),
    "lid": lambda features, labels: losses.local_intrinsic_dimensionality(features, neighbours=1),
    "linear": lambda features, labels: losses.linear_gradient_rescaling(features, features[:2], None, labels),
    "angles": lambda features, labels: hs.angle_between(features, features),
}


@pytest.mark.parametrize("name", WITHOUT_DIM)
def test_features_without_a_dim_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=r"(features|vectors) must .* at least (1|one).*\[4, 0\]"):
        WITHOUT_DIM[name](torch.zeros(4, 0), torch.tensor([0, 1, 0, 1]))


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", LOSSES)
def test_labels_and_ids_of_any_integer_type_count_alike(name: str, dtype: torch.dtype) -> None:
    loss, ids = make(name)
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 4, 1, 2])
    first = torch.randn(4, 5 if name in LOGIT_LOSSES else 6, generator=generator)
    loss.eval()
    found = loss(first, labels.to(dtype), **{key: one.to(dtype) for key, one in ids.items()})
    assert torch.equal(found, loss(first, labels, **ids))
