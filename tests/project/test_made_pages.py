"""Pages, and parts of pages, that are made from code and results say what these say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build", DOCS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_scores_is_up_to_date(build: ModuleType) -> None:
    assert (DOCS / "scores.md").read_text() == build.scores_page(), "run `make docs`"


def test_made_blocks_are_up_to_date(build: ModuleType) -> None:
    made = set()
    for page in build.PAGES_WITH_BLOCKS:
        text = page.read_text()
        made |= {name for _, name, _ in build.BLOCK.findall(text)}
        assert text == build.made_anew(text), "run `make docs`"
    assert made == set(build.MADE)


def test_a_changed_number_is_noticed(build: ModuleType) -> None:
    text = f"before\n<!-- made: findings -->\n{build.findings()}<!-- end -->\nafter\n"
    assert build.made_anew(text) == text
    assert build.made_anew(text.replace("CIFAR-10H", "CIFAR-10")) == text
