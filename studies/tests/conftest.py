"""What the tests of the studies share."""

import os
from pathlib import Path

import pytest

# A script and its parts, run by hand.
collect_ignore = ["carried_over.py", "carried"]


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the public data sets, in their public layouts."""
    root = os.environ.get("HARDSIGHT_DATA")
    if not root:
        pytest.skip("HARDSIGHT_DATA is not set: the public data sets are not at hand")
    return Path(root)
