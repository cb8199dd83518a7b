"""The guide's code runs, top to bottom, and does what the guide says."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "cleaning.md"


@pytest.mark.skipif(not GUIDE.is_file(), reason="the guide is not part of this installation")
def test_the_guides_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    wrong = names["labels"] != names["truth"]
    assert abs(names["issues"].estimated - int(wrong.sum())) <= 3
    assert names["correction_report"](names["labels"], names["correction"].labels, names["truth"]).wrong_after <= 3
    assert len(names["triplets"].anchors) > 100
