"""What every test shares: the public data sets, when they are at hand, and one thread a worker."""

import os
from pathlib import Path

import pytest
import torch


def pytest_configure() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Two workers on two cores: more threads than cores only wait for each other.
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the public data sets, in their public layouts."""
    root = os.environ.get("HARDSIGHT_DATA")
    if not root:
        pytest.skip("HARDSIGHT_DATA is not set: the public data sets are not at hand")
    return Path(root)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
