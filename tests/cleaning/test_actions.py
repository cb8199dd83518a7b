"""The action list: a round trip, a person's edits, formulas that stay text, and lines that are refused by number."""

import csv
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hardsight.cleaning import apply_actions, find_label_issues, read_actions, write_actions
from hardsight.cleaning.actions import _guard, _unguard

NAMES = ["=cmd|' /C calc'!A0", "+dog", "-cat", "@bird", "'plain", "a, b\nc", " =x", "ordinary", "-3", "＝wide", "'=own"]


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
    write_actions(tmp_path / "actions.csv", suspects(NAMES), action="relabel")
    actions = read_actions(tmp_path / "actions.csv")
    assert [one.label for one in actions] == NAMES
    assert [one.new_label for one in actions] == [*NAMES[1:], NAMES[0]]
    applied = apply_actions(actions, torch.arange(100, 111), torch.arange(11), class_names=NAMES)
    assert applied.labels.tolist() == [*range(1, 11), 0]
    assert applied.counts == {"keep": 0, "relabel": 11, "drop": 0}


def test_no_cell_starts_a_formula(tmp_path: Path) -> None:
    write_actions(tmp_path / "actions.csv", suspects(NAMES))
    with (tmp_path / "actions.csv").open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert "'=cmd|' /C calc'!A0" in cells
    for cell in cells:
        assert cell.lstrip()[:1] not in ("=", "+", "@", "＝") or cell == ""
        assert cell == "-3" or not cell.startswith("-")


@given(st.text())
def test_guarding_is_undone_exactly(text: str) -> None:
    assert _unguard(_guard(text)) == text


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
        ("id,label,action\n", "new_label is missing"),
        ("", "id, label, action, new_label is missing"),
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


def test_writing_refuses_an_unknown_action_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="action must be one of"):
        write_actions(tmp_path / "actions.csv", suspects(None), action="burn")
    with pytest.raises(ValueError, match="column 'expected'"):
        write_actions(tmp_path / "actions.csv", suspects(None).drop_columns(["expected"]))
    assert list(tmp_path.iterdir()) == []
