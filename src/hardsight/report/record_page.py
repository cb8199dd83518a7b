"""The page of a record, and its figures as files."""

from pathlib import Path

from hardsight.plotting import as_png
from hardsight.records import write_bytes, write_text
from hardsight.report.gallery import PageView
from hardsight.report.page import filled, pictures, render
from hardsight.report.reading import read_run
from hardsight.report.sections import SECTIONS, is_number

_UNFINISHED = "This run had not finished when the page was made: the numbers are those of its last epoch so far."
_STATUS = {
    "running": _UNFINISHED,
    "interrupted": _UNFINISHED,
    "failed": "This run failed: the numbers are those it left behind.",
}
_KINDS = {"demo": "Demo run", "training": "Training run", "score": "Scoring"}


def write_report(run: Path | str, output: Path | str | None = None) -> Path:
    """Write the report of a record as one self-contained HTML file, `RUN/report.html` unless `output` says where.

    Of a Parquet table of scores it is `TABLE.html`.
    """
    view = PageView(read_run(run))
    beside = Path(run) / "report.html" if Path(run).is_dir() else Path(run).with_suffix(".html")
    path = beside if output is None else Path(output)
    if path.is_dir():
        raise ValueError(f"output must be a file to write; {path} is a folder")
    page = render(
        filled(SECTIONS, view), title=view.run.name, facts=_facts(view), source="record", notices=_notices(view),
        tiles=_tiles(view), choices=view.choices, decisions=view.decisions,
    )  # fmt: skip
    write_text(path, page)
    return path


def write_figures(run: Path | str) -> list[Path]:
    """Save every figure of the page as `RUN/figures/NAME.png`; the paths, in the order of the page."""
    drawn = pictures(filled(SECTIONS, PageView(read_run(run))))
    folder = Path(run) if Path(run).is_dir() else Path(run).with_suffix("")
    paths = [folder / "figures" / f"{one.name}.png" for one in drawn]
    for path, one in zip(paths, drawn, strict=True):
        write_bytes(path, as_png(one.figure))
    return paths


def samples_shown(run: Path | str) -> list[str]:
    """The ids of the samples a page would show, as text: those that need a row in `thumbnails.parquet`."""
    return PageView(read_run(run)).ids


def _facts(view: PageView) -> list[str]:
    details = view.run.details
    kind, seed = str(details.get("kind") or "run"), details.get("seed")
    created = str(details.get("created") or "").replace("T", " ").replace("+00:00", " UTC")
    device = str(details.get("device") or "")
    facts = [_KINDS.get(kind, kind.capitalize()), created, device, "" if seed is None else f"seed {seed}"]
    return [fact for fact in facts if fact]


def _notices(view: PageView) -> list[str]:
    status = str(view.run.details.get("status"))
    found = [_STATUS[status]] if status in _STATUS else []
    if not view.samples.exists:
        found.append(f"The record holds no {view.samples.path.name} yet, so the page has no samples.")
    elif not view.samples.rows:
        found.append(f"{view.samples.path.name} holds no rows.")
    notes = view.run.details.get("notes") or view.run.section("results", "findings").get("notes")
    return found + [str(note) for note in notes] if isinstance(notes, list) else found


def _tiles(view: PageView) -> list[tuple[str, str]]:
    """The numbers at the top of the page, each with its meaning."""
    found, ranking, agreed = [], view.ranking_line, view.issues.get("agreed") or 0
    accuracy, flipped = view.run.section("results").get("test_accuracy"), view.wrong
    by_disagreement = view.issues.get("estimate") == "disagreement" and view.estimated == view.disagreements
    if view.estimated is not None and view.suspects is not None:
        if flipped is not None:
            meaning = f"labels are probably wrong; {view.suspects_found:,} of them were really flipped"
        elif by_disagreement:
            meaning = "labels are suspects: the model disagrees with them, and is itself wrong about some"
        elif is_number(agreed) and view.estimated and agreed >= view.estimated / 4:
            # Worth a notice from a quarter of the suspects on.
            meaning = f"labels are suspects; the trained model agrees with {agreed:,} of them by now"
        else:
            meaning = "labels are probably wrong"
        found.append((f"{view.estimated:,}", meaning))
    elif flipped is not None and view.suspects is not None and flipped.any():
        wrong = int(flipped.sum())
        found.append((f"{view.suspects_found / wrong:.1%}", f"of the first {wrong:,} suspects were really flipped"))
    if is_number(accuracy):
        found.append((f"{accuracy:.1%}", "test accuracy"))
    if ranking is not None and ranking.auroc is not None:
        meaning = f"AUROC of the suspects' ranking, by {ranking.score.name}; chance is 0.5"
        found.append((f"{ranking.auroc:.3f}", meaning))
    if flipped is None and view.confusion is not None and not by_disagreement:
        found.append((f"{view.disagreements:,}", "labels the model disagrees with"))
    epochs = 0 if view.run.epochs is None else view.run.epochs.num_rows
    counts = ((view.samples.rows, "samples"), (view.classes, "classes"), (epochs, "epochs"))
    return found + [(f"{count:,}", name) for count, name in counts if count]
