"""Ids are joined as they are, as text where one side holds numbers; a mismatch says how many match and what lacks."""

import pytest

from hardsight.alignment import match_ids


def test_rows_follow_the_first_list() -> None:
    match = match_ids([3, 1, 2, 9, 5], [5, 1, 2, 3, 9])
    assert match.first.tolist() == [0, 1, 2, 3, 4]
    assert match.second.tolist() == [3, 1, 2, 4, 0]
    assert match.sentence(("a", "b")) == "5 ids of a and b match"


def test_numbers_meet_text() -> None:
    assert match_ids([1, 2, 3, 4], ["4", "3", "2", "1"]).second.tolist() == [3, 2, 1, 0]
    with pytest.raises(ValueError, match="0 ids"):
        match_ids(["01", "02", "03", "04"], ["1", "2", "3", "4"])


def test_whole_numbers_meet_the_same_numbers_with_a_point() -> None:
    # A table that once had a gap keeps its ids as floats.
    assert match_ids([1.0, 2.0, 3.0, 4.0], [4, 3, 2, 1]).second.tolist() == [3, 2, 1, 0]
    with pytest.raises(ValueError, match=r"first 4\.5"):
        match_ids([1.0, 2.0, 3.0, 4.5], [4, 3, 2, 1])


def test_one_list_may_be_part_of_the_other() -> None:
    match = match_ids(range(10), [7, 3, 5, 1])
    assert match.first.tolist() == [1, 3, 5, 7]
    assert match.second.tolist() == [3, 1, 2, 0]
    assert match.only_first == [0, 2, 4, 6, 8, 9]
    said = match.sentence(("scores", "humans"))
    assert [one for one in ("4 ids of scores", "6 of scores", "in humans", "first 0") if one not in said] == []


def test_a_mismatch_says_how_many_match_and_the_first_missing() -> None:
    sentence = (
        "the ids of one table must all be in the other, .*--partial.*: 4 ids of scores and humans match; "
        "1 of scores are missing in humans, first 5; 2 of humans are missing in scores, first 8"
    )
    with pytest.raises(ValueError, match=sentence):
        match_ids([1, 2, 3, 4, 5], [1, 2, 3, 4, 8, 9], names=("scores", "humans"))
    assert len(match_ids([1, 2, 3, 4, 5], [1, 2, 3, 4, 8, 9], partial=True).first) == 4


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ([1, 2, 3], [1, 2, 3], "at least 4 ids must match: 3 ids"),
        (["a", "b", "c", "d"], ["e", "f", "g", "h"], "0 ids of .* match; 4 of first are missing in second, first 'a'"),
        ([1, 2, 3, 2], [1, 2, 3, 4], "ids of first must be unique; 2 occurs in rows 2 and 4"),
        ([1, 2, 3, 4], [1, 2, 3, 4, 4], "ids of second must be unique; 4 occurs in rows 4 and 5"),
        ([1, 2, 3, 4], [1, None, 3, 4], "every row of second must have an id; row 2 has none"),
        ([], [], "0 ids"),
    ],
)  # fmt: skip
def test_refusals(first: list, second: list, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        match_ids(first, second, partial=True)
