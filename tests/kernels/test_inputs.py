"""What `angular_scores` rejects: labels, weights and biases that nothing can be computed from."""

import pytest
import torch

from hardsight.kernels.angular_scores import angular_scores, check_head, check_labels

FEATURES, WEIGHT = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.eye(5, 4)


@pytest.mark.parametrize("wrong", [5, -1, 10**12])
def test_a_label_out_of_range_is_named(wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"labels .*\[0, 5\).*{wrong}"):
        angular_scores(FEATURES, WEIGHT, torch.tensor([0, wrong, 4]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64])
def test_labels_of_any_integer_type_are_the_same_labels(dtype: torch.dtype) -> None:
    labels = torch.tensor([0, 3, 4])
    pairs = zip(
        angular_scores(FEATURES, WEIGHT, labels.to(dtype)), angular_scores(FEATURES, WEIGHT, labels), strict=True
    )
    assert all(torch.equal(one, other) for one, other in pairs)
    with pytest.raises(ValueError, match=r"labels .*\[0, 5\).*6"):
        angular_scores(FEATURES, WEIGHT, (labels + 2).to(dtype))


def test_labels_of_another_kind_or_shape_are_rejected() -> None:
    for labels, kind in ((torch.zeros(3), "float32"), (torch.zeros(3, dtype=torch.bool), "bool"), ([0, 1, 2], "list")):
        with pytest.raises(TypeError, match=f"labels .*{kind}"):
            check_labels(labels, 3, 5)
    for shape in ((2,), (3, 1)):
        with pytest.raises(ValueError, match=rf"labels .* 3 .*{list(shape)}".replace("[", "\\[")):
            check_labels(torch.zeros(shape, dtype=torch.int64), 3, 5)


def test_a_head_of_other_dimensions_is_rejected() -> None:
    for features, weight in ((FEATURES, WEIGHT[:, :3]), (FEATURES[0], WEIGHT), (FEATURES, WEIGHT[:0])):
        with pytest.raises(ValueError, match=r"features .* weight"):
            check_head(features, weight)
    with pytest.raises(ValueError, match=r"features .*int64"):
        check_head(FEATURES.long(), WEIGHT)


@pytest.mark.parametrize("size", [1, 4, 6])
def test_a_bias_of_other_classes_is_rejected(size: int) -> None:
    with pytest.raises(ValueError, match=rf"bias .* 5 .*\[{size}\]"):
        check_head(FEATURES, WEIGHT, torch.zeros(size))


def test_no_kernel_reads_beyond_a_short_bias(device: str) -> None:
    # Where kernels run, shape annotations are not enforced: the check alone protects the memory.
    features, weight, bias = FEATURES.to(device), WEIGHT.to(device), torch.zeros(1, device=device)
    with pytest.raises(ValueError, match=r"bias .* 5 "):
        angular_scores(features, weight, torch.tensor([0, 1, 2], device=device), bias)
