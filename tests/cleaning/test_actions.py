"""The action list: a round trip, a person's edits, formulas that stay text, and lines that are refused by number."""

import csv
import io
import json
import re
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hardsight as hs
from hardsight.cleaning import apply_actions, find_label_issues, read_actions, write_actions
from hardsight.cleaning.applying import apply_to
from hardsight.cleaning.reading import read_samples

NAMES = ["=cmd|' /C calc'!A0", "+dog", "-cat", "@bird", "'plain", "a, b\nc", " =x", "ordinary", "-3", "＝wide", "'=own"]
# What has broken a list, or a spreadsheet that reads one: beside it anything that Unicode has.
HOSTILE = st.text(st.sampled_from("=+-@＝'\"\\,;|\t\r\n \x00rnx0u\u2028\x85\ufeff1a"), max_size=12)
ANY = st.one_of(HOSTILE, st.text(st.characters(exclude_categories=["Cs"]), max_size=8))


def suspects(names: list[str] | None) -> pa.Table:
    count = len(NAMES)
    table = pa.table(
        {
            "id": list(range(100, 100 + count)),
            "label": list(range(count)),
            "predicted": [(at + 1) % count for at in range(count)],
            "avh": [1 - at / count for at in range(count)],
        }
    )
    return find_label_issues(table, "avh", class_names=names).suspects()


def test_round_trip_keeps_every_name(tmp_path: Path) -> None:
    found = suspects(NAMES)
    write_actions(tmp_path / "actions.csv", found.append_column("action", pa.array(["relabel"] * len(found))))
    actions = read_actions(tmp_path / "actions.csv")
    assert [one.label for one in actions] == NAMES
    assert [one.new_label for one in actions] == [*NAMES[1:], NAMES[0]]
    applied = apply_actions(actions, torch.arange(100, 111), torch.arange(11), class_names=NAMES)
    assert applied.labels.tolist() == [*range(1, 11), 0]
    assert applied.counts == {"keep": 0, "relabel": 11, "drop": 0}


def assert_no_formula(text: str) -> None:
    """Not in a spreadsheet that knows the quotes, nor in one that splits at every separator there is."""
    cells = re.split(r"[,;\t|\r\n]", text)
    for separator in ",;\t|":
        cells += [cell for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) for cell in row]
    for cell in cells:
        assert cell.lstrip().lstrip('"').lstrip()[:1] not in [*"=+-@＝＋－＠"], cell
        assert cell[:1] not in ("\t", "\r"), cell


def test_no_cell_starts_a_formula(tmp_path: Path) -> None:
    write_actions(tmp_path / "actions.csv", suspects([*NAMES[:8], "a;=1", "a\t@b", 'a|"=c"']))
    assert_no_formula((tmp_path / "actions.csv").read_text(encoding="utf-8"))


@settings(deadline=None)
@given(st.lists(ANY, min_size=2, max_size=4), st.lists(ANY, min_size=3, max_size=3, unique=True), ANY)
@example(["a\rb", "a\rb"], ["a\r", "a", "\r"], "x\ry")
@example(["a", "a", "a (0)"], ["1", "", " "], "")
@example(['a;"=1+1"', "\\r"], ["'\\n", "\n", "\\\n"], "b\t=2")
def test_the_list_that_is_written_is_the_list_that_is_read(names: list[str], ids: list[str], path: str) -> None:
    """Through the files, as the command does: what stands in the list is what the table holds, for any Unicode."""
    with tempfile.TemporaryDirectory() as place:
        count = len(names)
        table = pa.table(
            {
                "id": ids,
                "label": [0, 1, count - 1],
                "predicted": [1, 0, 0],
                "avh": [0.9, 0.8, 0.7],
                "path": [path] * 3,
            }
        )
        said = table.replace_schema_metadata({"class names": json.dumps(names)})
        pq.write_table(said, Path(place) / "scores.parquet")
        scored = read_samples(Path(place) / "scores.parquet")
        written = hs.audit(Path(place) / "scores.parquet").save(Path(place) / "found", page=False) / "actions.csv"
        rows = list(csv.reader(io.StringIO(written.read_text(encoding="utf-8"), newline="")))
        with written.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [rows[0], *([*row[:3], "relabel", *row[4:]] for row in rows[1:])]
            )
        listed = read_actions(written)
        assert {one.id for one in listed} == set(ids)
        assert scored.class_names is not None
        assert {(one.id, one.label) for one in listed} == {
            (own, scored.class_names[at]) for own, at in zip(ids, [0, 1, count - 1], strict=True)
        }
        labels, _ = apply_to(scored, written)
        assert labels.column("new_label").to_pylist() == [1, 0, 0]
        assert_no_formula(written.read_bytes().decode())


def test_a_list_holds_one_line_for_each_sample(tmp_path: Path) -> None:
    names = ["a\r", "b\n\nc", "\u2028d", "e\x0bf", "g\x00", *NAMES[5:]]
    write_actions(tmp_path / "actions.csv", suspects(names))
    text = (tmp_path / "actions.csv").read_text(encoding="utf-8")
    assert len(text.splitlines()) == 1 + len(names)
    assert [one.line for one in read_actions(tmp_path / "actions.csv")] == list(range(2, 2 + len(names)))


def test_a_name_longer_than_a_csv_reader_likes_is_read_back(tmp_path: Path) -> None:
    names = ["a" * 200_000, *NAMES[1:]]
    write_actions(tmp_path / "actions.csv", suspects(names))
    assert read_actions(tmp_path / "actions.csv")[0].label == names[0]
    assert csv.field_size_limit() == 131_072


def test_half_a_letter_is_refused_by_name(tmp_path: Path) -> None:
    table = pa.table({"id": [0, 1], "label": [0, 1], "predicted": [1, 1], "avh": [0.5, 0.6]})
    said = table.replace_schema_metadata({"class names": json.dumps(["cat", "caf\udce9"])})
    pq.write_table(said, tmp_path / "scores.parquet")
    with pytest.raises(ValueError, match=r"class names .*caf\\udce9"):
        read_samples(tmp_path / "scores.parquet")


@pytest.mark.parametrize(
    ("header", "name"), [("id,label,action,new_label,label", "label"), ("id,id,label,action,new_label", "id")]
)
def test_a_list_with_two_columns_of_one_name_is_refused(header: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "actions.csv").write_text(f"{header}\n0,0,keep,0,1\n")
    with pytest.raises(ValueError, match=f"once; '{name}' 2 times"):
        read_actions(tmp_path / "actions.csv")


@pytest.mark.parametrize("name", ["label", "avh", "id", "note"])
def test_a_table_with_two_columns_of_one_name_is_refused(name: str, tmp_path: Path) -> None:
    columns = {"id": [0, 1], "label": [0, 1], "predicted": [1, 1], "avh": [0.5, 0.6], "note": ["a", "b"]}
    again = pa.Table.from_arrays([*map(pa.array, columns.values()), pa.array([1, 0])], names=[*columns, name])
    pq.write_table(again, tmp_path / "scores.parquet")
    with pytest.raises(ValueError, match=rf"scores\.parquet .*once.*'{name}'"):
        read_samples(tmp_path / "scores.parquet")


def test_a_list_that_a_spreadsheet_saved_with_bars(tmp_path: Path) -> None:
    (tmp_path / "actions.csv").write_text("id|label|action|new_label\n5|a, b|relabel|c;d\n")
    (action,) = read_actions(tmp_path / "actions.csv")
    assert (action.label, action.new_label) == ("a, b", "c;d")


def edit(path: Path, *replacements: tuple[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")


def test_a_persons_edits_are_applied_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "actions.csv"
    write_actions(path, suspects(None))
    edit(path, ("100,0,1,keep,1", "100,0,1,relabel,7"), ("101,1,2,keep,2", "101,1,2,DROP ,"))
    labels = torch.arange(11)
    applied = apply_actions(read_actions(path), torch.arange(100, 111), labels)
    assert applied.labels.tolist() == [7, *range(1, 11)]
    assert applied.kept.tolist() == [True, False, *[True] * 9]
    assert applied.counts == {"keep": 9, "relabel": 1, "drop": 1}
    assert labels.tolist() == list(range(11))


def test_spreadsheets_save_with_semicolons_marks_and_their_own_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "actions.csv"
    path.write_bytes("\ufeffid;label;expected;action;new_label\r\n5;a;b;relabel;b\r\n;;;;\r\n".encode())
    (action,) = read_actions(path)
    assert (action.id, action.new_label, action.line) == ("5", "b", 2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,label,action\n", "'new_label' 0 times"),
        ("", "id, label, action, new_label once"),
        (
            "id,label,action,new_label\n1,0,keep,0\n2,0,burn,0\n",
            "line 3: action must be one of keep, relabel, drop; got 'burn'",
        ),
        ("id,label,action,new_label\n1,0,relabel,\n", "line 2: new_label must be filled"),
        ("id,label,action,new_label\n1,0,keep\n", "line 2: it must have 4 cells"),
        ("id,label,action,new_label\n1,0,keep,\n1,0,drop,\n", "line 3: id '1' must occur once; it is on line 2"),
        ('id,label,action,new_label\n1,"0,keep,\n', "does not read as CSV"),
    ],
)
def test_refused_when_read(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "actions.csv").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_actions(tmp_path / "actions.csv")


def test_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "actions.csv").write_bytes(b"id,label\n\xff\xfe")
    with pytest.raises(ValueError, match="must be UTF-8 text; byte 9"):
        read_actions(tmp_path / "actions.csv")


@pytest.mark.parametrize(
    ("line", "names", "sentence"),
    [
        ("9,cat,keep,", ["cat", "dog"], "line 2: id must be one of the data's; '9'"),
        ("0,dog,keep,", ["cat", "dog"], "line 2: label must be the sample's present one, 'cat'; got 'dog'"),
        (
            "0,cat,relabel,dgo",
            ["cat", "dog"],
            "line 2: new_label must be one of cat, dog; got 'dgo', did you mean 'dog'",
        ),
        ("0,cat,relabel,dog", None, "line 2: label must be a class number; got 'cat'"),
        ("0,cat,keep,", ["cat", "cat"], "class_names must all be different"),
        (
            "0,0,relabel,-100",
            None,
            "line 2: new_label must be 0 or larger, .*; got -100, which stands for none: .* drop",
        ),
        ("0,0,relabel,99999999999999999999", None, "line 2: new_label must be a class number of at most"),
    ],
)
def test_refused_when_applied(line: str, names: list[str] | None, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "actions.csv").write_text(f"id,label,action,new_label\n{line}\n")
    with pytest.raises(ValueError, match=sentence):
        apply_actions(read_actions(tmp_path / "actions.csv"), [0, 1], torch.tensor([0, 1]), class_names=names)


def test_writing_without_a_column_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="column 'expected'"):
        write_actions(tmp_path / "actions.csv", suspects(None).drop_columns(["expected"]))
    assert list(tmp_path.iterdir()) == []
