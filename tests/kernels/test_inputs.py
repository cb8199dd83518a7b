"""What the kernels' doors refuse: labels, weights and settings that nothing can be computed from, one sentence each."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hardsight import kernels
from hardsight.kernels.inputs import check_head, check_labels, check_matrix, check_number, check_sample_weight

Op = Callable[..., Any]
FEATURES, WEIGHT = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.eye(5, 4)
LABELLED: dict[str, Op] = {
    "angular_scores": lambda labels: kernels.angular_scores(FEATURES, WEIGHT, labels),
    "angular_cross_entropy": lambda labels: kernels.angular_cross_entropy(FEATURES, WEIGHT, labels),
    "rescaled_cross_entropy": lambda labels: kernels.rescaled_cross_entropy(FEATURES @ WEIGHT.T, labels),
    "rescaled_linear": lambda labels: kernels.rescaled_linear_cross_entropy(FEATURES, WEIGHT, None, labels),
    "row_statistics": lambda labels: kernels.row_statistics(FEATURES @ WEIGHT.T, labels),
}


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize("wrong", [5, -1, 10**12])
def test_a_label_out_of_range_is_one_sentence(name: str, wrong: int) -> None:
    with pytest.raises(ValueError, match=r"^labels must lie in \[0, 5\), the classes.*; got values from -?\d+ to \d+$"):
        LABELLED[name](torch.tensor([0, wrong, 4]))


@pytest.mark.parametrize("name", LABELLED)
def test_labels_of_any_whole_type_are_the_same_labels(name: str) -> None:
    want = LABELLED[name](torch.tensor([0, 3, 4]))
    got = LABELLED[name](torch.tensor([0, 3, 4], dtype=torch.int32))
    for one, other in zip(_columns(got), _columns(want), strict=True):
        assert torch.equal(one, other)


def _columns(found: Any) -> tuple[Tensor, ...]:
    return tuple(found) if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", ["angular_cross_entropy", "rescaled_cross_entropy", "rescaled_linear"])
def test_only_the_ignored_label_may_lie_outside(name: str) -> None:
    assert torch.isfinite(LABELLED[name](torch.tensor([0, -100, 4])))
    with pytest.raises(ValueError, match="or be -100 where a sample is ignored; got values from -1 to 4"):
        LABELLED[name](torch.tensor([-1, -100, 4]))


def test_labels_of_another_kind_or_shape_are_one_sentence() -> None:
    for labels, sentence in (
        (torch.zeros(3), "labels must be a tensor of integers, a class for each sample; got torch.float32"),
        (torch.zeros(3, dtype=torch.bool), "got torch.bool"),
        ([0, 1, 2], "got list"),
    ):
        with pytest.raises(TypeError, match=sentence):
            check_labels(labels, 3, 5)
    for shape in ((2,), (3, 1)):
        with pytest.raises(ValueError, match="labels must be one class for each of the 3 samples; got shape"):
            check_labels(torch.zeros(shape, dtype=torch.int64), 3, 5)
    check_labels(torch.tensor([7, -3, 2]), 3)  # pairs are compared, whatever the numbers


def test_a_head_of_other_dimensions_is_one_sentence() -> None:
    for features, weight in ((FEATURES, WEIGHT[:, :3]), (FEATURES[0], WEIGHT), (FEATURES, WEIGHT[:0])):
        with pytest.raises(ValueError, match=r"features must be \[samples, dim\] and weight \[classes, dim\]"):
            check_head(features, weight)
    with pytest.raises(ValueError, match=r"features must be \[samples, dim\], floating point; got .* of torch.int64"):
        check_head(FEATURES.long(), WEIGHT)


@pytest.mark.parametrize("size", [1, 4, 6])
def test_a_bias_of_other_classes_is_one_sentence(size: int) -> None:
    with pytest.raises(ValueError, match=rf"bias must be one number for each of the 5 classes; got \[{size}\]"):
        check_head(FEATURES, WEIGHT, torch.zeros(size))


def test_no_kernel_reads_beyond_a_short_bias(device: str) -> None:
    # Where kernels run, shape annotations are not enforced: the door alone stands before the memory.
    features, weight, bias = FEATURES.to(device), WEIGHT.to(device), torch.zeros(1, device=device)
    labels = torch.tensor([0, 1, 2], device=device)
    with pytest.raises(ValueError, match="bias must be one number for each of the 5 classes"):
        kernels.angular_scores(features, weight, labels, bias)
    with pytest.raises(ValueError, match="bias must be one number for each of the 5 classes"):
        kernels.rescaled_linear_cross_entropy(features, weight, bias, labels)


def test_a_matrix_and_a_number_are_what_they_say() -> None:
    for wrong in (torch.zeros(3), torch.zeros(3, 2, 2), torch.zeros(3, 2, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"logits must be \[rows, classes\], floating point; got"):
            check_matrix(wrong, "logits", "[rows, classes]")
    with pytest.raises(ValueError, match=r"scale must be one number; got a tensor of shape \[5\]"):
        check_number("scale", torch.ones(5))
    check_number("scale", torch.tensor([2.0]))


def test_sample_weights_are_one_number_a_sample_and_not_negative() -> None:
    for weight, sentence in (
        (torch.ones(2), "sample_weight must be one number for each of the 3 samples; got shape"),
        (torch.tensor([1.0, -0.5, 0.0]), "sample_weight must be 0 or more throughout; got -0.5"),
        (torch.tensor([1.0, math.nan, 0.0]), "sample_weight must be 0 or more throughout; got nan"),
    ):
        with pytest.raises(ValueError, match=sentence):
            check_sample_weight(weight, 3)


@pytest.mark.parametrize(
    ("op", "options", "sentence"),
    [
        ("angular_cross_entropy", {"reduction": "weight"}, "reduction must be one of mean, sum, none; got 'weight'"),
        ("angular_cross_entropy", {"scale": -1.0}, "scale must be finite and at least 0; got -1.0"),
        ("rescaled_cross_entropy", {"reduction": "avg"}, "reduction must be one of weight, mean, sum, none; got 'avg'"),
        ("rescaled_cross_entropy", {"transform": "tanh"}, "transform must be one of exp, identity; got 'tanh'"),
        ("rescaled_cross_entropy", {"beta": math.nan}, "beta must be finite and at least 0; got nan"),
        ("rescaled_cross_entropy", {"lam": -0.5}, "lam must be finite and at least 0; got -0.5"),
        ("rescaled_cross_entropy", {"normaliser": -2.0}, "normaliser must be finite and at least 0; got -2.0"),
        ("rescaled_linear_cross_entropy", {"normaliser": -2.0}, "normaliser must be finite and at least 0; got -2.0"),
        # One by one there is no gradient to scale afterwards.
        (
            "rescaled_linear_cross_entropy",
            {"reduction": "none"},
            "reduction must be one of weight, mean, sum; got 'none'",
        ),
        ("rescaled_linear_cross_entropy", {"transform": "log"}, "transform must be one of exp, identity; got 'log'"),
        (
            "pairwise_angular_contrast",
            {"margin_radians": -0.1},
            "margin_radians must be finite and at least 0; got -0.1",
        ),
    ],
)
def test_settings_nobody_knows_are_one_sentence(op: str, options: dict[str, Any], sentence: str) -> None:
    labels = torch.tensor([0, 1, 2])
    inputs = {
        "angular_cross_entropy": (FEATURES, WEIGHT, labels),
        "rescaled_cross_entropy": (FEATURES @ WEIGHT.T, labels),
        "rescaled_linear_cross_entropy": (FEATURES, WEIGHT, None, labels),
        "pairwise_angular_contrast": (FEATURES, labels),
    }
    with pytest.raises(ValueError, match=sentence):
        getattr(kernels, op)(*inputs[op], **options)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint16, torch.uint32, torch.uint64])
def test_labels_of_any_integer_type_are_taken(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    features, weight = torch.randn(6, 4, generator=generator), torch.randn(3, 4, generator=generator)
    labels, logits = torch.arange(6) % 3, features @ weight.T
    for name, op in {
        "rescaled": lambda labels: kernels.rescaled_cross_entropy(logits, labels),
        "linear": lambda labels: kernels.rescaled_linear_cross_entropy(features, weight, None, labels),
        "angular": lambda labels: kernels.angular_cross_entropy(features, weight, labels),
        "contrast": lambda labels: kernels.pairwise_angular_contrast(features, labels),
        "scores": lambda labels: kernels.angular_scores(features, weight, labels).label_angle,
        "statistics": lambda labels: kernels.row_statistics(logits, labels).label_logit,
    }.items():
        assert torch.equal(op(labels.to(dtype)), op(labels)), name
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 3\)"):
        kernels.rescaled_cross_entropy(logits, (labels + 1).to(dtype))
