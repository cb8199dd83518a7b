"""A sweep computes each missing cell once, from any number of processes, and takes over what a dead one left."""

import collections
import contextlib
import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hardsight import claims, records, training
from hardsight.training import sweeps
from hardsight.training.sweeps import Run, grid, missing, run_sweep

BASE = {
    "epochs": 1,
    "data": {"name": "digits", "limit": 128, "batch_size": 32},
    "model": {"name": "digits_cnn"},
    "noise": {"kind": "symmetric", "rate": 0.2},
    "loss": {"name": "gradient_rescaling"},
}


def finish(mine):
    for _, place in mine:
        records.write_json(place / "run.json", {"status": "finished"})


def test_running_again_computes_only_what_is_missing(tmp_path):
    cells = grid(rate=[0.2, 0.4], seed=[0, 1])
    assert run_sweep(tmp_path, cells[:1], finish) == cells[:1]
    assert run_sweep(tmp_path, cells, finish) == cells[1:]
    assert run_sweep(tmp_path, cells, finish) == []
    assert missing(tmp_path, cells) == []
    assert list((tmp_path / ".claims").iterdir()) == []


def test_unfinished_and_failed_cells(tmp_path):
    cells = grid(seed=[0, 1, 2])
    for cell, status in zip(cells, ("running", "failed", "finished"), strict=True):
        records.write_json(tmp_path / cell.name / "run.json", {"status": status})
    assert missing(tmp_path, cells) == cells[:1]
    assert missing(tmp_path, cells, retry_failed=True) == cells[:2]


def test_a_cell_that_another_finished_before_the_claim_is_left_alone(tmp_path, monkeypatch):
    """Between the first look and the claim there is time: whoever holds the claim looks again."""
    cells, given = grid(seed=[0, 1]), []

    @contextlib.contextmanager
    def slow_claim(path):
        if path.stem == "seed=0":
            records.write_json(tmp_path / "seed=0" / "run.json", {"status": "finished", "by": "another"})
        with claims.claim(path) as owned:
            yield owned

    def run(mine):
        given.extend(cell.name for cell, _ in mine)
        finish(mine)

    monkeypatch.setattr(sweeps, "claim", slow_claim)
    assert run_sweep(tmp_path, cells, run) == cells[1:]
    assert given == ["seed=1"]
    assert json.loads((tmp_path / "seed=0" / "run.json").read_text())["by"] == "another"


def test_a_failed_cell_is_computed_again_where_that_is_asked(tmp_path):
    cells = grid(seed=[0])
    records.write_json(tmp_path / cells[0].name / "run.json", {"status": "failed"})
    assert run_sweep(tmp_path, cells, finish) == []
    assert run_sweep(tmp_path, cells, finish, retry_failed=True) == cells


def test_values_reach_the_configuration_as_they_are(tmp_path):
    """Also those that TOML cannot write: nothing at all, and tables."""
    cells = grid(clip=[None, 2.0], loss=[{"name": "gce", "options": {"q": 0.5}}])
    made = [sweeps._with_settings(BASE, cell, tmp_path) for cell in cells]
    assert [config.clip for config in made] == [None, 2.0]
    assert made[0].loss.options == {"q": 0.5}
    assert BASE["loss"] == {"name": "gradient_rescaling"}


def test_cells_of_another_configuration_are_refused(tmp_path):
    cells = grid(seed=[0])
    assert training.sweep(BASE, tmp_path, cells, progress=False) == cells
    with pytest.raises(ValueError, match=r"seed=0 holds a run with epochs = 1; got 2"):
        training.sweep(BASE | {"epochs": 2}, tmp_path, cells, progress=False)


def test_many_processes_and_a_killed_one(tmp_path):
    script = Path(__file__).with_name("sweep_workers.py")
    folder = tmp_path / "sweep"
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    assert codes[2:] == [0, 0, 0]
    lines = [line.split(maxsplit=2) for line in (folder / "log").read_text().splitlines()]
    worked = collections.Counter(cell for _, what, cell in lines if what == "works")
    cells = grid(a=[1, 2, 3, 4], seed=[0, 1, 2])
    assert worked == {cell.name: 1 for cell in cells}, "every cell once, none twice"
    killed = [cell for _, what, cell in lines if what == "dies"]
    assert len(killed) == codes.count(-9) >= 1
    assert missing(folder, cells) == []


def test_what_a_killed_owner_left_is_said_and_its_claims_go(tmp_path):
    cells, said = grid(seed=[0, 1, 2]), []
    for cell, status in zip(cells, ("running", "finished", "interrupted"), strict=True):
        records.write_json(tmp_path / cell.name / "run.json", {"status": status})
    dead = records.tag().rpartition("-")[0] + "-earlier"
    # Killed after its work was done, an owner left both of its claims.
    left = [tmp_path / ".claims" / f"{cells[1].name}.json", tmp_path / cells[1].name / ".training"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text(dead)
    assert run_sweep(tmp_path, cells, finish, say=said.append) == [cells[0], cells[2]]
    assert len(said) == 1
    assert cells[0].name in said[0]
    assert not any(path.exists() for path in left)


def test_a_claim_belongs_to_one(tmp_path):
    path = tmp_path / "claim"
    with claims.claim(path) as first:
        assert first
        with claims.claim(path) as second:
            assert not second
        assert path.exists(), "who was refused must not remove the owner's claim"
    assert not path.exists()


def test_claims_of_the_dead_are_taken_over(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    host, pid, started = records.tag().split("-")
    cases = {
        "dead here": (f"{host}-{ended.pid}-{started}", 0, True),
        "alive here, silent": (records.tag(), 10_000, False),
        "number given to another": (f"{host}-{pid}-earlier", 0, True),
        "alive elsewhere": ("elsewhere-1-1", 0, False),
        "silent elsewhere": ("elsewhere-1-1", 10_000, True),
    }
    for name, (owner, age, taken) in cases.items():
        path = tmp_path / name
        path.write_text(owner)
        os.utime(path, (time.time() - age,) * 2)
        with claims.claim(path) as owned:
            assert owned is taken, name
        assert path.exists() is not taken, name
    for broken in ("{", "null", "", host, f"{host}-x-{started}"):
        (tmp_path / "broken").write_text(broken)
        with claims.claim(tmp_path / "broken") as owned:
            assert owned, broken


def test_an_owner_shows_that_it_lives(tmp_path):
    path = tmp_path / "claim"
    with claims.claim(path, heartbeat=0.01):
        os.utime(path, (0, 0))
        deadline = time.time() + 10
        while path.stat().st_mtime < 1 and time.time() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mtime > 1


def test_an_owner_that_was_taken_for_dead_leaves_the_claim_to_its_successor(tmp_path):
    path, successor = tmp_path / "claim", tmp_path / "successor"
    with claims.claim(path, heartbeat=0.005):
        successor.write_text("elsewhere-1-1")
        os.utime(successor, (0, 0))
        successor.replace(path)
        time.sleep(0.1)
        assert path.stat().st_mtime == 0, "only its owner may say that it lives"
    assert path.exists()


def test_a_sweep_trains_each_cell_once(tmp_path):
    cells = grid(loss__options__beta=[2.0, 6.0], seed=[0, 1])
    assert training.sweep(BASE, tmp_path, cells, progress=False) == cells
    for cell in cells:
        record = json.loads((tmp_path / cell.name / "run.json").read_text())
        assert record["status"] == "finished"
        assert record["config"]["loss"]["options"]["beta"] == cell.settings["loss.options.beta"]
    assert training.sweep(BASE, tmp_path, cells, progress=False) == []


def test_a_failing_cell_is_recorded_and_the_sweep_goes_on(tmp_path):
    cells = grid(optimizer__lr=[1e30, 0.01])
    assert training.sweep(BASE | {"epochs": 2}, tmp_path, cells, progress=False) == cells
    runs = {run["name"]: run for run in training.list_runs(tmp_path)}
    assert runs[cells[0].name]["status"] == "failed"
    assert "not a finite number" in runs[cells[0].name]["error"]
    assert runs[cells[1].name]["status"] == "finished"


def test_a_cell_whose_disk_was_full_is_tried_again(tmp_path, monkeypatch):
    cells = grid(seed=[0])

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(training.record.RunRecord, "write_epochs", full)
    with pytest.raises(OSError, match="No space left"):
        training.sweep(BASE, tmp_path, cells, progress=False)
    assert training.list_runs(tmp_path)[0]["status"] == "failed"
    monkeypatch.undo()
    assert training.sweep(BASE, tmp_path, cells, progress=False) == cells
    assert json.loads((tmp_path / cells[0].name / "run.json").read_text())["status"] == "finished"
    assert "retry" not in json.loads((tmp_path / cells[0].name / "run.json").read_text())


def test_processes_that_were_joined_are_refused(tmp_path, monkeypatch):
    """Each would take a cell of its own, and then average its gradients with those of another."""
    monkeypatch.setattr(sweeps, "rank_and_count", lambda: (0, 2))
    with pytest.raises(ValueError, match="a sweep's processes must be started one by one; got 2 that were joined"):
        training.sweep(BASE, tmp_path, grid(seed=[0]), progress=False)


def test_bad_grids_are_refused(tmp_path):
    with pytest.raises(ValueError, match="seed must be a list of values"):
        grid(seed=[])
    with pytest.raises(ValueError, match="runs must differ"):
        run_sweep(tmp_path, [Run({"a": 1}), Run({"a": 1})], finish)
    with pytest.raises(ValueError, match=r"got 'momentun', did you mean 'momentum'"):
        training.sweep(BASE, tmp_path, grid(optimizer__momentun=[0.1]), progress=False)
    with pytest.raises(ValueError, match="at_once must be at least 1"):
        run_sweep(tmp_path, grid(a=[1]), finish, at_once=0)
