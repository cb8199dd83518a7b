"""The pages of the studies, made from the results files: `docs/studies.md`, and one page each below `docs/studies`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hardsight.report.canvas import save_png
from hardsight_studies.framework import PRESETS, Study, markdown_table
from hardsight_studies.registry import studies
from hardsight_studies.results_file import made_from, read_results, results_path
from hardsight_studies.wording import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEAD = """# Studies

A study repeats one table or figure of a paper, or asks a question of its own. Each is one command, and its module in
`hardsight_studies` opens with the claim and the paper's number. A study consists of cells, one training or measurement
each, and every cell leaves a record: running the study again computes only what is missing, on any number of machines.
The studies' pages are made from the files in `results/`, which hold every number with its seeds, spread, hardware,
versions and date.

```console
$ hardsight study list
$ hardsight study run avh-figure3 --preset smoke      # seconds
$ hardsight study table avh-figure3
$ hardsight study figures avh-figure3                 # PNG files, where a study has figures
```

The number of any figure or table finds its study: `avh-figure12` is part of `avh-figure4`.

| option of `study run` | effect |
|---|---|
| `--preset smoke` | takes seconds |
| `--preset cpu` | takes minutes on two cores, on real data below `$HARDSIGHT_DATA` |
| `--preset paper` | wants a GPU |
| `--limit-seconds N` | stops cleanly in time |
| `--at-once K` | trains K cells together |
| `--cells method=cce,seed=0` | only the cells with these parts in their names; a cell's whole name picks it alone |
| `--pack-to FOLDER` | packs what is finished into a few files, which `hardsight study import` reads elsewhere |

Several processes may work on one folder. Start each with `OMP_NUM_THREADS=2`, or their waiting threads take the
processor from each other.

A results file may hold cells whose records you do not have. If its settings are the same, these results are kept, and
so are those that rest on more seeds than your records. In the studies of gradient rescaling, new seeds join those that
are there. To start again, remove the file, or write elsewhere (`--results`). A results file of other settings is
replaced, and so are those of avh-figure15 and avh-table3, whose numbers are over all cells.

"""


class Page(NamedTuple):
    """What a study's page says, and the figures that it shows, by name."""

    text: str
    figures: Mapping[str, "Figure"]


def studies_page(results: Path | str) -> str:
    """The index: every study, whose number it stands beside, and what was measured."""
    rows = [
        (f"[{one.id}](studies/{one.id}.md)", one.title, one.reference, _measured(one, results)) for one in studies()
    ]
    return HEAD + markdown_table(("study", "question", "beside", "measured"), rows) + "\n"


def study_page(study: Study, results: Path | str) -> Page:
    """One study: its question, what came out, how, its figures, and the table of the largest preset that was run.

    The other presets are folded.
    """
    title, presets = f"# {study.id}: {study.title}\n\n", _presets(study, results)[::-1]
    if not presets:
        return Page(f"{title}{study.about}\n\nNot measured yet.\n{_planned(study, presets)}", {})
    found = [read_results(study, results, preset) for preset in presets]
    drawn = study.figures(found[0]) if study.figures else {}
    pictures = "".join(f"![{name}]({_picture(study, name)})\n\n" for name in drawn)
    others = "".join(
        f"\n<details><summary>Preset {preset}</summary>\n\n{study.table(one)}\n</details>\n"
        for preset, one in zip(presets[1:], found[1:], strict=True)
    )
    result, table = _result_apart(study.table(found[0]))
    question, *how = study.about.split("\n\n", 1)
    head = "".join(f"{part}\n\n" for part in (question, result, *how) if part)
    return Page(f"{title}{head}{pictures}{table}{_planned(study, presets)}{others}", drawn)


# What ends a result: the provenance, the next heading, or a table.
_AFTER_RESULT = re.compile(r"Preset `|\*\*[^*\n]+\.\*\*|\|")


def _result_apart(table: str) -> tuple[str, str]:
    """The paragraph that begins with **Result.**, for it is what a reader looks for, and the table without it.

    With it goes what stands between it and the provenance or the next heading, unless that leads to a table.
    """
    paragraphs = table.split("\n\n")
    first = next((at for at, one in enumerate(paragraphs) if one.startswith("**Result.**")), None)
    if first is None:
        return "", table
    rest = range(first + 1, len(paragraphs))
    end = next((at for at in rest if _AFTER_RESULT.match(paragraphs[at]) is not None), None)
    if end is None or paragraphs[end].startswith("|"):
        end = first + 1
    return "\n\n".join(paragraphs[first:end]).rstrip("\n"), "\n\n".join(paragraphs[:first] + paragraphs[end:])


def write_figures(study: Study, results: Path | str, folder: Path | str, preset: str | None = None) -> list[Path]:
    """Draw a study's figures as PNG files; returns their paths."""
    found = read_results(study, results, preset)
    return _save(study, made_from(found, study.figures) if study.figures else {}, Path(folder))


def write_pages(results: Path | str, docs: Path | str) -> Iterator[Path]:
    """Write the index, every study's page and figures below `docs`; gives the paths."""
    docs = Path(docs)
    (docs / "studies").mkdir(exist_ok=True)
    (docs / "studies.md").write_text(studies_page(results), encoding="utf-8")
    yield docs / "studies.md"
    for study in studies():
        page, path = study_page(study, results), docs / "studies" / f"{study.id}.md"
        path.write_text(page.text, encoding="utf-8")
        yield path
        yield from _save(study, page.figures, docs / "studies")


def _save(study: Study, figures: Mapping[str, "Figure"], folder: Path) -> list[Path]:
    paths = {name: folder / _picture(study, name) for name in figures}
    for name, figure in figures.items():
        save_png(figure, paths[name])
    return list(paths.values())


def _picture(study: Study, name: str) -> str:
    return f"{study.id}-{name}.png"


def _presets(study: Study, results: Path | str) -> list[str]:
    return [preset for preset in PRESETS if results_path(study, preset, results).is_file()]


def _planned(study: Study, presets: list[str]) -> str:
    """What the paper's preset plans, where nothing of it is measured: a smaller preset must not pass for it."""
    if "paper" in presets:
        return ""
    count = len(study.cells("paper"))
    said = "its one cell is not" if count == 1 else f"none of its {count} cells is"
    return f"\nPreset `paper`: {said} measured yet.\n"


def _measured(study: Study, results: Path | str) -> str:
    """`cpu: 4 of 4 cells`, by preset."""
    counts = []
    for preset in _presets(study, results):
        found = read_results(study, results, preset)
        counts.append(f"{preset}: {found['cells']} of {plural(found['cells_planned'], 'cell')}")
    return ", ".join(counts) or "not yet"
