"""What a million samples of a thousand classes must not cost: copies of it all, and looks at it that tell nothing."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hardsight.cleaning import combined, find_label_issues
from hardsight.cleaning.confident import beliefs_of, check_probabilities

Make = Callable[..., pa.Table]
Noisy = tuple[np.ndarray, np.ndarray, np.ndarray]


class LargestMade(TorchDispatchMode):
    """Notes the elements of the largest tensor that is made anew."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        given = {one.untyped_storage().data_ptr() for one in args if isinstance(one, torch.Tensor)}
        for one in made if isinstance(made, tuple) else (made,):
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in given:
                self.elements = max(self.elements, one.numel())
        return made


def test_probabilities_are_never_copied_whole(noisy: Noisy, make_table: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    probabilities, labels, _ = noisy
    table = make_table({"id": np.arange(len(labels)), "label": labels})
    whole = find_label_issues(table, probabilities=probabilities)
    monkeypatch.setattr("hardsight.cleaning.confident._PIECE", 64 * 4)
    with LargestMade() as watch:
        pieces = find_label_issues(table, probabilities=probabilities)
    assert pieces.table.equals(whole.table)
    assert watch.elements <= len(labels)


@pytest.mark.parametrize("scored", [False, True])
def test_probabilities_are_checked_once(
    scored: bool, noisy: Noisy, make_table: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    probabilities, labels, _ = noisy
    table = make_table({"id": np.arange(600), "label": labels} | ({"avh": np.arange(600.0)} if scored else {}))
    looks = []

    def check(*given: torch.Tensor) -> None:
        looks.append(given)
        check_probabilities(*given)

    for module in ("confident", "issues"):
        monkeypatch.setattr(f"hardsight.cleaning.{module}.check_probabilities", check)
    find_label_issues(table, probabilities=probabilities)
    assert len(looks) == 1


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 1000)])
def test_a_column_of_probabilities_is_copied_once_and_not_widened(kind: pa.DataType, make_table: Make) -> None:
    generator = np.random.default_rng(0)
    shares = generator.random((512, 1000), np.float32)
    shares /= shares.sum(1, keepdims=True)
    column = pa.array(list(shares), kind)
    table = make_table({"id": np.arange(512), "label": generator.integers(0, 1000, 512)})
    table = table.append_column("probabilities", pa.chunked_array([column.slice(0, 200), column.slice(200)]))
    tracemalloc.start()
    try:
        found = beliefs_of(table)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found is not None
    np.testing.assert_array_equal(found.numpy(), shares)
    assert peak < 1.1 * shares.nbytes


def test_the_doubt_of_labels_makes_no_second_matrix(noisy: Noisy, monkeypatch: pytest.MonkeyPatch) -> None:
    probabilities, labels = torch.from_numpy(noisy[0]), torch.from_numpy(noisy[1])
    whole = combined.posterior_doubt(probabilities.float(), labels)
    monkeypatch.setattr("hardsight.cleaning.confident._PIECE", 64 * 4)
    single = probabilities.float()
    with LargestMade() as watch:
        pieces = combined.posterior_doubt(single, labels)
    torch.testing.assert_close(pieces, whole)
    assert watch.elements <= len(labels)


def test_beliefs_of_snapshots_are_summed_one_after_the_other() -> None:
    logits = torch.randn(7, 50, 4, generator=torch.Generator().manual_seed(0))
    with LargestMade() as watch:
        found = combined.mean_beliefs(logits)
    torch.testing.assert_close(found, logits.softmax(2).mean(0))
    assert watch.elements <= found.numel()
