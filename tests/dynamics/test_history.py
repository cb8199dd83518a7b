"""The history on disk: one file an epoch, from which the recorder is rebuilt to the bit; interruptions are noticed."""

import math

import pyarrow.parquet as pq
import pytest
import torch

from hardsight.dynamics import Recorder


def same(first: Recorder, second: Recorder) -> bool:
    ours, theirs = first.aggregates.tensors, second.aggregates.tensors
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def go_on(run, recorder, epochs):
    for epoch in epochs:
        run.feed(recorder, epoch, run.shown(epoch))
        recorder.end_epoch()
    return recorder


def test_a_file_an_epoch_holds_what_the_slow_loop_says(run, tmp_path):
    go_on(run, Recorder(23, history=tmp_path / "h"), range(12))
    assert sorted(path.name for path in (tmp_path / "h").iterdir()) == [f"epoch-{e:05d}.parquet" for e in range(12)]
    table = pq.read_table(tmp_path / "h" / "epoch-00004.parquet")
    assert table.column("id").to_pylist() == run.shown(4).tolist()
    place = table.column("id").to_pylist().index(8)
    curves = run.curves(8)
    for name in ("margin", "loss", "confidence", "el2n", "correct"):
        assert table.column(name)[place].as_py() == pytest.approx(curves[name][4], rel=1e-5, abs=1e-6)


def test_a_recorder_rebuilt_from_its_history_is_the_same(run, tmp_path):
    run.logits[6, 7, 2] = math.nan
    recorder = go_on(run, Recorder(23, history=tmp_path), range(12))
    recorder.begin_second_split()
    go_on(run, recorder, range(3))
    rebuilt = Recorder.from_history(tmp_path)
    assert same(recorder, rebuilt)
    assert (rebuilt.phase, rebuilt.epoch) == (1, 3)


def test_samples_in_blocks_are_the_same_in_the_aggregates_and_in_the_history(run, tmp_path, monkeypatch):
    whole = go_on(run, Recorder(23), range(12))
    monkeypatch.setattr("hardsight.dynamics.intake._BLOCK", 7)
    recorder = go_on(run, Recorder(23, history=tmp_path), range(12))
    assert same(whole, recorder)
    assert same(whole, Recorder.from_history(tmp_path))
    assert pq.read_table(tmp_path / "epoch-00004.parquet").column("id").to_pylist() == run.shown(4).tolist()


def test_an_interrupted_run_goes_on_from_its_history(run, tmp_path):
    whole = go_on(run, Recorder(23), range(12))
    recorder = go_on(run, Recorder(23, history=tmp_path), range(7))
    run.feed(recorder, 7, run.shown(7)[:5])  # the eighth epoch never ends
    (tmp_path / ".epoch-00007-abc.parquet").write_bytes(b"half a file")
    resumed = Recorder.from_history(tmp_path)
    assert resumed.epoch == 7
    assert not list(tmp_path.glob(".epoch*"))
    assert same(whole, go_on(run, resumed, range(7, 12)))
    assert len(list(tmp_path.iterdir())) == 12


def test_a_history_ahead_of_the_state_is_cut_back(run, tmp_path):
    recorder = go_on(run, Recorder(23, history=tmp_path), range(5))
    state = recorder.state_dict()
    go_on(run, recorder, range(5, 8))  # recorded, but no state was saved after it
    resumed = Recorder(23, history=tmp_path)
    resumed.load_state_dict(state)
    assert len(list(tmp_path.iterdir())) == 5
    go_on(run, resumed, range(5, 12))
    assert same(go_on(run, Recorder(23), range(12)), resumed)


def test_a_history_behind_the_state_is_refused(run, tmp_path):
    recorder = go_on(run, Recorder(23, history=tmp_path), range(5))
    (tmp_path / "epoch-00004.parquet").unlink()
    with pytest.raises(ValueError, match=r"history must hold the 5 epochs recorded so far; .* holds 4"):
        Recorder(23, history=tmp_path).load_state_dict(recorder.state_dict())


def test_a_gap_a_broken_file_and_an_old_history_are_refused(run, tmp_path):
    go_on(run, Recorder(23, history=tmp_path), range(5))
    with pytest.raises(ValueError, match=r"history must be a new folder, .* holds 5 epochs already"):
        go_on(run, Recorder(23, history=tmp_path), range(1))
    broken = tmp_path / "epoch-00003.parquet"
    broken.write_bytes(broken.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"history must be whole; .*epoch-00003.parquet cannot be read"):
        Recorder.from_history(tmp_path)
    broken.unlink()
    with pytest.raises(ValueError, match=r"epoch-00003.parquet is missing in .* while epoch-00004.parquet is there"):
        Recorder.from_history(tmp_path)
    with pytest.raises(ValueError, match="history must hold at least one epoch"):
        Recorder.from_history(tmp_path / "nothing")


def test_an_epoch_of_another_recorder_is_refused(run, tmp_path):
    go_on(run, Recorder(23, history=tmp_path / "ours"), range(3))
    go_on(run, Recorder(23, scores=("aum",), history=tmp_path / "theirs"), range(3))
    (tmp_path / "theirs" / "epoch-00001.parquet").replace(tmp_path / "ours" / "epoch-00001.parquet")
    with pytest.raises(ValueError, match="history must be of one recorder; epoch 1 was written by another one"):
        Recorder.from_history(tmp_path / "ours")


def test_files_of_others_are_no_part_of_a_history(run, tmp_path):
    recorder = go_on(run, Recorder(23, history=tmp_path), range(3))
    for name in ("epoch-00001-copy.parquet", "epoch-1.parquet", "epoch-0x.parquet"):
        (tmp_path / name).write_text("not ours")
    assert same(Recorder.from_history(tmp_path), recorder)


def test_all_epochs_go_into_one_file(run, tmp_path):
    recorder = go_on(run, Recorder(23, history=tmp_path / "h"), range(12))
    recorder.write_history(tmp_path / "dynamics.parquet")
    table = pq.read_table(tmp_path / "dynamics.parquet")
    assert table.column_names[:3] == ["phase", "epoch", "id"]
    assert len(table) == 12 * 23 - len(run.absent)
    with pytest.raises(ValueError, match="history must have been asked for"):
        Recorder(23).write_history(tmp_path / "no.parquet")
