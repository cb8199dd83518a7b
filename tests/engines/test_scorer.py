"""`Scorer`: a sample's scores are the same to the bit in batches of any size, beside any others, with any threads."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
import torch

from hardsight.engines.ray import Scorer
from hardsight.hardness import score
from hardsight.hardness.scoring import block_rows

SCORES = ("avh", "confidence", "norm", "angular_margin", "margin", "loss", "el2n", "entropy")


@pytest.fixture
def threads() -> Iterator[None]:
    held = torch.get_num_threads()
    yield
    torch.set_num_threads(held)


def samples(count: int, dim: int, classes: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Some near a class, some opposite to one, zeros, and numbers so large or small that they are treated apart."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(classes, dim, generator=generator)
    weight[1] = -weight[0]
    near = torch.randint(0, classes, (count,), generator=generator)
    spread = torch.rand(count, 1, generator=generator) ** 3
    features = weight[near] * 3 + spread * torch.randn(count, dim, generator=generator)
    features[::97] = 0
    if dtype != torch.float16:
        features[5::211] *= 1e-20
        features[11::307] *= 1e20
    return features.to(dtype), weight, torch.randint(0, classes, (count,), generator=generator)


@pytest.mark.parametrize(("dim", "classes"), [(12, 7), (33, 2), (64, 300), (17, 100)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_same_bits_in_batches_of_any_size(dim: int, classes: int, dtype: torch.dtype, threads: None) -> None:
    count = 2 * block_rows(classes) + 41
    features, weight, labels = samples(count, dim, classes, dtype)
    scorer = Scorer((weight, None), SCORES)
    whole = scorer.score(features, labels)[0]
    order = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    for number, size in ((1, count), (3, 577), (2, count - 1), (4, count)):
        torch.set_num_threads(number)
        parts = [order[start : start + size] for start in range(0, count, size)]
        found = [scorer.score(features[part], labels[part])[0] for part in parts]
        for name, values in whole.items():
            np.testing.assert_array_equal(np.concatenate([one[name] for one in found]), values[order], err_msg=name)
    expected = score(features.double(), weight.double(), labels, scores=SCORES)
    for name, values in expected.items():
        np.testing.assert_allclose(whole[name], values.clamp(max=3.4e38).float(), rtol=3e-5, atol=3e-6, err_msg=name)


def test_plain_products_are_not_the_same_in_batches_of_any_size() -> None:
    features, weight, labels = samples(2000, 33, 3, torch.float32)
    whole = score(features, weight, labels, scores=("margin",))["margin"]
    parts = [
        score(features[at : at + 7], weight, labels[at : at + 7], scores=("margin",))["margin"]
        for at in range(0, 2000, 7)
    ]
    if torch.equal(torch.cat(parts), whole):
        pytest.skip("this processor's products are the same")


def test_tables_and_dictionaries_keep_their_other_columns() -> None:
    features, weight, labels = samples(50, 8, 4, torch.float32)
    features[7, 1] = float("nan")
    scorer = Scorer((weight, None), ("avh", "loss"))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(features.numpy().reshape(-1)), 8)
    table = pa.table({"id": np.arange(50), "features": lists, "label": labels.numpy(), "path": ["x"] * 50})
    found = scorer(table)
    assert found.column_names == ["id", "label", "path", "predicted", "avh", "loss"]
    assert found["predicted"].null_count == found["avh"].null_count == 1
    assert found.schema.field("avh").metadata[b"direction"] == b"larger is harder"
    assert scorer(table.to_batches()[0]).equals(found)
    arrays = scorer({"features": features.numpy(), "labels": labels.numpy(), "path": np.array(["x"] * 50)})
    assert list(arrays) == ["labels", "path", "predicted", "avh", "loss"]
    assert arrays["predicted"][7] == -1
    assert np.isnan(arrays["avh"][7])
    np.testing.assert_array_equal(arrays["loss"], found["loss"].to_numpy())
    ragged = scorer({"features": np.array([*features.numpy(), None], dtype=object)[:-1], "label": labels.numpy()})
    np.testing.assert_array_equal(ragged["loss"], arrays["loss"])
    assert len(scorer(table.slice(0, 0))) == 0


def test_bad_batches_and_heads() -> None:
    scorer = Scorer((torch.eye(3, 5), None))
    with pytest.raises(TypeError, match="batch must be a pyarrow Table or a dictionary"):
        scorer([1, 2])
    with pytest.raises(ValueError, match=r"column 'features'.*it has a, b"):
        scorer({"a": 1, "b": 2})
    with pytest.raises(ValueError, match="dim of the head, 5; got 4"):
        scorer({"features": np.zeros((2, 4), "f4")})
    with pytest.raises(TypeError, match="features must be floating point"):
        scorer({"features": np.zeros((2, 5), "i8")})
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 3\)"):
        scorer({"features": np.zeros((2, 5), "f4"), "label": np.array([0, 3])})
    with pytest.raises(ValueError, match="weight must have a row for each of at least 2 classes"):
        Scorer((torch.ones(1, 5), None))
