"""The pages that are made from code say what the code says."""

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


def test_the_page_of_configuration_keys_is_up_to_date(build: ModuleType) -> None:
    assert (DOCS / "configuration.md").read_text() == build.configuration_page(), "run `make docs`"
