"""One smoke run a study, where a test asks for it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hardsight_studies import Options, get_study, read_results, run_study


class Ran(NamedTuple):
    """Folder of the records, the results, and what was said."""

    records: Path
    results: dict
    said: list[str]


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ran]:
    """Runs a study's smoke preset, or those of its cells that hold a word."""

    def run(id: str, *only: str) -> Ran:
        folder = tmp_path_factory.mktemp(id)
        said: list[str] = []
        study = get_study(id)
        run_study(study, "smoke", folder / "r", folder / "results", only=only, options=Options(say=said.append))
        return Ran(folder / "r", read_results(study, folder / "results"), said)

    return run
