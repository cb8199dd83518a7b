"""What README and docs say of the studies is what the rows say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hardsight_studies.engine.summary import results_page
from hardsight_studies.together.advice import advice_table

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_results_is_up_to_date_and_short() -> None:
    page = (ROOT / "docs" / "results.md").read_text()
    assert page == results_page(), "run `make docs`"
    assert len(page.replace("|", " ").split()) <= 2400


def test_the_table_of_advice_is_up_to_date(build: ModuleType) -> None:
    assert build.ADVICE.read_text() == advice_table(), "run `make docs`"


def test_made_blocks_are_up_to_date(build: ModuleType) -> None:
    blocks, found = build.made_blocks(), set()
    for page in build.PAGES_WITH_BLOCKS:
        text = page.read_text()
        found |= {name for _, name, _ in build.BLOCK.findall(text)}
        assert text == build.made_again(text, blocks), "run `make docs`"
    assert found == set(blocks)
