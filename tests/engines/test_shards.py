"""Shards: the same scores from every format and by any number of processes; what is missing is done, nothing twice."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from hardsight.claims import claim
from hardsight.engines import shards as engine
from hardsight.engines.shard_jobs import claim_of, plan
from hardsight.engines.shards import Scored, score_shards
from hardsight.files.parquet import MANIFEST_FILE
from hardsight.hardness import score
from hardsight.records import read_json

CLASSES, DIM, SIZES = 7, 12, (900, 40, 411)
SCORES = ("avh", "confidence", "norm", "angular_margin", "loss")
GENERATOR = torch.Generator().manual_seed(0)
WEIGHT, BIAS = torch.randn(CLASSES, DIM, generator=GENERATOR), torch.randn(CLASSES, generator=GENERATOR)
FEATURES = [torch.randn(size, DIM, generator=GENERATOR).half() for size in SIZES]
LABELS = [torch.randint(0, CLASSES, (size,), generator=GENERATOR) for size in SIZES]


def table(at: int, features: torch.Tensor | None = None, **more: Any) -> pa.Table:
    """Shard number `at` as a table; bfloat16 as Arrow can hold it."""
    values = FEATURES[at] if features is None else features
    coarse = values.dtype == torch.bfloat16
    flat = pa.array(
        values.view(torch.int16).numpy().view(np.uint16).reshape(-1) if coarse else values.numpy().reshape(-1)
    )
    column = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    field = pa.field("features", column.type, metadata={"dtype": "bfloat16"} if coarse else None)
    columns = {"label": pa.array(LABELS[at][: len(values)].numpy()), **more}
    fields = [field, *(pa.field(name, one.type) for name, one in columns.items())]
    return pa.Table.from_arrays([column, *columns.values()], schema=pa.schema(fields))


def write(folder: Path, kind: str = "parquet", dtype: torch.dtype = torch.float16) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for at, features in enumerate(FEATURES):
        path, held = folder / f"part-{at}.{kind.partition('-')[0]}", table(at, features.to(dtype))
        if kind == "parquet":
            pq.write_table(held, path, row_group_size=100)
        elif kind == "safetensors":
            save_file({"features": features.to(dtype), "label": LABELS[at]}, path)
        else:
            new = pa.ipc.new_stream if kind == "arrow-stream" else pa.ipc.new_file
            with pa.OSFile(str(path), "wb") as file, new(file, held.schema) as writer:
                writer.write_table(held, max_chunksize=77)
    return folder


def run(source: Path | str, output: Path, **options: Any) -> Scored:
    return score_shards(source, output, (WEIGHT, BIAS), options.pop("scores", SCORES), **options)


def written(folder: Path) -> dict[str, bytes]:
    """Every file of a folder of scores but the manifest, which names its source."""
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*.parquet"))}


def read(folder: Path) -> pa.Table:
    """The scores of all shards, in their order."""
    return pa.concat_tables(
        pq.read_table(folder / one["output"]) for one in read_json(folder / MANIFEST_FILE)["shards"]
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("shards") / "in")


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scores, made in one go by one process."""
    output = tmp_path_factory.mktemp("expected") / "out"
    assert run(source, output).made == len(SIZES)
    return output


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrow-stream", "safetensors"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_format_gives_the_scores_of_its_tensors(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    found = run(write(tmp_path / "in", kind, dtype), tmp_path / "out")
    features, labels = torch.cat(FEATURES).to(dtype), torch.cat(LABELS)
    scored = read(tmp_path / "out")
    assert scored["id"].to_pylist() == list(range(sum(SIZES)))
    assert scored["label"].to_pylist() == labels.tolist()
    predicted = (features.double() @ WEIGHT.double().T + BIAS).argmax(1)
    assert scored["predicted"].to_pylist() == predicted.tolist()
    assert found.agreeing == int((predicted == labels).sum())
    # Against the truth; a difference of angles is as fine as two angles of float32.
    for name, values in score(features.double(), WEIGHT.double(), labels, BIAS.double(), SCORES).items():
        np.testing.assert_allclose(scored[name].to_numpy(), values.numpy(), rtol=2e-6, atol=5e-7, err_msg=name)
    metadata = pq.read_schema(tmp_path / "out" / next(iter(written(tmp_path / "out")))).metadata
    assert (metadata[b"classes"], metadata[b"hardness against"]) == (b"7", b"given label")


def test_several_processes_write_the_same_bytes(source: Path, expected: Path, tmp_path: Path) -> None:
    assert run(source, tmp_path / "out", workers=2).made == len(SIZES)
    assert written(tmp_path / "out") == written(expected)
    assert (tmp_path / "out" / MANIFEST_FILE).read_bytes() == (expected / MANIFEST_FILE).read_bytes()
    assert not (tmp_path / "out" / ".claims").exists()


def test_a_second_run_does_what_is_missing(source: Path, expected: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out")
    kept = tmp_path / "out" / "part-0.parquet"
    before = kept.stat().st_mtime_ns
    (tmp_path / "out" / "part-1.parquet").unlink()
    assert run(source, tmp_path / "out").made == 1
    assert kept.stat().st_mtime_ns == before
    assert written(tmp_path / "out") == written(expected)


def test_ids_are_kept_and_need_not_be_numbers(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for at, size in enumerate(SIZES):
        names = pa.array([f"{at}/{one}.jpg" for one in range(size)])
        pq.write_table(table(at, id=names, caption=names), tmp_path / "in" / f"{at}.parquet")
    run(tmp_path / "in", tmp_path / "out")
    assert read(tmp_path / "out")["id"].to_pylist() == [
        f"{at}/{one}.jpg" for at in range(3) for one in range(SIZES[at])
    ]


def test_a_glob_an_address_and_a_file_system_of_ones_own(source: Path, expected: Path, tmp_path: Path) -> None:
    assert run(f"{source}/part-[01].parquet", tmp_path / "glob").shards == 2
    assert run(source.as_uri(), tmp_path / "uri").rows == sum(SIZES)
    inside = pafs.SubTreeFileSystem(str(source.parent), pafs.LocalFileSystem())
    run("in", tmp_path / "sub", filesystem=inside)
    for folder in ("uri", "sub"):
        assert written(tmp_path / folder) == written(expected)


@pytest.mark.parametrize("kind", ["arrow", "arrow-stream", "safetensors"])
def test_every_format_is_read_from_another_file_system(kind: str, expected: Path, tmp_path: Path) -> None:
    write(tmp_path / "in", kind)
    run("in", tmp_path / "out", filesystem=pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()))
    assert read(tmp_path / "out").equals(read(expected))


def test_samples_that_hold_nan_have_no_scores_and_change_no_other(source: Path, expected: Path, tmp_path: Path) -> None:
    write(tmp_path / "in")
    broken = FEATURES[0].clone()
    broken[3, 2], broken[17, 0] = float("nan"), float("inf")
    pq.write_table(table(0, broken), tmp_path / "in" / "part-0.parquet")
    assert run(tmp_path / "in", tmp_path / "out").unusable == 2
    found, whole = read(tmp_path / "out"), read(expected)
    for name in ("predicted", *SCORES):
        assert [found[name][at].as_py() for at in (3, 17)] == [None, None]
    others = pa.array([at for at in range(sum(SIZES)) if at not in (3, 17)])
    assert found.take(others).equals(whole.take(others))


def test_without_labels_against_the_prediction(source: Path, tmp_path: Path) -> None:
    found = run(source, tmp_path / "out", labelled=False)
    assert (found.agreeing, found.against) == (None, "predicted class")
    scored = read(tmp_path / "out")
    given = score(torch.cat(FEATURES), WEIGHT, torch.from_numpy(scored["predicted"].to_numpy().copy()), BIAS, ("avh",))
    np.testing.assert_allclose(scored["avh"].to_numpy(), given["avh"].numpy(), rtol=2e-6)


# ---------------------------------------------------------------------------------------------------------------------
# Bad input.


def rejected(match: str, source: Path | str, output: Path, head: torch.Tensor = WEIGHT, **options: Any) -> None:
    with pytest.raises((ValueError, OSError), match=match) as told:
        score_shards(source, output, (head, BIAS[: len(head)]), options.pop("scores", SCORES), **options)
    assert "\n" not in str(told.value)


def test_another_head_other_scores_and_a_folder_of_something_else(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out")
    rejected(f"{MANIFEST_FILE} is of another head", source, tmp_path / "out", WEIGHT + 1)
    rejected(f"{MANIFEST_FILE} is of another scores", source, tmp_path / "out", scores=("avh",))
    rejected(f"{MANIFEST_FILE} is of another hardness_against", source, tmp_path / "out", labelled=False)
    rejected("output must be another folder", source, source)
    rejected("output must be a folder of this machine", source, "s3://bucket/out")  # type: ignore[arg-type]
    (tmp_path / "other").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other" / "part-1.parquet")
    rejected("other/part-1.parquet must be scores of a shard", source, tmp_path / "other")
    assert len(written(tmp_path / "out")) == 3


def test_a_shard_that_differs_is_named(tmp_path: Path) -> None:
    write(tmp_path / "in")
    pq.write_table(table(1, torch.randn(5, DIM + 1)), tmp_path / "in" / "part-1.parquet")
    rejected(
        "shard part-1.parquet of .* must have the same columns as part-0.parquet: its dtype",
        tmp_path / "in",
        tmp_path / "o",
    )
    pq.write_table(table(1, torch.randn(5, DIM + 1).half()), tmp_path / "in" / "part-1.parquet")
    rejected("shard part-1.parquet .* its dim is 13, there it is 12", tmp_path / "in", tmp_path / "o")
    pq.write_table(table(1).drop_columns(["label"]), tmp_path / "in" / "part-1.parquet")
    rejected("shard part-1.parquet .* its label is None", tmp_path / "in", tmp_path / "o")
    (tmp_path / "in" / "part-1.parquet").write_bytes(b"PAR1 no")
    rejected("part-1.parquet is truncated or is not a Parquet file", tmp_path / "in", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_shards_of_another_dimension_than_the_head(source: Path, tmp_path: Path) -> None:
    rejected(
        "shard part-0.parquet .* must have the dim of the head, 11; it has 12", source, tmp_path / "o", WEIGHT[:, :11]
    )


def test_finished_shards_stay_when_a_later_one_is_bad(tmp_path: Path) -> None:
    write(tmp_path / "in")
    wrong = table(2).set_column(1, "label", pa.array(np.full(SIZES[2], 99)))
    pq.write_table(wrong, tmp_path / "in" / "part-2.parquet")
    for workers in (1, 2):
        rejected(
            r"shard part-2.parquet .*labels must lie in \[0, 7\)", tmp_path / "in", tmp_path / "out", workers=workers
        )
        assert set(written(tmp_path / "out")) == {"part-0.parquet", "part-1.parquet"}
    pq.write_table(table(2), tmp_path / "in" / "part-2.parquet")
    assert run(tmp_path / "in", tmp_path / "out").made == 1


def test_lists_that_differ_in_length_are_found_while_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for at, lists in enumerate(([[0.0] * DIM] * 3, [[0.0] * DIM, [0.0]])):
        pq.write_table(pa.table({"features": lists}), tmp_path / "in" / f"{at}.parquet")
    rejected("shard 1.parquet .*lists of one length", tmp_path / "in", tmp_path / "out")
    assert list(written(tmp_path / "out")) == ["0.parquet"]


def test_a_shard_that_grows_or_vanishes_is_named(tmp_path: Path) -> None:
    write(tmp_path / "in")
    run(tmp_path / "in", tmp_path / "out")
    path = tmp_path / "in" / "part-2.parquet"
    pq.write_table(pa.concat_tables([table(2), table(1)]), path)
    rejected("shard part-2.parquet .* has changed since it was scored, size", tmp_path / "in", tmp_path / "out")
    (tmp_path / "out" / "part-2.parquet").unlink()
    assert run(tmp_path / "in", tmp_path / "out").made == 1
    path.unlink()
    rejected("shard part-2.parquet is no longer in", tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("grows", [True, False])
def test_a_shard_that_changes_while_it_is_scored(grows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "in") / "part-1.parquet"
    job = plan(tmp_path / "in", tmp_path / "out", (WEIGHT, BIAS), SCORES)
    if grows:
        pq.write_table(pa.concat_tables([table(1), table(1)]), path)
    else:
        path.unlink()
    monkeypatch.setattr(engine.shard_jobs, "plan", lambda *_, **__: job)
    rejected(
        "shard part-1.parquet .*" + ("has changed meanwhile" if grows else "no longer there"), "", tmp_path / "out"
    )
    assert list(written(tmp_path / "out")) == ["part-0.parquet"]


def test_where_there_are_no_shards(tmp_path: Path) -> None:
    rejected("none that is there", tmp_path / "nothing", tmp_path / "out")
    rejected("must hold files that end in", tmp_path, tmp_path / "out")


@pytest.mark.parametrize("address", ["s3://b/x?endpoint_override=127.0.0.1:9&scheme=http&region=r", "nonsense://x"])
def test_a_bucket_that_does_not_answer(address: str, tmp_path: Path) -> None:
    start = time.monotonic()
    rejected(address.partition("?")[0], address, tmp_path / "out")
    assert time.monotonic() - start < 60


# ---------------------------------------------------------------------------------------------------------------------
# Sharing, and being killed.


def test_what_another_process_has_is_left_to_it_and_what_a_dead_one_had_is_taken(
    source: Path, expected: Path, tmp_path: Path
) -> None:
    job = plan(source, tmp_path / "out", (WEIGHT, BIAS), SCORES)
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom hardsight.claims import claim\n"
        "with claim(Path(sys.argv[1])) as mine:\n    print(mine, flush=True)\n    time.sleep(600)"
    )
    place = str(claim_of(job, job.shards[0]))
    with subprocess.Popen([sys.executable, "-c", code, place], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"

        def other_dies(_: float) -> None:
            # Asked for when nothing else is left to do.
            assert set(written(tmp_path / "out")) == {"part-1.parquet", "part-2.parquet"}
            other.kill()
            other.wait()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine.time, "sleep", other_dies)
            assert run(source, tmp_path / "out").made == 3
    assert written(tmp_path / "out") == written(expected)


def test_killed_at_random_points_no_row_is_lost_or_doubled(source: Path, expected: Path, tmp_path: Path) -> None:
    """HARDSIGHT_KILLS=50 kills owners and workers fifty times; `make test` does it a few times."""
    random_ = random.Random(0)
    code = (
        "import sys, torch\nfrom hardsight.engines.files import read_head\n"
        "from hardsight.engines.shards import score_shards\n"
        f"score_shards(sys.argv[1], sys.argv[2], sys.argv[3], {SCORES!r}, workers=2)"
    )
    save_file({"weight": WEIGHT, "bias": BIAS}, tmp_path / "head.safetensors")
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "out"), str(tmp_path / "head.safetensors")]
    for turn in range(int(os.environ.get("HARDSIGHT_KILLS", "2"))):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as owner:
            wanted, start = len(written(tmp_path / "out")), time.monotonic()
            # Somewhere between the beginning and the end: at the latest when a further shard is finished.
            delay = random_.uniform(0.0, 4.0)
            while (
                time.monotonic() - start < delay and len(written(tmp_path / "out")) == wanted and owner.poll() is None
            ):
                time.sleep(0.01)
            victims = [owner.pid] if turn % 2 else helpers_of(owner.pid) or [owner.pid]
            for victim in victims:
                os.kill(victim, 9)
            if not turn % 2 and victims != [owner.pid]:
                # Who is left takes over the shard of a killed worker.
                assert owner.wait(timeout=120) == 0
                assert written(tmp_path / "out") == written(expected)
        if written(tmp_path / "out").keys() == written(expected).keys():
            for one in random_.sample(sorted(written(tmp_path / "out")), 2):
                (tmp_path / "out" / one).unlink()
    run(source, tmp_path / "out")
    assert written(tmp_path / "out") == written(expected)
    assert not list((tmp_path / "out").glob(".*"))


def helpers_of(owner: int) -> list[int]:
    """The processes that an owner has started."""
    children = Path(f"/proc/{owner}/task/{owner}/children")
    return [int(one) for one in children.read_text().split()] if children.exists() else []


def test_a_claim_that_is_left_behind_a_finished_shard_goes(source: Path, tmp_path: Path) -> None:
    job = plan(source, tmp_path / "out", (WEIGHT, BIAS), SCORES)
    with claim(claim_of(job, job.shards[0])):
        pass
    (tmp_path / "out" / ".claims" / "left").write_text("?")
    os.utime(tmp_path / "out" / ".claims" / "left", (0, 0))
    run(source, tmp_path / "out")
    assert not (tmp_path / "out" / ".claims").exists()
