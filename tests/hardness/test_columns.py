"""Summaries of chunks put together are the summary of the whole, whatever the chunks' sizes and what was announced."""

import pytest
import torch

from hardsight.hardness.columns import ClassSummary, SummaryColumns
from hardsight.hardness.summary import summarise

SAMPLES = 23


@pytest.fixture
def whole() -> ClassSummary:
    generator = torch.Generator().manual_seed(0)
    features, weight = (torch.randn(rows, 6, generator=generator) for rows in (SAMPLES, 4))
    return summarise(features, weight, torch.arange(SAMPLES) % 4)


def part_of(whole: ClassSummary, rows: slice) -> ClassSummary:
    return ClassSummary(4, False, **{name: column[rows] for name, column in whole.columns().items()})


@pytest.mark.parametrize("announced", [0, 1, SAMPLES, 100])
@pytest.mark.parametrize("sizes", [[23], [5, 18], [1] * 23, [0, 5, 0, 18, 0], [0, 0, 23]])
def test_chunks_make_the_whole(whole: ClassSummary, sizes: list[int], announced: int) -> None:
    columns, start = SummaryColumns(announced), 0
    for size in sizes:
        columns.add(part_of(whole, slice(start, start + size)))
        start += size
    together = columns.summary().columns()
    assert together.keys() == whole.columns().keys()
    for name, column in whole.columns().items():
        assert torch.equal(together[name], column), name


def test_no_sample_at_all_is_an_empty_summary(whole: ClassSummary) -> None:
    columns = SummaryColumns(3)
    columns.add(part_of(whole, slice(0, 0)))
    assert len(columns.summary().labels) == 0
    assert columns.summary().num_classes == 4


def test_parts_that_nobody_asked_for_stay_empty() -> None:
    summary = summarise(torch.ones(3, 2), torch.ones(4, 2), None, parts=("predicted",))
    assert set(summary.columns()) == {"labels", "feature_norm", "predicted"}
