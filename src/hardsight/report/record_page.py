"""The page of a record, and its figures as files."""

from pathlib import Path

from hardsight.plotting import as_png
from hardsight.records import write_bytes, write_text
from hardsight.report.gallery import PageView
from hardsight.report.page import filled, pictures, render
from hardsight.report.reading import read_run
from hardsight.report.sections import SECTIONS, is_number

_KINDS = {"demo": "Demo run", "training": "Training run", "score": "Scoring"}


def write_report(run: Path | str, output: Path | str | None = None) -> Path:
    """Write the report of a record as one self-contained HTML file, `RUN/report.html` unless `output` says where."""
    view = PageView(read_run(run))
    path = Path(run) / "report.html" if output is None else Path(output)
    if path.is_dir():
        raise ValueError(f"output must be a file to write; {path} is a folder")
    page = render(
        filled(SECTIONS, view),
        title=view.run.name,
        facts=_facts(view),
        source="record",
        notices=_notices(view),
        tiles=_tiles(view),
        choices=view.choices,
        decisions=view.decisions,
    )
    write_text(path, page)
    return path


def write_figures(run: Path | str) -> list[Path]:
    """Save every figure of the page as `RUN/figures/NAME.png`; the paths, in the order of the page."""
    drawn = pictures(filled(SECTIONS, PageView(read_run(run))))
    paths = [Path(run) / "figures" / f"{one.name}.png" for one in drawn]
    for path, one in zip(paths, drawn, strict=True):
        write_bytes(path, as_png(one.figure))
    return paths


def samples_shown(run: Path | str) -> list[str]:
    """The ids of the samples a page would show, as text: those that need a row in `thumbnails.parquet`."""
    return PageView(read_run(run)).ids


def _facts(view: PageView) -> list[str]:
    """The line under the title."""
    details = view.run.details
    kind, seed = str(details.get("kind") or "run"), details.get("seed")
    created = str(details.get("created") or "").replace("T", " ").replace("+00:00", " UTC")
    device = str(details.get("device") or "")
    facts = [_KINDS.get(kind, kind.capitalize()), created, device, "" if seed is None else f"seed {seed}"]
    return [fact for fact in facts if fact]


def _notices(view: PageView) -> list[str]:
    """What a reader must know before believing the numbers."""
    found = []
    status = view.run.details.get("status")
    if status in ("running", "interrupted"):
        found.append(
            "This run had not finished when the page was made: the numbers are those of its last epoch so far."
        )
    if status == "failed":
        found.append("This run failed: the numbers are those it left behind.")
    if not view.samples.exists:
        found.append(f"The record holds no {view.samples.path.name} yet, so the page has no samples.")
    elif not view.samples.rows:
        found.append(f"{view.samples.path.name} holds no rows.")
    notes = view.run.details.get("notes")
    return found + [str(note) for note in notes] if isinstance(notes, list) else found


def _tiles(view: PageView) -> list[tuple[str, str]]:
    """The numbers at the top of the page, each with its meaning."""
    found = []
    counts_disagreements = _counts_disagreements(view)
    if view.estimated is not None and view.suspects is not None:
        found.append((f"{view.estimated:,}", _meaning_of_estimate(view, counts_disagreements)))
    accuracy = view.run.section("results").get("test_accuracy")
    if is_number(accuracy):
        found.append((f"{accuracy:.1%}", "test accuracy"))
    ranking = view.ranking_line
    if ranking is not None and ranking.auroc is not None:
        found.append(
            (f"{ranking.auroc:.3f}", f"AUROC of the suspects' ranking, by {ranking.score.name}; chance is 0.5")
        )
    if view.estimated is None and view.wrong is not None and view.suspects is not None:
        flipped = int(view.wrong.sum())
        if flipped:
            found.append(
                (f"{view.suspects_found / flipped:.1%}", f"of the first {flipped:,} suspects were really flipped")
            )
    elif view.wrong is None and view.confusion is not None and not counts_disagreements:
        found.append((f"{view.disagreements:,}", "labels the model disagrees with"))
    epochs = 0 if view.run.epochs is None else view.run.epochs.num_rows
    if view.samples.exists:
        found.append((f"{view.samples.rows:,}", "samples"))
    found += [(f"{count:,}", name) for count, name in ((view.classes, "classes"), (epochs, "epochs")) if count]
    return found


def _meaning_of_estimate(view: PageView, counts_disagreements: bool) -> str:
    agreed = view.issues.get("agreed")
    if counts_disagreements:
        return "labels are suspects: the model disagrees with them, and is itself wrong about some"
    if view.wrong is not None:
        return f"labels are probably wrong; {view.suspects_found:,} of them were really flipped"
    # Worth a notice from a quarter of the suspects on.
    if isinstance(agreed, int) and view.estimated and agreed >= view.estimated / 4:
        return f"labels are suspects; the trained model agrees with {agreed:,} of them by now"
    return "labels are probably wrong"


def _counts_disagreements(view: PageView) -> bool:
    """Whether the estimate is no more than the number of disagreements with one prediction of each sample."""
    by_disagreement = view.issues.get("estimate") == "disagreement"
    return (
        by_disagreement and view.wrong is None and view.confusion is not None and view.estimated == view.disagreements
    )
