"""The examples of the page on alignment run as printed."""

import doctest
from pathlib import Path


def test_the_page_shows_what_happens() -> None:
    page = Path(__file__).parents[2] / "docs" / "alignment.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 5
    assert result.failed == 0
