"""The audit's files: what is read, what is written, and that applying an edited list gives the labels it says."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hardsight as hs
from hardsight.cleaning.applying import apply_to
from hardsight.cleaning.reading import read_samples
from hardsight.cleaning.sources import output_of


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    table = pa.table(
        {
            "id": [4, 5, 6, 7],
            "label": [0, 1, 1, 0],
            "predicted": [0, 0, 1, 1],
            "avh": [0.1, 0.9, 0.2, 0.6],
            "path": ["a.jpg", "b.jpg", "=c.jpg", "d.jpg"],
        }
    ).replace_schema_metadata({"class names": '["cat", "dog"]'})
    pq.write_table(table, tmp_path / "scores.parquet")
    return tmp_path / "scores.parquet"


def audited(source: Path, score: str | None = None) -> Path:
    return hs.audit(source, score=score).save(output_of(source), page=False)


def test_files_of_an_audit(scores: Path) -> None:
    folder = audited(scores)
    assert folder == scores.parent / "scores-audit"
    samples = pq.read_table(folder / "table.parquet")
    assert samples.column("id").to_pylist() == [5, 7, 6, 4]
    assert samples.column("avh").to_pylist() == [0.9, 0.6, 0.2, 0.1]
    assert samples.column("suspicion").to_pylist() == pytest.approx([1, 2 / 3, 1 / 3, 0])
    assert samples.schema.field("suspicion").metadata[b"direction"] == b"larger is harder"
    assert samples.column("issue").to_pylist() == [True, True, False, False]
    details = json.loads((folder / "audit.json").read_text())
    assert details["results"]["label_issues"] == {"estimated": 2, "estimate": "disagreement", "ranked_by": ["avh"]}
    lines = (folder / "actions.csv").read_text().splitlines()
    assert [line.split(",")[:5] for line in lines[1:]] == [
        ["5", "dog", "cat", "keep", "cat"],
        ["7", "cat", "dog", "keep", "dog"],
    ]
    assert lines[1].endswith(",b.jpg")


def test_an_audit_can_be_audited_again(scores: Path) -> None:
    folder = audited(scores)
    assert read_samples(folder).class_names == ["cat", "dog"]
    again = audited(folder, "avh")
    assert again == folder / "audit"
    first, second = (pq.read_table(one / "table.parquet") for one in (folder, again))
    assert second.select(first.column_names).equals(first)


def test_applying_an_edited_list(scores: Path) -> None:
    actions = audited(scores) / "actions.csv"
    actions.write_text(
        actions.read_text().replace("dog,cat,keep", "dog,cat,relabel").replace("cat,dog,keep", "cat,dog,drop")
    )
    labels, applied = apply_to(read_samples(scores), actions)
    assert labels.to_pydict() == {
        "id": [4, 5, 6],
        "label": [0, 1, 1],
        "new_label": [0, 0, 1],
        "new_label_name": ["cat", "cat", "dog"],
        "path": ["a.jpg", "b.jpg", "=c.jpg"],
    }
    assert applied.counts == {"keep": 0, "relabel": 1, "drop": 1}


def test_what_cannot_be_read(scores: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no run folder and no table"):
        read_samples(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"holds no samples\.parquet"):
        read_samples(tmp_path)
    scores.write_bytes(scores.read_bytes()[:-20])
    with pytest.raises(ValueError, match="is truncated or is not a Parquet file"):
        read_samples(scores)
    (tmp_path / "run").mkdir()
    pq.write_table(pa.table({"id": [0]}), tmp_path / "run" / "samples.parquet")
    (tmp_path / "run" / "run.json").write_text("{")
    with pytest.raises(ValueError, match="is not readable JSON"):
        read_samples(tmp_path / "run")


@pytest.mark.parametrize("ending", [".npy", ".json"])
def test_arrays_are_told_what_they_must_become(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"mine{ending}").write_bytes(b"0.1,0.9")
    with pytest.raises(ValueError, match="must be a table, Parquet or CSV, or an"):
        read_samples(tmp_path / f"mine{ending}")


def test_probabilities_alone_are_audited_and_their_scores_recorded(tmp_path: Path) -> None:
    table = pa.table(
        {"id": [4, 5, 6], "label": [0, 1, None], "probabilities": [[0.9, 0.1], [1.0, 0.0], [0.5, 0.5]]},
    )
    pq.write_table(table, tmp_path / "mine.parquet")
    audit = hs.audit(tmp_path / "mine.parquet")
    samples = pq.read_table(audit.save(tmp_path / "found", page=False) / "table.parquet")
    assert samples.column("id").to_pylist() == [5, 4]
    assert samples.column("confidence").to_pylist() == [0.0, 0.9]
    assert samples.column("el2n").to_pylist() == pytest.approx([2**0.5, 0.02**0.5])
    assert samples.column("predicted").to_pylist() == [0, 0]
    assert "probabilities" not in samples.column_names
    assert audit.left_out.to_pylist() == [{"id": 6, "reason": "no label"}]
    for column, sentence in (([0.1, 0.2, 0.3], "must hold a list of numbers"), ([[0.1], [0.2, 0.8], [1.0]], "length")):
        pq.write_table(table.set_column(2, "probabilities", pa.array(column)), tmp_path / "bad.parquet")
        with pytest.raises((ValueError, TypeError), match=sentence):
            hs.audit(tmp_path / "bad.parquet")


def test_a_table_without_labels(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [0], "avh": [0.1]}), tmp_path / "s.parquet")
    with pytest.raises(ValueError, match="column 'label'"):
        hs.audit(tmp_path / "s.parquet")


def _rewritten(scores: Path, metadata: dict[str, str] | None = None, **columns: list) -> Path:
    table = pq.read_table(scores)
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    pq.write_table(table.replace_schema_metadata(metadata), scores)
    return scores


def _edited(scores: Path, old: str, new: str) -> tuple[pa.Table, dict[str, int]]:
    actions = audited(scores) / "actions.csv"
    actions.write_text(actions.read_text().replace(old, new, 1))
    table, applied = apply_to(read_samples(scores), actions)
    return table, applied.counts


def test_classes_that_are_text_are_applied_by_their_names(scores: Path) -> None:
    _rewritten(scores, label=["cat", "dog", "dog", "cat"], predicted=["cat", "=fox", "dog", "dog"])
    table, counts = _edited(scores, "keep", "relabel")
    assert counts == {"keep": 1, "relabel": 1, "drop": 0}
    assert table.column("new_label").to_pylist() == ["cat", "=fox", "dog", "cat"]


def test_samples_without_a_label_stay_without_one(scores: Path) -> None:
    _rewritten(scores, label=[None, 1, 1, 0])
    table, _ = _edited(scores, "1,0,keep", "1,0,drop")
    assert table.column("id").to_pylist() == [4, 6, 7]
    assert table.column("new_label").to_pylist() == [None, 1, 0]


def test_two_classes_of_one_name_are_told_apart(scores: Path) -> None:
    _rewritten(scores, {"class names": '["crane", "crane"]'})
    table, _ = _edited(scores, "keep,crane (0)", "relabel,crane (0)")
    assert table.column("new_label").to_pylist() == [0, 0, 1, 0]


def test_a_class_named_by_nothing_can_be_chosen_by_its_number(scores: Path) -> None:
    _rewritten(scores, {"class names": '["", "dog"]'})
    table, _ = _edited(scores, "5,dog,0,keep,0", "5,dog,0,relabel,0")
    assert table.column("new_label").to_pylist() == [0, 0, 1, 0]


def test_ids_that_repeat_are_refused_before_a_list_is_written(scores: Path) -> None:
    _rewritten(scores, id=[4, 5, 5, 7])
    with pytest.raises(ValueError, match=r"ids must be unique, .*; 5 occurs twice"):
        hs.audit(scores)
    _rewritten(scores, id=[[4], [5], [6], [7]])
    with pytest.raises(TypeError, match="ids must be single values, numbers or text; they are list<"):
        hs.audit(scores)


def test_class_names_that_do_not_read_are_named(scores: Path) -> None:
    with pytest.raises(ValueError, match="must hold its 'class names' as a JSON list"):
        read_samples(_rewritten(scores, {"class names": "{bad"}))


def test_neither_an_edited_list_nor_another_record_is_overwritten(scores: Path, tmp_path: Path) -> None:
    found = hs.audit(scores)
    assert audited(scores) == audited(scores)
    actions = output_of(scores) / "actions.csv"
    edited = actions.read_text().replace("keep", "drop", 1)
    actions.write_text(edited)
    with pytest.raises(ValueError, match=r"actions\.csv has been edited"):
        found.save(output_of(scores), page=False)
    assert actions.read_text() == edited
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text('{"kind": "train"}')
    with pytest.raises(ValueError, match="output must be a folder of its own"):
        found.save(run, page=False)
    assert [path.name for path in run.iterdir()] == ["run.json"]
    with pytest.raises(ValueError, match="output must be a folder of its own"):
        hs.audit(output_of(scores)).save(output_of(scores), page=False)


def test_pictures_of_an_earlier_audit_are_taken_away(scores: Path) -> None:
    output_of(scores).mkdir()
    (output_of(scores) / "thumbnails.parquet").write_bytes(b"of other samples")
    assert not (audited(scores) / "thumbnails.parquet").exists()
