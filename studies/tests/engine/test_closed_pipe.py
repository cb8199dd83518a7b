"""How a study ends when nobody reads its output."""

import subprocess
import sys
from pathlib import Path


def test_a_closed_pipe_ends_a_study_without_a_word(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from hardsight_studies.engine.command import study_app; study_app()",
        "run",
        "avh-figure3",
    ]
    running = subprocess.Popen(
        [*command, "--output", "records", "--results", "results"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    running.stdout.close()
    assert running.stderr is not None
    said = running.stderr.read()
    running.stderr.close()
    assert (running.wait(), said) == (1, "")
