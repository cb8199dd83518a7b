"""Figures in the house style: the colours, a figure to draw into, and its two forms, inline SVG and PNG.

Every colour is one of a few named ones (Okabe-Ito, safe for colour-blind eyes). `as_svg` turns them into the
page's CSS variables, so one drawing follows the light and the dark theme; `as_png` keeps them on white.
"""

import contextlib
import html
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, BLUE, RED, GREEN, PURPLE = "#20262e", "#c9d1d9", "#0072b2", "#d55e00", "#009e73", "#cc79a7"
PAPER = "#ffffff"
_VARIABLES = {
    INK: "ink", FAINT: "faint", BLUE: "blue", RED: "red", GREEN: "green", PURPLE: "purple", PAPER: "page",
}  # fmt: skip
# The entries of a matrix with more rows than this are not written into it.
_MOST_WRITTEN = 14
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9.0, "text.color": INK, "axes.edgecolor": FAINT,
    "axes.labelcolor": INK, "axes.titlesize": 10.0, "axes.titlelocation": "left", "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "axes.facecolor": "none",
    "grid.color": FAINT, "grid.linewidth": 0.5, "xtick.color": INK, "ytick.color": INK, "legend.frameon": False,
    "figure.facecolor": "none", "hatch.linewidth": 0.6, "svg.fonttype": "none",
    # Class names and ids are text: a dollar sign in one starts no formula.
    "text.parse_math": False,
}  # fmt: skip


def as_svg(figure: "Figure", description: str, prefix: str) -> str:
    """The figure as an inline SVG that takes its colours and font from the page; `prefix` keeps its ids its own."""
    text = io.StringIO()
    with _style({"svg.hashsalt": prefix}):
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)
    svg = _own_ids(svg, prefix)
    svg = re.sub(r'style="[^"]*"', _themed, svg)
    shape = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    if shape is None:
        raise RuntimeError("matplotlib wrote an SVG without a size")
    label = html.escape(description, quote=True)
    width = float(shape[1]) * 4 / 3
    return svg.replace(shape[0], f'role="img" aria-label="{label}" class="plot" style="max-width: {width:.0f}px"', 1)


def as_png(figure: "Figure", *, dots_per_inch: int = 150) -> bytes:
    """The figure as a PNG on white."""
    data = io.BytesIO()
    with _style({}):
        figure.savefig(data, format="png", dpi=dots_per_inch, facecolor=PAPER)
    return data.getvalue()


def _themed(style: "re.Match[str]") -> str:
    themed = style[0]
    for colour, variable in _VARIABLES.items():
        themed = themed.replace(colour, f"var(--{variable})")
    return re.sub(r"'DejaVu Sans'(, *sans-serif)?", "system-ui, sans-serif", themed)


def _own_ids(svg: str, prefix: str) -> str:
    """Ids that something refers to get the prefix, so that two figures of a page never share one; the rest go.

    The squares of a matrix are named by their row and column.
    """
    used = set(re.findall(r'(?:url\(#|xlink:href="#)([^)"]+)', svg))

    def rename(found: "re.Match[str]") -> str:
        if found[1].startswith("cell-"):
            return f' data-cell="{found[1].removeprefix("cell-")}"'
        return f' id="{prefix}-{found[1]}"' if found[1] in used else ""

    svg = re.sub(r' id="([^"]*)"', rename, svg)
    return re.sub(r'(url\(#|xlink:href="#)', rf"\g<1>{prefix}-", svg)


@contextlib.contextmanager
def drawing(width: float, height: float, panels: int = 1, columns: int = 2) -> Iterator["Figure"]:
    """A figure in the house style, with `panels` axes, at most `columns` a row; size in inches."""
    with _style({}):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        columns = min(columns, panels)
        for at in range(panels):
            figure.add_subplot(-(-panels // columns), columns, at + 1)
        yield figure


def name_rows(axes: "Axes", names: Sequence[str], longest: int = 22) -> None:
    """One row for each name, the first on top."""
    axes.set_yticks(range(len(names)), shortened_apart(names, longest))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


class Square(NamedTuple):
    """An entry of a matrix: `strength` in [0, 1] is how much of the colour it has."""

    row: int
    column: int
    colour: str
    strength: float
    text: str


def matrix(names: Sequence[str], squares: Iterable[Square], longest: int, side: float, *, turned: bool) -> "Figure":
    """Squares over the same names on both sides; `side` is the figure's in inches, texts are left out where many."""
    size = len(names)
    with drawing(min(7.6, side + 0.7), min(7.0, side)) as figure:
        from matplotlib.patches import Rectangle

        axes = figure.axes[0]
        for row, column, colour, strength, text in squares:
            place = (column - 0.46, row - 0.46)
            square = Rectangle(place, 0.92, 0.92, facecolor=colour, alpha=0.1 + 0.6 * strength, linewidth=0)
            square.set_gid(f"cell-{row}-{column}")
            axes.add_patch(square)
            if size <= _MOST_WRITTEN:
                axes.text(column, row, text, ha="center", va="center", fontsize=7 if size > 10 else 8)
        name_rows(axes, names, longest)
        axes.set_xlim(-0.5, size - 0.5)
        axes.set_aspect("equal")
        axes.set_xticks(range(size), shortened_apart(names, longest), rotation=90 if turned else 0)
        axes.tick_params(length=0)
        axes.grid(False)
    return figure


def shortened(name: str, longest: int = 22) -> str:
    """The name on one line, without its end where it is too long."""
    name = " ".join(name.split())
    return name if len(name) <= longest else name[: longest - 1] + "…"


def shortened_apart(names: Sequence[str], longest: int = 22) -> list[str]:
    """Names side by side; those that would read the same lose their middle instead of their end."""
    short = [shortened(name, longest) for name in names]
    often, end = Counter(short), (longest - 1) // 2
    whole = [" ".join(name.split()) for name in names]
    return [
        cut if often[cut] == 1 or cut == name else f"{name[: longest - 1 - end]}…{name[-end:]}"
        for cut, name in zip(short, whole, strict=True)
    ]


@contextlib.contextmanager
def _style(extra: dict[Any, Any]) -> Iterator[None]:
    try:
        import matplotlib
    except ImportError:
        raise ImportError("figures need matplotlib: pip install jinja2 matplotlib") from None
    with matplotlib.rc_context({**_STYLE, **extra}), warnings.catch_warnings():
        # The browser draws the text with its own fonts: a glyph that DejaVu lacks is no loss.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield
