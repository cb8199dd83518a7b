"""Shards scored on a Ray cluster; `Scorer` is the class for `map_batches`, there as in Daft and in plain Python.

Each actor reads a shard and sends back its scores, a few numbers per sample; the caller writes them, so that machines
need no common folder for the output. Ray starts a killed actor again, and gives it its shard again.
"""

import contextlib
import importlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import torch

from hardsight.claims import claim
from hardsight.engines.scorer import Scorer as Scorer
from hardsight.engines.shard_files import Shard
from hardsight.engines.shard_jobs import Job, is_finished
from hardsight.engines.shards import PAUSE, ahead, at_once, claim_of, rows_of, table_of, write_scores

# Seconds that a cluster has to answer.
_PATIENCE = 10


def score_on_ray(job: Job, workers: int | None, address: str | None, step: Callable[[int], None]) -> None:
    """Score what is missing by `workers` actors; left out, as many as the cluster has processors, or GPUs for cuda."""
    with _cluster(address) as ray, contextlib.ExitStack() as claims:
        kind = "GPU" if job.device.startswith("cuda") else "CPU"
        waiting = [shard for shard in job.shards if not is_finished(job, shard)]
        count = min(workers or int(ray.cluster_resources().get(kind, 1)), len(waiting))
        options = {"num_cpus": 1, "num_gpus": int(kind == "GPU"), "max_restarts": -1, "max_task_retries": -1}
        shared = ray.put(job)
        # Each has a further shard to go on with while the scores of one are written.
        actors = [ray.remote(**options)(_Actor).remote(shared) for _ in range(count)] * 2
        running: dict[Any, tuple[Shard, Any, contextlib.ExitStack]] = {}
        while waiting or running:
            for shard in list(waiting):
                if not actors:
                    break
                held = claims.enter_context(contextlib.ExitStack())
                mine = held.enter_context(claim(claim_of(job, shard)))
                if is_finished(job, shard):
                    waiting.remove(shard)
                    step(1)
                elif mine:
                    waiting.remove(shard)
                    actor = actors.pop()
                    running[actor.scores_of.remote(shard)] = (shard, actor, held)
                    continue
                held.close()
            if not running:
                # All that is left is being scored by other processes.
                time.sleep(PAUSE)
                continue
            for found in ray.wait(list(running), timeout=PAUSE)[0]:
                shard, actor, held = running.pop(found)
                with held:
                    write_scores(job, shard, [_result(ray, found)])
                actors.append(actor)
                step(1)


def ray_map(function: Callable[[Any], Any], items: Sequence[Any], address: str | None = None) -> list[Any]:
    """What `map` gives, by tasks on the cluster: the passes of `hardsight.engines.statistics` over shards there."""
    with _cluster(address) as ray:
        task = ray.remote(num_cpus=1, max_retries=-1)(lambda one: function(one))
        return [_result(ray, found) for found in [task.remote(one) for one in items]]


class _Actor:
    """What works on the cluster; the head is prepared once."""

    def __init__(self, job: Job) -> None:
        torch.set_num_threads(1)
        self.job = job
        self.scorer = Scorer((job.weight, job.bias), job.scores, labelled=job.labelled, device=job.device)

    def scores_of(self, shard: Shard) -> pa.Table:
        with contextlib.closing(ahead(rows_of(self.job, shard, at_once(self.scorer)), 2)) as read:
            return pa.concat_tables([table_of(self.job, shard, self.scorer, rows) for rows in read])


def _result(ray: Any, found: Any) -> Any:
    try:
        return ray.get(found)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise OSError(f"the Ray cluster has lost what worked on a shard: {str(error).splitlines()[0]}") from None


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Ray, connected to the cluster, or to one of this machine; a connection of the caller's is used, and kept."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(
            f"engine=\"ray\" needs Ray, which does not import ({error}): pip install 'ray[data]' aiohttp"
        ) from None
    if ray.is_initialized():
        yield ray
        return
    _check_reachable(address)
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        ray.init(address=address, **quiet) if address else ray.init(include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise ConnectionError(f"address must be that of a Ray cluster; {address} is none: {said}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Ray itself tries for minutes."""
    if address in (None, "auto", "local"):
        return
    host, _, port = str(address).rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"address must be HOST:PORT, ray://HOST:PORT or auto; got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise ConnectionError(f"address must be that of a Ray cluster; {address} does not answer: {error}") from None
