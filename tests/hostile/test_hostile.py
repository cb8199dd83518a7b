"""Damaged and invented files over every reader and command, in short; `make fuzz` runs ten thousand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("fuzz.py")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are split off and measured as Linux does")
def test_damaged_files_end_in_a_sentence_or_in_a_result() -> None:
    done = subprocess.run([sys.executable, str(FUZZ), "40"], capture_output=True, text=True)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["wrong"], json.dumps(found["wrong"], indent=1)
    assert sum(found["ran"].values()) == 40
    assert done.returncode == 0
