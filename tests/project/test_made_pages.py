"""Pages that are made from the code say what the code says."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_scores_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("build", DOCS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    assert (DOCS / "scores.md").read_text() == build.scores_page(), "run `make docs`"
