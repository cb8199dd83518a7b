"""One smoke run of the study of label errors, shared by all tests that look at what it leaves."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from hardsight_studies import Options, get_study, run_study

# A script and its parts, run by hand.
collect_ignore = ["carried_over.py", "carried"]


class Smoke(NamedTuple):
    """Folder of the records, folder of the results, and what was said."""

    records: Path
    results: Path
    said: list[str]


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    """All cells of the smoke preset, two at a time."""
    folder = tmp_path_factory.mktemp("label-errors")
    said: list[str] = []
    options = Options(at_once=2, say=said.append)
    run_study(get_study("label-errors"), "smoke", folder / "records", folder / "results", options=options)
    return Smoke(folder / "records", folder / "results", said)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the public data sets, in their public layouts."""
    root = os.environ.get("HARDSIGHT_DATA")
    if not root:
        pytest.skip("HARDSIGHT_DATA is not set: the public data sets are not at hand")
    return Path(root)
