"""On Ray: the same bytes as in plain processes, also where an actor is killed; `Scorer` in `map_batches`.

Skipped where Ray is not installed: it is large, and no other test needs it (`pip install 'hardsight[ray]'`).
"""

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardsight.engines.ray import Scorer, ray_map
from hardsight.engines.statistics import open_score_shards, quantiles
from tests.engines.test_shards import BIAS, SCORES, SIZES, WEIGHT, expected, read, rejected, run, source, written

ray = pytest.importorskip("ray", reason="Ray is not installed")

__all__ = ["expected", "source"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """One cluster of two processors for all tests: a start takes seconds."""
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield ray
    ray.shutdown()


def test_the_same_bytes_and_nothing_is_done_again(cluster: Any, source: Path, expected: Path, tmp_path: Path) -> None:
    assert run(source, tmp_path / "out", engine="ray").made == len(SIZES)
    assert written(tmp_path / "out") == written(expected)
    (tmp_path / "out" / "part-1.parquet").unlink()
    assert run(source, tmp_path / "out", engine="ray", workers=1).made == 1
    assert written(tmp_path / "out") == written(expected)


def test_a_killed_actor_loses_no_row(cluster: Any, source: Path, expected: Path, tmp_path: Path) -> None:
    """HARDSIGHT_KILLS=10 kills actors ten times, at random points from their start on."""
    killed: list[int] = []
    wanted = int(os.environ.get("HARDSIGHT_KILLS", "1"))
    done, chance = threading.Event(), random.Random(0)

    def kill() -> None:
        while not done.wait(0.05) and len(killed) < wanted:
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    found = b"ray::_Actor" in process.read_bytes() and int(process.parent.name) not in killed
                except OSError:
                    continue
                if found and not done.wait(chance.uniform(0.0, 0.5) if killed else 0.0):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(process.parent.name), signal.SIGKILL)
                        killed.append(int(process.parent.name))

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        while True:
            run(source, tmp_path / "out", engine="ray", workers=1)
            if len(killed) >= wanted:
                break
            assert written(tmp_path / "out") == written(expected)
            for one in written(tmp_path / "out"):
                (tmp_path / "out" / one).unlink()
    finally:
        done.set()
        thread.join()
    assert len(killed) == wanted
    assert written(tmp_path / "out") == written(expected)


def test_a_bad_shard_is_named(cluster: Any, source: Path, tmp_path: Path) -> None:
    rejected("shard part-[0-2].parquet .*labels must lie in", source, tmp_path / "o", WEIGHT[:2], engine="ray")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # Ray's own, among themselves
def test_map_batches(cluster: Any, source: Path, expected: Path) -> None:
    import ray.data

    found = ray.data.read_parquet(str(source)).map_batches(
        Scorer, fn_constructor_args=((WEIGHT, BIAS), SCORES), batch_size=130, batch_format="pyarrow", concurrency=1
    )
    whole = sorted(zip(*(read(expected)[name].to_pylist() for name in ("label", *SCORES)), strict=True))
    assert sorted(tuple(row[name] for name in ("label", *SCORES)) for row in found.take_all()) == whole


def test_passes_over_shards_by_tasks(cluster: Any, expected: Path) -> None:
    here, there = open_score_shards(expected), open_score_shards(expected, ray_map)
    np.testing.assert_array_equal(quantiles(there, "avh", (0.1, 0.5)), quantiles(here, "avh", (0.1, 0.5)))


def test_a_cluster_that_does_not_answer(source: Path, tmp_path: Path) -> None:
    ray.shutdown()
    rejected("address must be a Ray cluster's; 127.0.0.1:9 does", source, tmp_path, engine="ray", address="127.0.0.1:9")
    rejected("address must be HOST:PORT", source, tmp_path, engine="ray", address="nonsense")
