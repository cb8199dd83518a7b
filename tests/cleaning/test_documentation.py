"""The code of the guides runs, top to bottom, and does what they say."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def names(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """What a guide's code leaves behind."""
    guide = DOCS / request.param
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", guide.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(guide), "exec"), found)
    return found


@pytest.mark.parametrize("names", ["cleaning.md"], indirect=True)
def test_about_as_many_labels_are_found_as_are_wrong(names: dict) -> None:
    wrong = names["labels"] != names["truth"]
    assert abs(names["issues"].estimated - int(wrong.sum())) <= 3


@pytest.mark.parametrize("names", ["decisions.md"], indirect=True)
def test_decisions_correct_labels_and_mine_triplets(names: dict) -> None:
    assert names["applied"].kept.all()
    assert names["correction_report"](names["labels"], names["corrected"], names["truth"])["wrong_after"] <= 3
    assert len(names["triplets"].anchors) > 100


@pytest.mark.parametrize("names", ["tables.md", "predictions.md"], indirect=True)
def test_the_wrong_labels_are_the_first_suspects(names: dict) -> None:
    assert len({*names["found"].issues.suspects()["id"].to_pylist()} & set(range(20))) >= 18
