"""What `angular_scores` rejects: heads, labels and biases that nothing can be computed from."""

import pytest
import torch

from hardsight.kernels import angular_scores

FEATURES, WEIGHT = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.eye(5, 4)
LABELS = torch.tensor([0, 3, 4])


@pytest.fixture(autouse=True)
def without_annotations(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--jaxtyping-packages", None):
        pytest.skip("the annotations, which only the tests enforce, would reject it first")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64])
def test_labels_of_any_integer_type_are_the_same_labels(device: str, dtype: torch.dtype) -> None:
    features, weight, labels = (one.to(device) for one in (FEATURES, WEIGHT, LABELS))
    pairs = zip(
        angular_scores(features, weight, labels.to(dtype)), angular_scores(features, weight, labels), strict=True
    )
    assert all(torch.equal(one, other) for one, other in pairs)


def test_labels_of_another_kind_or_shape_are_rejected(device: str) -> None:
    features, weight = FEATURES.to(device), WEIGHT.to(device)
    for labels, kind in ((torch.zeros(3), "float32"), (torch.zeros(3, dtype=torch.bool), "bool"), ([0, 1, 2], "list")):
        with pytest.raises(TypeError, match=f"labels .*{kind}"):
            angular_scores(features, weight, labels)
    for shape in ((2,), (3, 1)):
        with pytest.raises(ValueError, match=rf"labels .* 3 .*{list(shape)}".replace("[", "\\[")):
            angular_scores(features, weight, torch.zeros(shape, dtype=torch.int64, device=device))


def test_a_head_of_other_dimensions_is_rejected(device: str) -> None:
    features, weight, labels = (one.to(device) for one in (FEATURES, WEIGHT, LABELS))
    for x, w in ((features, weight[:, :3]), (features[0], weight), (features, weight[:1])):
        with pytest.raises(ValueError, match=r"(features|weight) must"):
            angular_scores(x, w, labels)
    with pytest.raises(TypeError, match=r"features .*int64"):
        angular_scores(features.long(), weight, labels)


@pytest.mark.parametrize("size", [1, 4, 6])
def test_no_kernel_reads_beyond_a_short_bias(device: str, size: int) -> None:
    # The check alone protects the memory.
    features, weight, labels = (one.to(device) for one in (FEATURES, WEIGHT, LABELS))
    with pytest.raises(ValueError, match=rf"bias .*\[5\].*\[{size}\]"):
        angular_scores(features, weight, labels, torch.zeros(size, device=device))


def test_where_no_kernel_runs_it_says_why() -> None:
    with pytest.raises(ValueError, match=r"features .*float64"):
        angular_scores(FEATURES.double(), WEIGHT.double(), LABELS)
