"""A page: sections of pictures, tables and cards, in one HTML file that asks the network for nothing.

A page is a list of functions, each of which gives a `Section` of what is to be shown, or None where there is nothing
for it; the table of contents and the figures as files follow from them.
"""

import base64
import hashlib
import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from hardsight.plotting import as_svg
from hardsight.report.gallery import Ranking
from hardsight.report.view import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEMPLATES = Path(__file__).parent / "templates"
# Rows of a searchable table that are printed, about a sheet; page.css hides those after them.
_PAPER_ROWS = 40

View = TypeVar("View")


@dataclass(frozen=True)
class Picture:
    """A figure, its name as a file, and the words for those who cannot see it."""

    kind: ClassVar = "picture"
    name: str
    figure: "Figure"
    words: str
    wide: bool = False


class Cell(NamedTuple):
    """An entry of a table with more than one text; `whole` is shown under the pointer where `text` was shortened."""

    text: str
    code: str = ""
    beside: str = ""
    below: str = ""
    whole: str = ""


class Column(NamedTuple):
    """A head and the entries below it; `kind` is their class in page.css: n for numbers, name, class, range."""

    title: str
    cells: Sequence[str | Cell]
    kind: str = "n"


@dataclass(frozen=True)
class Table:
    """Columns side by side, without those that are empty.

    `marked` is the number of the row that stands out; `search` adds a search and sorting; `cells` say of each row which
    cell of the confusion matrix it is.
    """

    kind: ClassVar = "table"
    label: str
    columns: Sequence[Column]
    marked: int | None = None
    tall: bool = False
    search: bool = False
    cells: Sequence[str] = ()

    @property
    def filled(self) -> list[Column]:
        return [column for column in self.columns if any(column.cells)]

    @property
    def rows(self) -> list[tuple[str | Cell, ...]]:
        return list(zip(*(column.cells for column in self.filled), strict=True))


Block = Picture | Table | Ranking


@dataclass(frozen=True)
class Section:
    """One part of a page: its title, the text that says how to read it, and what it draws.

    `layout` is the class in page.css of what is drawn.
    """

    anchor: str
    title: str
    text: str
    blocks: Sequence[Block]
    layout: str = ""


class Words:
    """The titles and texts of a page's sections, by their anchors, from a file beside the template."""

    def __init__(self, name: str) -> None:
        self.said = tomllib.loads((_TEMPLATES / name).read_text(encoding="utf-8"))

    def section(self, anchor: str, blocks: Sequence[Block], *also: str, layout: str = "", **facts: Any) -> Section:
        """A section of these blocks, under its text and what `also` is to be said, filled with these facts."""
        said = self.said[anchor]
        sentences = (said[key].format(**facts).strip() for key in ("text", *also) if key)
        return Section(anchor, said["title"], " ".join(" ".join(sentences).split()), blocks, layout)


def filled(sections: Sequence[Callable[[View], Section | None]], view: View) -> list[Section]:
    return [section for make in sections if (section := make(view)) is not None]


def pictures(sections: Sequence[Section]) -> list[Picture]:
    return [block for section in sections for block in section.blocks if isinstance(block, Picture)]


def render(
    sections: Sequence[Section], *, title: str, facts: Sequence[str], source: str, heading: str = "",
    notices: Sequence[str] = (), tiles: Sequence[tuple[str, str]] = (), choices: Sequence[tuple[str, str]] = (),
    decisions: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """The page as text; every word that comes from a record is escaped.

    `source` is what the page was made from; `tiles` are pairs of a number and its meaning. With `decisions`, the key
    they are kept by and the head of their list, the page runs a script: search, sorting, filters, pages, and decisions
    between `choices`, classes with their cells in the list.
    """
    try:
        import jinja2
    except ImportError:
        raise ImportError("a report needs jinja2: pip install jinja2 matplotlib") from None
    from markupsafe import Markup

    count = itertools.count()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The only markup that is not escaped: what matplotlib has escaped itself, and our own style and script.
    environment.filters["svg"] = lambda one: Markup(as_svg(one.figure, one.words, f"f{next(count)}"))
    environment.filters["number"] = number
    style, *scripts = (
        (_TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "table.js", "gallery.js")
    )
    script = "\n".join(scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = environment.get_template("page.html").render(
        sections=sections, title=title, heading=heading or title, facts=facts, notices=notices, tiles=tiles,
        source=source, style=Markup(style), script=Markup(script) if decisions else "", choices=choices,
        decisions=decisions, script_hash=f"sha256-{digest}", paper_rows=_PAPER_ROWS,
    )  # fmt: skip
    return text.strip() + "\n"


def shortened(text: str, longest: int = 60) -> str | Cell:
    """An entry without its end where it is too long."""
    return text if len(text) <= longest else Cell(text[: longest - 1] + "…", whole=text)
