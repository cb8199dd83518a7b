"""Nothing that a list names may lie outside its root."""

import pytest

from hardsight.files.inside import LINK_OUTSIDE, OUTSIDE, Below, follow, stays_inside


@pytest.mark.parametrize("entry", ["a.png", "a/b.png", "./a.png", "a b/c d.png", "a/..b/c", "...", "a/b/"])
def test_inside(entry):
    assert stays_inside(entry)


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "..",
        "../a",
        "a/../../b",
        "a/..",
        "/a",
        "//a",
        "\\a",
        "a\\..\\b",
        "..\\b",
        "C:\\a",
        "c:a",
        "\\\\host\\a",
        "a\0b",
    ],
)
def test_outside(entry, tmp_path):
    assert not stays_inside(entry)
    with pytest.raises(ValueError, match="points outside the root"):
        follow(tmp_path, entry)
    assert Below(tmp_path).problem(entry) == OUTSIDE


def test_a_sibling_with_the_same_beginning_is_outside(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root2").mkdir()
    (tmp_path / "root2" / "a").touch()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "root2")
    with pytest.raises(ValueError, match="a link in the path leads outside"):
        follow(tmp_path / "root", "link/a")


def test_problems_are_named(tmp_path):
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "a").touch()
    (tmp_path / "secret").touch()
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "away").symlink_to(tmp_path)
    (root / "dangling").symlink_to(root / "nothing")
    (root / "fine").symlink_to("inner/a")
    below = Below(root)
    assert below.problem("inner/a") is None
    assert below.problem("fine") is None
    assert below.problem("inner/b") == "no such file"
    assert below.problem("inner") == "not a file"
    assert below.problem("dangling") == "no such file"
    for entry in ("out", "away/secret"):
        assert below.problem(entry) == LINK_OUTSIDE
