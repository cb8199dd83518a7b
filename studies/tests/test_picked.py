"""Which cells a word picks: by whole parts of the name where there are such, else by anything within."""

import pytest
from hardsight_studies.framework import picked
from hardsight_studies.registry import get_study

TABLE = get_study("amc-table1")


def names(*words: str) -> list[str]:
    return [cell.name for cell in picked(TABLE, "paper", words)]


def test_parts_may_stand_apart_and_all_of_them_must_hold() -> None:
    found = names("data=cifar10,schedule=script,seed=1")
    assert found
    assert all("data=cifar10," in name and "schedule=script," in name and name.endswith(",seed=1") for name in found)


def test_a_whole_part_is_not_the_beginning_of_another() -> None:
    assert any("data=cifar100" in name for name in names())
    assert not any("data=cifar100" in name for name in names("data=cifar10"))


def test_what_is_no_part_of_any_name_may_stand_within() -> None:
    found = names("cross")
    assert found
    assert all("loss=cross-entropy" in name for name in found)


def test_two_words_pick_what_either_picks_in_the_studys_order() -> None:
    both = names("seed=1", "seed=0")
    assert set(both) == {*names("seed=0"), *names("seed=1")}
    assert both == [name for name in names() if name in both]


def test_a_word_that_picks_nothing_is_refused_beside_one_that_does() -> None:
    with pytest.raises(ValueError, match=r"cells must match a cell of amc-table1, such as .*; got 'seed=99'"):
        names("seed=0", "seed=99")


@pytest.mark.parametrize("word", ["", ",", " , "])
def test_a_word_of_nothing_does_not_pick_everything(word: str) -> None:
    with pytest.raises(ValueError, match="cells must match a cell of amc-table1"):
        names(word)


def test_a_comma_at_the_end_changes_nothing() -> None:
    assert names("data=cifar10,") == names("data=cifar10") == names("data=cifar10, ")


def test_a_whole_name_picks_that_cell_and_none_of_which_it_is_a_part() -> None:
    table, word = get_study("gr-table5"), "rate=0.4,method=cce,seed=0"
    assert [cell.name for cell in picked(table, "paper", [word])] == [word]
    apart = [cell.name for cell in picked(table, "paper", ["rate=0.4,method=cce"])]
    assert "rate=0.4,method=cce,protocol=released,seed=0" in apart
