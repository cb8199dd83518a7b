"""The history on disk: one file an epoch, from which the recorder is rebuilt to the bit; interruptions are noticed."""

import math
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from hardsight import records
from hardsight.dynamics import Recorder
from hardsight.dynamics.detector import confidence_curves
from hardsight.dynamics.history import History


def same(first: Recorder, second: Recorder) -> bool:
    ours, theirs = first.aggregates, second.aggregates
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
    monkeypatch.setattr("hardsight.dynamics.recorded_epochs._BLOCK", 7)
    recorder = go_on(run, Recorder(23, history=tmp_path), range(12))
    assert same(whole, recorder)
    assert same(whole, Recorder.from_history(tmp_path))
    assert pq.read_table(tmp_path / "epoch-00004.parquet").column("id").to_pylist() == run.shown(4).tolist()


def test_an_interrupted_run_goes_on_from_its_history(run, tmp_path):
    whole = go_on(run, Recorder(23), range(12))
    recorder = go_on(run, Recorder(23, history=tmp_path), range(7))
    run.feed(recorder, 7, run.shown(7)[:5])  # the eighth epoch never ends
    killed = records.tag().rpartition("-")[0] + "-1"
    (tmp_path / f".epoch-00007.draft-{killed}-0123abcd.parquet").write_bytes(b"half a file")
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
    with pytest.raises(ValueError, match=r"history.* 5 epochs.* holds 4"):
        Recorder(23, history=tmp_path).load_state_dict(recorder.state_dict())


def test_a_gap_a_broken_file_and_an_old_history_are_refused(run, tmp_path):
    go_on(run, Recorder(23, history=tmp_path), range(5))
    with pytest.raises(ValueError, match=r"history.*new folder.*load_state_dict.* 5 epochs"):
        go_on(run, Recorder(23, history=tmp_path), range(1))
    broken = tmp_path / "epoch-00003.parquet"
    broken.write_bytes(broken.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"history.*epoch-00003\.parquet cannot be read"):
        Recorder.from_history(tmp_path)
    broken.unlink()
    with pytest.raises(ValueError, match=r"epoch-00003\.parquet is missing.*epoch-00004\.parquet"):
        Recorder.from_history(tmp_path)
    with pytest.raises(ValueError, match=r"history.*at least one"):
        Recorder.from_history(tmp_path / "nothing")


def test_an_epoch_of_another_recorder_is_refused(run, tmp_path):
    go_on(run, Recorder(23, history=tmp_path / "ours"), range(3))
    go_on(run, Recorder(23, scores=("aum",), history=tmp_path / "theirs"), range(3))
    (tmp_path / "theirs" / "epoch-00001.parquet").replace(tmp_path / "ours" / "epoch-00001.parquet")
    with pytest.raises(ValueError, match=r"history.*one recorder.*epoch 1 "):
        Recorder.from_history(tmp_path / "ours")


def rewritten(path, change):
    """The file of an epoch with its table changed, all else alike."""
    table = pq.read_table(path)
    changed = change(table)
    pq.write_table(changed.replace_schema_metadata(changed.schema.metadata or table.schema.metadata), path)


def with_column(name, make):
    """A change of one column: its values made anew by `make(list of values)`."""

    def change(table):
        return table.set_column(table.column_names.index(name), name, make(table.column(name).to_pylist()))

    return change


# A column, what it holds instead, and what is said of it.
FOREIGN = {
    "words": ("loss", lambda old: pa.array([f"a{one}" for one in old]), "Failed to parse"),
    "lists": ("el2n", lambda old: pa.array([[one] for one in old]), "Unsupported cast"),
    "structs": ("margin", lambda old: pa.array([{"a": one} for one in old]), "Unsupported cast"),
    "nulls alone": ("loss", lambda old: pa.nulls(len(old)), "loss has gaps"),
    "nulls": ("label", lambda old: pa.array([None, None, *old[2:]]), "label has gaps"),
    "fractions": ("seen", lambda old: pa.array([one + 0.5 for one in old]), "truncated"),
    "too large": ("label", lambda old: pa.array([2**40, *old[1:]]), "not in range"),
    "ids without order": ("id", lambda old: pa.array(old[::-1]), "its ids do not"),
    "ids twice": ("id", lambda old: pa.array([old[0], *old[:-1]]), "its ids do not"),
    "ids beyond": ("id", lambda old: pa.array([*old[:-1], 23]), "its ids do not"),
    "ids below": ("id", lambda old: pa.array([-1, *old[1:]]), "its ids do not"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "make", "sentence"), FOREIGN.values(), ids=FOREIGN)
def test_columns_of_another_type_are_named(run, tmp_path, name, make, sentence):
    """Whoever wrote the file, it is one sentence: the column, the file, what must be there and what is."""
    go_on(run, Recorder(23, history=tmp_path), range(3))
    path = tmp_path / "epoch-00001.parquet"
    rewritten(path, with_column(name, make))
    for read in (Recorder.from_history, confidence_curves, lambda folder: History(folder).merge_into(folder / "all")):
        with pytest.raises(
            ValueError, match=f"^{re.escape(str(path))} [^\n]* 0 to 22: [^\n]*{sentence}[^\n]*$"
        ) as told:
            read(tmp_path)
        assert told.value.__cause__ is None
        assert told.value.__suppress_context__ or told.value.__context__ is None


def test_a_column_that_is_missing_is_named(run, tmp_path):
    go_on(run, Recorder(23, history=tmp_path), range(3))
    path = tmp_path / "epoch-00001.parquet"
    rewritten(path, lambda table: table.drop_columns(["el2n"]))
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} .*el2n.* does not exist"):
        Recorder.from_history(tmp_path)


def test_numbers_of_another_width_are_the_same_numbers(run, tmp_path):
    recorder = go_on(run, Recorder(23, history=tmp_path), range(3))

    def change(table):
        widths = {
            "id": pa.uint8(),
            "label": pa.int64(),
            "seen": pa.uint16(),
            "loss": pa.float64(),
            "flagged": pa.int8(),
        }
        for name, width in widths.items():
            table = table.set_column(table.column_names.index(name), name, table[name].cast(width))
        # Columns in another order, and one that nobody asked for.
        return table.select(table.column_names[::-1]).append_column("remark", pa.array(["x"] * len(table)))

    rewritten(tmp_path / "epoch-00001.parquet", change)
    rebuilt = Recorder.from_history(tmp_path)
    assert same(recorder, rebuilt)
    rebuilt.write_history(tmp_path / "all.parquet")
    assert pq.read_table(tmp_path / "all.parquet").column_names[:4] == ["phase", "epoch", "id", "label"]


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"num_samples": "23", "num_classes": 5, "measures": ["loss"]}',
        b'{"num_samples": 23, "num_classes": 5, "measures": "loss"}',
        b'{"num_samples": 23, "num_classes": 5, "measures": [3]}',
        b'{"num_samples": 0, "num_classes": 5, "measures": ["loss"]}',
    ],
)
def test_a_file_that_says_nothing_of_its_recorder_is_refused(run, tmp_path, metadata):
    go_on(run, Recorder(23, history=tmp_path), range(1))
    path = tmp_path / "epoch-00000.parquet"
    rewritten(
        path,
        lambda table: table.replace_schema_metadata({b"hardsight.dynamics": metadata} if metadata else {b"a": b"b"}),
    )
    with pytest.raises(ValueError, match=r"^history.*epoch-00000\.parquet cannot be read"):
        Recorder.from_history(tmp_path)


def test_a_measure_of_another_version_is_named(run, tmp_path):
    go_on(run, Recorder(23, history=tmp_path), range(1))
    path = tmp_path / "epoch-00000.parquet"
    saved = b'{"num_samples": 23, "num_classes": 5, "measures": ["loss", "charm"]}'
    rewritten(path, lambda table: table.replace_schema_metadata({b"hardsight.dynamics": saved}))
    with pytest.raises(ValueError, match=r"^history.*epoch-00000\.parquet cannot be read"):
        Recorder.from_history(tmp_path)


def test_epochs_of_two_recorders_are_not_put_into_one_table(run, tmp_path):
    go_on(run, Recorder(23, history=tmp_path / "ours"), range(3))
    go_on(run, Recorder(23, scores=("aum",), history=tmp_path / "theirs"), range(3))
    (tmp_path / "theirs" / "epoch-00001.parquet").replace(tmp_path / "ours" / "epoch-00001.parquet")
    for read in (confidence_curves, lambda folder: History(folder).merge_into(tmp_path / "all.parquet")):
        with pytest.raises(ValueError, match=r"history.*one recorder.*epoch 1 "):
            read(tmp_path / "ours")
    assert not (tmp_path / "all.parquet").exists()


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
    with pytest.raises(ValueError, match=r"history.*history=None"):
        Recorder(23).write_history(tmp_path / "no.parquet")
