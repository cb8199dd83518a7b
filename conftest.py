"""What the tests of the library and of the studies share: the public data sets, two processes, and a browser."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jaxtyping
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def pytest_configure() -> None:
    """Listen to SIGINT, also where a shell that started the tests in the background has it ignored by all children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `make quick` leaves out: the files that take longest, listed in tests/slow.txt."""
    slow = {config.rootpath / line for line in (config.rootpath / "tests" / "slow.txt").read_text().split()}
    for item in items:
        if item.path in slow:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the public data sets, in their public layouts."""
    root = os.environ.get("HARDSIGHT_DATA")
    if not root:
        pytest.skip("HARDSIGHT_DATA is not set: the public data sets are not at hand")
    return Path(root)


@pytest.fixture
def untyped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks of shapes: torch.compile would trace them too, and then they fail."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """A real Chromium: `page = browser.new_page()`, then its `goto`, `evaluate`, `keyboard`, `click`, `screenshot`.

    Once for each module: while it is open an event loop runs in this thread, where other tests may want their own.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("there is no Chromium: apt install chromium")
    with playwright.sync_playwright() as driver:
        # As root, in a container, Chromium's own sandbox does not start.
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield opened
        opened.close()


# A thread of torch's process groups may abort a process that has done its work, while the interpreter is taken down.
_LEAVE = "\nimport os\nsys.stdout.flush()\nos._exit(0)\n"


@pytest.fixture(scope="session")
def in_processes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], list[dict[str, Any]]]:
    """Run a script in processes, each given its rank and a rendezvous file; the JSON that each prints last."""

    def run(source: str, count: int) -> list[dict[str, Any]]:
        folder = tmp_path_factory.mktemp("gloo")
        script, rendezvous = folder / "step.py", folder / "rendezvous"
        script.write_text(source + _LEAVE)
        started = [
            subprocess.Popen(
                [sys.executable, str(script), str(rank), str(rendezvous)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]
        finished = [process.communicate(timeout=300) for process in started]
        for process, (_, errors) in zip(started, finished, strict=True):
            assert process.returncode == 0, errors
        return [json.loads(output.splitlines()[-1]) for output, _ in finished]

    return run


@pytest.fixture(scope="session")
def in_two_processes(in_processes: Callable[[str, int], list[dict[str, Any]]]) -> Callable[[str], list[dict[str, Any]]]:
    """The same in two processes."""
    return lambda source: in_processes(source, 2)
