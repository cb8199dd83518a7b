"""The examples of the noise page run as printed."""

import doctest
from pathlib import Path


def test_the_page_shows_what_happens():
    page = Path(__file__).parents[2] / "docs" / "noise.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 5
    assert result.failed == 0
