"""`Scorer`, the class for `map_batches` of Ray Data, for Daft and for loops of one's own; and shards scored on Ray.

Each actor reads a shard and sends back its scores, a few numbers per sample; the caller writes them, so that machines
need no common folder for the output. Ray starts a killed actor again, and gives it its shard again.
"""

import contextlib
import importlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from hardsight.claims import claim
from hardsight.engines.files import read_head
from hardsight.engines.rows import LABELS, first_of, rows_of_table, tensor_of
from hardsight.engines.shard_files import Shard
from hardsight.engines.shard_jobs import PAUSE, Job, ahead, claim_of, is_finished, rows_of, table_of, write_scores
from hardsight.engines.streaming import as_float32, score_fields
from hardsight.hardness.scoring import DEFAULT_SCORES, block_head, choose_scores, score_rows
from hardsight.validation import check_device, check_head, check_labels, check_matrix

# Seconds that a cluster has to answer.
_PATIENCE = 10


class Scorer:
    """Called with a batch, it gives the batch without its features, with `predicted` and a column for each score.

    A batch is a pyarrow Table or RecordBatch, or a dictionary of arrays, as `map_batches` of Ray Data, Daft and any
    loop of one's own have them. `head` is a file of weight and bias, or these tensors. `label` (or `labels`) is the
    column of classes; without it, or with `labelled=False`, hardness is measured against the predicted class. Samples
    whose features hold NaN or infinity get null in a Table, and NaN (-1 for `predicted`) in a dictionary. A sample's
    scores are the same to the bit in batches of any size.

    >>> scorer = Scorer((torch.eye(2), None), ("avh",))
    >>> scorer({"features": np.eye(2, dtype=np.float32), "label": np.array([0, 1])})["avh"].tolist()
    [0.0, 0.0]
    """

    def __init__(
        self,
        head: Path | str | tuple[Tensor, Tensor | None],
        scores: Sequence[str] = DEFAULT_SCORES,
        *,
        features: str = "features",
        labelled: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        self.chosen = choose_scores(scores)
        weight, bias = head if isinstance(head, tuple) else read_head(head)
        check_head(weight, bias)
        self.device = check_device(device)
        self.classes, self.dim = weight.shape
        self.head = block_head(weight.to(self.device), None if bias is None else bias.to(self.device))
        self.features, self.labelled = features, labelled
        self.fields = score_fields(self.chosen, self.classes)

    def score(self, features: Tensor, labels: Tensor | None) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """`predicted` and each score of every sample, and which samples have them."""
        if len(features):
            check_matrix("features", features, "[samples, dim]")
        if features.shape[1] != self.dim:
            raise ValueError(f"features must have the dim of the head, {self.dim}; got {features.shape[1]}")
        if labels is not None:
            check_labels(labels, len(features), self.classes)
            labels = labels.to(self.device)
        columns, usable = score_rows(features.to(self.device), self.head, labels, self.chosen)
        predicted = columns.pop("predicted").cpu().numpy()
        numbers = {name: as_float32(values) for name, values in columns.items()}
        return {"predicted": predicted, **numbers}, usable.cpu().numpy()

    def __call__(self, batch: Any) -> Any:
        """The batch without its features, with `predicted` and the scores."""
        if isinstance(batch, Mapping):
            return self._of_arrays(batch)
        if not isinstance(batch, pa.Table | pa.RecordBatch):
            raise TypeError(f"batch must be a pyarrow Table or a dictionary of arrays; got {type(batch).__name__}")
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        rows = rows_of_table(table, "the batch", self.features, labelled=self.labelled)
        for field, column in zip(self.fields, self.arrays(rows.features, rows.labels), strict=True):
            table = table.append_column(field, column)
        return table.drop_columns([self.features])

    def arrays(self, features: Tensor, labels: Tensor | None) -> list[pa.Array]:
        """The columns of `fields`: null where a sample has no scores."""
        columns, usable = self.score(features, labels)
        mask = None if usable.all() else ~usable
        return [pa.array(columns[field.name], field.type, mask=mask) for field in self.fields]

    def _of_arrays(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        if self.features not in batch:
            raise ValueError(f"the batch must have a column {self.features!r}; it has {', '.join(batch) or 'none'}")
        values = np.asarray(batch[self.features])
        if values.dtype == object:
            values = np.stack([np.asarray(one) for one in values]) if len(values) else np.zeros((0, self.dim), "f4")
        labels = None
        if self.labelled and (name := first_of(LABELS, list(batch))) is not None:
            labels = tensor_of(np.asarray(batch[name]))
        columns, usable = self.score(tensor_of(values), labels)
        for name, numbers in columns.items():
            numbers[~usable] = -1 if name == "predicted" else np.nan
        return {name: value for name, value in batch.items() if name != self.features} | columns


def scorer_of(job: Job) -> Scorer:
    """What scores the shards of a job."""
    return Scorer((job.weight, job.bias), job.scores, labelled=job.labelled, device=job.device)


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
        self.job, self.scorer = job, scorer_of(job)

    def scores_of(self, shard: Shard) -> pa.Table:
        with contextlib.closing(ahead(rows_of(self.job, shard), 2)) as read:
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
    if address not in (None, "auto", "local"):
        # Ray itself tries for minutes.
        host, _, port = str(address).rpartition("://")[2].rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"address must be HOST:PORT, ray://HOST:PORT or auto; got {address!r}")
        try:
            socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
        except OSError as error:
            raise ConnectionError(f"address must be a Ray cluster's; {address} does not answer: {error}") from None
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
