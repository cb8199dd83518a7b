"""How the scan is cut: nothing is left out or done twice, and what works together fits the cache."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

tiling = pytest.importorskip("hardsight.kernels.fused.angular_norms")

SMALL = tiling.Tiling(64, 64, 64, 4, 3)
LARGE = tiling.Tiling(128, 256, 64, 8, 4)
HOPPER = LARGE._replace(hopper=True)


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """A device with the numbers of an H200."""
    properties = SimpleNamespace(multi_processor_count=132, L2_cache_size=60 * 2**20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    for kept in (tiling.processors_of, tiling._divide):
        kept.cache_clear()
    yield torch.device("cuda", 7)
    for kept in (tiling.processors_of, tiling._divide):
        kept.cache_clear()


@pytest.mark.parametrize("classes", [1, 2, 255, 256, 257, 1000, 21_841, 1_048_576])
@pytest.mark.parametrize("samples", [1, 127, 1024, 65_536])
@pytest.mark.parametrize("cut", [SMALL, LARGE, HOPPER], ids=["small", "large", "hopper"])
def test_the_splits_cover_all_tiles_and_none_is_empty(
    cut: tuple[int, ...], samples: int, classes: int, hopper: torch.device
) -> None:
    found = tiling._divide(cut, samples, classes, 1024, hopper)
    tiles = -(-classes // cut[1])
    assert (found.splits - 1) * found.tiles < tiles <= found.splits * found.tiles
    assert found.group >= 1


@pytest.mark.parametrize(
    ("shape", "group", "splits"),
    [((65_536, 2048, 2000), 33, 4), ((16_384, 2048, 21_841), 33, 4), ((4096, 512, 1_048_576), 32, 33)],
)
def test_the_samples_at_work_fit_the_cache_and_all_processors_have_work(
    shape: tuple[int, int, int], group: int, splits: int, hopper: torch.device
) -> None:
    samples, dim, classes = shape
    found = tiling._divide(HOPPER, samples, classes, 2 * dim, hopper)
    assert (found.group, found.splits) == (group, splits)
    assert found.group * 128 * 2 * dim <= 20 * 2**20


@pytest.mark.parametrize(
    ("shape", "splits"), [((65_536, 2048, 1000), 2), ((32_768, 4096, 1000), 2), ((512, 4096, 1000), 4)]
)
def test_an_item_has_more_tiles_than_the_one_its_norms_are_taken_from(
    shape: tuple[int, int, int], splits: int, hopper: torch.device
) -> None:
    # Four blocks of samples are few: there all processors having work counts for more.
    samples, dim, classes = shape
    found = tiling._divide(HOPPER, samples, classes, 2 * dim, hopper)
    assert found.splits == splits
    assert found.group * found.splits <= 132


def test_only_described_half_precision_of_some_size_takes_the_kernel_for_hopper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, weight = torch.zeros(2048, 64, dtype=torch.bfloat16), torch.zeros(512, 64, dtype=torch.bfloat16)
    assert not tiling.choose_tiling(features, weight).hopper  # no CUDA device
    monkeypatch.setattr(tiling, "serves_hopper", lambda device: True)
    assert tiling.choose_tiling(features, weight).hopper
    assert not tiling.choose_tiling(features.float(), weight.float()).hopper
    assert not tiling.choose_tiling(features[:100], weight).hopper
    assert not tiling.choose_tiling(features[:, 1:], weight[:, 1:]).hopper


@pytest.mark.parametrize(
    ("version", "served"), [("3.6.0", True), ("3.60.0", False), ("3.5.1", False), ("4.0.0", False)]
)
def test_gluon_is_used_with_the_versions_it_was_tried_with(
    version: str, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(tiling.triton, "__version__", version)
    tiling.serves_hopper.cache_clear()
    assert tiling.serves_hopper(torch.device("cuda", 7)) is served
    tiling.serves_hopper.cache_clear()
