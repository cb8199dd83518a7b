"""What the functions of a page give is in the contents, in the body and among the figures, and no more."""

from collections.abc import Callable

from hardsight.plotting import drawing
from hardsight.report.page import Cell, Column, Picture, Section, Table, filled, pictures, render


def _drawn(about: str) -> list[Picture | Table]:
    with drawing(2.0, 2.0) as figure:
        figure.axes[0].plot([0, 1], [0, 1])
    columns = [
        Column("Name", ["a", Cell("b", code="c", beside="d", below="e", whole="<whole>")], "name"),
        Column("Nothing", ["", ""]),
        Column("Number", ["1", ""]),
    ]
    return [Picture(about, figure, f"words for {about}"), Table("Table", columns, marked=1)]


def _section(name: str) -> Callable[[dict], Section | None]:
    def make(view: dict) -> Section | None:
        about = view.get(name)
        return about and Section(name, f"Title of {name}", f"read {about}", _drawn(about))

    return make


def test_a_section_that_is_added_is_everywhere_and_one_without_data_nowhere() -> None:
    sections = filled([_section("first"), _section("second"), _section("third")], {"first": "one", "third": "<three>"})
    page = render(sections, title="t", facts=["f"], source="test")
    for name, about in (("first", "one"), ("third", "&lt;three&gt;")):
        assert f'<a href="#{name}">Title of {name}</a>' in page
        assert f'<section id="{name}"><h2>Title of {name}</h2>' in page
        assert f"read {about}" in page
        assert f'aria-label="words for {about}"' in page
    assert "second" not in page
    assert "<three>" not in page
    assert [one.name for one in pictures(sections)] == ["one", "<three>"]


def test_a_table_leaves_out_empty_columns_and_marks_one_row() -> None:
    page = render(filled([_section("only")], {"only": "x"}), title="t", facts=[], source="test")
    assert "Nothing" not in page
    rows = page.partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")
    assert "class=marked" not in rows[0]
    assert "class=marked" in rows[1]
    assert '<span title="&lt;whole&gt;">b</span> <code>c</code> <small>d</small><br><small>e</small>' in rows[1]
    assert '<td class="n">1</td>' in rows[0]


def test_a_page_without_decisions_runs_no_script() -> None:
    sections = filled([_section("only")], {"only": "x"})
    for decisions in (None, {"key": "k", "header": ""}):
        page = render(sections, title="t", facts=[], source="test", decisions=decisions)
        assert ("<script>" in page) == ("script-src" in page) == (decisions is not None)
